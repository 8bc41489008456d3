"""Metrics in Prometheus' text format, and the memory in which the workers of a node share them.

A collector is a function that returns metrics with their samples. Anybody may request the text, so
it must be cheap. It is rendered at most once per second.

The shared memory is a file without a name, with one segment per worker. The supervisor creates the
file, and each worker inherits its descriptor. The file is in no folder, so nothing can remove it.
The worker that replaces another one continues its segment, so counters never go back.
"""

from __future__ import annotations

import mmap
import os
import struct
import tempfile
import time
from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Generic, NamedTuple, TypeVar

# --- the text -----------------------------------------------------------------------------------

_MAX_AGE_SECONDS = 1.0  # a scraper asks every few seconds


class Metric(NamedTuple):
    """Name, type and description of a metric."""

    name: str
    type: str
    """Type in Prometheus' terms: gauge, counter or histogram."""
    help: str


Sample = tuple[str, float]
"""Name with labels, and value."""

Collector = Callable[[], Iterable[tuple[Metric, Iterable[Sample]]]]


class Exposition:
    """Text of the metrics of all collectors."""

    def __init__(self, *collectors: Collector) -> None:
        self._collectors = collectors
        self._text = b""
        self._expires = 0.0

    def text(self) -> bytes:
        """Return the text, at most one second old."""
        now = time.monotonic()
        if now >= self._expires:
            self._text = ("\n".join(self._lines()) + "\n").encode()
            self._expires = now + _MAX_AGE_SECONDS
        return self._text

    def _lines(self) -> Iterator[str]:
        for collect in self._collectors:
            for metric, samples in collect():
                yield f"# HELP {metric.name} {metric.help}"
                yield f"# TYPE {metric.name} {metric.type}"
                for name, value in samples:
                    yield f"{name} {value}"


# --- histograms ---------------------------------------------------------------------------------

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


# --- shared memory ------------------------------------------------------------------------------

_SEGMENT_BYTES = 1024 * 1024
_NUMBER_BYTES = 8
_MAX_GAUGES = 64
_MAX_COUNTERS = 64
_FEED_LAG_CELLS = 64
_USAGE_CELLS = 1024
_RESTARTS = 0  # position in the segment of the node


class Segment:
    """Numbers of one worker."""

    def __init__(self, numbers: memoryview[float]) -> None:
        self.gauges = numbers[:_MAX_GAUGES]
        """State of the worker; zero while it does not run."""
        self.counters = numbers[_MAX_GAUGES : _MAX_GAUGES + _MAX_COUNTERS]
        rest = numbers[_MAX_GAUGES + _MAX_COUNTERS :]
        self.feed_lags = rest[:_FEED_LAG_CELLS]
        rest = rest[_FEED_LAG_CELLS:]
        self.usage = rest[:_USAGE_CELLS]
        self.requests = rest[_USAGE_CELLS:]


class SharedCounters:
    """Segments of all workers, and of the node itself."""

    def __init__(self, memory: mmap.mmap, descriptor: int, worker_number: int | None) -> None:
        self._descriptor = descriptor
        self._worker_number = worker_number
        numbers = memoryview(memory).cast("d")
        length = _SEGMENT_BYTES // _NUMBER_BYTES
        self._node, *segments = (
            numbers[start : start + length] for start in range(0, len(numbers), length)
        )
        self.segments = [Segment(numbers) for numbers in segments]
        """Segments of the workers, in the order of their numbers."""

    @classmethod
    def create(cls, workers: int) -> SharedCounters:
        """Create the file. The supervisor calls it and passes ``fileno()`` to each worker."""
        size = (1 + workers) * _SEGMENT_BYTES
        descriptor = _unnamed_file(size)
        return cls(mmap.mmap(descriptor, size), descriptor, None)

    @classmethod
    def attach(cls, descriptor: int, worker_number: int) -> SharedCounters:
        """Open the inherited file in a worker. The first worker has number 1.

        The descriptor can be closed afterwards.
        """
        counters = cls(mmap.mmap(descriptor, 0), descriptor, worker_number)
        if not 1 <= worker_number <= len(counters.segments):
            raise ValueError(f"worker_number must be from 1 to {len(counters.segments)}")
        counters.clear_gauges(worker_number)
        return counters

    @classmethod
    def private(cls) -> SharedCounters:
        """Create counters for a service of one process."""
        return cls(mmap.mmap(-1, 2 * _SEGMENT_BYTES), -1, 1)

    def fileno(self) -> int:
        return self._descriptor

    @property
    def own(self) -> Segment:
        """Segment of this worker."""
        assert self._worker_number is not None, "the supervisor has no segment"
        return self.segments[self._worker_number - 1]

    @property
    def restarts(self) -> float:
        """Number of workers that were replaced."""
        return self._node[_RESTARTS]

    def count_restart(self, worker_number: int) -> None:
        """Note that a worker has ended and is replaced. The supervisor calls it."""
        self._node[_RESTARTS] += 1
        self.clear_gauges(worker_number)

    def clear_gauges(self, worker_number: int) -> None:
        gauges = self.segments[worker_number - 1].gauges
        gauges[:] = memoryview(bytes(gauges.nbytes)).cast("d")


def _unnamed_file(size: int) -> int:
    """Return the descriptor of a file of zeros that is in memory, or else in no folder."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("gleanery-counters")
        os.ftruncate(descriptor, size)
        return descriptor
    with tempfile.TemporaryFile() as file:
        file.write(bytes(size))  # reserves the space; without it a full disk ends the process
        file.flush()
        return os.dup(file.fileno())
