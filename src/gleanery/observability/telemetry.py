"""What an operator sees of the requests: one log line each, and the metrics."""

from __future__ import annotations

import itertools
import re
import secrets
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from gleanery.http import Request
from gleanery.observability.logs import RequestLog
from gleanery.observability.metrics import Counts

_PROCESS = secrets.token_hex(6).encode()  # no other process has the same ids
_numbers = itertools.count(secrets.randbits(31))
_REQUEST_ID = re.compile(rb"(?!.*glean_)[A-Za-z0-9._-]{1,64}")  # and no token, by mistake


def request_id_of(headers: Mapping[bytes, bytes]) -> bytes:
    """The one that a proxy or client gave, if it is harmless; else a new one."""
    given = headers.get(b"x-request-id")
    if given is not None and _REQUEST_ID.fullmatch(given):
        return given
    return b"%s%08x" % (_PROCESS, next(_numbers) & 0xFFFFFFFF)


class Telemetry:
    """Counts and times requests per operation and status, over all workers of a node."""

    def __init__(
        self, log: RequestLog | None, operations: Iterable[str], folder: Path | None
    ) -> None:
        self._log = log
        self._counts = Counts(operations, folder)

    def record(
        self, operation: str, request: Request, id_: bytes, status: int, started: float
    ) -> None:
        """Tells of one answered request. The query stays out: people put tokens there."""
        seconds = time.perf_counter() - started
        self._counts.add(operation, status, seconds)
        if self._log is not None:
            self._log(request.method, request.path, operation, status, seconds, id_)

    def exposition(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return self._counts.exposition()
