"""Record of each request: one log line, a second one if it was slow, and the metrics."""

from __future__ import annotations

import asyncio
import itertools
import math
import re
import secrets
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from gleanery.http import Request
from gleanery.observability import logs
from gleanery.observability.feed_lag import feed_lag_histogram
from gleanery.observability.logs import RequestLog
from gleanery.observability.metrics import Exposition
from gleanery.observability.node_metrics import NodeMetrics
from gleanery.observability.process_metrics import observe_process
from gleanery.observability.request_histogram import request_histogram
from gleanery.observability.shared_counters import SharedCounters
from gleanery.observability.usage import Accounted, UsageMeter
from gleanery.observability.worker_metrics import WorkerMetrics

CLIENT_DISCONNECTED = 499
"""Status of a request whose client was gone before the end of the response, as nginx logs it."""
_PUBLISH_SECONDS = 1.0
_PROCESS = secrets.token_hex(6).encode()  # makes the ids of each process unique
_numbers = itertools.count(secrets.randbits(31))
_REQUEST_ID = re.compile(rb"(?!.*glean_)[A-Za-z0-9._-]{1,64}")  # rejects a token sent by mistake


def request_id_of(headers: Mapping[bytes, bytes]) -> bytes:
    """Return the id that a proxy or client sent, if it is safe to log; else a new one."""
    given = headers.get(b"x-request-id")
    if given is not None and _REQUEST_ID.fullmatch(given):
        return given
    return b"%s%08x" % (_PROCESS, next(_numbers) & 0xFFFFFFFF)


class Telemetry:
    """Log and metrics of the requests, per operation and status, and metrics of the node."""

    def __init__(
        self,
        log: RequestLog | None,
        operations: Iterable[str],
        counters: SharedCounters,
        folders: Mapping[str, Path],
        slow_seconds: float = 0.0,
        organizations: int = 0,
    ) -> None:
        """``folders`` are those whose free space is a metric, by label.

        A request is slow from ``slow_seconds`` on; 0 is never. ``organizations`` is the number of
        organizations with separate metrics.
        """
        self._log = log
        self._slow_seconds = slow_seconds or math.inf
        self.usage = UsageMeter(counters, organizations)
        """Counts the usage of each organization."""
        self._requests = request_histogram(operations, counters)
        self._feed_lags = feed_lag_histogram(counters)
        self.worker = WorkerMetrics(counters)
        """Metrics of this worker. Other parts register theirs here."""
        self._node = NodeMetrics(counters, folders)
        self._exposition = Exposition(
            self._requests.collect,
            self._feed_lags.collect,
            self.usage.collect,
            self.worker.collect,
            self._node.collect,
        )
        observe_process(self.worker)
        self.worker.observe("gleanery_log_lines_dropped_total", logs.dropped_lines)

    def record(
        self, request: Request, operation: str, id_: bytes, status: int, started: float
    ) -> None:
        """Record one completed request. The query is omitted: it may contain a token."""
        now = time.perf_counter()
        seconds = now - started
        self._requests.add((operation, status), seconds)
        account: Accounted = request.state
        if account.organization is not None:
            self.usage.add(
                account.organization,
                account.received_bytes,
                account.sent_bytes,
                account.stored_outputs,
            )
        if self._log is not None:
            self._log(request, operation, status, seconds, id_)
        if now - account.admitted - account.idle_seconds >= self._slow_seconds:
            logs.log_slow_request(request, operation, status, id_, started, now)

    def record_feed_lag(self, seconds: float, has_more: bool) -> None:
        """Record how far a reader of a change feed was behind."""
        self._feed_lags.add(has_more, max(seconds, 0.0))  # clocks of nodes differ

    async def publish(self) -> None:
        """Publish the metrics of this worker each second, until it is cancelled."""
        while True:
            self._node.refresh()
            self.usage.publish()
            self.worker.publish()
            await asyncio.sleep(_PUBLISH_SECONDS)

    def exposition(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return self._exposition.text()
