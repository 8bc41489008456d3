"""A histogram in Prometheus' form, with labels, summed over all workers of a node."""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Generic, TypeVar

from gleanery.observability.metrics import Metric, Sample

Key = TypeVar("Key", bound=Hashable)


class Histogram(Generic[Key]):
    """Row of cells for each key: a count per bucket, and the sum of the values.

    The last bucket counts the values above all bounds.
    """

    def __init__(
        self,
        metric: Metric,
        bounds: Sequence[float],
        keys: Iterable[Key],
        labels: Callable[[Key], str],
        own: memoryview[float],
        workers: Sequence[memoryview[float]],
        *,
        shows_empty: bool = False,
    ) -> None:
        """``own`` are the cells of this worker, ``workers`` those of all workers.

        Without ``shows_empty``, a key without counts has no samples.
        """
        self._metric = metric
        self._bounds = bounds
        self._buckets = len(bounds) + 1
        self._row = struct.Struct(f"={self._buckets + 1}d")
        cells = self._buckets + 1
        self._rows = {key: number * cells for number, key in enumerate(keys)}
        self._labels = labels
        self._own = own
        self._workers = workers
        self._shows_empty = shows_empty
        self._names: dict[Key, Sequence[str]] = {}
        assert len(self._rows) * cells <= len(own), "the segment is too small"

    def add(self, key: Key, value: float) -> None:
        row = self._rows[key]
        self._own[row + bisect_left(self._bounds, value)] += 1
        self._own[row + self._buckets] += value

    def collect(self) -> Iterable[tuple[Metric, Iterable[Sample]]]:
        return [(self._metric, self._samples())]

    def _samples(self) -> Iterator[Sample]:
        size = self._row.size
        length = len(self._rows) * (self._buckets + 1)
        arrays = [cells[:length].tobytes() for cells in self._workers]
        no_counts = bytes(size)
        for number, key in enumerate(self._rows):
            start, end = number * size, (number + 1) * size
            used = [found for array in arrays if (found := array[start:end]) != no_counts]
            if used or self._shows_empty:
                used = used or [no_counts]
                sums = [*map(sum, zip(*map(self._row.unpack, used), strict=True))]
                counts = [*accumulate(sums[: self._buckets])]
                numbers = (*counts, counts[-1], sums[self._buckets])
                yield from zip(self._names_of(key), numbers, strict=True)

    def _names_of(self, key: Key) -> Sequence[str]:
        """Return the names of the samples of a row, in the order of their values."""
        if key not in self._names:
            name, labels = self._metric.name, self._labels(key)
            bounds = (*self._bounds, "+Inf")
            buckets = [f'{name}_bucket{{{labels},le="{bound}"}}' for bound in bounds]
            self._names[key] = (*buckets, f"{name}_count{{{labels}}}", f"{name}_sum{{{labels}}}")
        return self._names[key]
