"""``gleanery reviews`` and ``gleanery approve``."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from gleanery.cli.data.command import data_command
from gleanery.cli.data.connection import GroupName, TokenFile, Url, known_group, open_client
from gleanery.cli.data.output import AsJson, print_json, print_json_array, print_rows, show_date

app = typer.Typer()


class Status(StrEnum):
    """Status of a review."""

    approved = "approved"
    changes_requested = "changes_requested"
    rejected = "rejected"
    in_review = "in_review"
    pending = "pending"


@data_command(
    app,
    "reviews",
    examples=("gleanery reviews shop-prices", "gleanery reviews shop-prices --history --json"),
)
def reviews(
    group: GroupName,
    history: Annotated[
        bool, typer.Option("--history", help="List all reviews, newest first.")
    ] = False,
    as_json: AsJson = False,
    url: Url = None,
    token_file: TokenFile = None,
) -> None:
    """List the latest review of each job of a group."""
    with open_client(url, token_file) as client, known_group(client, group):
        found = client.reviews(group, history=history)
        if as_json:
            print_json_array(found.raw())
            return
        rows = (
            (review.job_id, review.status, show_date(review.review_date), review.comment)
            for review in found
        )
        print_rows(
            ("Job", "Status", "Date", "Comment"),
            rows,
            empty=f"There is no review: gleanery approve {group} JOB adds one.",
        )


@data_command(
    app,
    "approve",
    examples=(
        "gleanery approve shop-prices catalogue-uk",
        "gleanery approve shop-prices catalogue-uk --comment 'Prices compared.'",
        "gleanery approve shop-prices catalogue-uk --status rejected",
    ),
)
def approve(
    group: GroupName,
    job: Annotated[str, typer.Argument(metavar="JOB", help="Job, as gleanery groups GROUP shows.")],
    comment: Annotated[str, typer.Option("--comment", metavar="TEXT", help="Reason.")] = "",
    status: Annotated[Status, typer.Option("--status", help="Status of the review.")] = (
        Status.approved
    ),
    as_json: AsJson = False,
    url: Url = None,
    token_file: TokenFile = None,
) -> None:
    """Approve the present outputs of a job, or give another review.

    The statuses changes_requested and rejected take an approval back. Outputs that change later
    need a new review.
    """
    with open_client(url, token_file) as client, known_group(client, group):
        review = client.review(group, job, status.value, comment)
    if as_json:
        print_json(review)
    else:
        typer.echo(f"The review of {job} is now: {review.status}.")
