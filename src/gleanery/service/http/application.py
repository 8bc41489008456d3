"""The interface between a server and the application that handles its requests.

The HTTP/1.1 server of this package is one implementation of the server's side. An ASGI adapter can
be another: its ``respond`` queues messages, and its ``drain`` awaits the server's ``send``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
Header = tuple[bytes, bytes]
"""Name and value of one header."""


# --- errors; the application chooses the response to each ---------------------------------------


class HttpError(Exception):
    """Base class of all errors of this package."""


class BadRequest(HttpError):
    """The client sent bytes that are not valid HTTP/1.1. The message names the rule."""


class UnsupportedMethod(HttpError):
    """The method is CONNECT, which asks for a tunnel through the server."""


class UnsupportedTransferEncoding(HttpError):
    """The body has a transfer coding other than chunked."""


class UnsupportedVersion(HttpError):
    """The version of HTTP is neither 1.0 nor 1.1."""


class UnsupportedExpectation(HttpError):
    """The Expect header asks for something other than 100-continue."""


class HeadTooLarge(HttpError):
    """The request line and the headers exceed the limit."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"the request line and headers exceed {limit} bytes")
        self.limit = limit


class RequestTimeout(HttpError):
    """The client sends its request too slowly."""


class TooManyConnections(HttpError):
    """The server has reached its connection limit, and no connection can be closed."""


class ClientDisconnected(HttpError):
    """The client closed the connection, so no response can be sent."""


class InvalidForm(HttpError):
    """The body is not a form with exactly one file. The message says why."""


class PreconditionFailed(HttpError):
    """The content does not have the ETag that If-Match names."""


class RangeNotSatisfiable(HttpError):
    """The requested range starts after the end of the content."""

    def __init__(self, size: int) -> None:
        super().__init__(f"the content has {size} bytes")
        self.size = size


# --- requests and the application ---------------------------------------------------------------


@dataclass(slots=True, eq=False)
class HeaderBlock:
    """Headers of one request, or of several in a row that sent exactly the same bytes."""

    headers: Mapping[bytes, bytes]
    memo: Any = None
    """Cache of the application for results that it derives from the headers."""


class Request(Protocol):
    """One request of a client, and the methods to respond to it."""

    keep_alive: bool
    """True if the connection stays open afterwards. The application may set it to False."""
    state: Any
    """Data of the application about the request; None at first."""

    @property
    def method(self) -> str:
        """Method in upper case, as sent."""

    @property
    def path(self) -> bytes:
        """Path as sent, still percent-encoded."""

    @property
    def query(self) -> bytes:
        """Query as sent, without the question mark."""

    @property
    def headers(self) -> Mapping[bytes, bytes]:
        """Headers by lower-case name. The values of a repeated header are joined by commas."""

    @property
    def header_block(self) -> HeaderBlock:
        """The same headers as an object, which later requests with equal headers share."""

    @property
    def accepts_chunks(self) -> bool:
        """True if the client can tell the end of a body of unknown length from its truncation.

        A client of HTTP/1.0 cannot.
        """

    @property
    def client_address(self) -> bytes:
        """IP address of the other end of the connection; ``unknown`` if it has none."""

    @property
    def is_closed(self) -> bool:
        """True if the connection is closed: nobody can receive a response."""

    async def receive(self) -> bytes:
        """Return the next piece of the body, empty at its end. Raise ``HttpError``."""

    async def disconnected(self) -> None:
        """Return when the client has disconnected. Must not run together with ``receive``."""

    def respond(
        self, status: int, headers: Sequence[Header], body: Sequence[bytes | memoryview]
    ) -> None:
        """Send the status, the headers, and the body or its beginning.

        The headers include content-length. The body of a response to HEAD is omitted. If the
        body of the request is not complete, the connection is closed afterwards. Raise
        ``ClientDisconnected``.
        """

    def begin_chunks(self, status: int, headers: Sequence[Header]) -> None:
        """Send the status and the headers of a response whose length is not known.

        ``send`` sends its body, and ``end_chunks`` its end. Only for a client that accepts chunks.
        Raise ``ClientDisconnected``.
        """

    def send(self, piece: bytes | memoryview) -> None:
        """Send more of the body. Raise ``ClientDisconnected``."""

    def end_chunks(self) -> None:
        """Send the end of a body of unknown length. Without it, the client sees a truncation."""

    @property
    def is_write_paused(self) -> bool:
        """True if the client reads slowly, or a write has failed: ``drain`` waits, or raises."""

    async def drain(self) -> None:
        """Wait until the write buffer has space again. Raise ``ClientDisconnected``."""

    def start(self) -> None:
        """Run the application's ``handle`` in a task."""

    def finish(self) -> None:
        """End a request that was responded to without ``start``."""


class Application(Protocol):
    """Handles requests."""

    def is_always_admitted(self, request: Request) -> bool:
        """Return True if the request is handled even above the connection limit.

        The server rejects every other request there, with ``TooManyConnections``.
        """

    def admit(self, request: Request) -> None:
        """Admits or rejects a request. Its head is complete, and earlier responses are sent.

        The application calls ``request.start()``, or ``request.respond(...)`` and then
        ``request.finish()``. It does so before it returns or in a later event-loop iteration.
        """

    async def handle(self, request: Request) -> None:
        """Responds to a request that was started.

        An exception closes the connection, so that the client notices a truncated response.
        """

    def reject(self, request: Request, error: HttpError) -> None:
        """Responds to a request that cannot be parsed or admitted, with ``request.respond(...)``.

        The server finishes it and closes the connection.
        """

    def shutdown(self) -> None:
        """End long polls and other waits, because the server is stopping."""


async def unless_disconnected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Do the work, but end it and raise ``ClientDisconnected`` when the client disconnects."""
    tasks = (asyncio.create_task(work), asyncio.create_task(request.disconnected()))
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if not tasks[0].done():
            raise ClientDisconnected
        return tasks[0].result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
