"""The thread that sends batches, and writes to the spool what it cannot send.

``Outage`` remembers the failures since the last success. It says when the next attempt starts, and
from when on batches go to the disk.

The service rejects invalid items. ``push_lines`` finds all of them, and ``RejectedItems`` keeps
them in a file.
"""

from __future__ import annotations

import logging
import os
import shlex
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from gleanery.client.errors import ApiError, ClientError
from gleanery.client.pushes import PushFailed
from gleanery.client.retries import delay_after, is_temporary

if TYPE_CHECKING:
    from gleanery.client import Client, PushReport
    from gleanery.client.queue.batches import Batch, BatchQueue
    from gleanery.client.queue.spool import Spool

logger = logging.getLogger(__name__)

_TIMEOUT = 30.0
"""Seconds without a byte of a response; the producer can have to wait for so long."""
_SHORTEST_TIMEOUT = 1.0
_LONGEST_RETRY_AFTER = 120.0
_SHOWN_CHARACTERS = 1000


class PermanentFailure(ClientError):
    """The items cannot be stored until somebody changes something, so a retry does not help."""


class Outage:
    """Failures of requests since the last success."""

    def __init__(self, max_retries: int) -> None:
        self._max_retries = max_retries
        self._retry_at = 0.0
        self.failures = 0
        self.last_error = ""
        self.is_permanent = False
        """True if the last request cannot succeed later either."""

    @property
    def is_down(self) -> bool:
        """True if retries have not helped, or cannot help."""
        return self.is_permanent or self.failures > self._max_retries

    @property
    def is_retrying(self) -> bool:
        return self.failures > 0 and not self.is_down

    def seconds_to_wait(self) -> float:
        """Return the seconds until the next attempt; not more than 0 if it can start."""
        return self._retry_at - time.monotonic()

    def note_success(self) -> None:
        if self.is_down:
            logger.info("Gleanery responds again")
        self.failures, self.last_error, self.is_permanent = 0, "", False
        self._retry_at = 0.0

    def note_failure(self, error: Exception, folder: object) -> None:
        """Choose the time of the next attempt, and log each new reason to write to the folder."""
        wait = delay_after(error, self.failures, _LONGEST_RETRY_AFTER)
        self._retry_at = time.monotonic() + wait
        was_down, last_error = self.is_down, self.last_error
        self.failures += 1
        self.is_permanent = _is_permanent(error)
        self.last_error = (str(error) or type(error).__name__).rstrip(".")
        if not self.is_down:
            logger.info("%s. Next attempt in %.1f s", self.last_error, wait)
        elif not was_down or self.last_error != last_error:
            logger.log(
                logging.ERROR if self.is_permanent else logging.WARNING,
                "Gleanery does not store items: %s. They are written to %s until it does",
                self.last_error,
                folder,
                exc_info=None if isinstance(error, ClientError) else error,
            )


def _is_permanent(error: Exception) -> bool:
    """Return True if the same request cannot succeed later."""
    if isinstance(error, ApiError):
        return 400 <= error.status < 500 and not is_temporary(error)
    return isinstance(error, PermanentFailure)


class Events(NamedTuple):
    """Functions that the thread calls."""

    add: Callable[[str, int], object]
    """Adds to a number of the statistics."""
    has_room: Callable[[], object]
    """A batch has left the memory."""
    ended: Callable[[], object]
    """The thread has ended."""


class Target(Protocol):
    """Where the lines are stored. Each method raises an exception if it must be called again."""

    def begin(self, client: Client) -> None:
        """Prepare for the lines of this program, for example by starting its run."""

    def store(self, client: Client, lines: list[bytes], *, is_earlier: bool) -> Pushed:
        """Store lines. Those of an earlier program come first, before the call of ``begin``."""


