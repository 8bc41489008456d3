"""Items of a pipe, whose writer can be slow or die: what was read is sent soon."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from math import inf
from typing import Any

from gleanery.cli.data.stop_signals import StopSignals, blocked_in_new_threads
from gleanery.client.items import FLUSH

FLUSH_SECONDS = 5.0
"""Time after which an item is sent, also if its batch is not full."""
_LAST_SECONDS = 1.0
"""Time after a signal in which items are read that the writer sent before."""
_LOOK_SECONDS = 0.1
_MAX_BYTES = 1024 * 1024
_ITEM_BYTES = 100  # of an item in memory, at least


class PipeItems:
    """Iterates over items that a thread reads ahead. Iterate over it once.

    The first Ctrl-C or SIGTERM ends the items. ``on_stop`` is called before the last ones.
    """

    def __init__(
        self, source: Iterable[Any], signals: StopSignals, on_stop: Callable[[], None]
    ) -> None:
        self._source = source
        self._signals = signals
        self._on_stop = on_stop
        self._last = inf  # time after which nothing more is read
        self._changed = threading.Condition()
        self._items: list[Any] = []
        self._bytes = 0
        self._has_ended = False
        self._error: Exception | None = None

    def __iter__(self) -> Iterator[Any]:
        with blocked_in_new_threads():
            threading.Thread(target=self._read, daemon=True).start()
        due = inf  # time at which the items so far are sent
        while (items := self._take(due)) is not None:
            yield from items
            if time.monotonic() >= due:
                yield FLUSH
                due = inf
            elif items:
                due = min(due, time.monotonic() + FLUSH_SECONDS)
        if self._error is not None:
            raise self._error

    def _take(self, due: float) -> list[Any] | None:
        """Wait for items, and return them. Return none when it is due, and None at the end."""
        while not self._is_ready() and time.monotonic() < due:
            self._look_for_signal()
            with self._changed:
                self._changed.wait_for(self._is_ready, min(_LOOK_SECONDS, due - time.monotonic()))
        self._look_for_signal()
        with self._changed:
            items, self._items, self._bytes = self._items, [], 0
            self._changed.notify()
            return items if items or not self._has_ended else None

    def _is_ready(self) -> bool:
        return bool(self._items) or self._has_ended

    def _look_for_signal(self) -> None:
        """End the items some time after a signal, also if the writer continues."""
        if self._signals.received is None:
            return
        if self._last == inf:
            self._last = time.monotonic() + _LAST_SECONDS
            self._on_stop()
        if time.monotonic() >= self._last:
            with self._changed:
                self._has_ended = True

    def _read(self) -> None:
        """Read the items. It waits if the others are not taken yet."""
        try:
            for item in self._source:
                if not self._put(item):
                    return
        except Exception as error:  # the other thread raises it
            self._error = error
        with self._changed:
            self._has_ended = True
            self._changed.notify()

    def _put(self, item: Any) -> bool:
        """Add an item. Return False if no more are wanted."""
        with self._changed:
            while self._bytes >= _MAX_BYTES and not self._has_ended:
                self._changed.wait()
            if self._has_ended:
                return False
            self._items.append(item)
            self._bytes += _ITEM_BYTES + _size(item)
            if len(self._items) == 1:  # the other thread may wait for it
                self._changed.notify()
            return True


def _size(item: Any) -> int:
    if isinstance(item, dict):
        return sum(map(len, item.values()))
    return len(item) if isinstance(item, bytes) else 0
