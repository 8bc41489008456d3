"""Structured logs on standard error: for people on a terminal, as JSON elsewhere."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from collections.abc import Callable
from functools import lru_cache
from json.encoder import encode_basestring_ascii as _quoted

import structlog
from structlog.typing import Processor

from gleanery.settings import Settings

_log = structlog.get_logger("gleanery.request")


def configure(settings: Settings) -> None:
    """Routes our own and the server's log through one format."""
    as_text = _is_text(settings)
    level = getattr(logging, settings.log_level.upper())
    shared: list[Processor] = [
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *_ending(as_text),
            ],
        )
    )
    logging.basicConfig(handlers=[handler], level=level, force=True)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )


def _is_text(settings: Settings) -> bool:
    return settings.log_format == "text" or (settings.log_format == "auto" and sys.stderr.isatty())


RequestLog = Callable[[str, str, str, int, float, str], None]
"""Tells of a request: method, path, operation, status, seconds and id."""


def request_log(settings: Settings) -> RequestLog | None:
    """What writes the line of each request, if there is to be one.

    As JSON it is put together by hand: the way through the logging library takes longer than all
    else that is done for a small request.
    """
    if settings.log_level not in ("debug", "info"):
        return None
    return _request_as_text if _is_text(settings) else _JsonLines()


def _request_as_text(
    method: str, path: str, operation: str, status: int, seconds: float, id_: str
) -> None:
    _log.info(
        "request",
        method=method,
        path=path,
        operation=operation,
        status=status,
        milliseconds=round(seconds * 1000, 2),
        request_id=id_,
    )


class _JsonLines:
    """Lines of requests that are answered in the same turn of the event loop go out together."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def __call__(
        self, method: str, path: str, operation: str, status: int, seconds: float, id_: str
    ) -> None:
        if not self._lines:
            asyncio.get_running_loop().call_soon(self._flush)
        second, fraction = divmod(time.time(), 1)
        self._lines.append(
            f'{{"method":{_quoted(method)},"path":{_quoted(path)},"operation":"{operation}",'
            f'"status":{status},"milliseconds":{seconds * 1000:.2f},"request_id":"{id_}",'
            f'"event":"request","level":"info",'
            f'"timestamp":"{_rendered(int(second))}.{int(fraction * 1_000_000):06}Z"}}\n'
        )

    def _flush(self) -> None:
        lines, self._lines = (
            self._lines,
            [],
        )  # first: whatever happens, the next ones get their turn
        sys.stderr.write("".join(lines))
        sys.stderr.flush()


@lru_cache(maxsize=4)
def _rendered(second: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))


def _ending(as_text: bool) -> list[Processor]:
    """Tracebacks are plain: richer ones print local variables, and those can be credentials."""
    if as_text:
        return [
            structlog.dev.ConsoleRenderer(
                colors=sys.stderr.isatty() and "NO_COLOR" not in os.environ,
                exception_formatter=structlog.dev.plain_traceback,
            )
        ]
    return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
