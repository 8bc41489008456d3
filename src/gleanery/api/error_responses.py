"""From a fact that went wrong to an HTTP answer: the one place that chooses a status."""

from __future__ import annotations

from gleanery import errors, http
from gleanery.api.context import Response
from gleanery.values import json_text

STATUS: dict[type[errors.GleaneryError], int] = {
    errors.BadRequest: 400,
    errors.Unauthenticated: 401,
    errors.Forbidden: 403,
    errors.InvalidSignature: 403,
    errors.NotFound: 404,
    errors.MethodNotAllowed: 405,
    errors.ReferenceNotFound: 404,
    errors.RequestTimeout: 408,
    errors.Conflict: 409,
    errors.CursorExpired: 410,
    errors.BodyTooLarge: 413,
    errors.UnsupportedMedia: 415,
    errors.RangeNotSatisfiable: 416,
    errors.InvalidRequest: 422,
    errors.RateLimited: 429,
    errors.HeadTooLarge: 431,
    errors.Overloaded: 503,
    errors.Unavailable: 503,
}
MEANING = {
    401: "No valid token.",
    403: "The token lacks the scope, or the link is not valid.",
    404: "No such thing in this organization.",
    405: "No such method on this path.",
    409: "The Idempotency-Key was used for another request.",
    410: "The cursor is older than the deletions that are still known, or than a restore.",
    413: "The body is too large.",
    415: "The body's Content-Type or Content-Encoding is not one this operation reads.",
    416: "The file ends before the part that is asked for.",
    422: "The request fails validation; every detail is listed.",
    429: "The token has asked more often than it may; Retry-After says when to try again.",
    500: "A detail of the service; the request id leads to it in the log.",
    503: "Too much is under way, or the database, the store of files or a secret key is not at "
    "hand now; Retry-After says when to try again.",
}
HEADERS_OF = {
    401: ("WWW-Authenticate",),
    405: ("Allow",),
    429: ("Retry-After", "RateLimit", "RateLimit-Policy"),
    503: ("Retry-After",),
}


def as_service_error(error: http.HttpError) -> errors.GleaneryError:
    """Returns the service's error for an error of the HTTP exchange."""
    match error:
        case http.HeadTooLarge(limit=limit):
            return errors.HeadTooLarge(limit)
        case http.RequestTimeout():
            return errors.RequestTimeout()
        case http.RangeNotSatisfiable(size=size):
            return errors.RangeNotSatisfiable(size)
        case http.TooManyConnections():
            return errors.Overloaded()
    return errors.BadRequest()


def answer_to(error: errors.GleaneryError) -> Response:
    """What the client is told."""
    return Response(_detail(*error.details), STATUS[type(error)], headers=_headers(error))


def internal_error() -> Response:
    """What the client is told of a detail of ours: nothing but that."""
    return Response(
        _detail(errors.ErrorDetail(("server",), "Internal error", "internal_error")), 500
    )


def _detail(*details: errors.ErrorDetail) -> bytes:
    return json_text.encode(
        {"detail": [{"loc": list(f.loc), "msg": f.msg, "type": f.type} for f in details]}
    )


def _headers(error: errors.GleaneryError) -> tuple[tuple[bytes, bytes], ...]:
    match error:
        case errors.Unauthenticated():
            return ((b"www-authenticate", b'Bearer realm="gleanery"'),)
        case errors.MethodNotAllowed(allowed=allowed):
            return ((b"allow", allowed.encode()),)
        case errors.RangeNotSatisfiable(size=size):
            return ((b"content-range", b"bytes */%d" % size),)
        case errors.Unavailable() | errors.Overloaded() | errors.RateLimited():
            return ((b"retry-after", b"%d" % error.retry_after),)
    return ()
