"""Connections of the synchronous client, on the standard library: a page is read in one piece.

httpx2 reads a body in pieces of 64 KB through several layers. For a page of 1 MB this takes three
times the processor time.
"""

from __future__ import annotations

import select
import socket
import ssl
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from http.client import (
    HTTPConnection,
    HTTPException,
    HTTPResponse,
    HTTPSConnection,
    IncompleteRead,
)
from typing import Any
from urllib.request import getproxies

import httpx2

from gleanery.client.configuration import is_loopback

_WHOLE_BYTES = 16 * 1024 * 1024  # a longer body, such as that of a file, is read in pieces
_PIECE_BYTES = 1024 * 1024
_SENT_BYTES = 128 * 1024  # the timeout is for so many bytes, and not for the whole body
_MAX_IDLE = 10  # connections, for as many threads
_IDLE_SECONDS = 30.0  # later, a firewall may have dropped the connection without a word


def new_transport(url: str, context: ssl.SSLContext) -> DirectTransport | None:
    """Return a transport, or None if a proxy is configured: httpx2 knows how to use one.

    No proxy reaches this machine.
    """
    proxies = () if is_loopback(url) else getproxies()
    scheme = url.partition(":")[0]
    return None if scheme in proxies or "all" in proxies else DirectTransport(context)


