"""A response, and how it is sent: its headers, and its body as fast as the client reads it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable
from typing import NamedTuple

from gleanery.http import Header, Request
from gleanery.values.compression import Codec

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
