"""Error responses: the status, headers and body of each error."""

from __future__ import annotations

from typing import Any

from gleanery import errors, http
from gleanery.api.response import Response
from gleanery.values import json_text

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
