"""A run that a command starts, and finishes however the work ends: what its users share."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

from gleanery.cli.data.command import CommandFailed, UserError, join_sentences, to_failure
from gleanery.cli.declaration import Option
from gleanery.client.errors import ClientError, Conflict, Forbidden
from gleanery.client.runs import describe_skipped, shorten_message

if TYPE_CHECKING:
    from gleanery.client import Client, RunRecord
    from gleanery.client.models import FinalRunStatus

Labels = Annotated[
    list[str] | None,
    Option(
        "--label",
        metavar="NAME=VALUE",
        help="Argument of the run, such as country=DE. Repeat the option for more.",
    ),
]


def parse_labels(texts: Sequence[str] | None) -> dict[str, str] | None:
    """Return the labels of the options. A value may contain the sign =."""
    labels: dict[str, str] = {}
    for text in texts or ():
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise UserError("--label needs NAME=VALUE, such as country=DE")
        if name in labels:
            raise UserError(f"--label has the name {name} twice: give it once")
        labels[name] = value
    return labels or None


class StartedRun:
    """Run that this command has started."""

    def __init__(self, client: Client, group: str, job: str, labels: dict[str, str] | None) -> None:
        self._client = client
        self._group = group
        self.record = client.start_run(group, job, labels)
        """The run as the service has last described it."""

    @property
    def run_id(self) -> str:
        return self.record.run_id

    def finish_program(self, status: FinalRunStatus, message: str | None) -> None:
        """Finish the run of a program. It is partial if the service has rejected an item."""
        try:
            if status == "complete":
                status, message = complete_status(self._client, self._group, self.run_id)
        except ClientError as error:
            raise self._failure(error, status) from None
        self.finish(status, message)

    def finish(self, status: FinalRunStatus, message: str | None = None) -> None:
        """Finish the run, unless somebody else has. Raise CommandFailed if it stays unfinished."""
        if message is not None:
            message = shorten_message(message)
        try:
            self.record = self._client.finish_run(self._group, self.run_id, status, message)
        except ClientError as error:
            if not (isinstance(error, Conflict) and self._is_finished_by_others()):
                raise self._failure(error, status) from None

    def fail(self, message: str, note: Callable[[str], None]) -> None:
        """Finish the run as failed. If that fails, say so: the failure of the work comes first."""
        try:
            self.finish("failed", message)
        except CommandFailed as failure:
            note(str(failure))

    def _is_finished_by_others(self) -> bool:
        """Return True if the run has the status that the program or a person has given to it."""
        try:
            self.record = self._client.get_run(self._group, self.run_id)
        except ClientError:
            return False
        return self.record.status in ("complete", "partial", "failed")

    def _failure(self, error: ClientError, status: FinalRunStatus) -> CommandFailed:
        failure = to_failure(error)
        message = f"The run {self.run_id} is not finished: {failure}"
        if isinstance(error, Conflict):  # it was abandoned
            return CommandFailed(message, failure.status)
        return CommandFailed(join_sentences(message, self.advise(status)), failure.status)

    def advise(self, status: FinalRunStatus) -> str:
        """Return how to finish the run by hand."""
        command = ["gleanery", "run", "finish", self._group, self.run_id, "--status", status]
        return f"To finish it, run: {shlex.join(command)}"


def complete_status(client: Client, group: str, run_id: str) -> tuple[FinalRunStatus, str | None]:
    """Return the status and the message of a run whose work has ended well.

    It is partial if the service has rejected items: their outputs would be missing, although the
    job still has them.
    """
    try:
        rejected = client.get_run(group, run_id).counts.rejected
    except Forbidden:  # the token can only write
        rejected = 0
    return ("partial", describe_skipped(rejected)) if rejected else ("complete", None)


def describe_counts(record: RunRecord) -> str:
    counts = record.counts
    return (
        f"{counts.created:,} created, {counts.updated:,} updated, {counts.unchanged:,} unchanged, "
        f"{counts.missing:,} missing, {counts.removed:,} removed, {counts.rejected:,} rejected"
    )


def describe_run(record: RunRecord) -> str:
    """Return sentences with the state of a run, and what a person should do."""
    end = "is still running" if record.status == "running" else f"ended as {record.status}"
    sentences = [f"The run {record.run_id} {end}: {describe_counts(record)}."]
    place = shlex.join([record.group_id, record.run_id])
    if record.comparison == "pending":
        sentences.append(
            "The service still compares it with the outputs of the job: gleanery run show "
            f"{place} shows the counts later."
        )
    if record.removal == "held":
        sentences.append(
            f"{describe_held(record)}. To decide, run: gleanery run decide {place} remove, or keep."
        )
    return " ".join(sentences)


def describe_held(record: RunRecord) -> str:
    number = (
        "1 missing output" if record.removable == 1 else f"{record.removable:,} missing outputs"
    )
    return f"The removal of {number} waits for a decision"
