"""Histogram of request durations, summed over all workers of a node.

Each worker counts in its own array. With several workers the array is a memory-mapped file in a
shared folder, so each worker can sum all of them. The counts of a worker outlive it.
"""

from __future__ import annotations

import mmap
import os
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from http import HTTPStatus
from pathlib import Path

_NAME = "gleanery_request_seconds"
_HELP = "Time from the request to the end of its response."
_BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
_BUCKETS = len(_BOUNDS) + 1  # the last one counts all longer requests
_CELLS = _BUCKETS + 1  # the last one sums the seconds
_NUMBER_BYTES = 8


class RequestHistogram:
    """Row of cells for each operation and status: a count per bucket, and the sum of seconds."""

    def __init__(self, operations: Iterable[str], folder: Path | None) -> None:
        pairs = [(name, status.value) for name in operations for status in HTTPStatus]
        self._rows = {pair: number * _CELLS for number, pair in enumerate(pairs)}
        self._folder = folder
        self._cells = self._new_array()

    def add(self, operation: str, status: int, seconds: float) -> None:
        row = self._rows[operation, status]
        self._cells[row + bisect_left(_BOUNDS, seconds)] += 1
        self._cells[row + _BUCKETS] += seconds

    def exposition(self) -> bytes:
        """Return the histogram in Prometheus' text format."""
        arrays = list(self._all_arrays())
        lines = [f"# HELP {_NAME} {_HELP}", f"# TYPE {_NAME} histogram"]
        for (operation, status), row in self._rows.items():
            cells = [sum(array[row + n] for array in arrays) for n in range(_CELLS)]
            if any(cells):
                lines += _exposition_lines(f'operation="{operation}",status="{status}"', cells)
        return ("\n".join(lines) + "\n").encode()

    def _new_array(self) -> memoryview[float]:
        size = len(self._rows) * _CELLS * _NUMBER_BYTES
        if self._folder is None:
            return memoryview(bytearray(size)).cast("d")
        with (self._folder / f"{os.getpid()}.counts").open("w+b") as file:
            file.truncate(size)
            return memoryview(mmap.mmap(file.fileno(), size)).cast("d")

    def _all_arrays(self) -> Iterator[memoryview[float]]:
        if self._folder is None:
            yield self._cells
            return
        for path in self._folder.glob("*.counts"):
            yield memoryview(path.read_bytes()).cast("d")


def _exposition_lines(labels: str, cells: Sequence[float]) -> Iterator[str]:
    count = 0.0
    for bound, number in zip((*_BOUNDS, "+Inf"), cells, strict=False):
        count += number
        yield f'{_NAME}_bucket{{{labels},le="{bound}"}} {count}'
    yield f"{_NAME}_count{{{labels}}} {count}"
    yield f"{_NAME}_sum{{{labels}}} {cells[_BUCKETS]}"