class DirectTransport(httpx2.BaseTransport):
    """Sends requests over HTTP/1.1. Threads can share it; each uses a connection of its own."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        self._idle: dict[tuple[str, str, int], list[tuple[float, HTTPConnection]]] = {}
        """Connections, and the times since which nobody uses them."""

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        connection = self._take(request)
        try:
            _send(connection, request)
            _set_timeout(connection, request, "read")
            with _translated(httpx2.ReadTimeout, httpx2.ReadError):
                response = _receive(connection)
        except BaseException:
            connection.close()
            raise
        headers = [
            (name.encode(), value.encode("latin-1")) for name, value in response.getheaders()
        ]
        body = _Body(self, _key(request), connection, response)
        return httpx2.Response(response.status, headers=headers, stream=body)

    def close(self) -> None:
        for connections in self._idle.values():
            while connections:
                connections.pop()[1].close()

    def put_back(self, key: Any, connection: HTTPConnection) -> None:
        """Keep a connection for the next request."""
        connections = self._idle.setdefault(key, [])
        if len(connections) < _MAX_IDLE:
            connections.append((time.monotonic(), connection))
        else:
            connection.close()

    def _take(self, request: httpx2.Request) -> HTTPConnection:
        """Return an idle connection that the service has not closed, or a new one."""
        connections = self._idle.setdefault(_key(request), [])
        while connections:
            try:
                since, connection = connections.pop()
            except IndexError:  # another thread was faster
                break
            is_fresh = time.monotonic() - since < _IDLE_SECONDS
            if is_fresh and connection.sock is not None and not _is_readable(connection.sock):
                _set_timeout(connection, request, "write")
                return connection
            connection.close()
        return self._connect(request)

    def _connect(self, request: httpx2.Request) -> HTTPConnection:
        scheme, host, port = _key(request)
        timeout = request.extensions.get("timeout", {}).get("connect")
        connection = (
            HTTPSConnection(host, port, timeout=timeout, context=self._context)
            if scheme == "https"
            else HTTPConnection(host, port, timeout=timeout)
        )
        connection.response_class = _FinalResponse
        with _translated(httpx2.ConnectTimeout, httpx2.ConnectError):
            connection.connect()
        _set_timeout(connection, request, "write")
        return connection


class _FinalResponse(HTTPResponse):
    """Response after the interim ones, of which http.client skips only 100."""

    def begin(self) -> None:
        super().begin()
        while 101 < self.status < 200:
            self.headers = self.msg = None  # type: ignore[assignment]
            super().begin()


class _Body(httpx2.SyncByteStream):
    """Body of a response. Its connection is used again if it was read completely."""

    def __init__(
        self, transport: DirectTransport, key: Any, connection: HTTPConnection, body: HTTPResponse
    ) -> None:
        self._transport = transport
        self._key = key
        self._connection = connection
        self._body = body

    def __iter__(self) -> Iterator[bytes]:
        with _translated(httpx2.ReadTimeout, httpx2.ReadError):
            if self._body.length is not None and self._body.length <= _WHOLE_BYTES:
                yield from self._read_whole()
            else:
                yield from self._read_pieces()

    def _read_whole(self) -> Iterator[bytes]:
        try:
            yield self._body.read()
        except IncompleteRead as error:  # a download continues after these bytes
            yield error.partial
            raise

    def _read_pieces(self) -> Iterator[bytes]:
        while piece := self._body.read1(_PIECE_BYTES):
            yield piece
        if self._body.length:  # http.client takes a closed connection for the end of the body
            raise IncompleteRead(b"", self._body.length)
        self._body.read()  # notes the end, so that the connection can be used again

    def close(self) -> None:
        if self._body.isclosed() and self._connection.sock is not None:
            self._transport.put_back(self._key, self._connection)
        else:
            self._connection.close()


def _key(request: httpx2.Request) -> tuple[str, str, int]:
    """Return where the connection goes. Without a port, http.client splits an IPv6 address."""
    url = request.url
    return url.scheme, url.raw_host.decode(), url.port or (443 if url.scheme == "https" else 80)


def _send(connection: HTTPConnection, request: httpx2.Request) -> None:
    """Send a request. An error of its body, which can be a file, is raised as it is."""
    with _translated(httpx2.WriteTimeout, httpx2.WriteError):
        _send_head(connection, request)
    assert "transfer-encoding" not in request.headers, "a body needs a Content-Length"
    stream: Any = request.stream
    for piece in _split(stream):
        try:
            with _translated(httpx2.WriteTimeout, httpx2.WriteError):
                connection.send(piece)
        except httpx2.WriteError:  # the service may have rejected the request before its end
            return


def _send_head(connection: HTTPConnection, request: httpx2.Request) -> None:
    """Send the head. Its variables have the token, so they end before the body is read."""
    try:
        connection.putrequest(
            request.method,
            request.url.raw_path.decode(),
            skip_host=True,
            skip_accept_encoding=True,
        )
        for name, value in request.headers.raw:
            connection.putheader(name, value)
    except (ValueError, HTTPException) as error:
        raise httpx2.LocalProtocolError(str(error)) from None
    connection.endheaders()


def _split(body: Iterable[bytes]) -> Iterator[memoryview]:
    for piece in body:
        view = memoryview(piece)
        for start in range(0, len(view), _SENT_BYTES):
            yield view[start : start + _SENT_BYTES]


def _receive(connection: HTTPConnection) -> HTTPResponse:
    """Return a response whose end can be seen: http.client takes a broken head for a whole one."""
    response = connection.getresponse()
    if response.length is None and not response.chunked:
        response.close()
        raise HTTPException("The response has no length")
    return response


def _set_timeout(connection: HTTPConnection, request: httpx2.Request, phase: str) -> None:
    if connection.sock is not None:
        connection.sock.settimeout(request.extensions.get("timeout", {}).get(phase))


def _is_readable(sock: socket.socket) -> bool:
    """Return True if an idle connection has something to read: the service has closed it."""
    if hasattr(select, "poll"):
        poll = select.poll()
        poll.register(sock, select.POLLIN)
        return bool(poll.poll(0))
    return bool(select.select([sock], [], [], 0)[0])


@contextmanager
def _translated(
    timed_out: type[httpx2.TransportError], failed: type[httpx2.TransportError]
) -> Iterator[None]:
    """Raise the errors of httpx2."""
    try:
        yield
    except TimeoutError as error:
        raise timed_out(str(error)) from error
    except HTTPException as error:
        raise httpx2.RemoteProtocolError(str(error)) from error
    except OSError as error:
        raise failed(str(error)) from error
