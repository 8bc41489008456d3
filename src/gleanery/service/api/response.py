"""A response, and how it is sent: its headers, and its body as fast as the client reads it.

Each error has a status, headers and a body.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Iterable
from typing import Any, NamedTuple

from gleanery.service import http
from gleanery.service.foundation import errors
from gleanery.service.foundation.values import json_text
from gleanery.service.foundation.values.compression import Codec
from gleanery.service.http import Header, Request

_log = logging.getLogger("gleanery")
_JSON = b"application/json"
_OK, _NO_CONTENT, _NOT_MODIFIED = 200, 204, 304
_NOSNIFF, _VARY = (b"x-content-type-options", b"nosniff"), (b"vary", b"accept-encoding")


class Response(NamedTuple):
    """Response: its first bytes, and for a long response a generator of the rest."""

    body: bytes
    status: int = 200
    content_type: bytes = b"application/json"
    headers: tuple[Header, ...] = ()
    more: tuple[bytes | memoryview, ...] = ()
    """Further bytes, kept separate because joining would copy them."""
    length: int | None = None
    """Content-Length, if it differs from the length of body and more."""
    rest: AsyncGenerator[bytes | memoryview] | None = None
    """The rest of a long body. Without a length it is the whole body, and is sent in chunks."""

    codec: Codec | None = None
    """Codec with which the body is compressed."""
    cache_control: bytes = b"no-store"

    @property
    def is_chunked(self) -> bool:
        return self.rest is not None and self.length is None

    @property
    def pieces(self) -> tuple[bytes | memoryview, ...]:
        """Body, without its rest. A JSON text of the service ends with a newline for terminals.

        A stored file may have the same media type. It has a length and is sent as it is.
        """
        is_text = self.content_type == _JSON and self.length is None and self.codec is None
        if is_text and self.body:
            return (self.body, *self.more, b"\n")
        return (self.body, *self.more)

    @property
    def size(self) -> int:
        """Bytes in memory, without the rest."""
        return len(self.body) + sum(map(len, self.more))


Respond = Callable[[Request, Response, bytes, Iterable[Header]], None]
"""Sends a response; see ``respond``."""


def respond(
    request: Request, response: Response, request_id: bytes, rate_limit_headers: Iterable[Header]
) -> None:
    """Send the response, except for the rest of a long body."""
    cache_control = (b"cache-control", response.cache_control)
    headers = [(b"x-request-id", request_id), _NOSNIFF, cache_control]
    if response.length is None and response.status == _OK:  # no stored file, no error
        headers.append(_VARY)
    headers += rate_limit_headers
    headers += response.headers
    # 204 has no body, and 304 describes the body that the client has.
    has_body = response.status not in (_NO_CONTENT, _NOT_MODIFIED)
    if has_body:
        headers.append((b"content-type", response.content_type))
    if response.codec is not None:
        headers.append((b"content-encoding", response.codec.name.encode()))
    if response.is_chunked:
        request.begin_chunks(response.status, headers)
        return
    pieces = response.pieces
    size = sum(map(len, pieces))
    if has_body:
        length = size if response.length is None else response.length
        headers.append((b"content-length", b"%d" % length))
    request.respond(response.status, headers, pieces)
    if request.method != "HEAD":
        request.state.sent_bytes = size


async def send_rest(request: Request, response: Response) -> None:
    """Send the rest of a long body as fast as the client reads it."""
    if response.rest is None or request.method == "HEAD":
        return
    try:
        async for piece in response.rest:
            request.send(piece)
            request.state.sent_bytes += len(piece)
            await request.drain()
    finally:
        await response.rest.aclose()
    if response.is_chunked:
        request.end_chunks()


STATUS: dict[type[errors.GleaneryError], int] = {
    errors.BadRequest: 400,
    errors.Unauthenticated: 401,
    errors.Forbidden: 403,
    errors.ConfirmationRequired: 403,
    errors.InvalidSignature: 403,
    errors.NotFound: 404,
    errors.MethodNotAllowed: 405,
    errors.ReferenceNotFound: 404,
    errors.RequestTimeout: 408,
    errors.Conflict: 409,
    errors.RunConflict: 409,
    errors.WebhookConflict: 409,
    errors.AlertConflict: 409,
    errors.Leased: 409,
    errors.CursorExpired: 410,
    errors.VersionExpired: 410,
    errors.ReviewedStateLost: 410,
    errors.PreconditionFailed: 412,
    errors.BodyTooLarge: 413,
    errors.CompressionTooStrong: 413,
    errors.UnsupportedCoding: 415,
    errors.UnsupportedMedia: 415,
    errors.RangeNotSatisfiable: 416,
    errors.UnsupportedExpectation: 417,
    errors.InvalidRequest: 422,
    errors.RateLimited: 429,
    errors.HeadTooLarge: 431,
    errors.UnsupportedHttp: 501,
    errors.Overloaded: 503,
    errors.Unavailable: 503,
    errors.ValidationSuspended: 503,
    errors.UnsupportedVersion: 505,
    errors.ChunksRequired: 505,
}
DESCRIPTIONS = {
    401: "No valid token.",
    403: "The token lacks the scope, or the link is not valid.",
    404: "The organization has no such record.",
    405: "The path does not allow this method.",
    409: "The Idempotency-Key was used for a different request, or another holder has the session; "
    "then Retry-After says when to try again.",
    410: "The cursor is from before the oldest tombstone or the last restore, or the version of "
    "the output is no longer kept.",
    412: "The file, or the list of records, does not have the ETag of If-Match.",
    413: "The body is too large.",
    415: "The operation does not accept the Content-Type or Content-Encoding of the body. JSON and "
    "NDJSON may have Content-Encoding gzip or zstd, a file may have none.",
    416: "The requested range starts after the end of the file.",
    422: "The request fails validation. At most 100 problems are listed; if there are more, the "
    "last one has the type `more_problems`. An output that violates the group's schema is always "
    "listed.",
    429: "The token has reached its rate limit; Retry-After says when to try again.",
    431: "The request line and the headers are too large.",
    500: "Internal error; the log has details under the request id.",
    503: "The service is overloaded, or the database, the blob store or a secret key is not "
    "available; Retry-After says when to try again.",
    505: "The client or a proxy uses HTTP/1.0, in which a truncated response is not noticed.",
}
HEADERS = {
    401: ("WWW-Authenticate",),
    405: ("Allow",),
    429: ("Retry-After", "RateLimit", "RateLimit-Policy"),
    503: ("Retry-After",),
}
_EXAMPLES = {
    401: errors.no_token(),
    403: errors.Forbidden("outputs:read"),
    404: errors.no_group(),
    409: errors.Conflict(),
    410: errors.CursorExpired("cursor"),
    412: errors.PreconditionFailed(),
    413: errors.BodyTooLarge(32 * 1024 * 1024),
    415: errors.UnsupportedMedia("content-type", "Send Content-Type: application/json, in UTF-8"),
    416: errors.RangeNotSatisfiable(24),
    422: errors.InvalidRequest(
        errors.ErrorDetail(
            ("query", "limit"), "Input should be less than or equal to 1000", "less_than_equal"
        )
    ),
    429: errors.RateLimited(1),
    431: errors.HeadTooLarge(64 * 1024),
    503: errors.Overloaded(),
    505: errors.ChunksRequired(),
}
_ONLY_CHUNKED = "Send the body with Content-Length or with Transfer-Encoding: chunked"


def as_service_error(error: http.HttpError) -> errors.GleaneryError:
    """Return the service's error for an error of the HTTP connection."""
    match error:
        case http.HeadTooLarge(limit=limit):
            return errors.HeadTooLarge(limit)
        case http.RequestTimeout():
            return errors.RequestTimeout()
        case http.PreconditionFailed():
            return errors.PreconditionFailed()
        case http.RangeNotSatisfiable(size=size):
            return errors.RangeNotSatisfiable(size)
        case http.TooManyConnections():
            return errors.Overloaded()
        case http.UnsupportedVersion():
            return errors.UnsupportedVersion()
        case http.UnsupportedExpectation():
            return errors.UnsupportedExpectation()
        case http.UnsupportedTransferEncoding():
            return _unsupported(("header", "transfer-encoding"), _ONLY_CHUNKED)
        case http.UnsupportedMethod():
            return _unsupported(("method",), "The service is no proxy: CONNECT is not supported")
    return errors.BadRequest(str(error))


