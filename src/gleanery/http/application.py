"""The interface between a server and the application that answers its requests.

The HTTP/1.1 server of this package is one implementation of the server's side. An ASGI adapter can
be another: its ``respond`` queues messages, and its ``drain`` awaits the server's ``send``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from gleanery.http.errors import HttpError
from gleanery.http.head import HeaderBlock

Header = tuple[bytes, bytes]
"""Name and value of one header."""


class Request(Protocol):
    """One request of a client, and the way to answer it."""

    keep_alive: bool
    """Tells if the connection stays open afterwards. The application may set it to False."""
    state: Any
    """Belongs to the application; None at first."""

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
        """The same headers as an object that later requests of the client may share."""

    async def receive(self) -> bytes:
        """Returns the next piece of the body, empty at its end. Raises ``HttpError``."""

    async def disconnected(self) -> None:
        """Returns when the client has disconnected. Not to be awaited together with receive."""

    def respond(
        self, status: int, headers: Sequence[Header], body: Sequence[bytes | memoryview]
    ) -> None:
        """Sends the status, the headers, and the body or its beginning.

        The headers include content-length. The body of a response to HEAD is left out. Raises
        ``ClientDisconnected``.
        """

    def send(self, piece: bytes) -> None:
        """Sends more of the body. Raises ``ClientDisconnected``."""

    @property
    def is_behind(self) -> bool:
        """Tells if much of what was sent is still to be read by the client."""

    async def drain(self) -> None:
        """Returns when the client is no longer behind. Raises ``ClientDisconnected``."""

    def decline_body(self) -> None:
        """Closes the connection after the response if the rest of the body could be long."""

    def start(self) -> None:
        """Runs the application's ``handle`` in a task."""

    def finish(self) -> None:
        """Ends a request that was answered without ``start``."""


class Application(Protocol):
    """Answers requests."""

    def admit(self, request: Request) -> None:
        """Decides about a request whose head is complete and whose turn it is.

        The application calls ``request.start()``, or ``request.respond(...)`` and then
        ``request.finish()``. It does so before it returns or in a later event-loop iteration.
        """

    async def handle(self, request: Request) -> None:
        """Answers a request that was started.

        An exception closes the connection, so that the client notices the truncation.
        """

    def reject(self, request: Request, error: HttpError) -> None:
        """Answers, with ``request.respond(...)``, a request that cannot be read.

        The server finishes it and closes the connection.
        """

    def shutdown(self) -> None:
        """Ends the requests that only wait for an event: the server is stopping."""
