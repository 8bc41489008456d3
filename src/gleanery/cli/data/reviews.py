"""``gleanery reviews``, ``gleanery sample``, ``gleanery approve`` and ``gleanery reject``."""

from __future__ import annotations

import shlex
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, NamedTuple

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
from gleanery.cli.terminal import printable
from gleanery.client.errors import Forbidden

if TYPE_CHECKING:
    from gleanery.client import Client
    from gleanery.client.models import (
        FieldChange,
        Finding,
        Job,
        Review,
        ReviewDetails,
        SampledOutput,
    )

app = CommandGroup()

_COLUMNS = ("Job", "Status", "Date", "Comment")
_MAX_MEMBERS = 5  # of an output in a sample
_MAX_CHANGES = 20

JobName = Annotated[str, Argument(metavar="JOB", help="Job, as gleanery groups GROUP shows.")]
Comment = Annotated[str, Option("--comment", metavar="TEXT", help="Reason for the review.")]
AsOf = Annotated[
    int | None,
    Option(
        "--as-of",
        min=0,
        metavar="CURSOR",
        help="Skip outputs whose values were stored after this position.",
    ),
]
OutputIds = Annotated[
    list[str] | None,
    Option("--output", metavar="ID", help="Review only this output. Repeat the option for more."),
]
FindingTexts = Annotated[
    list[str] | None,
    Option(
        "--finding",
        metavar="ID:PATH:NOTE",
        help="What is wrong in an output, at PATH or as a whole. Repeat the option for more.",
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
    examples=(
        "gleanery reviews shop-prices",
        "gleanery reviews shop-prices --history",
        "gleanery reviews shop-prices --review REVIEW_ID",
    ),
)
def reviews(
    group: GroupName,
    history: Annotated[bool, Option("--history", help="List all reviews, newest first.")] = False,
    review_id: Annotated[
        str | None,
        Option("--review", metavar="ID", help="Show one review, with its findings."),
    ] = None,
    as_json: AsJson = False,
    url: Url = None,
    token_file: TokenFile = None,
) -> None:
    """List the latest review of each job of a group, or show one review.

    Reviews of single outputs appear only with --history.
    """
    with open_client(url, token_file) as client, known_group(client, group):
        if review_id is not None:
            _print_details(client.review_details(group, review_id), as_json)
            return
        found = client.reviews(group, history=history)
        if as_json:
            print_json_array(found.raw())
            return
        empty = f"There is no review: gleanery approve {group} JOB adds one."
        if history:
            rows = map(_history_row, found)
            print_rows(("Review", *_COLUMNS), rows, empty, unbroken=("Review",))
        else:
            print_rows(_COLUMNS, map(_review_row, found), empty)


def _review_row(review: Review) -> tuple[str, ...]:
    return review.job_id, review.status, show_date(review.review_date), review.comment


def _history_row(review: Review) -> tuple[str, ...]:
    return review.review_id, *_review_row(review)


def _print_details(review: ReviewDetails, as_json: bool) -> None:
    if as_json:
        print_json(review)
        return
    outputs, skipped = review.output_ids, review.skipped_output_ids or []
    lines = [
        f"Job: {review.job_id}",
        f"Status: {review.status}",
        f"Date: {show_date(review.review_date)}",
        *([] if review.person is None else [f"Reviewer: {review.person}"]),
        f"Comment: {review.comment}",
        f"Values until: {'the review' if review.as_of is None else review.as_of}",
        f"Outputs: {'the whole job' if outputs is None else len(outputs)}",
        *(f"  {one}{' (skipped)' if one in skipped else ''}" for one in outputs or ()),
        f"Findings: {len(review.findings)}",
        *(
            f"  {one.output_id} {one.path or '(whole output)'}: {one.note}"
            for one in review.findings
        ),
    ]
    for line in lines:
        click.echo(printable(line))


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
        int, Option("--size", min=1, max=200, metavar="N", help="Number of outputs.")
    ] = 50,
    seed: Annotated[
        str | None,
        Option("--seed", metavar="TEXT", help="Repeat the sample that has this seed."),
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
        click.echo("The job has no output.", err=True)
    else:
        command = f"gleanery approve {shlex.quote(group)} {shlex.quote(job)} --as-of {found.cursor}"
        click.echo(
            f"These are {len(found.sample)} of {found.outputs} outputs, chosen with the seed "
            f"{printable(found.seed)}. If they are right, run: {printable(command)}",
            err=True,
        )


def _print_sampled(number: int, one: SampledOutput) -> None:
    """Print one output in short lines, so that a terminal does not break its id."""
    reason = one.reason if one.detail is None else f"{one.reason}: {one.detail}"
    lines = [f"output {one.output.output_id}", one.output.source_url, *_content(one)]
    click.echo(printable(f"{number}. {reason}"))
    for line in lines:
        click.echo(f"   {printable(line)}")


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
    status: Annotated[Status, Option("--status", help="Status of the review.")] = (Status.approved),
    as_of: AsOf = None,
    outputs: OutputIds = None,
    findings: FindingTexts = None,
    as_json: AsJson = False,
    url: Url = None,
    token_file: TokenFile = None,
) -> None:
    """Approve the present outputs of a job, or give another review.

    The statuses changes_requested and rejected take an approval back. Outputs that change later
    need a new review.
    """
    options = _Options(status, comment, as_of, outputs or None, findings or [])
    _review(group, job, options, as_json, url, token_file)


