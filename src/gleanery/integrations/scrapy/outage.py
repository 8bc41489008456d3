"""The state of the service, as its responses show it: when to retry, and when to use the disk."""

from __future__ import annotations

import logging
import time
from random import uniform

from gleanery.client import ApiError, ClientError
from gleanery.integrations.scrapy.keys import KeyConflict

logger = logging.getLogger(__name__)

_FIRST_WAIT = 0.5
_LONGEST_WAIT = 15.0
_LONGEST_RETRY_AFTER = 120.0
_TEMPORARY = frozenset({408, 429})


class Outage:
    """Failures of requests since the last success."""

    def __init__(self, max_retries: int) -> None:
        self._max_retries = max_retries
        self._retry_at = 0.0
        self.failures = 0
        self.last_error = ""
        self.is_permanent = False
        """True if the last request cannot succeed later either."""

    @property
    def is_down(self) -> bool:
        """True if retries have not helped, or cannot help."""
        return self.is_permanent or self.failures > self._max_retries

    @property
    def is_retrying(self) -> bool:
        return self.failures > 0 and not self.is_down

    def seconds_to_wait(self) -> float:
        """Return the seconds until the next attempt; not more than 0 if it can start."""
        return self._retry_at - time.monotonic()

    def note_success(self) -> None:
        if self.is_down:
            logger.info("Gleanery responds again")
        self.failures, self.last_error, self.is_permanent = 0, "", False
        self._retry_at = 0.0

    def note_failure(self, error: Exception, folder: object) -> None:
        """Choose the time of the next attempt, and log each new reason to write to the folder."""
        wait = _wait_after(error, self.failures)
        self._retry_at = time.monotonic() + wait
        was_down, last_error = self.is_down, self.last_error
        self.failures += 1
        self.is_permanent = _is_permanent(error)
        self.last_error = (str(error) or type(error).__name__).rstrip(".")
        if not self.is_down:
            logger.info("%s. Next attempt in %.1f s", self.last_error, wait)
        elif not was_down or self.last_error != last_error:
            logger.log(
                logging.ERROR if self.is_permanent else logging.WARNING,
                "Gleanery does not store items: %s. They are written to %s until it does",
                self.last_error,
                folder,
                exc_info=None if isinstance(error, ClientError) else error,
            )


def _wait_after(error: Exception, failures: int) -> float:
    """Return the seconds before the next attempt: they double, and are random within a half."""
    wait: float = min(_FIRST_WAIT * 2 ** min(failures, 10), _LONGEST_WAIT)
    wait *= uniform(0.5, 1.0)  # noqa: S311  # so that spiders do not retry at once
    if isinstance(error, ApiError) and error.retry_after is not None:
        return max(wait, min(error.retry_after, _LONGEST_RETRY_AFTER))
    return wait


def _is_permanent(error: Exception) -> bool:
    """Return True if the same request cannot succeed later."""
    if isinstance(error, ApiError):
        return 400 <= error.status < 500 and error.status not in _TEMPORARY
    return isinstance(error, KeyConflict)