def _unsupported(loc: tuple[str, ...], msg: str) -> errors.UnsupportedHttp:
    return errors.UnsupportedHttp(errors.ErrorDetail(loc, msg, "not_implemented"))


def for_error(error: errors.GleaneryError) -> Response:
    """Return the response for an error."""
    return Response(_body(*error.details), STATUS[type(error)], headers=_headers(error))


def internal_error() -> Response:
    """Return the response to an unexpected error, without any details."""
    return Response(_body(errors.ErrorDetail(("server",), "Internal error", "internal_error")), 500)


def example(status: int) -> Any:
    """Return an example of the body of this status."""
    response = internal_error() if status == 500 else for_error(_EXAMPLES[status])
    return json_text.decode(response.body)


def _body(*details: errors.ErrorDetail) -> bytes:
    return json_text.encode(
        {"detail": [{"loc": list(d.loc), "msg": d.msg, "type": d.type} for d in details]}
    )


def _headers(error: errors.GleaneryError) -> tuple[tuple[bytes, bytes], ...]:
    match error:
        case errors.Unauthenticated():
            return ((b"www-authenticate", _challenge(error)),)
        case errors.MethodNotAllowed(allowed=allowed):
            return ((b"allow", allowed.encode()),)
        case errors.UnsupportedCoding(accepted=accepted):
            return ((b"accept-encoding", accepted.encode()),)
        case errors.RangeNotSatisfiable(size=size):
            return ((b"content-range", b"bytes */%d" % size),)
        case (
            errors.Unavailable()
            | errors.Overloaded()
            | errors.RateLimited()
            | errors.ValidationSuspended()
            | errors.Leased()
        ):
            return ((b"retry-after", b"%d" % error.retry_after),)
    return ()


def _challenge(error: errors.Unauthenticated) -> bytes:
    """Return the challenge of RFC 6750, which has an error only for a token that is not valid."""
    challenge = 'Bearer realm="gleanery"'
    if error.is_token_invalid:
        challenge += f', error="invalid_token", error_description="{error}"'
    return challenge.encode("ascii")


def log_truncated(error: Exception, request_id: bytes) -> int:
    """Log why a response has no end. Return the status for the request log."""
    status = 500
    if isinstance(error, errors.GleaneryError):
        status = for_error(error).status
    is_known = isinstance(error, errors.Overloaded) or (
        isinstance(error, errors.Unavailable) and error.reason is not None
    )
    reason = error.reason if isinstance(error, errors.Unavailable) and error.reason else str(error)
    _log.error(
        "response truncated",
        extra={"request_id": request_id.decode(), "reason": reason},
        exc_info=None if is_known else error,
    )
    return status


def log_unavailable(error: errors.Unavailable, request_id: bytes) -> None:
    """Log the reason in one line, and a traceback only if the cause is not a known one."""
    is_known = error.reason is not None or error.__cause__ is None
    _log.warning(
        "unavailable",
        extra={"request_id": request_id.decode(), "reason": error.reason or str(error)},
        exc_info=None if is_known else error,
    )
