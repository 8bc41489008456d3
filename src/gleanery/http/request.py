"""One request of a client: its body as it comes, and the bytes of its answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from typing import Protocol

from gleanery.http.head import Head
from gleanery.scheduling.limits import Slot

Header = tuple[bytes, bytes]

HELD = 64 * 1024
"""Bytes of a body or an answer that are held in one piece."""

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_STATUS_LINES = {s.value: f"HTTP/1.1 {s.value} {s.phrase}\r\n".encode() for s in HTTPStatus}


class ClientDisconnected(Exception):
    """The client went away before its request was whole: there is nobody to answer."""


class Transport(Protocol):
    """What a request asks of the connection it came on."""

    @property
    def is_full(self) -> bool:
        """Whether the client is behind with reading what was written."""

    async def emptied(self) -> None:
        """Returns when it is not any more; raises ClientDisconnected."""

    def write(self, parts: Sequence[bytes | memoryview]) -> None:
        """Sends bytes; raises ClientDisconnected."""

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
        "cursor",
        "head",
        "headers",
        "is_whole",
        "keep_alive",
        "method",
        "path",
        "rate_limit_headers",
        "slot",
    )

    def __init__(self, connection: Transport, head: Head, cursor: int | None = None) -> None:
        self._connection = connection
        self.head = head
        self.method, self.path, self.headers = head.method, head.path, head.headers
        self.cursor = cursor
        """If it is another than the head's, which was sent before."""
        self.slot: Slot | None = None
        self.rate_limit_headers: tuple[Header, ...] = ()
        """What every answer to it says of the client's standing."""
        self.keep_alive = True
        self.is_whole = cursor is not None
        self._expects = b"expect" in head.headers  # a word from us before it sends the body
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

    def respond(self, status: int, headers: bytes, body: Sequence[bytes | memoryview]) -> None:
        """Writes an answer, or the beginning of one; of the headers, whole lines."""
        if self._expects and not self._held and not self.is_whole:
            self.keep_alive = False  # what comes next may be the body or another request
        date = _date(int(time.time()))
        end = b"\r\n" if self.keep_alive else b"connection: close\r\n\r\n"
        head = b"%sdate: %s\r\n%s%s" % (_STATUS_LINES[status], date, headers, end)
        self._connection.write((head,) if self.method == "HEAD" else (head, *body))

    def send(self, piece: bytes) -> None:
        """Writes more of the answer."""
        self._connection.write((piece,))

    @property
    def is_behind(self) -> bool:
        """Whether the client has much of what was written still to take."""
        return self._connection.is_full

    async def taken(self) -> None:
        """Returns when it has not any more."""
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


@lru_cache(maxsize=2)
def _date(second: int) -> bytes:
    return formatdate(second, usegmt=True).encode()
