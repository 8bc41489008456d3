"""The ASGI adapter: runs the service on any ASGI server, through the interface of ``http``.

The server owns the connections. It handles their number, TLS, idle and slow clients.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any
from urllib.parse import quote

from gleanery.service.application import App
from gleanery.service.http import BadRequest, ClientDisconnected, Header, HeaderBlock, address_in

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_MAX_QUEUED_BYTES = 64 * 1024  # of a response; a small one is sent in one message
_MAX_UNREAD_BYTES = 64 * 1024  # of an unread body; above it the connection is closed

# httptools does so, which is the parser of uvicorn and gunicorn if it is installed.
_BODY_DROPPED = "the ASGI server dropped the body: send the request without an Upgrade header"


class AsgiRequest:
    """Implements ``gleanery.service.http.Request`` over the scope, receive and send of ASGI.

    ASGI sends with a coroutine, the application with a plain call. So ``respond`` and ``send``
    queue messages, and ``drain`` sends them.
    """

    def __init__(self, scope: Message, receive: Receive, send: Send) -> None:
        self.method: str = scope["method"]
        self.path: bytes = scope.get("raw_path") or quote(scope["path"]).encode()
        self.query: bytes = scope.get("query_string", b"")
        self.headers = _joined(scope["headers"])
        self.header_block = HeaderBlock(self.headers)
        self.client_address = address_in(scope.get("client"))
        self.keep_alive = True
        self.state: Any = None
        self.decision: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        """True when the application has called ``start``, False when it has called ``finish``."""
        version = str(scope.get("http_version", "1.1"))
        self._is_http1 = version.startswith("1")
        self.accepts_chunks = version != "1.0"
        self._receive = receive
        self._send = send
        self._messages: list[Message] = []
        self._queued_bytes = 0
        self._body_ended = False
        self._has_body = False
        self._is_disconnected = False

    @property
    def is_closed(self) -> bool:
        return self._is_disconnected

    async def receive(self) -> bytes:
        while not self._body_ended:
            piece = await self._next_message()
            if piece:
                self._has_body = True
                return piece
        if not self._has_body and self._declares_body():
            raise BadRequest(_BODY_DROPPED)
        return b""

    def _declares_body(self) -> bool:
        """Return True if the headers say that there is a body. Chunks alone may be empty."""
        headers = self.headers
        offers_upgrade = b"upgrade" in headers and b"transfer-encoding" in headers
        return offers_upgrade or headers.get(b"content-length", b"").strip(b"0") != b""

    async def disconnected(self) -> None:
        while not self._is_disconnected:
            try:
                await self._next_message()
            except ClientDisconnected:
                return

    async def _next_message(self) -> bytes:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            self._is_disconnected = True
            raise ClientDisconnected
        self._body_ended = not message.get("more_body", False)
        body: bytes = message.get("body", b"")
        return body

    def respond(
        self, status: int, headers: Sequence[Header], body: Sequence[bytes | memoryview]
    ) -> None:
        keep_alive = self.keep_alive and (self._body_ended or not self._has_long_body())
        close = [(b"connection", b"close")] if not keep_alive and self._is_http1 else []
        start = {"type": "http.response.start", "status": status, "headers": [*headers, *close]}
        self._messages.append(start)
        if self.method != "HEAD":
            self.send(b"".join(body))

    def begin_chunks(self, status: int, headers: Sequence[Header]) -> None:
        self.respond(status, headers, ())  # the server chooses how to mark the end

    def end_chunks(self) -> None:
        """Do nothing: ``end_response`` marks the end."""

    def _has_long_body(self) -> bool:
        """Return True if the server would have to read much that nobody needs."""
        length = self.headers.get(b"content-length", b"0")
        is_long = len(length) > 5 or int(length) > _MAX_UNREAD_BYTES
        return is_long or b"transfer-encoding" in self.headers

    def send(self, piece: bytes | memoryview) -> None:
        body = bytes(piece)
        self._messages.append({"type": "http.response.body", "body": body, "more_body": True})
        self._queued_bytes += len(piece)

    @property
    def is_write_paused(self) -> bool:
        return self._queued_bytes > _MAX_QUEUED_BYTES

    async def drain(self) -> None:
        messages, self._messages, self._queued_bytes = self._messages, [], 0
        try:
            for message in messages:
                await self._send(message)
        except OSError:  # ASGI servers report a closed connection in this way
            raise ClientDisconnected from None

    def start(self) -> None:
        if not self.decision.done():
            self.decision.set_result(True)

    def finish(self) -> None:
        if not self.decision.done():
            self.decision.set_result(False)

    async def end_response(self) -> None:
        """Send the queued messages; the last one tells the server that the body is complete."""
        if self._messages and self._messages[-1]["type"] == "http.response.body":
            self._messages[-1]["more_body"] = False
        else:
            self._messages.append({"type": "http.response.body", "body": b""})
        await self.drain()


def _joined(headers: Sequence[Header]) -> dict[bytes, bytes]:
    """Return the headers by lower-case name; the values of a repeated one are joined by commas."""
    found: dict[bytes, bytes] = {}
    for raw_name, value in headers:
        name = bytes(raw_name).lower()
        found[name] = found[name] + b", " + value if name in found else bytes(value)
    return found


class AsgiApp:
    """An ASGI callable over an application. The server's lifespan events start and stop it."""

    def __init__(self, app: App) -> None:
        self.app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        match scope["type"]:
            case "http":
                await self._handle(AsgiRequest(scope, receive, send))
            case "lifespan":
                await self._run(receive, send)
            case other:
                raise RuntimeError(f"the service answers HTTP requests only, not {other}")

    async def _handle(self, request: AsgiRequest) -> None:
        application = self.app.application
        application.admit(request)
        try:
            is_started = await request.decision
        except asyncio.CancelledError:  # by the server, while the request waits for its turn
            application.abandon(request)
            raise
        try:
            if is_started:
                await application.handle(request)
            await request.end_response()
        except ClientDisconnected:
            return

    async def _run(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await self.app.start()
        except Exception as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        try:
            await receive()
        finally:  # also when a second Ctrl-C cancels the server's task
            await self.app.stop()
        await send({"type": "lifespan.shutdown.complete"})
