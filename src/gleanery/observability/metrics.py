"""Histogram of request durations, summed over all workers of a node.

Each worker counts in its own array. With several workers the array is a memory-mapped file in a
shared folder, so each worker can sum all of them. The counts of a worker outlive it.

Anybody may request the metrics, so the text must be cheap. It is rendered at most once per second,
and only from the rows that have counts.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from http import HTTPStatus
from itertools import accumulate
from pathlib import Path

_NAME = "gleanery_request_seconds"
_HELP = "Time from the request to the end of its response."
_BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
_BUCKETS = len(_BOUNDS) + 1  # the last one counts all longer requests
_CELLS = _BUCKETS + 1  # the last one sums the seconds
_NUMBER_BYTES = 8
_ROW = struct.Struct(f"={_CELLS}d")
_NO_COUNTS = bytes(_ROW.size)
_MAX_AGE_SECONDS = 1.0  # a scraper asks every few seconds


class RequestHistogram:
    """Row of cells for each operation and status: a count per bucket, and the sum of seconds."""

    def __init__(self, operations: Iterable[str], folder: Path | None) -> None:
        pairs = [(name, status.value) for name in operations for status in HTTPStatus]
        self._rows = {pair: number * _CELLS for number, pair in enumerate(pairs)}
        self._folder = folder
        self._cells = self._new_array()
        self._text = b""
        self._text_expires = 0.0

    def add(self, operation: str, status: int, seconds: float) -> None:
        row = self._rows[operation, status]
        self._cells[row + bisect_left(_BOUNDS, seconds)] += 1
        self._cells[row + _BUCKETS] += seconds

    def exposition(self) -> bytes:
        """Return the histogram in Prometheus' text format, at most one second old."""
        now = time.monotonic()
        if now >= self._text_expires:
            self._text = self._render()
            self._text_expires = now + _MAX_AGE_SECONDS
        return self._text

    def _render(self) -> bytes:
        arrays = list(self._all_arrays())
        lines = [f"# HELP {_NAME} {_HELP}", f"# TYPE {_NAME} histogram"]
        for (operation, status), row in self._rows.items():
            start, end = row * _NUMBER_BYTES, row * _NUMBER_BYTES + _ROW.size
            used = [found for array in arrays if (found := array[start:end]) != _NO_COUNTS]
            if used:
                sums = [*map(sum, zip(*map(_ROW.unpack, used), strict=True))]
                lines += _exposition_lines(operation, status, sums)
        return ("\n".join(lines) + "\n").encode()

    def _new_array(self) -> memoryview[float]:
        size = len(self._rows) * _ROW.size
        if self._folder is None:
            return memoryview(bytearray(size)).cast("d")
        with (self._folder / f"{os.getpid()}.counts").open("w+b") as file:
            file.truncate(size)
            return memoryview(mmap.mmap(file.fileno(), size)).cast("d")

    def _all_arrays(self) -> Iterator[bytes]:
        if self._folder is None:
            yield self._cells.tobytes()
            return
        for path in self._folder.glob("*.counts"):
            yield path.read_bytes()


def _exposition_lines(operation: str, status: int, cells: Sequence[float]) -> Iterator[str]:
    counts = [*accumulate(cells[:_BUCKETS])]
    numbers = (*counts, counts[-1], cells[_BUCKETS])
    return (
        f"{name} {number}" for name, number in zip(_names(operation, status), numbers, strict=True)
    )


@cache
def _names(operation: str, status: int) -> Sequence[str]:
    """Return the names of the samples of a row, in the order of their values."""
    labels = f'operation="{operation}",status="{status}"'
    bounds = (*_BOUNDS, "+Inf")
    buckets = [f'{_NAME}_bucket{{{labels},le="{bound}"}}' for bound in bounds]
    return (*buckets, f"{_NAME}_count{{{labels}}}", f"{_NAME}_sum{{{labels}}}")
