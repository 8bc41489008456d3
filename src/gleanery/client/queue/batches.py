"""Items that wait in memory to be sent: batches that producers fill and one consumer takes."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

MAX_ITEMS = 1000
MAX_BYTES = 1024 * 1024
"""The service stores so many items, and so many bytes, in one transaction."""
_MAX_BATCHES = 8

T = TypeVar("T")


class Batch(Generic[T]):
    """Entries that are sent in one request. An entry is an item, or several that stay together."""

    __slots__ = ("entries", "items", "size", "started")

    def __init__(self) -> None:
        self.entries: list[T] = []
        self.items = 0
        self.size = 0
        self.started = time.monotonic()

    def add(self, entry: T, size: int, items: int = 1) -> None:
        self.entries.append(entry)
        self.items += items
        self.size += size + 1

    def has_room(self, size: int, items: int, max_items: int) -> bool:
        """Return True if an entry fits. One that is larger than a batch has a batch for itself."""
        if not self.entries:
            return True
        return self.items + items <= max_items and self.size + size <= MAX_BYTES


def in_batches(lines: Iterable[bytes], max_items: int) -> Iterator[list[bytes]]:
    """Divide lines into batches. A line that is larger than a batch has a batch for itself."""
    batch: Batch[bytes] = Batch()
    for line in lines:
        if not batch.has_room(len(line), 1, max_items):
            yield batch.entries
            batch = Batch()
        batch.add(line, len(line))
    if batch.entries:
        yield batch.entries


class BatchQueue(Generic[T]):
    """Batches in their order. The last one is open until it is full, old, or taken.

    Any thread may add entries. One thread takes the batches. Only methods that say so wait.
    """

    def __init__(
        self, max_items: int, max_seconds: float, max_batches: float = _MAX_BATCHES
    ) -> None:
        self._max_items = max_items
        self._max_seconds = max_seconds
        self._max_batches = max_batches
        """Number of full batches in memory; then there is no room for an entry."""
        self._changed = threading.Condition()
        self._closed: deque[Batch[T]] = deque()
        self._open: Batch[T] | None = None
        self.is_ending = False
        """True if no entry comes any more."""
        self.ended_at = 0.0

    def add(self, entry: T, size: int, items: int = 1) -> bool:
        """Add an entry of so many bytes and items. Return False if there is no room for it."""
        with self._changed:
            return self._add(entry, size, items)

    def put(self, entry: T, size: int) -> bool:
        """Add an entry, and wait until there is room. Return False if no more are wanted."""
        with self._changed:
            while not self.is_ending:
                if self._add(entry, size, 1):
                    return True
                self._changed.wait()
            return False

    def end(self, since: float | None = None) -> None:
        """Say that no entry comes any more, and at which time the producer was stopped."""
        with self._changed:
            self.is_ending = True
            self.ended_at = time.monotonic() if since is None else since
            self._close_open()

    def wait_for_end(self, seconds: float) -> None:
        """Wait until no entry comes any more, but not longer than these seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self.is_ending, seconds)

    def first(self, timeout: float | None = None) -> Batch[T] | None:
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
        """Remove the first batch, which makes room for others."""
        with self._changed:
            if self._closed:  # at the end of the process, another thread may have taken all
                self._closed.popleft()
            self._changed.notify_all()

    def take_all(self, store: Callable[[Batch[T]], None]) -> None:
        """Store every batch, and remove each when it is stored."""
        with self._changed:
            self._close_open()
            while self._closed:
                store(self._closed[0])
                self._closed.popleft()

    def items(self) -> int:
        """Return the number of items."""
        with self._changed:
            opened = self._open.items if self._open else 0
            return opened + sum(batch.items for batch in self._closed)

    def _add(self, entry: T, size: int, items: int) -> bool:
        if len(self._closed) >= self._max_batches:
            return False
        batch = self._open
        if batch is not None and not batch.has_room(size, items, self._max_items):
            self._close_open()
            batch = None
        if batch is None:
            batch = self._open = Batch()
            self._changed.notify_all()  # the consumer waits until this batch is old
        batch.add(entry, size, items)
        if batch.items >= self._max_items:
            self._close_open()
        return True

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
