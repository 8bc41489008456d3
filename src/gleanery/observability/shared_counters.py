"""Numbers that the workers of a node share: one segment per worker, in a file without a name.

The supervisor creates the file, and each worker inherits its descriptor. The file is in no folder,
so nothing can remove it. The worker that replaces another one continues its segment, so counters
never go back.
"""

from __future__ import annotations

import mmap
import os
import tempfile

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
