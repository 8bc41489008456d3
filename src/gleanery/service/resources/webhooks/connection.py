"""A connection to a receiver of webhooks: one request at a time, and the start of its response.

At most 16 KiB of a response are read, with its head and the lengths of its chunks. The work for a
response depends on its parts, so each piece counts as 64 bytes or more. Without these limits, a
receiver could keep this process busy with responses before the response, many headers, or chunks of
one byte. A connection is used again only if the response was read to its end.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Sequence
from typing import NamedTuple, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

MAX_RESPONSE_BYTES = 16 * 1024
_LEAST_BYTES = 64  # as which each piece of a response counts
_CONNECT_SECONDS = 5.0


class ConnectionLost(Exception):
    """The receiver has closed the connection before the end of its response."""

    def __init__(self, *, before_response: bool) -> None:
        super().__init__()
        self.before_response = before_response
        """True if no byte of the response has come."""


class InvalidResponse(Exception):
    """The response is not HTTP."""


class ResponseTooLong(Exception):
    """The head of the response is longer than what the service reads."""


class Response(NamedTuple):
    """The start of a response."""

    status: int
    retry_after: bytes
    content: bytes
    is_complete: bool
    """False if the body is longer than what the service reads."""


class _Reading:
    """What has come of a response. The parser calls the methods whose names begin with on_."""

    def __init__(self) -> None:
        self.response: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self.keeps_open = False
        """True if the connection may be used again after the response."""
        self._parser = HttpResponseParser(self)
        self._left = MAX_RESPONSE_BYTES
        self._has_head = False
        self._has_length = False
        self._retry_after = b""
        self._content = bytearray()

    def feed(self, data: bytes) -> None:
        """Parse a piece. What follows the end of the response is an error of the receiver."""
        if self.response.done():
            self.keeps_open = False
            return
        is_cut = len(data) > self._left
        try:
            self._parser.feed_data(data[: self._left])
        except HttpParserUpgrade:  # the receiver changes the protocol, which nobody has asked for
            self._finish(is_complete=False)
        except HttpParserError:
            self.fail(InvalidResponse())
        self._left -= max(len(data), _LEAST_BYTES)
        if is_cut:
            self.keeps_open = False
        if self._left > 0 or self.response.done():
            return
        if self._has_head:
            self._finish(is_complete=False)
        else:
            self.fail(ResponseTooLong())

    def end(self) -> None:
        """Note that the connection is closed, which can be the end of the body."""
        if self._has_head and not self._has_length:
            self._finish(is_complete=True)
        self.fail(ConnectionLost(before_response=self._left == MAX_RESPONSE_BYTES))
        self.keeps_open = False

    def fail(self, error: Exception) -> None:
        if not self.response.done():
            self.response.set_exception(error)

    def _finish(self, *, is_complete: bool) -> None:
        if not self.response.done():
            status = self._parser.get_status_code()
            content = bytes(self._content)
            self.response.set_result(Response(status, self._retry_after, content, is_complete))

    # --- called by the parser ---------------------------------------------------------------------

    def on_header(self, name: bytes, value: bytes) -> None:
        match name.lower():
            case b"retry-after":
                self._retry_after = value
            case b"content-length":
                self._has_length = True
            case b"transfer-encoding":
                self._has_length = b"chunked" in value.lower()

    def on_headers_complete(self) -> None:
        self._has_head = self._parser.get_status_code() >= 200

    def on_body(self, body: bytes) -> None:
        self._content += body

    def on_message_begin(self) -> None:
        self.keeps_open = False  # after the response, there is something else

    def on_message_complete(self) -> None:
        # Before the head, it is a response before the response, such as 103 Early Hints.
        if self._has_head and not self.response.done():
            self.keeps_open = self._parser.should_keep_alive()
            self._finish(is_complete=True)


class ReceiverConnection(asyncio.Protocol):
    """A connection that sends one request after another."""

    _transport: asyncio.Transport

    def __init__(self) -> None:
        self._reading: _Reading | None = None
        self.is_open = False
        """True if another request can be sent."""

    async def exchange(self, request: bytes) -> Response:
        """Send a request. Raise ConnectionLost, InvalidResponse or ResponseTooLong."""
        reading = self._reading = _Reading()
        if not self.is_open:
            reading.end()
        else:
            self._transport.write(request)
        try:
            return await reading.response
        finally:
            self._reading = None
            if not reading.keeps_open:
                self.close()

    def close(self) -> None:
        """Close the connection at once, without waiting for a slow receiver."""
        self.is_open = False
        self._transport.abort()

    # --- called by the event loop -----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.is_open = True

    def data_received(self, data: bytes) -> None:
        if self._reading is None:  # nobody has asked
            self.close()
        else:
            self._reading.feed(data)

    def connection_lost(self, error: Exception | None) -> None:
        self.is_open = False
        if self._reading is not None:
            self._reading.end()


async def open_connection(
    addresses: Sequence[str], port: int, context: ssl.SSLContext | None, host: str
) -> ReceiverConnection:
    """Connect to the first of the addresses that responds. Raise OSError.

    With a context, the connection is encrypted, and the certificate must be valid for the host.
    """
    failure: Exception = OSError()
    for address in addresses:
        try:
            return await _open(address, port, context, host)
        except TimeoutError:
            failure = OSError()
        except OSError as error:
            failure = error
    raise failure


async def _open(
    address: str, port: int, context: ssl.SSLContext | None, host: str
) -> ReceiverConnection:
    loop = asyncio.get_running_loop()
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    connected = socket.socket(family, socket.SOCK_STREAM)
    try:
        connected.setblocking(False)
        async with asyncio.timeout(_CONNECT_SECONDS):
            await loop.sock_connect(connected, (address, port))
    except BaseException:
        connected.close()
        raise
    _, connection = await loop.create_connection(  # from now on, the transport closes the socket
        ReceiverConnection,
        sock=connected,
        ssl=context,
        server_hostname=None if context is None else host,
    )
    return connection
