"""``gleanery run``: start, finish, list and show runs, decide about removals, run a program."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Literal

import click

from gleanery.cli.data import programs
from gleanery.cli.data.command import (
    AsJson,
    CommandFailed,
    data_command,
    epilog,
    is_narrow,
    print_blocks,
    print_json,
    print_json_array,
    print_members,
    print_rows,
    show_date,
)
from gleanery.cli.data.connection import GroupName, TokenFile, Url, known_group, open_client
from gleanery.cli.data.progress import Quiet
from gleanery.cli.data.started_runs import (
    Labels,
    StartedRun,
    complete_status,
    describe_counts,
    describe_held,
    describe_run,
    parse_labels,
)
from gleanery.cli.declaration import Argument, CommandGroup, Option
from gleanery.cli.terminal import duration, printable
from gleanery.client.configuration import URL_VARIABLE
from gleanery.client.runs import (
    GROUP_VARIABLE,
    JOB_VARIABLE,
    RUN_VARIABLE,
    describe_error,
)

if TYPE_CHECKING:
    from gleanery.client import RunRecord

app = CommandGroup()
run_app = CommandGroup(
    help="Start, finish, list and show runs of jobs, and run a program in one.",
    epilog=epilog(
        (
            "gleanery run list shop-prices",
            "gleanery run exec shop-prices shop.example -- ./scrape.sh",
        )
    ),
)
app.add_command(run_app, "run")

_COLUMNS = (
    *("Start", "Job", "Status", "Created", "Updated", "Unchanged", "Missing", "Removed"),
    *("Rejected", "Duration", "Message", "Run"),
)
_UNBROKEN = ("Start", "Status", "Run")
_TABLE_WIDTH = 150  # characters that the columns need, with some for the message

NewGroup = Annotated[str, Argument(metavar="GROUP", help="Group; a new one is created.")]
NewJob = Annotated[
    str,
    Argument(
        metavar="JOB", help="Job that runs: a lasting source, such as a site. A new one is created."
    ),
]
RunId = Annotated[str, Argument(metavar="RUN_ID", help="Run, as gleanery run list GROUP shows.")]
Final = Literal["complete", "partial", "failed"]
AnyStatus = Literal["running", "complete", "partial", "failed", "unknown", "abandoned"]
Decision = Literal["remove", "keep"]


# --- start and finish ---------------------------------------------------------------------------


@data_command(
    run_app,
    "start",
    examples=(
        "gleanery run start shop-prices shop.example",
        "gleanery run start shop-prices shop.example --label country=DE --json",
    ),
)
def start(
    group: NewGroup,
    job: NewJob,
    labels: Labels = None,
    as_json: AsJson = False,
    url: Url = None,
    token_file: TokenFile = None,
) -> None:
    """Start a run of a job, and print its RUN_ID.

    Push its items with gleanery push --run, from as many machines as you like, and finish it with
    gleanery run finish. A run without items for some hours ends as abandoned.
    """
    with open_client(url, token_file) as client:
        record = client.start_run(group, job, parse_labels(labels))
    if as_json:
        print_json(record)
    else:
        click.echo(record.run_id)


@data_command(
    run_app,
    "finish",
    examples=(
        "gleanery run finish shop-prices RUN_ID",
        "gleanery run finish shop-prices RUN_ID --status partial --message 'Page 7 was blocked.'",
    ),
)
def finish(
    group: GroupName,
    run_id: RunId,
    status: Annotated[
        Final | None,
        Option(
            "--status",
            help="complete: it has sent all outputs that the job has now; the others of the job "
            "are missing. Without this option it is complete, or partial if items were rejected.",
        ),
    ] = None,
    message: Annotated[
        str | None, Option("--message", metavar="TEXT", help="What happened, for people.")
    ] = None,
    as_json: AsJson = False,
    url: Url = None,
    token_file: TokenFile = None,
) -> None:
    """Finish a run, and print what it has stored. To repeat the command is harmless."""
    with open_client(url, token_file) as client, known_group(client, group):
        reason = None
        if status is None:
            status, reason = complete_status(client, group, run_id)
        record = client.finish_run(group, run_id, status, message or reason)
    if as_json:
        print_json(record)
    else:
        click.echo(describe_run(record))


# --- list and show ------------------------------------------------------------------------------


@data_command(
    run_app,
    "list",
    examples=(
        "gleanery run list shop-prices",
        "gleanery run list shop-prices --job shop.example --status failed",
        "gleanery run list shop-prices --limit 1 --json | jq '.[0].counts'",
    ),
)
def list_runs(
    group: GroupName,
    job: Annotated[
        str | None, Option("--job", metavar="JOB", help="Only runs of this job.")
    ] = None,
    status: Annotated[
        AnyStatus | None, Option("--status", help="Only runs with this status.")
    ] = None,
    limit: Annotated[int, Option("--limit", "-n", metavar="N", min=1, help="At most N runs.")] = 20,
    as_json: AsJson = False,
    url: Url = None,
    token_file: TokenFile = None,
) -> None:
    """List the runs of a group or job, newest first, with what each has stored.

    The status unknown is the end of a run that nobody has started: its items were pushed without
    a run, and then there was a pause of 30 minutes.
    """
    with open_client(url, token_file) as client, known_group(client, group):
        found = client.runs(group, job_id=job, status=status, limit=limit)
        if as_json:
            print_json_array(found.raw())
            return
        empty = "There is no such run: gleanery run list GROUP lists all."
        if job is None and status is None:
            empty = "There is no run: gleanery push adds one."
        if is_narrow(_TABLE_WIDTH):
            print_blocks(map(_block, found), empty)
        else:
            print_rows(_COLUMNS, map(_row, found), empty, unbroken=_UNBROKEN)


def _block(run: RunRecord) -> list[str]:
    """Return the lines of a run on a narrow terminal."""
    head = (show_date(run.start_date), run.job_id, run.status, _duration(run))
    lines = ["  ".join(head).rstrip(), f"  run {run.run_id}", f"  {describe_counts(run)}"]
    message = _message(run)
    return [*lines, f"  {message}"] if message else lines


def _row(run: RunRecord) -> tuple[str, ...]:
    counts = run.counts
    numbers = (
        *(counts.created, counts.updated, counts.unchanged),
        *(counts.missing, counts.removed, counts.rejected),
    )
    return (
        show_date(run.start_date),
        run.job_id,
        run.status,
        *(f"{number:,}" for number in numbers),
        _duration(run),
        _message(run),
        run.run_id,
    )


def _duration(run: RunRecord) -> str:
    if run.finish_date is None:
        return ""
    return duration((run.finish_date - run.start_date).total_seconds())


def _message(run: RunRecord) -> str:
    """Return the message, and whether somebody has to decide."""
    held = [f"{describe_held(run)}."] if run.removal == "held" else []
    return " ".join([*held, run.message or ""]).strip()


@data_command(
    run_app,
    "show",
    examples=(
        "gleanery run show shop-prices RUN_ID",
        "gleanery run show shop-prices RUN_ID --json",
    ),
)
def show(
    group: GroupName,
    run_id: RunId,
    as_json: AsJson = False,
    url: Url = None,
    token_file: TokenFile = None,
) -> None:
    """Show one run: its times, its labels and what it has stored."""
    with open_client(url, token_file) as client, known_group(client, group):
        run = client.get_run(group, run_id)
    if as_json:
        print_json(run)
        return
    kind = " (implicit: nobody has started it)" if run.is_implicit else ""
    members = {
        "Run": run.run_id,
        "Job": run.job_id,
        "Status": f"{run.status}{kind}",
        "Start": show_date(run.start_date),
        "End": show_date(run.finish_date),
        "Duration": _duration(run),
        "Labels": ", ".join(f"{name}={value}" for name, value in run.labels.items()),
        "Outputs": describe_counts(run),
        "Comparison": run.comparison,
        "Removal": run.removal,
        "Message": _message(run),
    }
    print_members(members)


# --- decide -------------------------------------------------------------------------------------


@data_command(
    run_app,
    "decide",
    examples=(
        "gleanery run decide shop-prices RUN_ID remove",
        "gleanery run decide shop-prices RUN_ID keep",
    ),
)
def decide(
    group: GroupName,
    run_id: RunId,
    decision: Annotated[
        Decision,
        Argument(metavar="remove|keep", help="Remove the missing outputs, or keep them."),
    ],
    as_json: AsJson = False,
    url: Url = None,
    token_file: TokenFile = None,
) -> None:
    """Decide about a removal that is held because it is a large share of the job.

    gleanery export --missing shows the outputs. Those that were sent again since the run stay in
    any case. The token needs the scope reviews:write.
    """
    with open_client(url, token_file) as client, known_group(client, group):
        record = client.decide_removal(group, run_id, decision)
    if as_json:
        print_json(record)
    elif record.removal == "kept":
        click.echo(f"Kept the missing outputs: {record.removable:,}.")
    elif record.removal == "pending":
        click.echo(f"The service is removing the missing outputs: {record.removable:,}.")
    else:
        click.echo(f"Removed the missing outputs: {record.counts.removed:,}.")


# --- exec ---------------------------------------------------------------------------------------


@data_command(
    run_app,
    "exec",
    examples=(
        "gleanery run exec shop-prices shop.example -- ./scrape.sh",
        "gleanery run exec shop-prices shop.example --label country=DE -- python scraper.py de",
    ),
)
def execute(
    group: NewGroup,
    job: NewJob,
    command: Annotated[
        list[str],
        Argument(metavar="-- COMMAND...", help="Program to run, and its arguments."),
    ],
    labels: Labels = None,
    quiet: Quiet = False,
    url: Url = None,
    token_file: TokenFile = None,
) -> None:
    """Run a command in a new run of a job, and exit with the status of the command.

    The exit status 0 finishes the run as complete, any other one as failed. If the service has
    rejected items, the run is partial. So is a command that ends with 0 after Ctrl-C or SIGTERM.
    Signals are passed on to the command.

    The variables GLEANERY_RUN_ID, GLEANERY_GROUP and GLEANERY_JOB contain the run. A gleanery push
    to this group and job belongs to it. The command can finish the run itself.
    """
    programs.require_program(command)
    with (
        open_client(url, token_file, is_long=True) as client,
        programs.PassedSignals() as signals,  # before the start: a run is finished in any case
    ):
        run = StartedRun(client, group, job, parse_labels(labels))
        environment = {
            **os.environ,
            RUN_VARIABLE: run.run_id,
            GROUP_VARIABLE: group,
            JOB_VARIABLE: job,
        }
        if url is not None:
            environment[URL_VARIABLE] = url
        try:
            status = signals.start(command, environment).wait()
        except BaseException as error:
            run.fail(describe_error(error), _warn)
            raise
        try:
            run.finish_program(*_outcome(status, signals.received))
        except CommandFailed as failure:
            if status == 0:
                raise
            _warn(str(failure))
    if not quiet:
        click.echo(printable(describe_run(run.record)), err=True)
    raise click.exceptions.Exit(programs.exit_status(status))


def _warn(message: str) -> None:
    click.echo(f"gleanery: {printable(message)}", err=True)


def _outcome(status: int, signals: list[int]) -> tuple[Final, str | None]:
    """Return how a run ends whose program has this exit status, or was ended by a signal."""
    if status < 0:
        return "failed", f"ended by {programs.signal_name(-status)}"
    if status > 0:
        return "failed", f"exit status {status}"
    if signals:
        return "partial", f"stopped by {programs.signal_name(signals[0])}"
    return "complete", None
