"""One request of a client: its head, its body as it comes, and the bytes of its answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from typing import Protocol

import httptools

from gleanery.api.capacity import Visit
from gleanery.errors import BadRequest

Header = tuple[bytes, bytes]

HELD = 64 * 1024
"""Bytes of a body or an answer that are held in one piece."""

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_STATUS_LINES = {s.value: f"HTTP/1.1 {s.value} {s.phrase}\r\n".encode() for s in HTTPStatus}


class ClientGone(Exception):
    """The client went away before its request was whole: there is nobody to answer."""


class Wire(Protocol):
    """What a request asks of the connection it came on."""

    @property
    def is_full(self) -> bool:
        """Whether the client is behind with reading what was written."""

    async def emptied(self) -> None:
        """Returns when it is not any more; raises ClientGone."""

    def write(self, parts: Sequence[bytes]) -> None:
        """Sends bytes; raises ClientGone."""

    def resume_reading(self) -> None:
        """Lets the client send on."""


class Request:
    """What a client asks. Its body comes piece by piece, as it is asked for."""

    __slots__ = (
        "_connection",
        "_expects",
        "_fault",
        "_held",
        "_news",
        "_pieces",
        "caller",
        "headers",
        "is_whole",
        "keep_alive",
        "method",
        "path",
        "query",
        "standing",
        "visit",
    )

    def __init__(
        self, connection: Wire, method: str, url: bytes, headers: dict[bytes, bytes]
    ) -> None:
        self._connection = connection
        self.method = method
        self.path, self.query = _split(url)
        self.headers = headers
        """By their names in small letters; one that came twice has both values."""
        self.caller = b""
        """What the doorkeeper knows the client by."""
        self.visit: Visit | None = None
        self.standing: tuple[Header, ...] = ()
        """What every answer to it says of the client's standing."""
        self.keep_alive = True
        self.is_whole = False
        self._expects = b"expect" in headers  # a word from us before it sends the body
        self._pieces: list[bytes] = []
        self._held = 0
        self._fault: Exception | None = None  # why nothing more comes
        self._news: asyncio.Future[None] | None = None

    async def receive(self) -> bytes:
        """The next piece of the body; empty at its end. Raises what is wrong with it."""
        while not self._pieces and not self.is_whole:
            if self._fault is not None:
                raise self._fault
            if self._expects:
                self._expects = False
                self._connection.write((_CONTINUE,))
            self._connection.resume_reading()
            await self._hear()
        piece = b"".join(self._pieces)
        self._pieces, self._held = [], 0
        return piece

    async def gone(self) -> None:
        """Returns when the client has gone."""
        while self._fault is None:
            await self._hear()

    def decline(self) -> None:
        """It is not worth its body: a long one is not taken in, and the connection ends with it."""
        length = self.headers.get(b"content-length", b"0")
        if b"transfer-encoding" in self.headers or len(length) > 5 or int(length) > HELD:
            self.keep_alive = False

    async def respond(self, status: int, headers: Iterable[Header], body: Sequence[bytes]) -> None:
        """Writes an answer, or the beginning of one, and waits until the client takes it."""
        self.write(status, headers, body)
        if self._connection.is_full:
            await self._connection.emptied()

    def write(self, status: int, headers: Iterable[Header], body: Sequence[bytes]) -> None:
        """The same without waiting."""
        parts = [_STATUS_LINES[status], b"date: ", _date(int(time.time())), b"\r\n"]
        for name, value in headers:
            parts += (name, b": ", value, b"\r\n")
        if self._expects and not self._held and not self.is_whole:
            self.keep_alive = False  # what comes next may be the body or another request
        parts.append(b"\r\n" if self.keep_alive else b"connection: close\r\n\r\n")
        if self.method != "HEAD":
            parts += body
        self._connection.write(parts)

    async def send(self, parts: Sequence[bytes]) -> None:
        """Writes more of the answer."""
        self._connection.write(parts)
        if self._connection.is_full:
            await self._connection.emptied()

    # --- what the connection tells it ------------------------------------------------------------

    @property
    def is_awaited(self) -> bool:
        """Whether somebody waits for what the client has still to send."""
        return self._news is not None and not self.is_whole

    def add(self, piece: bytes) -> bool:
        """Takes a piece of the body; tells whether that is enough for now."""
        self._pieces.append(piece)
        self._held += len(piece)
        self._tell()
        return self._held > HELD

    def end(self) -> None:
        self.is_whole = True
        self._tell()

    def fail(self, fault: Exception, *, keep_alive: bool = False) -> None:
        """Nothing more comes from the client; unless others wait, the connection ends with it."""
        self.keep_alive = keep_alive
        self._fault = self._fault or fault
        self._tell()

    async def _hear(self) -> None:
        self._news = asyncio.get_running_loop().create_future()
        try:
            await self._news
        finally:
            self._news = None

    def _tell(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)


def _split(url: bytes) -> tuple[bytes, bytes]:
    """Path and query as they were sent."""
    if url[:1] != b"/" or b"#" in url:
        try:
            parsed = httptools.parse_url(url)
        except httptools.HttpParserInvalidURLError:
            raise BadRequest from None
        return parsed.path or b"/", parsed.query or b""
    path, _, query = url.partition(b"?")
    return path, query


@lru_cache(maxsize=2)
def _date(second: int) -> bytes:
    return formatdate(second, usegmt=True).encode()
