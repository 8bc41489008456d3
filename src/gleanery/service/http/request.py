"""One request on an HTTP/1.1 connection: its body as it arrives, and its response."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from typing import Any, Protocol

from gleanery.service.http.application import (
    Header,
    HeaderBlock,
    PreconditionFailed,
)

_MAX_BUFFERED_BYTES = 64 * 1024  # of a body that the application has not read yet
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_LAST_CHUNK = b"0\r\n\r\n"
_STATUS_LINES = {s.value: f"HTTP/1.1 {s.value} {s.phrase}".encode() for s in HTTPStatus}


class Transport(Protocol):
    """The part of a connection that its requests use."""

    @property
    def is_write_paused(self) -> bool:
        """True if the client reads slowly, or a write has failed: ``drain`` waits, or raises."""

    client_address: bytes
    """IP address of the client."""

    @property
    def is_closed(self) -> bool:
        """True if the socket is closed."""

    async def drain(self) -> None:
        """Wait until the write buffer has space again. Raise ``ClientDisconnected``."""

    def write(self, parts: Sequence[bytes | memoryview]) -> None:
        """Write bytes. Raise ``ClientDisconnected``."""

    def resume_reading(self) -> None:
        """Resumes reading from the client."""

    def start(self, request: HttpRequest) -> None:
        """Run the application's handler in a task."""

    def finish(self, request: HttpRequest, has_response: bool) -> None:
        """End the request, so that the next one can start.

        Close the connection if the response is missing or truncated.
        """


class HttpRequest:
    """Implements ``application.Request`` on an HTTP/1.1 connection."""

    __slots__ = (
        "_body_error",
        "_buffered",
        "_expects_continue",
        "_is_chunked",
        "_pieces",
        "_transport",
        "_wakeup",
        "accepts_chunks",
        "has_response",
        "header_block",
        "headers",
        "is_complete",
        "keep_alive",
        "method",
        "path",
        "query",
        "state",
    )

    def __init__(
        self,
        transport: Transport,
        method: str,
        path: bytes,
        query: bytes,
        header_block: HeaderBlock,
        keep_alive: bool,
        is_complete: bool = False,
        expects_continue: bool = False,
        accepts_chunks: bool = True,
    ) -> None:
        self._transport = transport
        self.method = method
        self.path = path
        self.query = query
        self.header_block = header_block
        self.headers = header_block.headers
        self.keep_alive = keep_alive
        self.is_complete = is_complete
        """True if the whole body has arrived."""
        self.accepts_chunks = accepts_chunks
        self.has_response = False
        """True if the whole response is sent, or its end has a known position."""
        self.state: Any = None
        self._expects_continue = expects_continue
        self._is_chunked = False
        self._pieces: list[bytes] = []
        self._buffered = 0
        self._body_error: Exception | None = None  # set if the rest of the body cannot arrive
        self._wakeup: asyncio.Future[None] | None = None

    @property
    def client_address(self) -> bytes:
        return self._transport.client_address

    @property
    def is_closed(self) -> bool:
        return self._transport.is_closed

    async def receive(self) -> bytes:
        while not self._pieces and not self.is_complete:
            if self._body_error is not None:
                raise self._body_error
            if self._expects_continue:
                self._expects_continue = False
                self._transport.write((_CONTINUE,))
            self._transport.resume_reading()
            await self._wait()
        piece = b"".join(self._pieces)
        self._pieces, self._buffered = [], 0
        return piece

    async def disconnected(self) -> None:
        while self._body_error is None:
            await self._wait()

    def respond(
        self, status: int, headers: Sequence[Header], body: Sequence[bytes | memoryview]
    ) -> None:
        self._transport.write(self._response_parts(status, headers, body))
        self.has_response = True

    def _response_parts(
        self, status: int, headers: Sequence[Header], body: Sequence[bytes | memoryview]
    ) -> Sequence[bytes | memoryview]:
        if not self.is_complete:
            # The rest may be malformed, and a client that expects 100-continue may not send it.
            self.keep_alive = False
        date = _date_line(int(time.time()))
        end = b"\r\n" if self.keep_alive else b"connection: close\r\n\r\n"
        lines = (_STATUS_LINES[status], date, *map(b": ".join, headers), end)
        head = b"\r\n".join(lines)
        return (head,) if self.method == "HEAD" else (head, *body)

    def begin_chunks(self, status: int, headers: Sequence[Header]) -> None:
        assert self.accepts_chunks
        chunked = (*headers, (b"transfer-encoding", b"chunked"))
        self._transport.write(self._response_parts(status, chunked, ()))
        self._is_chunked = self.method != "HEAD"
        self.has_response = not self._is_chunked

    def send(self, piece: bytes | memoryview) -> None:
        if not self._is_chunked:
            self._transport.write((piece,))
        elif piece:  # an empty chunk would be the end
            self._transport.write((b"%x\r\n" % len(piece), piece, b"\r\n"))

    def end_chunks(self) -> None:
        if self._is_chunked:
            self._transport.write((_LAST_CHUNK,))
            self._is_chunked, self.has_response = False, True

    @property
    def is_write_paused(self) -> bool:
        return self._transport.is_write_paused

    async def drain(self) -> None:
        if self._transport.is_write_paused:
            await self._transport.drain()

    def start(self) -> None:
        self._transport.start(self)

    def finish(self) -> None:
        self._transport.finish(self, self.has_response)

    # --- called by the connection -----------------------------------------------------------------

    @property
    def awaits_body(self) -> bool:
        """True if the application waits for more of the body."""
        return self._wakeup is not None and not self.is_complete

    def add_body(self, pieces: list[bytes]) -> bool:
        """Add parts of the body. Return True if the buffer is full."""
        if pieces:
            self._pieces += pieces
            self._buffered += sum(map(len, pieces))
            self._wake()
        return self._buffered > _MAX_BUFFERED_BYTES

    def complete(self) -> None:
        """Note that the whole body has arrived."""
        self.is_complete = True
        self._wake()

    def fail(self, error: Exception, *, keep_alive: bool = False) -> None:
        """Note that the client sends nothing more for this request."""
        self.keep_alive = keep_alive
        self._body_error = self._body_error or error
        self._wake()

    async def _wait(self) -> None:
        self._wakeup = asyncio.get_running_loop().create_future()
        try:
            await self._wakeup
        finally:
            self._wakeup = None

    def _wake(self) -> None:
        if self._wakeup is not None and not self._wakeup.done():
            self._wakeup.set_result(None)


@lru_cache(maxsize=2)
def _date_line(second: int) -> bytes:
    return f"date: {formatdate(second, usegmt=True)}".encode()


def check_precondition(headers: Mapping[bytes, bytes], etag: bytes) -> None:
    """Raise PreconditionFailed if If-Match does not name this ETag. A weak tag never matches."""
    tags = [tag.strip() for tag in headers.get(b"if-match", etag).split(b",")]
    if etag not in tags and b"*" not in tags:
        raise PreconditionFailed


def is_not_modified(headers: Mapping[bytes, bytes], etag: bytes) -> bool:
    """Return True if If-None-Match names this ETag: the client already has the content."""
    tags = field_value(headers, b"if-none-match").split(b",")
    named = [tag.strip().removeprefix(b"W/") for tag in tags]
    return etag in named or b"*" in named


def field_value(headers: Mapping[bytes, bytes], name: bytes) -> bytes:
    """Return the value of a header field; empty if it is absent."""
    return headers.get(name, b"").strip()
