"""``gleanery groups``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from gleanery.cli.data.command import data_command
from gleanery.cli.data.connection import TokenFile, Url, known_group, open_client
from gleanery.cli.data.output import AsJson, print_json, print_json_array, print_rows, show_date

if TYPE_CHECKING:
    from gleanery.client.models import Group, Job

app = typer.Typer()


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
        str | None, typer.Argument(metavar="[GROUP]", help="Show the jobs of this group.")
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
                empty="There is no group: gleanery push creates one.",
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
