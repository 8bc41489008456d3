"""Commands that show a group: ``gleanery groups``, ``fields``, ``history`` and ``open``."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

import click

from gleanery.cli.data.command import (
    AsJson,
    UserError,
    data_command,
    print_json,
    print_json_array,
    print_rows,
    shorten,
    show_date,
)
from gleanery.cli.data.connection import GroupName, TokenFile, Url, known_group, open_client
from gleanery.cli.declaration import Argument, CommandGroup, Option

if TYPE_CHECKING:
    from gleanery.client import Client
    from gleanery.client.models import (
        Drift,
        FieldChange,
        FieldStatistics,
        Group,
        Job,
        RunFields,
        Version,
    )


app = CommandGroup()
_LEAST_FILLED = 3
_NO_FIELD = "There is no output with a field: gleanery push stores some."
_MAX_LISTED = 100  # outputs of one page
_TABLE_DATE = re.compile(r"(?<=^\d{4}-\d\d-\d\d) (?=\d)")
"""Space in a date-time as ``show_date`` prints it."""
_ThreeCells = tuple[str, str, str]


@data_command(
    app,
    "groups",
    examples=(
        "gleanery groups",
        "gleanery groups shop-prices",
        "gleanery groups --json | jq -r '.[].group_id'",
    ),
)
def groups(
    group: Annotated[
        str | None, Argument(metavar="[GROUP]", help="Show the jobs of this group.")
    ] = None,
    as_json: AsJson = False,
    url: Url = None,
    token_file: TokenFile = None,
) -> None:
    """List the groups, or the jobs of one group."""
    with open_client(url, token_file) as client:
        if group is not None:
            with known_group(client, group):
                found = client.group(group)
            _print_group(found, as_json)
        elif as_json:
            print_json_array(client.groups().raw())
        else:
            print_rows(
                ("Group", "Outputs", "Jobs", "Last change"),
                (_group_row(each) for each in client.groups()),
                empty="There are no groups: gleanery push creates one.",
            )


def _group_row(group: Group) -> tuple[str, ...]:
    more = "" if group.metadata.next_cursor is None else "+"
    jobs = f"{len(group.jobs)}{more}"
    return group.group_id, str(group.outputs), jobs, show_date(group.last_change)


def _print_group(group: Group, as_json: bool) -> None:
    if as_json:
        print_json(group)
        return
    print_rows(
        ("Job", "Outputs", "Approved", "Latest review", "Date"),
        map(_job_row, group.jobs),
        empty="The group has no job: gleanery push creates one.",
    )


def _job_row(job: Job) -> tuple[str, ...]:
    review = job.latest_review
    status, date = ("", "") if review is None else (review.status, show_date(review.review_date))
    return job.job_id, str(job.outputs), str(job.approved), status, date


@data_command(
    app,
    "fields",
    examples=(
        "gleanery fields shop-prices",
        "gleanery fields shop-prices --job catalogue-uk",
        "gleanery fields shop-prices --runs",
        "gleanery fields shop-prices --json | jq .schema",
    ),
)
def fields(
    group: GroupName,
    job: Annotated[
        str | None, Option("--job", metavar="JOB", help="Only the outputs of this job.")
    ] = None,
    runs: Annotated[
        bool, Option("--runs", help="Show the newest runs instead of the fields.")
    ] = False,
    as_json: AsJson = False,
    url: Url = None,
    token_file: TokenFile = None,
) -> None:
    """Show how often each field is filled, with which values, and where that has changed.

    The column Drift shows the usual share and that of the newest run, if they differ clearly.
    The JSON also has the newest runs and a suggested JSON Schema.
    """
    with open_client(url, token_file) as client, known_group(client, group):
        found = client.fields(group, job)
    if as_json:
        print_json(found)
    elif runs:
        print_rows(
            ("Job", "Start", "Status", "Outputs", "Least filled"),
            (_run_row(run) for run in found.runs),
            empty=_NO_FIELD,
        )
    else:
        print_rows(
            ("Field", "Filled", "Kinds", "Range", "Length", "Drift"),
            (_field_row(field, found.drift) for field in found.fields),
            empty=_NO_FIELD,
        )


def _run_row(run: RunFields) -> tuple[str, ...]:
    least = sorted(run.fields, key=lambda field: field.fill_rate)[:_LEAST_FILLED]
    rates = ", ".join(f"{field.path} {field.fill_rate:.0%}" for field in least)
    return run.job_id, show_date(run.start_date), run.status, str(run.outputs), rates


def _field_row(field: FieldStatistics, drift: list[Drift]) -> tuple[str, ...]:
    kinds = ", ".join(f"{kind} {count}" for kind, count in field.kinds.items())
    span = "" if field.range is None else f"{field.range.min} to {field.range.max}"
    length = "" if field.length is None else f"{field.length.min} to {field.length.max}"
    changes = ", ".join(
        f"{one.job_id}: {one.before:.0%} to {one.now:.0%}"
        for one in drift
        if one.path == field.path
    )
    return field.path, f"{field.fill_rate:.1%}", kinds, span, length, changes


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
        str | None, Argument(metavar="[OUTPUT_ID]", help="Output, by its output_id.")
    ] = None,
    source_url: Annotated[
        str | None,
        Option("--url", metavar="URL", help="Output of exactly this page."),
    ] = None,
    at: Annotated[
        str | None,
        Option(
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
        print_rows(columns, _version_rows(versions), empty="There is no version.")


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


def _version_rows(versions: Iterable[Version]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each changed field. Only the first one has the members of the version."""
    for version in versions:
        approved = "yes" if version.is_approved else ""
        change = version.change if version.reason is None else f"delete ({version.reason})"
        start: _ThreeCells = (show_date(version.version_date), change, approved)
        for field in _version_fields(version):
            yield (*start, *field)
            start = ("", "", "")


def _version_fields(version: Version) -> list[_ThreeCells]:
    if version.change == "update" and version.fields is None:
        return [("(the previous version is no longer kept)", "", "")]
    return [_changed_field(field) for field in version.fields or ()] or [("", "", "")]


def _changed_field(field: FieldChange) -> _ThreeCells:
    before = "" if field.kind == "added" else shorten(field.before)
    after = "" if field.kind == "removed" else shorten(field.after)
    return field.path, before, after


@data_command(app, "open", examples=("gleanery open shop-prices",))
def open_group(group: GroupName, url: Url = None, token_file: TokenFile = None) -> None:
    """Open the page of a group in the console, in a browser.

    The page shows the jobs and outputs of the group, and their reviews. The command prints its
    address. On a machine without a browser, it does nothing else.
    """
    with open_client(url, token_file) as client, known_group(client, group):
        client.group(group)
        address = f"{client.base_url}/console#/groups/{quote(group, safe='')}"
    click.echo(address)
    if _has_browser():
        import webbrowser

        webbrowser.open(address)


def _has_browser() -> bool:
    """Return False where only a browser for text can start, in the terminal of the command."""
    variables = ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")
    return sys.platform in ("darwin", "win32") or any(map(os.environ.get, variables))
