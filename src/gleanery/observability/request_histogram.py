"""Histogram of request durations by operation and status, summed over all workers of a node."""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from http import HTTPStatus
from itertools import accumulate

from gleanery.observability.metrics import Metric, Sample
from gleanery.observability.shared_counters import SharedCounters

_METRIC = Metric(
    "gleanery_request_seconds", "histogram", "Time from the request to the end of its response."
)
_BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
_BUCKETS = len(_BOUNDS) + 1  # the last one counts all longer requests
_CELLS = _BUCKETS + 1  # the last one sums the seconds
_ROW = struct.Struct(f"={_CELLS}d")
_NO_COUNTS = bytes(_ROW.size)


class RequestHistogram:
    """Row of cells for each operation and status: a count per bucket, and the sum of seconds."""

    def __init__(self, operations: Iterable[str], counters: SharedCounters) -> None:
        pairs = [(name, status.value) for name in operations for status in HTTPStatus]
        self._rows = {pair: number * _CELLS for number, pair in enumerate(pairs)}
        self._counters = counters
        self._cells = counters.own.histogram
        assert len(pairs) * _CELLS <= len(self._cells), "the segment is too small"

    def add(self, operation: str, status: int, seconds: float) -> None:
        row = self._rows[operation, status]
        self._cells[row + bisect_left(_BOUNDS, seconds)] += 1
        self._cells[row + _BUCKETS] += seconds

    def collect(self) -> Iterable[tuple[Metric, Iterable[Sample]]]:
        return [(_METRIC, self._samples())]

    def _samples(self) -> Iterator[Sample]:
        """Yield the samples of the rows that have counts."""
        size = len(self._rows) * _CELLS
        arrays = [segment.histogram[:size].tobytes() for segment in self._counters.segments]
        for number, (operation, status) in enumerate(self._rows):
            start, end = number * _ROW.size, (number + 1) * _ROW.size
            used = [found for array in arrays if (found := array[start:end]) != _NO_COUNTS]
            if used:
                sums = [*map(sum, zip(*map(_ROW.unpack, used), strict=True))]
                counts = [*accumulate(sums[:_BUCKETS])]
                numbers = (*counts, counts[-1], sums[_BUCKETS])
                yield from zip(_names(operation, status), numbers, strict=True)


@cache
def _names(operation: str, status: int) -> Sequence[str]:
    """Return the names of the samples of a row, in the order of their values."""
    name, labels = _METRIC.name, f'operation="{operation}",status="{status}"'
    bounds = (*_BOUNDS, "+Inf")
    buckets = [f'{name}_bucket{{{labels},le="{bound}"}}' for bound in bounds]
    return (*buckets, f"{name}_count{{{labels}}}", f"{name}_sum{{{labels}}}")
