"""A server of its own for the tests of gleanery.service.http: a small application in a thread."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import uvloop

from gleanery.service.http import (
    BadRequest,
    ClientDisconnected,
    ConnectionRegistry,
    HeadTooLarge,
    HttpError,
    HttpServer,
    Limits,
    Request,
    RequestTimeout,
    TooManyConnections,
    UnsupportedExpectation,
    UnsupportedMethod,
    UnsupportedTransferEncoding,
    UnsupportedVersion,
)
from gleanery.service.http.server import TlsContext
from tests.support.waiting import TIMEOUT_SECONDS

STATUS: dict[type[HttpError], int] = {
    BadRequest: 400,
    RequestTimeout: 408,
    UnsupportedExpectation: 417,
    HeadTooLarge: 431,
    UnsupportedMethod: 501,
    UnsupportedTransferEncoding: 501,
    TooManyConnections: 503,
    UnsupportedVersion: 505,
}
PIECE = b"x" * 65536


class EchoApplication:
    """Describes each request in its response. Some paths do something special."""

    def __init__(self) -> None:
        self.events: list[str] = []
        """Notes of the application, in their order."""
        self.held: list[Request] = []
        self.release = asyncio.Event()

    def is_always_admitted(self, request: Request) -> bool:
        return request.path == b"/health"

    def admit(self, request: Request) -> None:
        self.events.append(f"admit {request.path.decode()}")
        match request.path:
            case b"/inline":
                self._answer_inline(request)
            case b"/inline-large":
                respond(request, 200, PIECE * 200)
                request.finish()
            case b"/inline-bytes":
                respond(request, 200, b"x" * int(request.query))
                request.finish()
            case b"/later":
                asyncio.get_running_loop().call_soon(self._answer_inline, request)
            case b"/admit-fails":
                raise RuntimeError("admit fails")
            case b"/no-response":
                request.finish()
            case _:
                request.start()

    def _answer_inline(self, request: Request) -> None:
        with suppress(ClientDisconnected):
            respond(request, 200, b"inline")
        request.finish()

    async def handle(self, request: Request) -> None:
        try:
            await self._handle(request)
        except ClientDisconnected:
            self.events.append(f"disconnected {request.path.decode()}")
            raise
        except HttpError as error:
            respond(request, STATUS[type(error)], type(error).__name__.encode())

    async def _handle(self, request: Request) -> None:
        match request.path:
            case b"/hold":
                self.held.append(request)
                await self.release.wait()
            case b"/hold-stream":
                self.held.append(request)
                await self.release.wait()
                await self._stream(request)
                return
            case b"/wait":
                await request.disconnected()
                self.events.append("noticed")
            case b"/fail":
                raise RuntimeError("handle fails")
            case b"/truncate":
                request.respond(200, [(b"content-length", b"100")], (b"too short",))
                raise RuntimeError("handle fails")
            case b"/unread":
                respond(request, 200, b"unread")
                return
            case b"/stream":
                await self._stream(request)
                return
            case b"/chunks":
                await self._send_chunks(request)
                return
        body = await read_body(request)
        respond(request, 200, json.dumps(described(request, body)).encode())
        await request.drain()

    async def _stream(self, request: Request) -> None:
        """Sends as many pieces as the query says."""
        count = int(request.query)
        length = b"%d" % (len(PIECE) * count)
        request.respond(200, [(b"content-length", length)], ())
        for _ in range(count):
            request.send(PIECE)
            await request.drain()
        self.events.append("streamed")

    async def _send_chunks(self, request: Request) -> None:
        """Sends the parts of the query, without their length. The part ``fail`` is an error."""
        assert request.accepts_chunks
        request.begin_chunks(200, ())
        for part in request.query.split(b","):
            if part == b"fail":
                raise RuntimeError("handle fails")
            if request.method != "HEAD":
                request.send(part)
                await request.drain()
        request.end_chunks()

    def reject(self, request: Request, error: HttpError) -> None:
        self.events.append(f"reject {type(error).__name__}")
        respond(request, STATUS[type(error)], type(error).__name__.encode())

    def shutdown(self) -> None:
        self.events.append("shutdown")
        self.release.set()


def respond(request: Request, status: int, body: bytes) -> None:
    request.respond(status, [(b"content-length", b"%d" % len(body))], (body,))


async def read_body(request: Request) -> bytes:
    pieces = []
    while piece := await request.receive():
        pieces.append(piece)
    return b"".join(pieces)


def described(request: Request, body: bytes) -> dict[str, Any]:
    block = request.header_block
    block.memo = (block.memo or 0) + 1
    return {
        "method": request.method,
        "path": request.path.decode("latin-1"),
        "query": request.query.decode("latin-1"),
        "headers": {n.decode(): v.decode("latin-1") for n, v in request.headers.items()},
        "body": body.decode("latin-1"),
        "accepts_chunks": request.accepts_chunks,
        "uses_of_headers": block.memo,
    }


class Server:
    """Serves the application on a socket, in an event loop in a thread."""

    def __init__(self, limits: Limits, tls_context: TlsContext | None = None) -> None:
        self.application: EchoApplication
        self.registry: ConnectionRegistry
        self.errors: list[dict[str, Any]] = []
        """Reports to the event loop's exception handler."""
        self._limits = limits
        self._tls_context = tls_context
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        assert self._started.wait(TIMEOUT_SECONDS)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.loop.set_exception_handler(lambda _, context: self.errors.append(context))
        self.application = EchoApplication()
        self.registry = ConnectionRegistry(self.application, self._limits)
        self._stop = asyncio.Event()
        server = HttpServer(self.registry, self._tls_context)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.port = listener.getsockname()[1]
            await server.start(listener)
            self._started.set()
            await self._stop.wait()
            await server.stop(TIMEOUT_SECONDS)

    def call(self, callback: Callable[[], object]) -> None:
        """Runs the callback in the event loop."""
        with suppress(RuntimeError):  # the server has stopped
            self.loop.call_soon_threadsafe(callback)

    def begin_stop(self) -> None:
        """Begins an orderly stop."""
        self.call(self._stop.set)

    def stop(self) -> None:
        self.call(self.application.release.set)
        self.begin_stop()
        self.join(TIMEOUT_SECONDS)

    def join(self, seconds: float) -> None:
        """Waits for the end of the stop."""
        self._thread.join(seconds)
        assert not self._thread.is_alive()

    def saw(self, event: str) -> bool:
        return event in self.application.events


