"""Structured logs on standard error: text on a terminal, JSON elsewhere."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from json.encoder import encode_basestring_ascii as _json_string

from gleanery.settings import Settings

_log = logging.getLogger("gleanery.request")
_STANDARD_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "color_message"}
_DIM, _BOLD, _RESET = "\x1b[2m", "\x1b[1m", "\x1b[0m"


def configure(settings: Settings) -> None:
    """Give the log of the service and of the server one format."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_TextFormatter() if _is_text(settings) else _JsonFormatter())
    logging.basicConfig(handlers=[handler], level=settings.log_level.upper(), force=True)


def _extra(record: logging.LogRecord) -> dict[str, object]:
    """Return the fields that were passed as ``extra``."""
    return {name: value for name, value in vars(record).items() if name not in _STANDARD_FIELDS}


class _JsonFormatter(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        line = _extra(record) | {
            "event": record.getMessage(),
            "level": record.levelname.lower(),
            "timestamp": _timestamp(record.created),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class _TextFormatter(logging.Formatter):
    """One readable line, with a traceback below it."""

    def __init__(self) -> None:
        super().__init__()
        has_colors = sys.stderr.isatty() and "NO_COLOR" not in os.environ
        self._dim, self._bold, self._reset = (_DIM, _BOLD, _RESET) if has_colors else ("", "", "")

    def format(self, record: logging.LogRecord) -> str:
        fields = " ".join(f"{name}={value}" for name, value in _extra(record).items())
        line = (
            f"{self._dim}{_timestamp(record.created)}{self._reset} [{record.levelname.lower():<8}] "
            f"{self._bold}{record.getMessage():<30}{self._reset} {fields}"
        ).rstrip()
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def _is_text(settings: Settings) -> bool:
    return settings.log_format == "text" or (settings.log_format == "auto" and sys.stderr.isatty())


RequestLog = Callable[[str, bytes, str, int, float, bytes], None]
"""Writes the line of a request: method, path, operation, status, seconds and id."""
_MAX_PATH = 200


def request_log(settings: Settings) -> RequestLog | None:
    """Return the function that logs each request, or None if requests are not logged.

    JSON lines bypass the logging library, which takes longer than a whole small request.
    """
    if settings.log_level not in ("debug", "info"):
        return None
    return _log_as_text if _is_text(settings) else _JsonRequestLog()


def _log_as_text(
    method: str, path: bytes, operation: str, status: int, seconds: float, id_: bytes
) -> None:
    _log.info(
        "request",
        extra={
            "method": method,
            "path": _decode_path(path),
            "operation": operation,
            "status": status,
            "milliseconds": round(seconds * 1000, 2),
            "request_id": id_.decode("ascii"),
        },
    )


def _decode_path(path: bytes) -> str:
    return path[:_MAX_PATH].decode("ascii", "replace")


class _JsonRequestLog:
    """Writes the lines of one event-loop iteration together."""

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
                _line_start(method, path[:_MAX_PATH], operation),
                status,
                seconds * 1000,
                id_,
                _render_second(int(now)).encode(),
                now % 1 * 1_000_000,
            )
        )

    def _flush(self) -> None:
        lines, self._lines = self._lines, []
        with suppress(OSError):  # the pipe is closed, or the disk is full
            sys.stderr.buffer.write(b"".join(lines))
            sys.stderr.buffer.flush()


@lru_cache(maxsize=1024)
def _line_start(method: str, path: bytes, operation: str) -> bytes:
    """Return the start of a line, which is the same for all pages of a client."""
    return (
        f'{{"method":{_json_string(method)},"path":{_json_string(_decode_path(path))},'
        f'"operation":"{operation}","status":'
    ).encode()


def _timestamp(seconds: float) -> str:
    return f"{_render_second(int(seconds))}.{int(seconds % 1 * 1_000_000):06}Z"


@lru_cache(maxsize=4)
def _render_second(second: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