@data_command(
    app,
    "reject",
    examples=(
        "gleanery reject shop-prices catalogue-uk --comment 'Prices without VAT.'",
        "gleanery reject shop-prices catalogue-uk --changes-requested --output OUTPUT_ID",
        "gleanery reject shop-prices catalogue-uk --finding 'OUTPUT_ID:price:In cents?'",
    ),
)
def reject(
    group: GroupName,
    job: JobName,
    changes_requested: Annotated[
        bool,
        Option("--changes-requested", help="Ask for changes, instead of a rejection."),
    ] = False,
    comment: Comment = "",
    as_of: AsOf = None,
    outputs: OutputIds = None,
    findings: FindingTexts = None,
    as_json: AsJson = False,
    url: Url = None,
    token_file: TokenFile = None,
) -> None:
    """Reject the present outputs of a job, or request changes.

    Both take an approval back, and remove the outputs from the approved view.
    """
    status = Status.changes_requested if changes_requested else Status.rejected
    options = _Options(status, comment, as_of, outputs or None, findings or [])
    _review(group, job, options, as_json, url, token_file)


class _Options(NamedTuple):
    """Options of a review."""

    status: Status
    comment: str
    as_of: int | None
    outputs: list[str] | None
    findings: list[str]


def _review(
    group: str, job: str, options: _Options, as_json: bool, url: str | None, token_file: str | None
) -> None:
    """Add a review, and print what it has changed."""
    findings = [_parse_finding(text) for text in options.findings]
    with open_client(url, token_file) as client, known_group(client, group):
        review = client.review(
            group,
            job,
            options.status.value,
            options.comment,
            as_of=options.as_of,
            output_ids=options.outputs,
            findings=findings,
        )
        if as_json:
            print_json(review)
        elif options.outputs is not None:
            _print_outputs(review, options.outputs)
        else:
            _print_job(review, _read_job(client, group, job), options)


def _parse_finding(text: str) -> Finding:
    """Return the finding of the text ID:PATH:NOTE. The note may contain colons."""
    from gleanery.client.models import Finding

    parts = text.split(":", 2)
    if len(parts) < 3:
        raise UserError("--finding needs ID:PATH:NOTE, such as ID:price:'In cents?'")
    output_id, path, note = parts
    return Finding(output_id, path or None, note)


def _read_job(client: Client, group: str, job: str) -> Job | None:
    """Return the job with its counts, if the token may read them."""
    try:
        return next((one for one in client.group(group).jobs if one.job_id == job), None)
    except Forbidden:
        return None


def _print_job(review: Review, job: Job | None, options: _Options) -> None:
    message = f"The review of {review.job_id} is now: {review.status}."
    if job is not None:
        message += f" {job.approved} of {job.outputs} outputs of the job are approved."
    click.echo(message)
    if job is not None and options.status == Status.approved and job.approved == 0 < job.outputs:
        click.echo(
            "Nothing is approved: all values of the job were stored after --as-of.", err=True
        )


def _print_outputs(review: Review, outputs: list[str]) -> None:
    skipped = review.skipped_output_ids or []
    count = len(outputs) - len(skipped)
    number = f"{count} of {len(outputs)} outputs"
    click.echo(f"Reviewed {number} of {review.job_id}: {review.status}.")
    for output_id in skipped:
        click.echo(f"Skipped, because its value is newer: {output_id}", err=True)
