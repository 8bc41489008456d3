"""What an operator sees of the requests: one log line each, and the metrics."""

from __future__ import annotations

import itertools
import os
import re
import secrets
import time
from collections.abc import Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Histogram, generate_latest, multiprocess

from gleanery.logs import RequestLog

_PROCESS = secrets.token_hex(6).encode()  # no other process has the same ids
_numbers = itertools.count(secrets.randbits(31))
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


def request_id(headers: list[tuple[bytes, bytes]]) -> bytes:
    """The one that a proxy or client gave, if it is harmless; else a new one."""
    for name, value in headers:
        if name == b"x-request-id" and _REQUEST_ID.fullmatch(value):
            return value
    return b"%s%08x" % (_PROCESS, next(_numbers) & 0xFFFFFFFF)


class Telemetry:
    """Counts and times requests per operation and status, over all workers of a node."""

    def __init__(self, log: RequestLog | None) -> None:
        self._log = log
        self._registry = CollectorRegistry()
        self._seconds = Histogram(
            "gleanery_request_seconds",
            "Time from the request to the end of its answer.",
            ["operation", "status"],
            buckets=_BUCKETS,
            registry=self._registry,
        )
        self._children: dict[tuple[str, int], Histogram] = {}

    def record(
        self, operation: str, scope: Mapping[str, Any], id_: bytes, status: int, started: float
    ) -> None:
        """Tells of one answered request. The query stays out: people put tokens there."""
        seconds = time.perf_counter() - started
        child = self._children.get((operation, status))
        if child is None:
            child = self._seconds.labels(operation, str(status))
            self._children[operation, status] = child
        child.observe(seconds)
        if self._log is not None:
            path = scope["raw_path"][:200].decode("ascii", "replace")
            self._log(scope["method"], path, operation, status, seconds, id_.decode("ascii"))

    def exposition(self) -> bytes:
        """All metrics in Prometheus' text format."""
        if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
            return generate_latest(self._registry)
        registry = CollectorRegistry()
        multiprocess.MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry)
