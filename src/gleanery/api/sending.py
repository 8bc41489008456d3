"""Sends a response: its headers, and its body as fast as the client reads it."""

from __future__ import annotations

from collections.abc import Iterable

from gleanery.api.context import Response
from gleanery.http import Header, Request

_NOT_MODIFIED = 304
_JSON = b"application/json"
_ALWAYS = ((b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store"))


def respond(
    request: Request, response: Response, request_id: bytes, rate_limit_headers: Iterable[Header]
) -> None:
    """Sends the response, except for the rest of a long body."""
    headers = ((b"x-request-id", request_id), *_ALWAYS, *rate_limit_headers, *response.headers)
    if response.status != _NOT_MODIFIED:  # 304 describes the body that the client has
        headers = (*headers, (b"content-type", response.content_type))
    if response.is_chunked:
        request.begin_chunks(response.status, headers)
        return
    pieces, length = (response.body, *response.more), response.total_length
    if _is_json_text(response):
        pieces, length = (*pieces, b"\n"), length + 1
    if response.status != _NOT_MODIFIED:
        headers = (*headers, (b"content-length", b"%d" % length))
    request.respond(response.status, headers, pieces)


def _is_json_text(response: Response) -> bool:
    """Returns True for a JSON text of the service, which ends with a newline for terminals.

    A stored file may have the same media type. It has a length and is sent as it is.
    """
    return response.content_type == _JSON and response.length is None and response.body != b""


async def send_rest(request: Request, response: Response) -> None:
    """Sends the rest of a long body as fast as the client reads it."""
    if response.rest is None or request.method == "HEAD":
        return
    try:
        async for piece in response.rest:
            request.send(piece)
            await request.drain()
    finally:
        await response.rest.aclose()
    if response.is_chunked:
        request.end_chunks()
