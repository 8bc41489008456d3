"""Structured logs on standard error: for people on a terminal, as JSON elsewhere."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import time
from collections.abc import Callable
from functools import lru_cache
from json.encoder import encode_basestring_ascii as _quoted

from gleanery.settings import Settings

_log = logging.getLogger("gleanery.request")
_USUAL = frozenset(vars(logging.makeLogRecord({}))) | {"message", "color_message"}
_DIM, _BOLD, _PLAIN = "\x1b[2m", "\x1b[1m", "\x1b[0m"


def configure(settings: Settings) -> None:
    """Routes our own and the server's log through one format."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_AsText() if _is_text(settings) else _AsJson())
    logging.basicConfig(handlers=[handler], level=settings.log_level.upper(), force=True)


def _members(record: logging.LogRecord) -> dict[str, object]:
    """What was told beside the words, as ``extra``."""
    return {name: value for name, value in vars(record).items() if name not in _USUAL}


class _AsJson(logging.Formatter):
    """One object a line."""

    def format(self, record: logging.LogRecord) -> str:
        line = _members(record) | {
            "event": record.getMessage(),
            "level": record.levelname.lower(),
            "timestamp": _timestamp(record.created),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class _AsText(logging.Formatter):
    """A line for people, and the traceback under it."""

    def __init__(self) -> None:
        super().__init__()
        has_colors = sys.stderr.isatty() and "NO_COLOR" not in os.environ
        self._dim, self._bold, self._plain = (_DIM, _BOLD, _PLAIN) if has_colors else ("", "", "")

    def format(self, record: logging.LogRecord) -> str:
        members = " ".join(f"{name}={value}" for name, value in _members(record).items())
        line = (
            f"{self._dim}{_timestamp(record.created)}{self._plain} [{record.levelname.lower():<8}] "
            f"{self._bold}{record.getMessage():<30}{self._plain} {members}"
        ).rstrip()
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def _is_text(settings: Settings) -> bool:
    return settings.log_format == "text" or (settings.log_format == "auto" and sys.stderr.isatty())


RequestLog = Callable[[str, bytes, str, int, float, bytes], None]
"""Tells of a request: method, path, operation, status, seconds and id."""
_LONGEST_PATH = 200


def request_log(settings: Settings) -> RequestLog | None:
    """What writes the line of each request, if there is to be one.

    As JSON it is put together by hand: the way through the logging library takes longer than all
    else that is done for a small request.
    """
    if settings.log_level not in ("debug", "info"):
        return None
    return _request_as_text if _is_text(settings) else _JsonLines()


def _request_as_text(
    method: str, path: bytes, operation: str, status: int, seconds: float, id_: bytes
) -> None:
    _log.info(
        "request",
        extra={
            "method": method,
            "path": _readable(path),
            "operation": operation,
            "status": status,
            "milliseconds": round(seconds * 1000, 2),
            "request_id": id_.decode("ascii"),
        },
    )


def _readable(path: bytes) -> str:
    return path[:_LONGEST_PATH].decode("ascii", "replace")


class _JsonLines:
    """Lines of requests that are answered in the same turn of the event loop go out together."""

    def __init__(self) -> None:
        self._lines: list[bytes] = []

    def __call__(
        self, method: str, path: bytes, operation: str, status: int, seconds: float, id_: bytes
    ) -> None:
        if not self._lines:
            asyncio.get_running_loop().call_soon(self._flush)
        now = time.time()
        self._lines.append(
            b'%s%d,"milliseconds":%.2f,"request_id":"%s","event":"request","level":"info",'
            b'"timestamp":"%s.%06dZ"}\n'
            % (
                _line_start(method, path[:_LONGEST_PATH], operation),
                status,
                seconds * 1000,
                id_,
                _rendered(int(now)).encode(),
                now % 1 * 1_000_000,
            )
        )

    def _flush(self) -> None:
        lines, self._lines = self._lines, []  # first: the next ones get their turn, come what may
        sys.stderr.buffer.write(b"".join(lines))
        sys.stderr.buffer.flush()


@lru_cache(maxsize=1024)
def _line_start(method: str, path: bytes, operation: str) -> bytes:
    """Up to the status: the same for all requests of a client that pages."""
    return (
        f'{{"method":{_quoted(method)},"path":{_quoted(_readable(path))},'
        f'"operation":"{operation}","status":'
    ).encode()


def _timestamp(seconds: float) -> str:
    return f"{_rendered(int(seconds))}.{int(seconds % 1 * 1_000_000):06}Z"


@lru_cache(maxsize=4)
def _rendered(second: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
