"""Errors of the client. No message contains a token, a cookie or a rejected value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from gleanery.common.errors import ClientError as ClientError

UNEXPLAINED = "unexplained"
"""Type of the only detail of an error without an explanation."""
_SHOWN_DETAILS = 5


class NotConfigured(ClientError):
    """The address of the service or the token is missing or unusable."""


class ConnectionFailed(ClientError):
    """The service was not reached, or the connection broke."""

    was_connected = True
    """False if there was no connection: nothing of the request was sent."""


class TimedOut(ClientError):
    """The service did not respond in time."""

    was_connected = True
    """False if there was no connection: nothing of the request was sent."""


class InvalidResponse(ClientError):
    """The response is not one of this service."""


class UnexpectedPage(InvalidResponse):
    """A page for people has come in the place of a response, as gateways send it."""


class InvalidState(ClientError):
    """The file with the position of a sync is damaged, or of another group or service."""


class LeaseLost(ClientError):
    """The lease of a session has ended, so another holder may use the session."""


class InvalidWebhook(ClientError):
    """The request that a receiver has got is not one that the service has sent just now."""


class ErrorDetail(NamedTuple):
    """One problem of a request: its location, a message and a stable type."""

    loc: tuple[str, ...]
    msg: str
    type: str

    def __str__(self) -> str:
        return f"{'.'.join(self.loc)}: {self.msg}" if self.loc else self.msg


class ApiError(ClientError):
    """The service rejected the request."""

    def __init__(
        self,
        status: int,
        detail: Sequence[ErrorDetail],
        request_id: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        self.status = status
        self.detail = tuple(detail)
        self.request_id = request_id
        self.retry_after = retry_after
        """Seconds until the next attempt, if the service has said them."""
        super().__init__(self._message())

    @property
    def is_explained(self) -> bool:
        """Return True if the service has explained the error, and not a proxy in front of it."""
        return self.detail[0].type != UNEXPLAINED

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the values, because the arguments of an exception are only its message."""
        arguments = (self.status, self.detail, self.request_id, self.retry_after)
        return type(self), arguments, self.__dict__

    def _message(self) -> str:
        shown = "; ".join(str(detail) for detail in self.detail[:_SHOWN_DETAILS])
        more = len(self.detail) - _SHOWN_DETAILS
        return f"{shown}; and {more} more problems" if more > 0 else shown


class Unauthorized(ApiError):
    """The token is missing, unknown, revoked or expired (401)."""


class Forbidden(ApiError):
    """The token lacks a scope (403)."""


class NotFound(ApiError):
    """The record does not exist (404)."""


class Conflict(ApiError):
    """The request contradicts the stored state (409, 412)."""


class CursorExpired(ApiError):
    """The cursor is too old: start again with cursor 0 (410).

    Or the version of an output at this time is no longer kept.
    """


class TooLarge(ApiError):
    """The body is too large (413)."""


class Invalid(ApiError):
    """The request fails validation (422, and every other 4xx)."""


class RateLimited(ApiError):
    """The organization sends too many requests (429)."""


class Unavailable(ApiError):
    """The service, or a proxy in front of it, cannot respond now (502, 503, 504)."""


class ServerError(ApiError):
    """The service has failed (every other 5xx)."""


_BY_STATUS: dict[int, type[ApiError]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: CursorExpired,
    412: Conflict,
    413: TooLarge,
    429: RateLimited,
    502: Unavailable,
    503: Unavailable,
    504: Unavailable,
}


def error_class(status: int) -> type[ApiError]:
    """Return the class of the error for a status of 300 or more."""
    return _BY_STATUS.get(status, ServerError if status >= 500 else Invalid)
