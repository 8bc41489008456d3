"""``gleanery push``: the items of a file or of a pipe, stored in a group."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Literal

from gleanery.cli.data.command import (
    USER_ERROR,
    AsJson,
    CommandFailed,
    UserError,
    data_command,
    join_sentences,
    print_json,
    to_failure,
)
from gleanery.cli.data.connection import TokenFile, Url, open_client
from gleanery.cli.data.item_sources import (
    Input,
    ItemFile,
    PipeItems,
    detect_format,
    open_input,
    open_items,
)
from gleanery.cli.data.progress import Progress, Quiet
from gleanery.cli.data.started_runs import (
    Labels,
    StartedRun,
    describe_run,
    parse_labels,
)
from gleanery.cli.data.stop_signals import Stopped, StopSignals
from gleanery.cli.declaration import Argument, CommandGroup, Option
from gleanery.cli.terminal import printable
from gleanery.client.errors import Conflict, NotFound
from gleanery.client.pushes import ItemError, PushFailed, PushReport
from gleanery.client.runs import describe_error, describe_skipped, run_of_environment

if TYPE_CHECKING:
    from gleanery.client import Client
    from gleanery.client.models import FinalRunStatus

app = CommandGroup()

_SHOWN_PROBLEMS = 5
_SHOWN_NUMBERS = 10
_BARE_ITEM = "bare_item"  # type of an error of the service
_RUN = ("query", "run_id")  # place of an error of the service


@data_command(
    app,
    "push",
    examples=(
        "gleanery push shop-prices items.jsonl --job shop.example",
        "gleanery push shop-prices items.csv.gz --job shop.example --key-field sku",
        "gleanery push shop-prices items.jsonl --job shop.example --complete --min-items 290",
        "scraper | gleanery push shop-prices --job shop.example --on-error skip",
    ),
)
def push(
    group: Annotated[str, Argument(metavar="GROUP", help="Group; a new one is created.")],
    file: Annotated[
        str | None,
        Argument(metavar="[FILE|-]", help="File. Without it, or with -, standard input."),
    ] = None,
    job: Annotated[
        str | None,
        Option(
            "--job",
            metavar="JOB",
            help="Job of all items: a lasting source, not one run. Without it each item is a whole "
            "output, with job_id, source_url and data.",
        ),
    ] = None,
    format_: Annotated[
        Literal["jsonl", "json", "csv"] | None,
        Option(
            "--format",
            help="JSON lines, a JSON array or CSV. Default: by the ending of FILE; of a pipe, JSON "
            "lines or an array.",
        ),
    ] = None,
    url_field: Annotated[
        str | None,
        Option("--url-field", metavar="FIELD", help="Member with the URL. Default: url."),
    ] = None,
    key_field: Annotated[
        str | None,
        Option(
            "--key-field", metavar="FIELD", help="Member that identifies an item. Default: its URL."
        ),
    ] = None,
    on_error: Annotated[
        Literal["fail", "skip"],
        Option("--on-error", help="End at an invalid item, or leave it out and list it."),
    ] = "fail",
    skip: Annotated[
        int, Option("--skip", metavar="N", min=0, help="Leave out the first N items.")
    ] = 0,
    complete: Annotated[
        bool,
        Option(
            "--complete",
            help="The input is a whole run of the job: outputs of the job that it does not have "
            "are missing.",
        ),
    ] = False,
    run_id: Annotated[
        str | None,
        Option(
            "--run",
            metavar="RUN_ID",
            help="Run that the items belong to. Default: that of gleanery run exec, if the group "
            "and job are the same.",
        ),
    ] = None,
    labels: Labels = None,
    min_items: Annotated[
        int | None,
        Option(
            "--min-items",
            metavar="N",
            min=1,
            help="Exit with 1 if fewer items are stored. A run that the command starts is failed "
            "then, so that nothing is missing.",
        ),
    ] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    url: Url = None,
    token_file: TokenFile = None,
) -> None:
    """Store the items of a file, or of a pipe, in a group. Items that are stored already stay.

    A file can be compressed with gzip or zstd. In CSV the first line is the names of the columns,
    and every value is text. Items of a slow pipe are stored after 5 seconds at the latest. After
    Ctrl-C or a failure, the command says how to continue.

    With --complete, the command starts a run of the job and finishes it: as complete, as partial
    if items were left out, or as failed. An empty file is an empty run. Without --complete, it is
    recorded as a partial one. With --min-items, a run with fewer items is failed.
    """
    file = _require_input(file, token_file)
    format_ = format_ or detect_format(file)  # type: ignore[assignment]
    if format_ == "csv" and job is None:
        raise UserError("CSV has no whole outputs: give --job")
    run_of_parent = run_of_environment(group, job) if run_id is None else None
    if complete:
        _check_complete(job, run_id, run_of_parent, skip)
    elif labels:
        raise UserError("--label is of a new run: give --complete, or leave out --label")
    options: dict[str, Any] = {
        "job_id": job,
        "url_field": url_field,
        "key_field": key_field,
        "on_error": on_error,
    }
    if run_id is not None:
        options["run_id"] = run_id
    with (
        open_input(file) as source,
        Progress("Pushed", "item", total_bytes=source.size, is_quiet=quiet) as progress,
        open_client(url, token_file, progress) as client,
    ):
        work = _Push(client, group, source, str(format_), skip, progress, min_items or 0)
        try:
            if complete:
                work.run_complete(str(job), parse_labels(labels), options)
            else:
                work.run(options)
                if job is not None and not (run_id or run_of_parent or skip):
                    work.record_if_empty(job)
        finally:
            if as_json:
                print_json(work.result())
        work.summarize()
        work.require_items()


def _check_complete(
    job: str | None, run_id: str | None, run_of_parent: str | None, skip: int
) -> None:
    """Raise UserError if the options of a complete run contradict each other."""
    if job is None:
        raise UserError("--complete starts a run of one job: give --job")
    if run_id is not None:
        raise UserError(
            "--complete starts a new run: leave it out, and finish the run of --run with gleanery "
            "run finish"
        )
    if run_of_parent is not None:
        raise UserError(
            "This command is in a run already, which gleanery run exec finishes: leave out "
            "--complete"
        )
    if skip:
        raise UserError(
            "A complete run has all items, so that none of them is missing: leave out --skip. "
            "Items that are stored already stay"
        )


def _require_input(file: str | None, token_file: str | None) -> str:
    """Return the name of the input; ``-`` for a pipe."""
    if file is None and sys.stdin.isatty():
        raise UserError("Give a FILE, or send the items through a pipe")
    if file in (None, "-") and token_file == "-":
        raise UserError("Standard input cannot be both the items and the token: give a FILE")
    return file or "-"


class _Push:
    """Pushes the items of a file, and names them by their lines."""

    _items: ItemFile
    """Opened when the push begins: a pipe can wait for its first bytes."""

    def __init__(
        self,
        client: Client,
        group: str,
        source: Input,
        format_: str,
        skip: int,
        progress: Progress,
        min_items: int,
    ) -> None:
        self._client = client
        self._group = group
        self._source = source
        self._format = format_
        self._skip = skip
        self._progress = progress
        self._min_items = min_items
        self._left_out = 0
        """Items before those of this push, without blank lines. An earlier push has stored them."""
        self._report = PushReport()
        self._errors: list[dict[str, Any]] = []
        self._run: StartedRun | None = None
        self._reason = ""
        """Why the push has failed, without what is stored."""

    @property
    def _stored(self) -> int:
        """Number of items that are stored. The report counts blank lines as items."""
        return self._report.created + self._report.updated + self._report.unchanged

    @property
    def _has_items(self) -> bool:
        """Return True if there was an item so far."""
        return bool(self._stored + self._report.skipped)

    @property
    def _is_pipe(self) -> bool:
        return self._source.size is None

    def run(self, options: dict[str, Any]) -> None:
        """Store all items. Raise CommandFailed with what is stored, and how to continue."""
        with StopSignals(second_ends=self._is_pipe) as signals:
            self._store(options, signals)

    def record_if_empty(self, job: str) -> None:
        """Record a run of a push without an item, so that it leaves a trace.

        It is partial: nobody has said that the job has no outputs any more. It is failed if there
        must be items.
        """
        if not self._has_items:
            self._run = StartedRun(self._client, self._group, job, None)
            shortage = self._describe_shortage()
            if shortage is None:
                self._run.finish("partial", "There was no item to push")
            else:
                self._run.finish("failed", shortage)

    def run_complete(
        self, job: str, labels: dict[str, str] | None, options: dict[str, Any]
    ) -> None:
        """Store all items in a new run, and finish it, even if that fails or is stopped.

        A second Ctrl-C ends the command, although the run is not finished.
        """
        with StopSignals(second_ends=True) as signals:
            run = self._run = StartedRun(self._client, self._group, job, labels)
            try:
                self._store({**options, "run_id": run.run_id}, signals)
            except BaseException as error:
                self._fail_run(run, self._reason or describe_error(error))
                raise
            status, reason = self._outcome()
            try:
                run.finish(status, reason)
            except Stopped as stop:
                message = "interrupted. All items are stored, but the run is not finished."
                raise CommandFailed(f"{message} {run.advise(status)}", stop.status) from None

    def _outcome(self) -> tuple[FinalRunStatus, str | None]:
        """Return how a run ends whose items are stored, and why.

        The outputs of invalid items are not missing. If items are too few, none is missing.
        """
        shortage, skipped = self._describe_shortage(), self._report.skipped
        if shortage is not None:
            return "failed", shortage
        return ("partial", describe_skipped(skipped)) if skipped else ("complete", None)

    def _describe_shortage(self) -> str | None:
        """Return what is wrong if there are fewer items than expected."""
        count, expected = self._left_out + self._stored, self._min_items
        if count >= expected:
            return None
        verb = "is" if expected == 1 else "are"
        items = "item" if count == 1 else "items"
        return f"only {count:,} {items}, at least {expected:,} {verb} expected"

    def require_items(self) -> None:
        """Raise CommandFailed if there are fewer items than expected."""
        shortage = self._describe_shortage()
        if shortage is not None:
            raise CommandFailed(shortage)

    def _fail_run(self, run: StartedRun, reason: str) -> None:
        note = self._progress.note
        try:
            run.fail(reason, note)
        except Stopped:
            note(f"The run {run.run_id} is not finished. {run.advise('failed')}")
        else:
            note(printable(describe_run(run.record)))

    def _store(self, options: dict[str, Any], signals: StopSignals) -> None:
        try:
            with signals.allowed():
                self._items = open_items(self._source, self._format)
                if not self._is_pipe:
                    self._push(self._rest(), options)
            if self._is_pipe:
                self._push_pipe(options, signals)
        except Stopped as stop:
            raise self._failure("interrupted", stop.status) from None
        except PushFailed as error:
            self._report = error.report
            raise self._to_failure(error) from error.cause
        except (UserError, OSError) as error:
            failure = to_failure(error)
            raise self._failure(str(failure), failure.status) from None

    def _push_pipe(self, options: dict[str, Any], signals: StopSignals) -> None:
        """Push the items of a pipe. After a signal, those that were read are stored first."""

        def say_stop() -> None:
            self._progress.note("Storing the items that were read. Ctrl-C again ends at once.")

        self._push(PipeItems(self._rest(), signals, say_stop), options)
        if signals.received is not None:
            raise Stopped(signals.received)

    def _push(self, items: Iterable[Any], options: dict[str, Any]) -> None:
        self._report = self._client.push(self._group, items, on_progress=self._show, **options)

    def _rest(self) -> Iterator[Any]:
        """Iterate over the items that are not left out."""
        for index, item in enumerate(self._items):
            if index >= self._skip:
                yield item
            else:
                self._left_out += not isinstance(item, bytes) or bool(item.strip())
                self._items.forget_before(index + 1)

    def _show(self, report: PushReport) -> None:
        """Show the progress, and the errors of items that were skipped."""
        for error in report.errors[len(self._errors) :]:
            self._progress.note(f"Skipped {self._describe(error)}")
            number = {self._items.unit: self._number(error)}
            self._errors.append({**number, "loc": error.loc, "msg": error.msg})
        self._report = report
        self._items.forget_before(self._skip + report.items)
        self._progress.advance(
            self._stored - self._progress.items, self._source.position - self._progress.bytes
        )

    def _describe(self, error: ItemError) -> str:
        place = ".".join(error.loc)
        message = f"{place}: {error.msg}" if place else error.msg
        return f"{self._items.unit} {self._number(error)}: {message}"

    def _number(self, error: ItemError) -> int:
        return self._items.number(self._skip + error.index)

    # --- failures -------------------------------------------------------------------------------

    def _to_failure(self, error: PushFailed) -> CommandFailed:
        if not error.errors:
            cause = error.cause or error
            if isinstance(cause, Conflict | NotFound) and cause.detail[0].loc == _RUN:
                message = f"--run: {cause.detail[0].msg}"
                return self._failure(message, USER_ERROR, can_continue=False)
            failure = to_failure(cause)
            return self._failure(str(failure), failure.status)
        message = f"{self._list(error.errors)}. Correct this, or give --on-error skip"
        if all(each.type == _BARE_ITEM for each in error.errors):
            message = "The items are no outputs with job_id, source_url and data: give --job"
        return self._failure(message, USER_ERROR)

    def _list(self, errors: Sequence[ItemError]) -> str:
        """Return the first problems. Several items with the same problem share a sentence."""
        same: dict[tuple[tuple[str, ...], str], list[ItemError]] = {}
        for error in errors:
            same.setdefault((error.loc, error.msg), []).append(error)
        shown = islice(same.values(), _SHOWN_PROBLEMS)
        return "; ".join(self._describe(first) + self._others(rest) for first, *rest in shown)

    def _others(self, errors: Sequence[ItemError]) -> str:
        """Return the numbers of further items with a problem, if there are some."""
        if not errors:
            return ""
        numbers = ", ".join(str(self._number(error)) for error in errors[:_SHOWN_NUMBERS])
        more = len(errors) - _SHOWN_NUMBERS
        unit = self._items.unit if len(errors) == 1 else f"{self._items.unit}s"
        return f" (also {unit} {numbers}{f' and {more:,} more' if more > 0 else ''})"

    def _failure(self, message: str, status: int, *, can_continue: bool = True) -> CommandFailed:
        """Return a failure that says what is stored, and how to continue.

        A run that has failed does not continue: the next one has all items.
        """
        self._reason = message
        done = self._skip + self._report.items
        stored = f"The first {done:,} items are stored" if done else "No item is stored"
        advice = f" To continue, run: {_resume_command(done)}"
        if self._run is not None:
            advice = f" To start a new run with all items, run: {_resume_command(0)}"
        if not can_continue or (status == USER_ERROR and not self._report.items):
            advice = ""
        return CommandFailed(join_sentences(message, f"{stored}.{advice}"), status)

    # --- results --------------------------------------------------------------------------------

    def result(self) -> dict[str, Any]:
        """Return the report for scripts."""
        report = self._report
        result = {
            "items": report.items,
            "created": report.created,
            "updated": report.updated,
            "unchanged": report.unchanged,
            "skipped": report.skipped,
            "retries": report.retries,
            "errors": self._errors,
        }
        return result if self._run is None else {**result, "run": self._run.record}

    def summarize(self) -> None:
        """Show the result for people. They may not expect that there was no item."""
        report = self._report
        if not self._has_items:
            recorded = "" if self._run is None else " An empty run is recorded."
            self._progress.note(f"There is no item to push: nothing was sent.{recorded}")
        skipped = f", {report.skipped:,} skipped" if report.skipped else ""
        self._progress.summarize(
            f"to {self._group}: {report.created:,} new, {report.updated:,} updated, "
            f"{report.unchanged:,} unchanged{skipped}"
        )
        if self._run is not None:
            self._progress.note(printable(describe_run(self._run.record)))


def _resume_command(skip: int) -> str:
    """Return the command of this process, but for the items that are not stored."""
    arguments = _without_skip(sys.argv[1:])
    return shlex.join(["gleanery", *arguments, *(["--skip", str(skip)] if skip else [])])


def _without_skip(arguments: Sequence[str]) -> list[str]:
    kept: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        if argument == "--skip":
            next(rest, None)
        elif not argument.startswith("--skip="):
            kept.append(argument)
    return kept
