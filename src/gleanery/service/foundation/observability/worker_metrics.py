"""Metrics of the workers and of their node. Any worker can render those of all workers.

Every worker publishes its numbers. A gauge has one sample per worker, with the label ``worker``. A
counter is summed over the workers. The process has metrics under the names that Prometheus' clients
use. The node has a version, replaced workers and free disk space.
"""

from __future__ import annotations

import math
import os
import resource
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from gleanery.common.version import __version__
from gleanery.service.foundation.observability.metrics import Metric, Sample, SharedCounters

STARTED = "process_start_time_seconds"
EXPIRED_RECORDS = "gleanery_session_records_expired"
EXPIRING_RECORDS = "gleanery_session_records_expiring"
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
_RESTARTS = Metric("gleanery_worker_restarts_total", "counter", "Workers that were replaced.")
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
        yield _RESTARTS, [(_RESTARTS.name, self._counters.restarts)]
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
