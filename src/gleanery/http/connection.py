"""One HTTP/1.1 connection: reads requests from a socket, and sends responses in order."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from enum import Enum, auto
from typing import Any, Protocol, cast

from gleanery.http.errors import BadRequest, ClientDisconnected, HttpError, RequestTimeout
from gleanery.http.flow_control import FlowControl
from gleanery.http.head import HeaderBlock
from gleanery.http.parser import Position, RequestParser
from gleanery.http.registry import ConnectionRegistry
from gleanery.http.request import HttpRequest
from gleanery.http.timeouts import Awaited, Timeouts

_MAX_JOINED_BYTES = 64 * 1024  # larger responses are written in parts, without a copy


class State(Enum):
    """State of a connection. It only moves down this list."""

    OPEN = auto()
    """Requests are read."""
    DISCARDING = auto()
    """Input is discarded. Requests that were read before still get a response."""
    HALF_CLOSED = auto()
    """The client sends nothing more. It may still read responses."""
    CLOSED = auto()
    """The socket is closed."""


# Reading a member from its class takes 0.15 µs, and some are needed for every request.
_OPEN, _CLOSED = State.OPEN, State.CLOSED


class ServerState(Protocol):
    """Connections and tasks for which the server waits when it stops."""

    connections: set[Any]
    tasks: set[asyncio.Task[None]]


class Connection(asyncio.Protocol):
    """Implements the connection's side of every interface of this package."""

    _transport: asyncio.Transport
    _flow: FlowControl

    def __init__(self, registry: ConnectionRegistry, server_state: ServerState) -> None:
        self._registry = registry
        self._application = registry.application
        self._limits = registry.limits
        self._server_state = server_state
        self._loop = asyncio.get_running_loop()
        self._parser = RequestParser(self, self._limits.max_head_bytes)
        self._timeouts = Timeouts(self._limits)
        self._state = _OPEN
        self._current: HttpRequest | None = None  # its response is in progress
        self._receiving: HttpRequest | None = None  # its body is arriving
        self._queue: deque[HttpRequest] = deque()  # pipelined requests
        self._error: HttpError | None = None  # to be sent after the other responses

    # --- called by the event loop -----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._flow = FlowControl(self._transport)
        self._server_state.connections.add(self)
        self._registry.add(self)

    def data_received(self, data: bytes) -> None:
        self._timeouts.received += len(data)
        if self._state is not _OPEN:
            self._limit_discarded()
            return
        try:
            self._parser.feed(data)
        except HttpError as error:
            self.reject(error)

    def eof_received(self) -> bool:
        """Notes that the client sends nothing more. Returns True if it may still read responses."""
        self._state = State.HALF_CLOSED
        unanswered = [one for one in (self._current, *self._queue) if one is not None]
        for request in unanswered:
            has_next = request.is_complete and request is not unanswered[-1]
            request.fail(ClientDisconnected(), keep_alive=has_next and request.keep_alive)
        has_tls = self._transport.get_extra_info("ssl_object") is not None
        return bool(unanswered) and not has_tls

    def connection_lost(self, error: Exception | None) -> None:
        self._state = _CLOSED
        self._registry.remove(self)
        self._queue.clear()
        self._flow.resume_writing()
        if self._current is None:
            self._server_state.connections.discard(self)
        else:
            self._current.fail(ClientDisconnected())

    def pause_writing(self) -> None:
        self._flow.pause_writing()

    def resume_writing(self) -> None:
        self._flow.resume_writing()
        if self._current is None and not self._transport.is_closing():
            self._proceed()

    # --- called by the parser ---------------------------------------------------------------------

    def on_request(self, request: HttpRequest) -> None:
        if self._state is not _OPEN:  # the previous request in the same bytes closed it
            return
        if len(self._queue) >= self._limits.max_queued_requests:
            raise BadRequest("too many pipelined requests")
        if not request.is_complete:
            self._receiving = request
        if self._current is None and not self._queue and not self._flow.is_write_paused:
            self._admit(request)
        else:
            self._queue.append(request)
            self._flow.pause_reading()

    def on_body(self, piece: bytes) -> None:
        if self._receiving is not None and self._receiving.add_body(piece):
            self._flow.pause_reading()

    def on_request_end(self) -> None:
        if self._receiving is not None:
            self._receiving.complete()
            self._receiving = None

    def on_upgrade(self) -> None:
        """Ignores the upgrade: the request is handled, then the connection is closed."""
        last = self._queue[-1] if self._queue else self._current
        if last is None:  # it already has a response
            self._transport.close()
        else:
            last.keep_alive = False
        self._discard_input()

    # --- called by requests -----------------------------------------------------------------------

    @property
    def is_write_paused(self) -> bool:
        return self._flow.is_write_paused

    async def drain(self) -> None:
        await self._flow.drain()
        if self._state is _CLOSED:
            raise ClientDisconnected

    def write(self, parts: Sequence[bytes | memoryview]) -> None:
        if self._state is _CLOSED:
            raise ClientDisconnected
        size = sum(map(len, parts))
        self._timeouts.written += size
        if size <= _MAX_JOINED_BYTES:
            self._transport.write(b"".join(parts))
        else:
            self._transport.writelines(parts)

    def resume_reading(self) -> None:
        if not self._queue:
            self._flow.resume_reading()

    def start(self, request: HttpRequest) -> None:
        task = self._loop.create_task(self._run(request))
        self._server_state.tasks.add(task)
        task.add_done_callback(self._server_state.tasks.discard)

    # --- one request after the other --------------------------------------------------------------

    def _admit(self, request: HttpRequest) -> None:
        self._current = request
        if self._registry.is_stopping:
            request.keep_alive = False
        try:
            self._application.admit(request)
        except Exception as error:
            self._fail(request, error)

    async def _run(self, request: HttpRequest) -> None:
        has_response = False
        try:
            await self._application.handle(request)
            has_response = request.has_response
        except ClientDisconnected:
            pass
        finally:
            self.finish(request, has_response)
            if self._queue:
                self._admit_next()

    def finish(self, request: HttpRequest, has_response: bool) -> None:
        if self._current is not request:  # the application failed after it was finished
            return
        self._current = None
        if self._receiving is request:
            self._receiving = None  # the rest of its body is discarded
        if self._state is _CLOSED:
            self._server_state.connections.discard(self)
        elif not has_response:
            self.abort()
        elif not request.keep_alive or self._registry.is_stopping:
            self._close_after(request)
        else:
            self._proceed()

    def _fail(self, request: HttpRequest, error: Exception) -> None:
        """Reports an error of the application, and closes the connection."""
        context = {"message": "the application failed on a request", "exception": error}
        self._loop.call_exception_handler(context)
        self.finish(request, has_response=False)

    def _proceed(self) -> None:
        """Continues after a response: with the next request, with an error, or with reading.

        The client gets no further response while the write buffer is full.
        """
        if self._flow.is_write_paused:
            return
        if self._queue:  # later: immediate responses would nest
            self._loop.call_soon(self._admit_next)
        elif self._error is not None:
            self._send_error(self._error)
        elif self._flow.is_read_paused:
            self._flow.resume_reading()

    def _admit_next(self) -> None:
        if self._current is None and self._queue and not self._flow.is_write_paused:
            self._admit(self._queue.popleft())
            self.resume_reading()

    def _send_error(self, error: HttpError) -> None:
        request = HttpRequest(self, "GET", b"/", b"", HeaderBlock({}), keep_alive=False)
        self._error, self._current = None, request
        try:
            self._application.reject(request, error)
        except Exception as failure:
            self._fail(request, failure)
        else:
            self.finish(request, request.has_response)

    def _close_after(self, request: HttpRequest) -> None:
        """Closes the connection after a response.

        A client that is still sending would lose the response if the socket were closed at once.
        Therefore its input is discarded for a while.
        """
        self._queue.clear()
        self._error = None
        has_sent_all = request.is_complete or self._state is State.HALF_CLOSED
        if has_sent_all or not self._transport.can_write_eof():
            self._transport.close()
        else:
            self._transport.write_eof()
            self._timeouts.received = 0
            self._flow.resume_reading()
        self._discard_input()

    def _discard_input(self) -> None:
        if self._state is _OPEN:
            self._state = State.DISCARDING

    def _limit_discarded(self) -> None:
        if self._current is None and self._timeouts.received > self._limits.linger_bytes:
            self._transport.abort()

    # --- called by the registry and the server ----------------------------------------------------

    def reject(self, error: HttpError) -> None:
        """Sends an error after all other responses, and reads nothing more."""
        self._discard_input()
        if self._receiving is not None:
            self._receiving.fail(error)
            self._receiving = None
        elif self._current is not None or self._queue or self._flow.is_write_paused:
            self._error = error
        else:
            self._send_error(error)

    @property
    def is_idle(self) -> bool:
        return self._timeouts.is_idle(self._parser.request_count)

    def check_timeouts(self) -> None:
        awaited = self._awaited()
        unsent = self._transport.get_write_buffer_size()
        if not self._timeouts.is_overdue(awaited, self._parser.request_count, unsent):
            return
        match awaited:
            case Awaited.REQUEST:
                self.close()
            case Awaited.HEAD | Awaited.BODY:
                self.reject(RequestTimeout())
            case _:
                self._transport.abort()

    def _awaited(self) -> Awaited:
        if self._flow.is_write_paused:
            return Awaited.READER
        if self._current is not None:
            return Awaited.BODY if self._current.awaits_body else Awaited.NOTHING
        if self._queue:
            return Awaited.NOTHING
        if self._state is not _OPEN:
            return Awaited.CLOSE
        if self._parser.position is Position.HEAD:
            return Awaited.HEAD
        return Awaited.REQUEST

    def close(self) -> None:
        if self._transport.get_write_buffer_size():  # the client does not read the response
            self._transport.abort()
        else:
            self._transport.close()

    def abort(self) -> None:
        self._discard_input()
        self._queue.clear()
        self._transport.abort()

    def shutdown(self) -> None:
        """Closes the connection after the current response. uvicorn calls it."""
        self._registry.shutdown()
        if self._current is None:
            self._queue.clear()
            self._transport.close()
        else:
            self._current.keep_alive = False