class Sender(threading.Thread):
    """Sends batches in their order. While the service does not respond, they go to the disk.

    A batch on the disk is sent before every later one, so that the newest value is stored last.
    ``connect`` returns a client with the given options. The ``producer`` is the program that makes
    the items, in the words of a message.
    """

    def __init__(
        self,
        pending: BatchQueue[bytes],
        spool: Spool,
        rejected: RejectedItems,
        events: Events,
        *,
        connect: Callable[..., Client],
        target: Target,
        max_retries: int,
        close_seconds: float,
        producer: str,
    ) -> None:
        super().__init__(name="gleanery-sender", daemon=True)
        self._pending = pending
        self._spool = spool
        self._rejected = rejected
        self._events = events
        self._connect = connect
        self._target = target
        self._close_seconds = close_seconds
        self._producer = producer
        # This thread retries requests itself, because a client that waits cannot be stopped.
        self._client = connect(timeout=_TIMEOUT, max_retries=0)
        self._outage = Outage(max_retries)
        self._has_begun = False
        self.is_disk_failing = False
        """True if the last batch could not be written to the disk."""

    def run(self) -> None:
        while self._step_safely():
            pass
        for finish in (self._keep_rest, self._client.close, self._spool.close):
            try:
                finish()
            except Exception:  # the producer waits for the end of this thread
                logger.exception("Unexpected error at the end of the run")
        self._events.ended()

    def keep_unsent(self, further: list[bytes]) -> None:
        """Write the batches in memory to the disk, and then the lines that had no room there."""
        try:
            self._pending.take_all(lambda batch: self._spool.append(batch.entries))
            if further:
                self._spool.append(further)
        except OSError as error:
            lost = self._pending.items() + len(further)
            logger.critical(
                "%s lost, because the disk cannot be written: %s", items_are(lost), error
            )

    def _step_safely(self) -> bool:
        """Do the next piece of work. Nothing may end this thread: items would wait for ever."""
        try:
            return self._step()
        except Exception as error:
            self._note_failure(error)
            return True

    def _step(self) -> bool:
        """Do the next piece of work. Return False if there is none, or no more time for it."""
        wait = self._outage.seconds_to_wait()
        if wait > 0:
            return self._wait_for_retry(wait)
        if not self._has_begun and self._spool.earlier == 0:
            self._has_begun = self._try(self._target.begin)
            return True
        if len(self._spool) > 0:
            self._send_spooled()
            return True
        return self._send_pending()

    def _wait_for_retry(self, seconds: float) -> bool:
        """Wait for the next attempt. If the service is down, write to the disk what comes in."""
        if self._pending.is_ending:
            return self._wait_for_end(seconds)
        if not self._outage.is_down:
            self._pending.wait_for_end(seconds)
            return True
        batch = self._pending.first(seconds)
        if batch is not None and not self._try_spool(batch):
            time.sleep(min(seconds, 1.0))  # the batch stays in memory, and the producer waits
        return True

    def _seconds_left(self) -> float:
        """Return the seconds after the end of the producer in which a request may start."""
        return self._pending.ended_at + self._close_seconds - time.monotonic()

    def _wait_for_end(self, seconds: float) -> bool:
        left = self._seconds_left()
        if self._outage.is_permanent or left <= 0:
            return False
        time.sleep(min(seconds, left))
        return True

    def _send_pending(self) -> bool:
        batch = self._pending.first()
        if batch is None:
            return False
        if self._send(batch.entries):
            self._remove_pending()
        elif self._outage.is_down:
            self._try_spool(batch)
        return True

    def _send_spooled(self) -> None:
        is_earlier = self._spool.earlier > 0
        number, lines = self._spool.count_first(), self._spool.read_first()
        if lines is None:
            if number:
                self._events.add("lost", number)
        elif self._send(lines, is_earlier=is_earlier):
            self._spool.remove_first()
            self._events.add("sent_from_spool", len(lines))
            if len(self._spool) == 0:
                logger.info("The items on disk are stored")

    def _send(self, lines: list[bytes], *, is_earlier: bool = False) -> bool:
        """Send lines. Return False if that fails."""
        return self._try(lambda client: self._push(client, lines, is_earlier))

    def _try(self, action: Callable[[Client], None]) -> bool:
        """Do something at the service. Return False if that fails."""
        if self._outage.is_retrying:
            self._events.add("retries", 1)
        try:
            with self._open_client() as client:
                action(client)
        except Exception as error:
            self._note_failure(error)
        else:
            self._outage.note_success()
            return True
        return False

    @contextmanager
    def _open_client(self) -> Iterator[Client]:
        """Return the client. After a failure at the end, it has only the time that is left."""
        if not (self._pending.is_ending and self._outage.failures):
            yield self._client
            return
        timeout = min(max(self._seconds_left(), _SHORTEST_TIMEOUT), _TIMEOUT)
        with self._connect(timeout=timeout, max_retries=0) as client:
            yield client

    def _push(self, client: Client, lines: list[bytes], is_earlier: bool) -> None:
        try:
            report, rejected = self._target.store(client, lines, is_earlier=is_earlier)
        except PushFailed as error:
            self._note_report(error.report, lines)
            raise (error.cause or error) from None
        self._note_report(report, lines)
        if rejected:
            self._keep_rejected(rejected)

    def _keep_rejected(self, lines: list[bytes]) -> None:
        number, subject = len(lines), items_are(len(lines), "invalid")
        try:
            self._rejected.add(lines)
        except OSError as error:  # the service would reject them again: they must not wait
            path = self._rejected.path
            logger.error("%s lost: %s cannot be written: %s", subject, path, error)
            self._events.add("lost", number)
        else:
            logger.error("%s not stored. %s", subject, self._rejected.advice(number))

    def _note_failure(self, error: Exception) -> None:
        self._outage.note_failure(error, self._spool.folder)
        if self._outage.is_down:
            self._events.add("failures", 1)

    def _note_report(self, report: PushReport, lines: list[bytes]) -> None:
        numbers: dict[str, Any] = {
            "created": report.created,
            "updated": report.updated,
            "unchanged": report.unchanged,
            "invalid": report.skipped,
            "batches": report.batches,
        }
        for name, number in numbers.items():
            if number:
                self._events.add(name, number)
        for error in report.errors:
            item = lines[error.index][:_SHOWN_CHARACTERS].decode(errors="replace")
            place = ".".join(error.loc)
            logger.error("Invalid item: %s%s\n%s", f"{place}: " if place else "", error.msg, item)

    def _try_spool(self, batch: Batch[bytes]) -> bool:
        try:
            self._spool.append(batch.entries)
        except OSError as error:
            if not self.is_disk_failing:
                logger.error("Items cannot be written to %s: %s", self._spool.folder, error)
            self.is_disk_failing = True
            return False
        self.is_disk_failing = False
        self._events.add("spooled", len(batch.entries))
        self._remove_pending()
        return True

    def _remove_pending(self) -> None:
        self._pending.remove_first()
        self._events.has_room()

    def _keep_rest(self) -> None:
        """Write to the disk what could not be sent before the end, and say so."""
        while (batch := self._pending.first()) is not None and self._try_spool(batch):
            pass
        if lost := self._pending.items():
            logger.critical("%s lost: neither Gleanery nor the disk takes items", items_are(lost))
            self._events.add("lost", lost)
        if left := self._spool.items():
            self._events.add("left_in_spool", left)
            logger.error(
                "%s could not be sent: %s. %s in %s. The next run of %s begins with %s",
                items(left),
                self._outage.last_error,
                they_are(left),
                self._spool.folder,
                self._producer,
                "it" if left == 1 else "them",
            )


