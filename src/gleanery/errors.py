"""The facts that can go wrong, told without a word of HTTP: the edge chooses the status."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ErrorDetail:
    """One thing that is wrong: where, in words, and as a stable name. It never holds a value."""

    loc: tuple[str, ...]
    msg: str
    type: str


class GleaneryError(Exception):
    """A fact the caller is told; ``details`` is what it is told with."""

    def __init__(self, *details: ErrorDetail) -> None:
        super().__init__("; ".join(detail.msg for detail in details))
        self.details = details


class InvalidRequest(GleaneryError):
    """The request does not meet the contract; every detail found is named."""


class Unauthenticated(GleaneryError):
    """No token, or none that is valid now. Which of the two is not told."""

    def __init__(self) -> None:
        super().__init__(
            ErrorDetail(
                ("header", "authorization"),
                "A valid access token is needed: Authorization: Bearer <token>",
                "unauthenticated",
            )
        )


class Forbidden(GleaneryError):
    """The token is valid but was not given the scope."""

    def __init__(self, scope: str) -> None:
        super().__init__(
            ErrorDetail(
                ("header", "authorization"), f"This token lacks the scope {scope}", "forbidden"
            )
        )


_NOTHING = "Your organization has nothing of this name"


class NotFound(GleaneryError):
    """There is no such thing, or none that this organization may know of: the same answer."""

    def __init__(self, loc: tuple[str, ...] = ("path",), msg: str = _NOTHING) -> None:
        super().__init__(ErrorDetail(loc, msg, "not_found"))


class ReferenceNotFound(GleaneryError):
    """The body names things that there are not; every one is told."""


class Conflict(GleaneryError):
    """An Idempotency-Key that was used for another request."""

    def __init__(self) -> None:
        super().__init__(
            ErrorDetail(
                ("header", "idempotency-key"),
                "This key was used for another request: choose a new one",
                "conflict",
            )
        )


class CursorExpired(GleaneryError):
    """Going on from this cursor could miss a deletion, or a restore that undid something."""

    def __init__(self) -> None:
        super().__init__(
            ErrorDetail(
                ("query", "cursor"),
                "What has happened since this cursor is no longer known: start again with cursor "
                "0, and drop what is not met again",
                "gone",
            )
        )


class MethodNotAllowed(GleaneryError):
    """The path exists, the method on it does not."""

    def __init__(self, allowed: Iterable[str]) -> None:
        self.allowed = ", ".join(sorted(allowed))
        super().__init__(
            ErrorDetail(("method",), f"This path answers {self.allowed}", "method_not_allowed")
        )


class BodyTooLarge(GleaneryError):
    """The body is longer than the service takes."""

    def __init__(self, limit: int) -> None:
        super().__init__(
            ErrorDetail(("body",), f"The body may hold {limit} bytes at most", "too_large")
        )


class BadRequest(GleaneryError):
    """What came is not HTTP."""

    def __init__(self) -> None:
        super().__init__(ErrorDetail(("request",), "This is not valid HTTP/1.1", "bad_request"))


class HeadTooLarge(GleaneryError):
    """The request line and headers are longer than the service takes."""

    def __init__(self, limit: int) -> None:
        words = f"Request line and headers may hold {limit} bytes at most"
        super().__init__(ErrorDetail(("header",), words, "too_large"))


class RequestTimeout(GleaneryError):
    """The client took too long to send its request."""

    def __init__(self) -> None:
        super().__init__(ErrorDetail(("request",), "The request came in too slowly", "too_slow"))


class InvalidSignature(GleaneryError):
    """A signed link that was changed, or whose time is over. Which of the two is not told."""

    def __init__(self) -> None:
        super().__init__(
            ErrorDetail(
                ("query", "signature"),
                "This link is not valid, or not any more: read the output again for a new one",
                "forbidden",
            )
        )


class RangeNotSatisfiable(GleaneryError):
    """The part of a file that is asked for lies behind its end."""

    def __init__(self, size: int) -> None:
        self.size = size
        super().__init__(ErrorDetail(("header", "range"), f"The file has {size} bytes", "range"))


class UnsupportedMedia(GleaneryError):
    """The body's type or coding is not one the operation reads."""

    def __init__(self, header: str, msg: str) -> None:
        super().__init__(ErrorDetail(("header", header), msg, "unsupported_media_type"))


class Unavailable(GleaneryError):
    """The database can't be used right now; the same request may succeed a little later."""

    retry_after = 1

    def __init__(self, msg: str = "The database is not available now; try again") -> None:
        super().__init__(ErrorDetail(("server",), msg, "unavailable"))


class Overloaded(GleaneryError):
    """As much is under way as the service, or this organization's part of it, can hold."""

    retry_after = 1

    def __init__(self) -> None:
        words = "Too many requests are under way; try again"
        super().__init__(ErrorDetail(("server",), words, "busy"))


class RateLimited(GleaneryError):
    """The token has used up what it may ask for in this stretch of time."""

    def __init__(self, retry_after: int) -> None:
        self.retry_after = retry_after
        words = f"This token has asked too often; try again in {retry_after} s"
        super().__init__(ErrorDetail(("header", "authorization"), words, "too_often"))


class SettingsError(Exception):
    """A setting that can't be right: one sentence that says what to do."""
