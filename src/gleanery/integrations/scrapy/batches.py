"""Items that wait to be sent: batches that the reactor fills and one thread takes."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator

_MAX_BATCH_BYTES = 1024 * 1024
_MAX_BATCHES = 8
"""Number of batches in memory; then the spider waits."""


class Batch:
    """Lines that are sent in one request."""

    __slots__ = ("lines", "size", "started")

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.size = 0
        self.started = time.monotonic()

    def add(self, line: bytes) -> None:
        self.lines.append(line)
        self.size += len(line) + 1


def in_batches(lines: Iterable[bytes], max_items: int) -> Iterator[list[bytes]]:
    """Divide lines into batches. A line that is larger than a batch has one of its own."""
    batch = Batch()
    for line in lines:
        is_full = len(batch.lines) >= max_items or batch.size + len(line) > _MAX_BATCH_BYTES
        if batch.lines and is_full:
            yield batch.lines
            batch = Batch()
        batch.add(line)
    if batch.lines:
        yield batch.lines


class PendingBatches:
    """Batches in their order. The last one is open until it is full, old, or taken."""

    def __init__(self, max_items: int, max_seconds: float) -> None:
        self._max_items = max_items
        self._max_seconds = max_seconds
        self._changed = threading.Condition()
        self._closed: deque[Batch] = deque()
        self._open: Batch | None = None
        self.is_ending = False
        """True if no item comes any more."""
        self.ended_at = 0.0

    def add(self, line: bytes) -> bool:
        """Add a line. Return False if there is no room for it."""
        with self._changed:
            if len(self._closed) >= _MAX_BATCHES:
                return False
            if self._open is not None and self._open.size + len(line) > _MAX_BATCH_BYTES:
                self._close_open()
            if self._open is None:
                self._open = Batch()
                self._changed.notify_all()  # the thread waits until this batch is old
            self._open.add(line)
            if len(self._open.lines) >= self._max_items:
                self._close_open()
            return True

    def end(self, since: float | None = None) -> None:
        """Say that no item comes any more, and at which time the crawl was stopped."""
        with self._changed:
            self.is_ending = True
            self.ended_at = time.monotonic() if since is None else since
            self._close_open()

    def wait_for_end(self, seconds: float) -> None:
        """Wait until no item comes any more, but not longer than these seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self.is_ending, seconds)

    def first(self, timeout: float | None = None) -> Batch | None:
        """Wait for the first batch that is full or old. Return None after the timeout or the end.

        The batch remains here until it is removed.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            while not self._closed:
                self._close_old()
                if self._closed or self.is_ending:
                    break
                left = self._seconds_left(deadline)
                if left is not None and left <= 0:
                    break
                self._changed.wait(left)
            return self._closed[0] if self._closed else None

    def remove_first(self) -> None:
        with self._changed:
            if self._closed:  # at the end of the process, another thread may have taken all
                self._closed.popleft()

    def take_all(self, store: Callable[[Batch], None]) -> None:
        """Store every batch, and remove each when it is stored."""
        with self._changed:
            self._close_open()
            while self._closed:
                store(self._closed[0])
                self._closed.popleft()

    def items(self) -> int:
        """Return the number of items."""
        with self._changed:
            opened = len(self._open.lines) if self._open else 0
            return opened + sum(len(batch.lines) for batch in self._closed)

    def _seconds_left(self, deadline: float | None) -> float | None:
        """Return the seconds until the open batch is old, or until an earlier deadline."""
        now = time.monotonic()
        times = [] if deadline is None else [deadline - now]
        if self._open is not None:
            times.append(max(self._open.started + self._max_seconds - now, 0.001))
        return min(times, default=None)

    def _close_old(self) -> None:
        if self._open and time.monotonic() - self._open.started >= self._max_seconds:
            self._close_open()

    def _close_open(self) -> None:
        if self._open is not None:
            self._closed.append(self._open)
            self._open = None
        self._changed.notify_all()