# --- rejected items -----------------------------------------------------------------------------


class Pushed(NamedTuple):
    """Result of a push."""

    report: PushReport
    rejected: list[bytes]
    """Every line that is not stored because it is invalid, in their order."""


def push_lines(
    client: Client, group: str, lines: Sequence[bytes], run_id: str | None = None
) -> Pushed:
    """Store lines, and find out which the service rejects.

    A response explains only the first 100 errors. The other lines are sent again, until all
    rejected ones are known. What is stored already does not change.
    """
    first = report = client.push(group, lines, on_error="skip", run_id=run_id)
    rejected: set[int] = set()
    sent: Sequence[int] = range(len(lines))  # positions of the lines of the last request
    while report.skipped:
        known = {sent[error.index] for error in report.errors}
        if not known or report.skipped == len(sent):
            known = set(sent)
        rejected |= known
        if len(known) >= report.skipped:
            break
        sent = [position for position in sent if position not in known]
        left = [lines[position] for position in sent]
        report = client.push(group, left, on_error="skip", run_id=run_id)
    return Pushed(first, [lines[position] for position in sorted(rejected)])


class RejectedItems:
    """File with the rejected items of one run. The first one creates it."""

    def __init__(self, folder: Path, group: str, job: str) -> None:
        self._group = group
        self.path = folder / f"{plain_name(group)}-{plain_name(job)}-{time.time_ns()}.jsonl"

    def add(self, lines: Sequence[bytes]) -> None:
        """Append lines. Raise OSError if that fails."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with open(descriptor, "wb") as file:
            file.writelines(line + b"\n" for line in lines)

    def advice(self, number: int) -> str:
        """Return sentences that say where these items are, and how to store them later."""
        command = shlex.join(["gleanery", "push", self._group, str(self.path)])
        condition = (
            "When it is valid, store it" if number == 1 else "When they are valid, store them"
        )
        return f"{they_are(number)} in {self.path}. {condition} with: {command}"


def plain_name(name: str) -> str:
    """Return a name for a part of a file name."""
    return "".join(c if c.isalnum() or c in "-_" else "_" for c in name)[:60]


# --- parts of messages about a number of items --------------------------------------------------


def items(number: int, adjective: str = "") -> str:
    """Return the number with its noun, such as "1 invalid item" or "2 invalid items"."""
    noun = f"{adjective} item" if adjective else "item"
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def items_are(number: int, adjective: str = "") -> str:
    """Return the beginning of a sentence, such as "1 invalid item is"."""
    return f"{items(number, adjective)} {'is' if number == 1 else 'are'}"


def they_are(number: int) -> str:
    """Return the beginning of a second sentence about these items."""
    return "It is" if number == 1 else "They are"
