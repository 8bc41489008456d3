"""Sends a response: its headers, and its body as fast as the client reads it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gleanery.api.context import Response
from gleanery.http import Header, Request

Respond = Callable[[Request, Response, bytes, Iterable[Header]], None]
"""Sends a response; see ``respond``."""
_OK, _NO_CONTENT, _NOT_MODIFIED = 200, 204, 304
_NOSNIFF, _VARY = (b"x-content-type-options", b"nosniff"), (b"vary", b"accept-encoding")


def respond(
    request: Request, response: Response, request_id: bytes, rate_limit_headers: Iterable[Header]
) -> None:
    """Send the response, except for the rest of a long body."""
    is_text = response.length is None and response.status == _OK  # no stored file, no error
    cache_control = (b"cache-control", response.cache_control)
    always = (_NOSNIFF, cache_control, _VARY) if is_text else (_NOSNIFF, cache_control)
    headers = ((b"x-request-id", request_id), *always, *rate_limit_headers, *response.headers)
    # 204 has no body, and 304 describes the body that the client has.
    has_body = response.status not in (_NO_CONTENT, _NOT_MODIFIED)
    if has_body:
        headers = (*headers, (b"content-type", response.content_type))
    if response.codec is not None:
        headers = (*headers, (b"content-encoding", response.codec.name.encode()))
    if response.is_chunked:
        request.begin_chunks(response.status, headers)
        return
    pieces = response.pieces
    size = sum(map(len, pieces))
    if has_body:
        length = size if response.length is None else response.length
        headers = (*headers, (b"content-length", b"%d" % length))
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
