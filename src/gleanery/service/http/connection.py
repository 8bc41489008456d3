"""One HTTP/1.1 connection: reads requests from a socket, and sends responses in order.

Theory of operation
===================

A connection answers one request at a time. ``_current`` is that request, from its admission to the
end of its response. Bytes that arrive during that time are the rest of its body, or stay in the
parser.

``State`` says what happens to input. It only moves down its list, for these reasons::

    OPEN             -> DISCARDING    malformed input, a rejection, the last response, a stop
    OPEN, DISCARDING -> HALF_CLOSED   the client sends nothing more (eof_received)
    any state        -> CLOSED        the socket is closed (connection_lost)

``Awaited`` is derived from the state, the request, the parser and the write buffer. It tells the
check of the timeouts, and the eviction, for what the server waits.

Invariants:

- At most one request is in progress, so responses have the order of the requests.
- The next request is parsed only after the response before it, and only while the write buffer has
  space. So a client that does not read gets no more work done.
- At most 64 KiB of a body and 64 KiB of pipelined requests wait in memory. Above that, reading is
  paused. ``_admit_next``, ``HttpRequest.receive`` and ``_proceed`` resume it.
- Each admitted request ends in ``finish``; a second call has no effect. A missing or truncated
  response closes the connection, so that the client notices it.
- Once a connection is DISCARDING, nothing more is parsed. From OPEN it can become HALF_CLOSED; then
  it still handles the requests that it has received. The current request still gets its response,
  and input is read and dropped for a while, so that the client can receive it.
- The registry holds a connection until its socket is closed and its last request has ended.

Call tree of a request with a body::

    data_received
        RequestParser.add
        _admit_next
            RequestParser.next_request        the head; HttpError -> reject
            _admit
                _read_body                    what has arrived of the body
                Application.admit
                    HttpRequest.start -> start -> task: _run
                    or HttpRequest.respond, HttpRequest.finish
    data_received -> _read_body               the rest of the body
    _run
        Application.handle
            HttpRequest.receive
            HttpRequest.respond -> write
        finish
            _proceed -> _admit_next           in the next iteration of the event loop
            or _close_after, abort

The registry calls ``check_timeouts`` at regular intervals. At the connection limit it calls
``close`` on a connection that is unused, or else on the first in ``eviction_order``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from enum import Enum, auto
from typing import cast

from gleanery.service.http.application import (
    ClientDisconnected,
    HeaderBlock,
    HttpError,
    RequestTimeout,
    TooManyConnections,
)
from gleanery.service.http.parser import RequestParser
from gleanery.service.http.registry import Awaited, ConnectionRegistry, EvictionOrder, Timeouts
from gleanery.service.http.request import HttpRequest
from gleanery.service.http.sockets import address_of, unconfirmed_bytes

_MAX_JOINED_BYTES = 64 * 1024  # larger responses are written in parts, without a copy
_MAX_WAITING_BYTES = 64 * 1024  # of pipelined requests; more are read after the next response


class State(Enum):
    """State of a connection. It only moves down this list."""

    OPEN = auto()
    """Requests are read."""
    DISCARDING = auto()
    """Input is discarded. The current request still gets its response."""
    HALF_CLOSED = auto()
    """The client sends nothing more. It may still read responses."""
    CLOSED = auto()
    """The socket is closed."""


# Reading a member from its class takes 0.15 µs, and some are needed for every request.
_OPEN, _HALF_CLOSED, _CLOSED = State.OPEN, State.HALF_CLOSED, State.CLOSED

_EVICTABLE = (Awaited.REQUEST, Awaited.HEAD, Awaited.CLOSE)


class FlowControl:
    """Pauses reading from the client, and knows when writing to it is paused."""

    __slots__ = ("_drained", "_transport", "is_read_paused", "is_write_paused")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._drained: asyncio.Future[None] | None = None
        self.is_read_paused = False
        """True if the client cannot send at the moment."""
        self.is_write_paused = False
        """True if the write buffer is full, because the client reads slowly."""

    def pause_reading(self) -> None:
        if not self.is_read_paused:
            self.is_read_paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self.is_read_paused and not self._transport.is_closing():
            self.is_read_paused = False
            self._transport.resume_reading()

    def pause_writing(self) -> None:
        """Note that the write buffer is full."""
        self.is_write_paused = True
        self._drained = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        """Note that the write buffer has space again, or that the connection is lost."""
        self.is_write_paused = False
        drained, self._drained = self._drained, None
        if drained is not None and not drained.done():
            drained.set_result(None)

    async def drain(self) -> None:
        """Wait until the write buffer has space again."""
        if self._drained is not None:
            await self._drained


class Connection(asyncio.Protocol):
    """Implements the connection's side of every interface of this package."""

    _transport: asyncio.Transport
    _flow: FlowControl

    def __init__(self, registry: ConnectionRegistry) -> None:
        self._registry = registry
        self._application = registry.application
        self._limits = registry.limits
        self._loop = asyncio.get_running_loop()
        self._parser = RequestParser(self, self._limits.max_head_bytes)
        self._timeouts = Timeouts(self._limits)
        self._state = _OPEN
        self._current: HttpRequest | None = None  # its response is in progress
        self._is_restricted = False
        self.client_address = b""

    # --- called by the event loop -----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._flow = FlowControl(self._transport)
        # A closed socket has no address, and a request may end after its socket.
        self.client_address = self._find_address()
        self._register()

    def _find_address(self) -> bytes:
        return address_of(self._transport)

    def _register(self) -> None:
        self._registry.add(self)

    def data_received(self, data: bytes) -> None:
        self._timeouts.received += len(data)
        if self._state is not _OPEN:
            self._limit_discarded()
            return
        self._parser.add(data)
        if self._current is None:
            self._admit_next()
        elif not self._current.is_complete:
            self._read_body(self._current)
        elif len(self._parser.unparsed) > _MAX_WAITING_BYTES:
            self._flow.pause_reading()

    def eof_received(self) -> bool:
        """Note that the client sends nothing more. Return True if it may still read responses."""
        self._state = _HALF_CLOSED
        if self._current is not None:
            self._note_end_of_input(self._current)
        elif self._parser.is_in_head:
            self._loop.call_soon(self._admit_next)
        return self._current is not None or self._parser.is_in_head

    def _note_end_of_input(self, request: HttpRequest) -> None:
        has_next = request.is_complete and self._parser.is_in_head
        request.fail(ClientDisconnected(), keep_alive=has_next and request.keep_alive)

    def connection_lost(self, error: Exception | None) -> None:
        self._state = _CLOSED
        self._registry.remove(self)
        self._parser.clear()
        self._flow.resume_writing()
        if self._current is None:
            self._registry.discard(self)
        else:
            self._current.fail(ClientDisconnected())

    def pause_writing(self) -> None:
        self._flow.pause_writing()

    def resume_writing(self) -> None:
        self._flow.resume_writing()
        if self._current is None and not self._transport.is_closing():
            self._proceed()

    # --- one request after the other --------------------------------------------------------------

    def _admit_next(self) -> None:
        """Admits the next request. The client gets no response while the write buffer is full."""
        if self._current is not None:
            return
        if self._flow.is_write_paused:
            self._flow.pause_reading()
            return
        try:
            request = self._parser.next_request()
        except HttpError as error:
            self.reject(error)
            return
        if self._flow.is_read_paused and len(self._parser.unparsed) <= _MAX_WAITING_BYTES:
            self._flow.resume_reading()
        if request is not None:
            self._admit(request)
        elif self._state is _HALF_CLOSED:
            self._close_when_sent()

    def _admit(self, request: HttpRequest) -> None:
        self._current = request
        if self._registry.is_stopping or self._is_restricted:
            request.keep_alive = False
        if not request.is_complete:
            self._read_body(request)
        if self._state is _HALF_CLOSED:
            self._note_end_of_input(request)
        if self._is_restricted and not self._application.is_always_admitted(request):
            self._send_error(request, TooManyConnections())
            return
        try:
            self._application.admit(request)
        except Exception as error:
            self._fail(request, error)

    def _read_body(self, request: HttpRequest) -> None:
        """Give a request what has arrived of its body. An error waits for its reader."""
        try:
            if self._parser.read_body(request):
                self._flow.pause_reading()
        except HttpError as error:
            request.fail(error)
            self._discard_input()

    # --- called by requests -----------------------------------------------------------------------

    @property
    def is_write_paused(self) -> bool:
        return self._flow.is_write_paused or self._transport.is_closing()

    @property
    def is_closed(self) -> bool:
        return self._state is _CLOSED

    async def drain(self) -> None:
        if self._transport.is_closing():
            await asyncio.sleep(0)  # after a write that has failed, the loop reports the loss
        await self._flow.drain()
        if self._state is _CLOSED:
            raise ClientDisconnected

    def write(self, parts: Sequence[bytes | memoryview]) -> None:
        if self._state is _CLOSED:
            raise ClientDisconnected
        size = sum(map(len, parts))
        self._timeouts.written += size
        self._send(parts, size)

    def _send(self, parts: Sequence[bytes | memoryview], size: int) -> None:
        if size <= _MAX_JOINED_BYTES:
            self._transport.write(b"".join(parts))
        else:
            self._transport.writelines(parts)

    def resume_reading(self) -> None:
        self._flow.resume_reading()

    def start(self, request: HttpRequest) -> None:
        self._registry.start_task(self._run(request))

    async def _run(self, request: HttpRequest) -> None:
        has_response = False
        try:
            await self._application.handle(request)
            has_response = request.has_response
        except ClientDisconnected:
            pass
        finally:
            self.finish(request, has_response)

    def finish(self, request: HttpRequest, has_response: bool) -> None:
        if self._current is not request:  # the application failed after it was finished
            return
        self._current = None
        if self._state is _CLOSED:
            self._registry.discard(self)
        elif not has_response:
            self.abort()
        elif not request.keep_alive or self._registry.is_stopping:
            self._close_after(request)
        else:
            self._proceed()

    def _proceed(self) -> None:
        """Continues after a response: with the next request, or with reading."""
        if self._parser.unparsed or self._state is _HALF_CLOSED:
            self._loop.call_soon(self._admit_next)  # later: immediate responses would nest
        elif self._flow.is_read_paused:
            self._flow.resume_reading()

    def _fail(self, request: HttpRequest, error: Exception) -> None:
        """Report an error of the application, and close the connection."""
        context = {"message": "the application failed on a request", "exception": error}
        self._loop.call_exception_handler(context)
        self.finish(request, has_response=False)

    def _send_error(self, request: HttpRequest, error: HttpError) -> None:
        self._current = request
        try:
            self._application.reject(request, error)
        except Exception as failure:
            self._fail(request, failure)
        else:
            self.finish(request, request.has_response)

    def _close_after(self, request: HttpRequest) -> None:
        """Close the connection after a response.

        A client that is still sending would lose the response if the socket were closed at once.
        Therefore its input is discarded for a while. TLS cannot close one direction alone.
        """
        has_sent_all = request.is_complete and not self._parser.unparsed
        if has_sent_all or self._state is _HALF_CLOSED:
            self._close_when_sent()
        else:
            if self._transport.can_write_eof():
                self._transport.write_eof()
            self._timeouts.received = 0
            self._flow.resume_reading()
        self._discard_input()

    def _close_when_sent(self) -> None:
        """Close the connection when the write buffer is empty."""
        self._transport.close()

    def _discard_input(self) -> None:
        self._parser.clear()
        if self._state is _OPEN:
            self._state = State.DISCARDING

    def _limit_discarded(self) -> None:
        if self._timeouts.received <= self._limits.linger_bytes:
            return
        if self._current is None:
            self._transport.abort()
        else:
            self._flow.pause_reading()

    # --- called by the registry and the server ----------------------------------------------------

    def reject(self, error: HttpError) -> None:
        """Send an error as the last response, and read nothing more."""
        self._discard_input()
        if self._current is not None:
            self._current.fail(error)
        else:
            request = HttpRequest(self, "GET", b"/", b"", HeaderBlock({}), keep_alive=False)
            self._send_error(request, error)

    def restrict(self) -> None:
        self._is_restricted = True
        self._timeouts = Timeouts(self._registry.reserve_limits)

    @property
    def is_replaceable(self) -> bool:
        return self._awaited() is not Awaited.NOTHING

    @property
    def is_unused(self) -> bool:
        return self._state is _OPEN and not self._parser.parsed_heads

    @property
    def eviction_order(self) -> EvictionOrder | None:
        """Idle connections come after those that do worse. Unread responses come last."""
        awaited = self._awaited()
        waited = self._timeouts.waited(awaited, self._parser.parsed_heads)
        if not waited or awaited not in _EVICTABLE or self.is_unused:
            return None
        if self._unread_bytes():
            return 2, -waited
        is_idle = awaited is not Awaited.CLOSE and not self._timeouts.is_head_old
        return int(is_idle), -waited

    @property
    def unsent_bytes(self) -> int:
        """Bytes of responses that wait for the client to read."""
        return self._transport.get_write_buffer_size()

    def check_timeouts(self) -> None:
        awaited = self._awaited()
        unread = self._unread_bytes() if awaited is Awaited.READER else 0
        if not self._timeouts.is_overdue(awaited, self._parser.parsed_heads, unread):
            return
        match awaited:
            case Awaited.REQUEST | Awaited.HEAD if self._is_restricted:
                self.reject(TooManyConnections())
            case Awaited.REQUEST:
                self.close()
            case Awaited.HEAD | Awaited.BODY:
                self.reject(RequestTimeout())
            case _:
                self._transport.abort()

    def _unread_bytes(self) -> int:
        """Return the bytes that the client has not received.

        The system buffers megabytes, and accepts more only when a third of them is sent. So the
        write buffer alone does not show that a slow client reads.
        """
        return self.unsent_bytes + unconfirmed_bytes(self._transport)

    def _awaited(self) -> Awaited:
        if self._flow.is_write_paused:
            return Awaited.READER
        if self._current is not None:
            return Awaited.BODY if self._current.awaits_body else Awaited.NOTHING
        if self._state is not _OPEN:
            return Awaited.CLOSE
        if self._parser.is_in_head:
            return Awaited.HEAD
        return Awaited.REQUEST

    def close(self) -> None:
        if self.unsent_bytes:  # the client does not read the response
            self._transport.abort()
        else:
            self._close_when_sent()

    def abort(self) -> None:
        self._discard_input()
        self._transport.abort()

    def shutdown(self) -> None:
        if self._current is not None:
            self._current.keep_alive = False
            return
        self._discard_input()
        self._close_when_sent()
