"""``gleanery history``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from gleanery.cli.data.command import data_command
from gleanery.cli.data.connection import GroupName, TokenFile, Url, known_group, open_client
from gleanery.cli.data.failures import UserError
from gleanery.cli.data.output import (
    AsJson,
    print_json,
    print_json_array,
    print_rows,
    shorten,
    show_date,
)

if TYPE_CHECKING:
    from gleanery.client import Client
    from gleanery.client.models import FieldChange, Version

app = typer.Typer()

_MAX_LISTED = 100  # outputs of one page
_TABLE_DATE = re.compile(r"(?<=^\d{4}-\d\d-\d\d) (?=\d)")
"""Space in a date-time as ``show_date`` prints it."""
_Row = tuple[str, str, str]


@data_command(
    app,
    "history",
    examples=(
        "gleanery history shop-prices OUTPUT_ID",
        "gleanery history shop-prices --url https://shop.example/p/1",
        "gleanery history shop-prices OUTPUT_ID --at 2026-03-02T09:00:00Z",
        "gleanery history shop-prices OUTPUT_ID --json | jq '.[0].fields'",
    ),
)
def history(
    group: GroupName,
    output_id: Annotated[
        str | None, typer.Argument(metavar="[OUTPUT_ID]", help="Output, by its output_id.")
    ] = None,
    source_url: Annotated[
        str | None,
        typer.Option("--url", metavar="URL", help="Output of exactly this page."),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(
            "--at",
            metavar="TIME",
            help="Print the output as it was then, as JSON: a date, a date-time or a cursor.",
        ),
    ] = None,
    as_json: AsJson = False,
    url: Url = None,
    token_file: TokenFile = None,
) -> None:
    """List the versions of an output, newest first, with the fields that each has changed."""
    if (output_id is None) == (source_url is None):
        raise UserError("Give the OUTPUT_ID of an output, or its page with --url")
    with open_client(url, token_file) as client, known_group(client, group):
        output_id = output_id or _find_output(client, group, str(source_url))
        if at is not None:
            print_json(client.output(group, output_id, at=_TABLE_DATE.sub("T", at)))
            return
        versions = client.history(group, output_id)
        if as_json:
            print_json_array(versions.raw())
            return
        columns = ("Date", "Change", "Approved", "Field", "Before", "After")
        print_rows(columns, _rows(versions), empty="There is no version.")


def _find_output(client: Client, group: str, source_url: str) -> str:
    """Return the only output of a page, or list its outputs and raise UserError."""
    found = list(client.outputs(group, url=source_url, limit=_MAX_LISTED))
    if len(found) == 1:
        return found[0].output_id
    if not found:
        raise UserError("No output has this URL; a deleted one is found only by its OUTPUT_ID")
    rows = ((one.output_id, one.root_job_id, show_date(one.update_date)) for one in found)
    print_rows(("Output", "Job", "Last change"), rows, empty="", unbroken=("Output",))
    raise UserError("Several outputs have this URL: give the OUTPUT_ID of one of them")


def _rows(versions: Iterable[Version]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each changed field. Only the first one has the members of the version."""
    for version in versions:
        approved = "yes" if version.is_approved else ""
        start: _Row = (show_date(version.version_date), version.change, approved)
        for field in _fields(version):
            yield (*start, *field)
            start = ("", "", "")


def _fields(version: Version) -> list[_Row]:
    if version.change == "update" and version.fields is None:
        return [("(the version before is no longer kept)", "", "")]
    return [_field(field) for field in version.fields or ()] or [("", "", "")]


def _field(field: FieldChange) -> _Row:
    before = "" if field.kind == "added" else shorten(field.before)
    after = "" if field.kind == "removed" else shorten(field.after)
    return field.path, before, after
