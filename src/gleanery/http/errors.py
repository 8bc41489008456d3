"""Errors of the HTTP/1.1 connection; the application chooses the response to each."""

from __future__ import annotations


class HttpError(Exception):
    """Base class of all errors of this package."""


class BadRequest(HttpError):
    """The client sent bytes that are not valid HTTP/1.1. The message names the rule."""


class UnsupportedMethod(HttpError):
    """The method is CONNECT, which asks for a tunnel through the server."""


class UnsupportedTransferEncoding(HttpError):
    """The body has a transfer coding other than chunked."""


class UnsupportedVersion(HttpError):
    """The version of HTTP is neither 1.0 nor 1.1."""


class UnsupportedExpectation(HttpError):
    """The Expect header asks for something other than 100-continue."""


class HeadTooLarge(HttpError):
    """The request line and the headers exceed the limit."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"the request line and headers exceed {limit} bytes")
        self.limit = limit


class RequestTimeout(HttpError):
    """The client sends its request too slowly."""


class TooManyConnections(HttpError):
    """The server has reached its connection limit, and no connection can be closed."""


class ClientDisconnected(HttpError):
    """The client closed the connection, so no response can be sent."""


class InvalidForm(HttpError):
    """The body is not a form with exactly one file. The message says why."""


class PreconditionFailed(HttpError):
    """The content does not have the ETag that If-Match names."""


class RangeNotSatisfiable(HttpError):
    """The requested range starts after the end of the content."""

    def __init__(self, size: int) -> None:
        super().__init__(f"the content has {size} bytes")
        self.size = size
