"""Metrics of the node: version, replaced workers, and free disk space."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from gleanery.observability.metrics import Metric, Sample
from gleanery.observability.shared_counters import SharedCounters
from gleanery.version import __version__

_INFO = Metric("gleanery_info", "gauge", "Always 1; the label is the version of the program.")
_RESTARTS = Metric("gleanery_worker_restarts_total", "counter", "Workers that were replaced.")
_DISK_FREE = Metric("gleanery_disk_free_bytes", "gauge", "Free disk space for the service.")
_MAX_AGE_SECONDS = 10.0  # a file system that does not answer for this time has no sample


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
        if self._found is None or time.monotonic() - self._found[1] > _MAX_AGE_SECONDS:
            return None
        return self._found[0]

    def _read(self) -> None:
        with suppress(OSError):  # the folder does not exist
            state = os.statvfs(self._folder)
            self._found = float(state.f_bavail * state.f_frsize), time.monotonic()
