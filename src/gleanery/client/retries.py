"""Retries: which failures are temporary, and how long to wait before the next attempt."""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from gleanery.client.errors import ApiError, ClientError, ConnectionFailed, TimedOut, UnexpectedPage
from gleanery.client.requests import Request
from gleanery.client.responses import Response, retry_after, to_error

_TEMPORARY = frozenset({408, 429, 500, 502, 503, 504})
_FIRST_SECONDS = 0.5
_LONGEST_SECONDS = 8.0


def is_temporary(failure: Response | ClientError) -> bool:
    """Return True if the same request can succeed later."""
    if isinstance(failure, Response | ApiError):
        return failure.status in _TEMPORARY
    return isinstance(failure, ConnectionFailed | TimedOut | UnexpectedPage)


def may_repeat(request: Request, failure: Response | ClientError) -> bool:
    """Return True if nothing is done twice when the request is sent again."""
    if not request.is_retried:
        return False
    return request.is_repeatable or _is_unexecuted(failure)


def _is_unexecuted(failure: Response | ClientError) -> bool:
    """Return True if the service has surely not executed the request.

    A proxy can respond with 502, 503 or 504 to a request that the service has executed.
    """
    if isinstance(failure, ConnectionFailed | TimedOut):
        return not failure.was_connected
    return isinstance(failure, Response | ApiError) and failure.status == 429


def as_error(failure: Response | ClientError, attempts: int, path: str) -> ClientError:
    """Return the error of the last attempt of a request with this path."""
    error = to_error(failure, path) if isinstance(failure, Response) else failure
    error.attempts = attempts
    return error


class RetryPolicy(NamedTuple):
    """Number of retries, and the longest wait that a service may ask for."""

    max_retries: int
    max_retry_after: float

    def delay(self, failure: Response | ClientError, retries: int) -> float | None:
        """Return the seconds to wait before the next attempt, or None to give up."""
        if retries >= self.max_retries or not is_temporary(failure):
            return None
        asked = retry_after(failure) if isinstance(failure, Response) else None
        if asked is None:
            return backoff(retries)
        return max(asked, backoff(retries)) if asked <= self.max_retry_after else None


def backoff(retries: int) -> float:
    """Return the seconds before a retry: they double, and are random within a half."""
    from random import uniform

    longest: float = min(_FIRST_SECONDS * 2 ** min(retries, 10), _LONGEST_SECONDS)
    return longest * uniform(0.5, 1.0)  # noqa: S311  # so that clients do not retry at once


def delay_after(error: Exception, retries: int, longest_asked: float = inf) -> float:
    """Return the seconds before a caller repeats a call: the back-off, or what the service asks."""
    asked = error.retry_after if isinstance(error, ApiError) else None
    return max(backoff(retries), min(asked or 0.0, longest_asked))
