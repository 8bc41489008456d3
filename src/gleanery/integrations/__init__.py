"""Integrations: extensions of scraping and data tools that store in Gleanery or read from it.

Each module or package is for one tool, needs the extra of the same name, and uses the client only.
"""

from __future__ import annotations

import logging

_HTTP_LOGGERS = ("httpx2", "httpcore2")


def limit_request_log() -> None:
    """Leave the requests to the service out of a tool's log, unless the program has set a level."""
    for name in _HTTP_LOGGERS:
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.WARNING)
