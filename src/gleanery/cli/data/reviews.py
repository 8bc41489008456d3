"""``gleanery reviews``, ``gleanery sample``, ``gleanery approve`` and ``gleanery reject``."""

from __future__ import annotations

import shlex
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from gleanery.cli.data.command import data_command
from gleanery.cli.data.connection import GroupName, TokenFile, Url, known_group, open_client
from gleanery.cli.data.output import (
    AsJson,
    print_json,
    print_json_array,
    print_rows,
    printable,
    shorten,
    show_date,
)

if TYPE_CHECKING:
    from gleanery.client.models import FieldChange, Review, SampledOutput

app = typer.Typer()

_MAX_MEMBERS = 5  # of an output in a sample
_MAX_CHANGES = 20

JobName = Annotated[str, typer.Argument(metavar="JOB", help="Job, as gleanery groups GROUP shows.")]
Comment = Annotated[str, typer.Option("--comment", metavar="TEXT", help="Reason.")]
AsOf = Annotated[
    int | None,
    typer.Option(
        "--as-of",
        min=0,
        metavar="CURSOR",
        help="Leave alone the outputs with values that were stored after this position.",
    ),
]
OutputIds = Annotated[
    list[str] | None,
    typer.Option(
        "--output", metavar="ID", help="Review only this output. Repeat the option for more."
    ),
]


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
    "sample",
    examples=(
        "gleanery sample shop-prices catalogue-uk",
        "gleanery sample shop-prices catalogue-uk --size 20 --json | jq '.sample[].output.data'",
    ),
)
def sample(
    group: GroupName,
    job: JobName,
    size: Annotated[
        int, typer.Option("--size", min=1, max=200, metavar="N", help="Number of outputs.")
    ] = 50,
    seed: Annotated[
        str | None,
        typer.Option("--seed", metavar="TEXT", help="Get the sample of this seed again."),
    ] = None,
    as_json: AsJson = False,
    url: Url = None,
    token_file: TokenFile = None,
) -> None:
    """List outputs of a job for a review, each with a reason.

    Half of them are random, so that they represent the job. The others have changed since their
    last approval, or are unusual.
    """
    with open_client(url, token_file) as client, known_group(client, group):
        found = client.review_sample(group, job, size=size, seed=seed)
    if as_json:
        print_json(found)
        return
    for number, one in enumerate(found.sample, start=1):
        _print_sampled(number, one)
    if not found.sample:
        typer.echo("The job has no output.", err=True)
    else:
        command = f"gleanery approve {shlex.quote(group)} {shlex.quote(job)} --as-of {found.cursor}"
        typer.echo(
            f"These are {len(found.sample)} of {found.outputs} outputs, by the seed "
            f"{printable(found.seed)}. If they are right: {printable(command)}",
            err=True,
        )


def _print_sampled(number: int, one: SampledOutput) -> None:
    """Print one output in short lines, so that a terminal does not break its id."""
    reason = one.reason if one.detail is None else f"{one.reason}: {one.detail}"
    lines = [f"output {one.output.output_id}", one.output.source_url, *_content(one)]
    typer.echo(printable(f"{number}. {reason}"))
    for line in lines:
        typer.echo(f"   {printable(line)}")


def _content(one: SampledOutput) -> list[str]:
    """Return what has changed since the last approval, or else the first members of data."""
    if one.fields is None:
        lines = [f"{name}: {shorten(value)}" for name, value in one.output.data.items()]
        return _first(lines, _MAX_MEMBERS)
    return _first([_difference(field) for field in one.fields], _MAX_CHANGES)


def _first(lines: list[str], count: int) -> list[str]:
    more = len(lines) - count
    return [*lines[:count], f"and {more} more"] if more > 0 else lines


def _difference(field: FieldChange) -> str:
    before = "(none)" if field.kind == "added" else shorten(field.before)
    after = "(none)" if field.kind == "removed" else shorten(field.after)
    return f"{field.path}: {before} \N{RIGHTWARDS ARROW} {after}"


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
    job: JobName,
    comment: Comment = "",
    status: Annotated[Status, typer.Option("--status", help="Status of the review.")] = (
        Status.approved
    ),
    as_of: AsOf = None,
    outputs: OutputIds = None,
    as_json: AsJson = False,
    url: Url = None,
    token_file: TokenFile = None,
) -> None:
    """Approve the present outputs of a job, or give another review.

    The statuses changes_requested and rejected take an approval back. Outputs that change later
    need a new review.
    """
    with open_client(url, token_file) as client, known_group(client, group):
        review = client.review(
            group, job, status.value, comment, as_of=as_of, output_ids=outputs or None
        )
    _print_review(review, outputs, as_json)


@data_command(
    app,
    "reject",
    examples=(
        "gleanery reject shop-prices catalogue-uk --comment 'Prices without VAT.'",
        "gleanery reject shop-prices catalogue-uk --changes-requested --output OUTPUT_ID",
    ),
)
def reject(
    group: GroupName,
    job: JobName,
    changes_requested: Annotated[
        bool,
        typer.Option("--changes-requested", help="Ask for changes, instead of a rejection."),
    ] = False,
    comment: Comment = "",
    as_of: AsOf = None,
    outputs: OutputIds = None,
    as_json: AsJson = False,
    url: Url = None,
    token_file: TokenFile = None,
) -> None:
    """Reject the present outputs of a job, or request changes.

    Both take an approval back, and remove the outputs from the approved view.
    """
    status = Status.changes_requested if changes_requested else Status.rejected
    with open_client(url, token_file) as client, known_group(client, group):
        review = client.review(
            group, job, status.value, comment, as_of=as_of, output_ids=outputs or None
        )
    _print_review(review, outputs, as_json)


def _print_review(review: Review, outputs: list[str] | None, as_json: bool) -> None:
    if as_json:
        print_json(review)
    elif not outputs:
        typer.echo(f"The review of {review.job_id} is now: {review.status}.")
    else:
        skipped = review.skipped_output_ids or []
        count = len(outputs) - len(skipped)
        number = f"{count} of {len(outputs)} outputs"
        typer.echo(f"Reviewed {number} of {review.job_id}: {review.status}.")
        for output_id in skipped:
            typer.echo(f"Skipped, because its value is newer: {output_id}", err=True)
