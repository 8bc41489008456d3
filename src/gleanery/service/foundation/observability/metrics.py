"""Metrics in Prometheus' text format, and the memory in which the workers of a node share them.

A collector is a function that returns metrics with their samples. Anybody may request the text, so
it must be cheap. It is rendered at most once per second.

The shared memory is a file without a name, with one segment per worker. The supervisor creates the
file, and each worker inherits its descriptor. The file is in no folder, so nothing can remove it.
The worker that replaces another one continues its segment, so counters never go back.

Every worker publishes its numbers there, so any worker can render those of all workers. A gauge has
one sample per worker, with the label ``worker``. A counter is summed over the workers. The process
has metrics under the names that Prometheus' clients use. The node has a version, replaced workers
and free disk space.
"""

from __future__ import annotations

import math
import mmap
import os
import resource
import struct
import tempfile
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from gleanery.common.version import __version__

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


class Snapshot:
    """Metrics that are computed at other times. The same samples are shown until the next ones."""

    def __init__(self) -> None:
        self._metrics: Sequence[tuple[Metric, Sequence[Sample]]] = ()

    def show(self, metrics: Sequence[tuple[Metric, Sequence[Sample]]]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[tuple[Metric, Iterable[Sample]]]:
        return self._metrics


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


# --- the metrics of the workers -----------------------------------------------------------------

STARTED = "process_start_time_seconds"
EXPIRED_RECORDS = "gleanery_session_records_expired"
EXPIRING_RECORDS = "gleanery_session_records_expiring"
OPEN_ALERTS = "gleanery_alerts_open"
CERTIFICATE_EXPIRY = "gleanery_tls_certificate_expiry_timestamp_seconds"

# The position in the table is the position in the segment.
GAUGES = tuple(
    Metric(name, "gauge", help_)
    for name, help_ in (
        (STARTED, "Start time of the worker process, in Unix time."),
        ("process_resident_memory_bytes", "Resident memory of the worker process."),
        ("process_open_fds", "Open file descriptors of the worker process."),
        ("process_max_fds", "Limit on open file descriptors of the worker process."),
        ("gleanery_ready", "1 while /readyz would succeed, else 0."),
        ("gleanery_blob_store_failing", "1 after the store of files has failed, else 0."),
        ("gleanery_connections_open", "Open client connections."),
        ("gleanery_requests_in_progress", "Requests that hold a slot of --max-requests."),
        ("gleanery_long_polls_in_progress", "Long polls that wait for a change."),
        (
            "gleanery_transfers_in_progress",
            "Transfers of files and exports that hold a slot of --max-transfers.",
        ),
        (
            "gleanery_unsent_bytes",
            "Bytes of responses that clients have not read, which count for --max-unsent-bytes.",
        ),
        ("gleanery_postgres_pool_connections_max", "Size of the PostgreSQL pool."),
        ("gleanery_postgres_pool_connections_in_use", "PostgreSQL connections in use."),
        ("gleanery_postgres_pool_requests_waiting", "Requests that wait for a connection."),
        ("gleanery_replicas_configured", "Replicas that --replica names."),
        ("gleanery_replicas_usable", "Replicas that are read."),
        ("gleanery_replica_lag_seconds", "Lag of the replica that is furthest behind."),
        ("gleanery_redis_fallback_active", "1 while requests are counted without Redis, else 0."),
        (EXPIRED_RECORDS, "Cookies and local-storage entries that have expired."),
        (EXPIRING_RECORDS, "Cookies and local-storage entries that expire within a day."),
        (CERTIFICATE_EXPIRY, "Expiry of the TLS certificate in use, in Unix time."),
        ("gleanery_webhook_deliveries_waiting", "Events that wait for a webhook."),
        (
            "gleanery_webhook_oldest_due_seconds",
            "Time for which the oldest event could have been sent, and was not.",
        ),
        (OPEN_ALERTS, "Open alerts of all groups that are not muted."),
    )
)
COUNTERS = tuple(
    Metric(name, "counter", help_)
    for name, help_ in (
        ("gleanery_redis_fallbacks_total", "Times that Redis became unavailable to a worker."),
        ("gleanery_blob_store_errors_total", "Times that the store of files failed."),
        ("gleanery_log_lines_dropped_total", "Log lines of the workers that were not written."),
        (
            "gleanery_connections_evicted_total",
            "Connections without a request that were closed for new ones at --max-connections.",
        ),
        (
            "gleanery_connections_refused_total",
            "Connections above --max-connections: all but health checks and metrics get 503.",
        ),
        ("gleanery_webhook_attempts_succeeded_total", "Attempts to send an event that succeeded."),
        ("gleanery_webhook_attempts_failed_total", "Attempts to send an event that failed."),
    )
)
_GAUGE_POSITIONS = {metric.name: position for position, metric in enumerate(GAUGES)}
_COUNTER_POSITIONS = {metric.name: position for position, metric in enumerate(COUNTERS)}

Read = Callable[[], float]


class WorkerMetrics:
    """Functions that read the metrics of this worker, and the published numbers of all."""

    def __init__(self, counters: SharedCounters) -> None:
        self._counters = counters
        self._gauges: dict[int, Read] = {}
        self._counts: dict[int, tuple[float, Read]] = {}  # with the count of earlier processes

    def observe(self, name: str, read: Read) -> None:
        """Register the function that returns the current value of a metric of the tables.

        A gauge without a value is NaN, and has no sample.
        """
        if name in _GAUGE_POSITIONS:
            self._gauges[_GAUGE_POSITIONS[name]] = read
        else:
            position = _COUNTER_POSITIONS[name]
            self._counts[position] = self._counters.own.counters[position], read

    def publish(self) -> None:
        """Write the current values into the segment of this worker."""
        own = self._counters.own
        for position, read in self._gauges.items():
            with suppress(OSError):  # no free file descriptor to look into /proc
                own.gauges[position] = read()
        for position, (earlier, read) in self._counts.items():
            own.counters[position] = earlier + read()

    def collect(self) -> Iterator[tuple[Metric, Iterable[Sample]]]:
        """Return the metrics that this worker observes, as all workers do."""
        self.publish()
        segments = self._counters.segments
        running = [
            (number, segment.gauges)
            for number, segment in enumerate(segments, 1)
            if segment.gauges[_GAUGE_POSITIONS[STARTED]]
        ]
        for position in self._gauges:
            metric = GAUGES[position]
            yield (
                metric,
                [
                    (f'{metric.name}{{worker="{n}"}}', gauges[position])
                    for n, gauges in running
                    if not math.isnan(gauges[position])
                ],
            )
        for position in self._counts:
            metric = COUNTERS[position]
            total = sum(segment.counters[position] for segment in segments)
            yield metric, [(metric.name, total)]


# --- the process --------------------------------------------------------------------------------

_MEMORY = Path("/proc/self/statm")
_DESCRIPTORS = Path("/proc/self/fd")


def observe_process(metrics: WorkerMetrics) -> None:
    """Register the metrics of this process. Some need Linux."""
    started = time.time()
    metrics.observe(STARTED, lambda: started)
    metrics.observe("process_max_fds", lambda: resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    if _MEMORY.exists():
        metrics.observe("process_resident_memory_bytes", _resident_bytes)
        metrics.observe("process_open_fds", lambda: len(os.listdir(_DESCRIPTORS)))


def _resident_bytes() -> float:
    return int(_MEMORY.read_text().split()[1]) * resource.getpagesize()


# --- the node -----------------------------------------------------------------------------------

_INFO = Metric("gleanery_info", "gauge", "Always 1; the label is the version of the program.")
_REPLACED_WORKERS = Metric(
    "gleanery_worker_restarts_total", "counter", "Workers that were replaced."
)
_DISK_FREE = Metric("gleanery_disk_free_bytes", "gauge", "Free disk space for the service.")
_MAX_READING_SECONDS = 10.0  # a file system that does not answer for this time has no sample


class NodeMetrics:
    """Collects the metrics that are the same in every worker."""

    def __init__(self, counters: SharedCounters, folders: Mapping[str, Path]) -> None:
        self._counters = counters
        self._free_space = {label: _FreeSpace(folder) for label, folder in folders.items()}

    def refresh(self) -> None:
        for free_space in self._free_space.values():
            free_space.refresh()

    def collect(self) -> Iterator[tuple[Metric, Iterable[Sample]]]:
        yield _INFO, [(f'{_INFO.name}{{version="{__version__}"}}', 1.0)]
        yield _REPLACED_WORKERS, [(_REPLACED_WORKERS.name, self._counters.restarts)]
        free = {label: one.free_bytes() for label, one in self._free_space.items()}
        yield (
            _DISK_FREE,
            [
                (f'{_DISK_FREE.name}{{folder="{label}"}}', number)
                for label, number in free.items()
                if number is not None
            ],
        )


class _FreeSpace:
    """Free space of a folder, read in a thread because a network file system may not answer."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._found: tuple[float, float] | None = None  # the bytes, and the time of the reading
        self._thread: threading.Thread | None = None

    def refresh(self) -> None:
        """Start a reading, unless the last one still waits for the file system."""
        if self._thread is None or not self._thread.is_alive():
            thread = threading.Thread(target=self._read, name="free space", daemon=True)
            with suppress(RuntimeError):  # too many threads: the next call tries again
                thread.start()
                self._thread = thread

    def free_bytes(self) -> float | None:
        """Return the bytes of the last reading; None if there is none, or it is too old."""
        if self._found is None or time.monotonic() - self._found[1] > _MAX_READING_SECONDS:
            return None
        return self._found[0]

    def _read(self) -> None:
        with suppress(OSError):  # the folder does not exist
            state = os.statvfs(self._folder)
            self._found = float(state.f_bavail * state.f_frsize), time.monotonic()
