"""``gleanery fields``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from gleanery.cli.data.command import data_command
from gleanery.cli.data.connection import GroupName, TokenFile, Url, known_group, open_client
from gleanery.cli.data.output import AsJson, print_json, print_rows, show_date

if TYPE_CHECKING:
    from gleanery.client.models import Drift, FieldStatistics, Scrape

app = typer.Typer()
_LEAST_FILLED = 3
_NO_FIELD = "There is no output with a field: gleanery push stores some."


@data_command(
    app,
    "fields",
    examples=(
        "gleanery fields shop-prices",
        "gleanery fields shop-prices --job catalogue-uk",
        "gleanery fields shop-prices --scrapes",
        "gleanery fields shop-prices --json | jq .schema",
    ),
)
def fields(
    group: GroupName,
    job: Annotated[
        str | None, typer.Option("--job", metavar="JOB", help="Only the outputs of this job.")
    ] = None,
    scrapes: Annotated[
        bool, typer.Option("--scrapes", help="Show the newest scrapes instead of the fields.")
    ] = False,
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
    elif scrapes:
        print_rows(
            ("Job", "Started", "Last seen", "Outputs", "Least filled"),
            (_scrape_row(scrape) for scrape in found.scrapes),
            empty=_NO_FIELD,
        )
    else:
        print_rows(
            ("Field", "Filled", "Kinds", "Range", "Length", "Drift"),
            (_row(field, found.drift) for field in found.fields),
            empty=_NO_FIELD,
        )


def _scrape_row(scrape: Scrape) -> tuple[str, ...]:
    least = sorted(scrape.fields, key=lambda field: field.fill_rate)[:_LEAST_FILLED]
    rates = ", ".join(f"{field.path} {field.fill_rate:.0%}" for field in least)
    dates = show_date(scrape.started), show_date(scrape.last_seen)
    return scrape.job_id, *dates, str(scrape.outputs), rates


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
