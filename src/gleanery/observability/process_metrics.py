"""Metrics of the worker process itself, under the names that Prometheus' clients use."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path

from gleanery.observability.worker_metrics import STARTED, WorkerMetrics

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
