"""Items of a pipe, whose writer can be slow or die: what was read is sent soon."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from math import inf
from typing import Any

from gleanery.cli.data.stop_signals import StopSignals, blocked_in_new_threads
from gleanery.client.items import FLUSH
from gleanery.client.queue.batches import MAX_ITEMS, Batch, BatchQueue

FLUSH_SECONDS = 5.0
"""Time after which an item is sent, also if its batch is not full."""
_LAST_SECONDS = 1.0
"""Time after a signal in which items are read that the writer sent before."""
_LOOK_SECONDS = 0.1
_MAX_BATCHES = 2
"""Number of full batches that are read ahead."""


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
        self._queue: BatchQueue[Any] = BatchQueue(MAX_ITEMS, FLUSH_SECONDS, _MAX_BATCHES)
        self._error: Exception | None = None

    def __iter__(self) -> Iterator[Any]:
        with blocked_in_new_threads():
            threading.Thread(target=self._read, daemon=True).start()
        while (batch := self._take()) is not None:
            yield from batch.entries
            yield FLUSH
        if self._error is not None:
            raise self._error

    def _take(self) -> Batch[Any] | None:
        """Wait for a batch, and return it. Return None at the end."""
        while True:
            self._look_for_signal()
            has_ended = self._queue.is_ending
            batch = self._queue.first(_LOOK_SECONDS)
            if batch is not None:
                self._queue.remove_first()
                return batch
            if has_ended:
                return None

    def _look_for_signal(self) -> None:
        """End the items some time after a signal, also if the writer continues."""
        if self._signals.received is None:
            return
        if self._last == inf:
            self._last = time.monotonic() + _LAST_SECONDS
            self._on_stop()
        if time.monotonic() >= self._last:
            self._queue.end()

    def _read(self) -> None:
        """Read the items. It waits if the others are not taken yet."""
        try:
            for item in self._source:
                if not self._queue.put(item, _size(item)):
                    return
        except Exception as error:  # the other thread raises it
            self._error = error
        self._queue.end()


def _size(item: Any) -> int:
    """Return the bytes of an item, about as many as its line has."""
    if isinstance(item, dict):
        return sum(len(name) + len(value) + 6 for name, value in item.items())
    return len(item) if isinstance(item, bytes) else 0
