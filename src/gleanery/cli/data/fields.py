"""``gleanery fields``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from gleanery.cli.data.command import data_command
from gleanery.cli.data.connection import GroupName, TokenFile, Url, known_group, open_client
from gleanery.cli.data.output import AsJson, print_json, print_rows

if TYPE_CHECKING:
    from gleanery.client.models import Drift, FieldStatistics

app = typer.Typer()


@data_command(
    app,
    "fields",
    examples=(
        "gleanery fields shop-prices",
        "gleanery fields shop-prices --job catalogue-uk",
        "gleanery fields shop-prices --json | jq .schema",
    ),
)
def fields(
    group: GroupName,
    job: Annotated[
        str | None, typer.Option("--job", metavar="JOB", help="Only the outputs of this job.")
    ] = None,
    as_json: AsJson = False,
    url: Url = None,
    token_file: TokenFile = None,
) -> None:
    """Show how often each field is filled, with which values, and where that has changed.

    The column Drift has the usual share and the one of the newest scrape, if they differ clearly.
    The JSON also has the newest scrapes and a suggested JSON Schema.
    """
    with open_client(url, token_file) as client, known_group(client, group):
        found = client.fields(group, job)
    if as_json:
        print_json(found)
        return
    print_rows(
        ("Field", "Filled", "Kinds", "Range", "Length", "Drift"),
        (_row(field, found.drift) for field in found.fields),
        empty="There is no output with a field: gleanery push stores some.",
    )


def _row(field: FieldStatistics, drift: list[Drift]) -> tuple[str, ...]:
    kinds = ", ".join(f"{kind} {count}" for kind, count in field.kinds.items())
    span = "" if field.range is None else f"{field.range.min} to {field.range.max}"
    length = "" if field.length is None else f"{field.length.min} to {field.length.max}"
    changes = ", ".join(
        f"{one.job_id}: {one.before:.0%} to {one.now:.0%}"
        for one in drift
        if one.path == field.path
    )
    return field.path, f"{field.fill_rate:.1%}", kinds, span, length, changes
