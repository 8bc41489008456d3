"""Errors that are reported to clients, independent of HTTP, and errors of settings."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ErrorDetail:
    """One problem: its location, a message and a stable type. It never contains a value."""

    loc: tuple[str, ...]
    msg: str
    type: str


class GleaneryError(Exception):
    """Error that is reported to the client, with its details."""

    def __init__(self, *details: ErrorDetail) -> None:
        super().__init__("; ".join(detail.msg for detail in details))
        self.details = details


class InvalidRequest(GleaneryError):
    """The request fails validation; every problem is one detail."""


class Unauthenticated(GleaneryError):
    """The token is missing or not valid. The message does not say which."""

    def __init__(self) -> None:
        super().__init__(
            ErrorDetail(
                ("header", "authorization"),
                "A valid access token is required: Authorization: Bearer <token>",
                "unauthenticated",
            )
        )


class Forbidden(GleaneryError):
    """The token is valid but does not have the scope."""

    def __init__(self, scope: str) -> None:
        super().__init__(
            ErrorDetail(
                ("header", "authorization"), f"This token lacks the scope {scope}", "forbidden"
            )
        )


_NOT_FOUND = "Your organization has no record of this name"


class NotFound(GleaneryError):
    """The record does not exist, or belongs to another organization: the same response."""

    def __init__(self, loc: tuple[str, ...] = ("path",), msg: str = _NOT_FOUND) -> None:
        super().__init__(ErrorDetail(loc, msg, "not_found"))


class ReferenceNotFound(GleaneryError):
    """The body refers to records that do not exist; each is one detail."""


class Conflict(GleaneryError):
    """The Idempotency-Key was used for a different request."""

    def __init__(self) -> None:
        super().__init__(
            ErrorDetail(
                ("header", "idempotency-key"),
                "This key was used for a different request: choose a new one",
                "conflict",
            )
        )


class CursorExpired(GleaneryError):
    """The cursor is too old: changes after it may be missing from the feed."""

    def __init__(self) -> None:
        super().__init__(
            ErrorDetail(
                ("query", "cursor"),
                "This cursor has expired: start again with cursor 0, and drop the outputs that "
                "you do not receive again",
                "gone",
            )
        )


class MethodNotAllowed(GleaneryError):
    """The path exists, but not with this method."""

    def __init__(self, allowed: Iterable[str]) -> None:
        self.allowed = ", ".join(sorted(allowed))
        super().__init__(
            ErrorDetail(("method",), f"This path allows {self.allowed}", "method_not_allowed")
        )


class BodyTooLarge(GleaneryError):
    """The body is larger than the limit."""

    def __init__(self, limit: int) -> None:
        super().__init__(
            ErrorDetail(("body",), f"The body may have at most {limit} bytes", "too_large")
        )


class BadRequest(GleaneryError):
    """The request is not valid HTTP."""

    def __init__(self) -> None:
        super().__init__(ErrorDetail(("request",), "This is not valid HTTP/1.1", "bad_request"))


class HeadTooLarge(GleaneryError):
    """The request line and headers are larger than the limit."""

    def __init__(self, limit: int) -> None:
        msg = f"The request line and headers may have at most {limit} bytes"
        super().__init__(ErrorDetail(("header",), msg, "too_large"))


class RequestTimeout(GleaneryError):
    """The client took too long to send its request."""

    def __init__(self) -> None:
        super().__init__(ErrorDetail(("request",), "The request arrived too slowly", "too_slow"))


class InvalidSignature(GleaneryError):
    """The signed link was changed or has expired. The message does not say which."""

    def __init__(self) -> None:
        super().__init__(
            ErrorDetail(
                ("query", "signature"),
                "This link is not valid or has expired: read the output again for a new one",
                "forbidden",
            )
        )


class PreconditionFailed(GleaneryError):
    """The file does not have the ETag that the client expects."""

    def __init__(self) -> None:
        super().__init__(
            ErrorDetail(
                ("header", "if-match"),
                "The file has another ETag: its ETag is the checksum of its bytes, in quotes",
                "precondition_failed",
            )
        )


class RangeNotSatisfiable(GleaneryError):
    """The requested range starts after the end of the file."""

    def __init__(self, size: int) -> None:
        self.size = size
        super().__init__(ErrorDetail(("header", "range"), f"The file has {size} bytes", "range"))


class UnsupportedMedia(GleaneryError):
    """The operation does not accept the Content-Type or Content-Encoding of the body."""

    def __init__(self, header: str, msg: str) -> None:
        super().__init__(ErrorDetail(("header", header), msg, "unsupported_media_type"))


class Unavailable(GleaneryError):
    """The database or another part is not available; the request may succeed later."""

    retry_after = 1

    def __init__(self, msg: str = "The database is not available now; try again") -> None:
        super().__init__(ErrorDetail(("server",), msg, "unavailable"))


class Overloaded(GleaneryError):
    """The service, or the organization's share of it, has no free slot."""

    retry_after = 1

    def __init__(self) -> None:
        msg = "Too many requests are in progress; try again"
        super().__init__(ErrorDetail(("server",), msg, "busy"))


class RateLimited(GleaneryError):
    """The token has reached its rate limit."""

    def __init__(self, retry_after: int) -> None:
        self.retry_after = retry_after
        msg = f"This token has reached its rate limit; try again in {retry_after} s"
        super().__init__(ErrorDetail(("header", "authorization"), msg, "too_often"))


class SettingsError(Exception):
    """A setting or its environment is wrong. The message says what to do."""
