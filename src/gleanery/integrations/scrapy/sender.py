"""The thread that sends batches, and writes to the spool what it cannot send."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from gleanery.client import ApiError, Client, ClientError, PushFailed, PushReport
from gleanery.integrations.scrapy.batches import Batch, PendingBatches
from gleanery.integrations.scrapy.keys import KeyConflict, uses_group_key, without_key
from gleanery.integrations.scrapy.settings import GleanerySettings
from gleanery.integrations.scrapy.spool import Spool

logger = logging.getLogger(__name__)

_FIRST_WAIT = 0.5
_LONGEST_WAIT = 15.0
_TIMEOUT = 30.0
"""Seconds without a byte of a response; meanwhile the spider can have to wait."""
_TEMPORARY = frozenset({408, 429})
_SHOWN_CHARACTERS = 1000


class Events(NamedTuple):
    """Functions that the thread calls."""

    add: Callable[[str, int], object]
    """Adds to a number of the stats."""
    has_room: Callable[[], object]
    """A batch has left the memory."""
    ended: Callable[[], object]
    """The thread has ended."""


class Sender(threading.Thread):
    """Sends batches in their order. While the service does not respond, they go to the disk.

    A batch on the disk is sent before every later one, so that the newest value is stored last.
    """

    def __init__(
        self, settings: GleanerySettings, pending: PendingBatches, spool: Spool, events: Events
    ) -> None:
        super().__init__(name="gleanery-sender", daemon=True)
        self._settings = settings
        self._pending = pending
        self._spool = spool
        self._events = events
        self._client = settings.client(timeout=_TIMEOUT, max_retries=settings.max_retries)
        self._probe = settings.client(timeout=_TIMEOUT, max_retries=0)
        self._uses_group_key: bool | None = None  # unknown until the service has said it
        self._failures = 0
        self._retry_at = 0.0
        self._is_permanent = False

    def run(self) -> None:
        try:
            while self._step_safely():
                pass
            self._keep_rest()
        finally:
            self._client.close()
            self._probe.close()
            self._spool.close()
            self._events.ended()

    def keep_unsent(self, further: list[bytes]) -> None:
        """Write the batches in memory to the disk, and then the lines that had no room there."""
        if self.is_alive():
            self._pending.take_all(lambda batch: self._spool.append(batch.lines))
            if further:
                self._spool.append(further)

    def _step_safely(self) -> bool:
        """Do the next piece of work. An error of the disk is tried again later."""
        try:
            return self._step()
        except OSError as error:
            self._note_failure(error)
            return True

    def _step(self) -> bool:
        """Do the next piece of work. Return False if there is none, or no more time for it."""
        wait = self._retry_at - time.monotonic()
        if wait > 0:
            return self._wait_for_retry(wait)
        if len(self._spool) > 0:
            self._send_spooled()
            return True
        return self._send_pending()

    def _wait_for_retry(self, seconds: float) -> bool:
        """Write what comes in to the disk until the next attempt."""
        if self._pending.is_ending:
            return self._wait_for_end(seconds)
        batch = self._pending.first(seconds)
        if batch is not None and not self._try_spool(batch):
            time.sleep(min(seconds, 1.0))  # the batch stays in memory, and the spider waits
        return True

    def _wait_for_end(self, seconds: float) -> bool:
        left = self._pending.ended_at + self._settings.close_seconds - time.monotonic()
        if self._is_permanent or left <= 0:
            return False
        time.sleep(min(seconds, left))
        return True

    def _send_pending(self) -> bool:
        batch = self._pending.first()
        if batch is None:
            return False
        if self._send(self._client, batch.lines):
            self._remove_pending()
        else:
            self._try_spool(batch)
        return True

    def _send_spooled(self) -> None:
        lines = self._spool.read_first()
        if lines is not None and self._send(self._probe, lines):
            self._spool.remove_first()
            self._events.add("sent_from_spool", len(lines))
            if len(self._spool) == 0:
                logger.info("The items on disk are stored")

    def _send(self, client: Client, lines: list[bytes]) -> bool:
        """Send lines. Return False if that fails."""
        try:
            if self._uses_group_key is None:
                self._uses_group_key = uses_group_key(client, self._settings)
            if self._uses_group_key and len(self._settings.key_fields) == 1:
                lines = [without_key(line) for line in lines]
            group = self._settings.require_group()
            self._note_report(client.push(group, lines, on_error="skip"), lines)
        except PushFailed as error:
            self._note_report(error.report, lines)
            self._note_failure(error.cause or error)
        except Exception as error:  # nothing may end this thread: items would wait for ever
            self._note_failure(error)
        else:
            self._note_success()
            return True
        return False

    def _note_success(self) -> None:
        if self._failures:
            logger.info("Gleanery responds again")
        self._failures, self._retry_at, self._is_permanent = 0, 0.0, False

    def _note_failure(self, error: Exception) -> None:
        had_other_cause = self._failures == 0 or self._is_permanent != _is_permanent(error)
        self._is_permanent = _is_permanent(error)
        if had_other_cause or not isinstance(error, ClientError):
            logger.log(
                logging.ERROR if self._is_permanent else logging.WARNING,
                "Gleanery does not store items: %s. They are written to %s until it does",
                str(error).rstrip("."),
                self._spool.folder,
                exc_info=None if isinstance(error, ClientError) else error,
            )
        wait = min(_FIRST_WAIT * 2 ** min(self._failures, 10), _LONGEST_WAIT)
        self._failures += 1
        self._retry_at = time.monotonic() + wait
        self._events.add("failures", 1)

    def _note_report(self, report: PushReport, lines: list[bytes]) -> None:
        numbers: dict[str, Any] = {
            "created": report.created,
            "updated": report.updated,
            "unchanged": report.unchanged,
            "invalid": report.skipped,
            "batches": report.batches,
            "retries": report.retries,
        }
        for name, number in numbers.items():
            if number:
                self._events.add(name, number)
        for error in report.errors:
            item = lines[error.index][:_SHOWN_CHARACTERS].decode(errors="replace")
            place = ".".join(error.loc)
            logger.error("Invalid item: %s%s\n%s", f"{place}: " if place else "", error.msg, item)
        hidden = report.skipped - len({error.index for error in report.errors})
        if hidden > 0:
            logger.error("Invalid items: %d more in the same batch", hidden)

    def _try_spool(self, batch: Batch) -> bool:
        try:
            self._spool.append(batch.lines)
        except OSError as error:
            logger.error("Items cannot be written to %s: %s", self._spool.folder, error)
            return False
        self._events.add("spooled", len(batch.lines))
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
            logger.critical("%d items are lost: neither Gleanery nor the disk takes them", lost)
            self._events.add("lost", lost)
        if len(self._spool) > 0:
            logger.error(
                "Items could not be sent. They are in %s, and the next run of this spider sends "
                "them first",
                self._spool.folder,
            )


def _is_permanent(error: Exception) -> bool:
    """Return True if the same request cannot succeed later."""
    if isinstance(error, ApiError):
        return 400 <= error.status < 500 and error.status not in _TEMPORARY
    return isinstance(error, KeyConflict)
