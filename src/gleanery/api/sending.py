"""Sends a response: its headers, and its body as fast as the client reads it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable

from gleanery.api.context import Response
from gleanery.http import Header, Request

_NOT_MODIFIED = 304
_ALWAYS = ((b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store"))


def respond(
    request: Request, response: Response, request_id: bytes, rate_limit_headers: Iterable[Header]
) -> None:
    """Sends the response, except for the rest of a long body."""
    headers = ((b"x-request-id", request_id), *_ALWAYS, *rate_limit_headers, *response.headers)
    if response.status != _NOT_MODIFIED:  # 304 describes the body that the client has
        length = (b"content-length", b"%d" % response.total_length)
        headers = (*headers, (b"content-type", response.content_type), length)
    request.respond(response.status, headers, (response.body, *response.more))


async def send_rest(request: Request, rest: AsyncGenerator[bytes]) -> None:
    """Sends the rest of a body as fast as the client reads it."""
    try:
        async for piece in rest:
            request.send(piece)
            await request.drain()
    finally:
        await rest.aclose()