class Response(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def description(self) -> dict[str, Any]:
        described: dict[str, Any] = json.loads(self.body)
        return described


class Client:
    """A client that sends exactly the bytes that a test gives it."""

    def __init__(self, server: Server, receive_buffer: int | None = None) -> None:
        self.socket = socket.socket()
        if receive_buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(TIMEOUT_SECONDS)
        self.socket.connect(("127.0.0.1", server.port))
        self._received = b""

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def send_in_pieces(self, data: bytes, size: int) -> None:
        """Sends pieces of this size, each in a packet of its own."""
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for start in range(0, len(data), size):
            self.send(data[start : start + size])

    def send_until_refused(self, piece: bytes) -> None:
        """Sends the piece again and again, until the server accepts no more."""
        try:
            while True:
                self.socket.sendall(piece)
        except OSError:
            pass

    def receive(self, has_body: bool = True) -> Response:
        """Reads one response."""
        while b"\r\n\r\n" not in self._received:
            self._receive_more()
        head, _, self._received = self._received.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        pairs = (line.split(": ", 1) for line in lines)
        headers = {name.lower(): value for name, value in pairs}
        length = int(headers.get("content-length", "0")) if has_body else 0
        while len(self._received) < length:
            self._receive_more()
        body, self._received = self._received[:length], self._received[length:]
        return Response(int(first.split()[1]), headers, body)

    def _receive_more(self) -> None:
        piece = self.socket.recv(65536)
        assert piece, f"the server closed the connection after {self._received!r}"
        self._received += piece

    def is_at_end(self) -> bool:
        """Waits for more; returns True if the server has closed the connection instead."""
        if not self._received:
            self._received = self.socket.recv(65536)
        return not self._received

    def exchange(self, request: bytes) -> Response:
        self.send(request)
        return self.receive()

    def receive_all(self) -> bytes:
        """Reads until the server closes the connection."""
        pieces = [self._received]
        try:
            while piece := self.socket.recv(65536):
                pieces.append(piece)
        except ConnectionError:
            pass
        return b"".join(pieces)

    def statuses(self) -> list[int]:
        """Reads until the server closes the connection; returns the statuses of the responses."""
        return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d+) ", self.receive_all())]

    def half_close(self) -> None:
        self.socket.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """Ends the connection at once, without waiting for what was sent."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def head(method: str, target: str, *headers: str) -> bytes:
    """A request without a body, or the beginning of one with a body."""
    return "\r\n".join([f"{method} {target} HTTP/1.1", "Host: x", *headers, "", ""]).encode()


@contextmanager
def serving(
    limits: Limits | None = None, tls_context: TlsContext | None = None
) -> Iterator[Server]:
    """Serves until the end of the block. No application error may be left unexpected."""
    server = Server(limits or Limits(), tls_context)
    try:
        yield server
    finally:
        server.stop()
