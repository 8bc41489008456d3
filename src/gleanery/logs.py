"""Structured logs on standard error: for people on a terminal, as JSON elsewhere."""

from __future__ import annotations

import logging
import os
import sys

import structlog
from structlog.typing import Processor

from gleanery.settings import Settings


def configure(settings: Settings) -> None:
    """Routes our own and the server's log through one format."""
    as_text = settings.log_format == "text" or (
        settings.log_format == "auto" and sys.stderr.isatty()
    )
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
