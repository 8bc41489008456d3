"""A client's connection: HTTP/1.1 on a socket, one request after the other, within limits.

httptools reads the bytes; what only asks the same from another cursor needs no reading. What is
found becomes a ``Request``, which is answered in a task of its own, unless it hardly ever waits.
A client that keeps us waiting for too long is given up.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from functools import partial
from types import coroutine
from typing import Any, Protocol, cast

import httptools

from gleanery.errors import BadRequest, GleaneryError, HeadTooLarge, RequestTimeout
from gleanery.http.head import Head
from gleanery.http.registry import ConnectionRegistry
from gleanery.http.request import HELD, ClientDisconnected, Request
from gleanery.scheduling.deferred_reads import DeferredRead

_LONGEST_HEAD = 64 * 1024
_SLOWEST = 1024  # bytes a second; who is slower for a while is given up
_LINGER_SECONDS, _LINGER_BYTES = 5, 4 * 1024 * 1024  # for a client to see that it is refused
_LONGEST_QUEUE = 64  # requests sent ahead of the answers


class ServerState(Protocol):
    """What the server keeps of its connections, to wait for them when it stops."""

    connections: set[Any]
    tasks: set[asyncio.Task[None]]


class Connection(asyncio.Protocol):
    """One socket: what comes in becomes requests, which are answered in their order."""

    def __init__(self, registry: ConnectionRegistry, state: ServerState) -> None:
        self._gate = registry
        self._state = state
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        # Bytes behind a request that ends the connection are not for us, and no fault.
        self._parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._transport: asyncio.Transport
        self._is_lost = False
        self._is_stopping = False
        self._discarding_input = False  # whatever comes in is thrown away
        self._has_heard_all = False  # the client sends nothing more
        self._is_paused = False
        self._room: asyncio.Future[None] | None = None  # to write on, while there is none
        # The head that is coming in
        self._in_message = False
        self._in_head = False
        self._has_moved_on = False  # with the bytes that came last
        self._head_bytes = 0
        self._url = b""
        self._headers: dict[bytes, bytes] = {}
        self._head: Head | None = None  # the last one, which the client may send again
        # The requests
        self._arriving: Request | None = None  # of which the body is coming in
        self._current: Request | None = None  # which is being answered
        self._queue: deque[Request] = deque()  # sent without waiting for the answer before
        self._refusal: GleaneryError | None = None  # to be told after these
        # The client's slowness
        self._begun = 0  # requests
        self._moved = 0  # bytes that came in
        self._waiting_for: tuple[str, int] = ("", 0)
        self._waited = 0  # seconds
        self._left = 0  # bytes that are still to be written

    # --- what the transport tells ----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._state.connections.add(self)
        self._gate.open(self)

    def data_received(self, data: bytes) -> None:
        self._moved += len(data)
        if self._discarding_input:
            if self._current is None and self._moved > _LINGER_BYTES:
                self._transport.abort()
            return
        is_between = self._current is None and not self._in_message
        if is_between and self._repeats(data):
            return
        begun, self._has_moved_on = self._begun, False
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._ignore_upgrade()
            return
        except httptools.HttpParserError as error:
            cause = error.__context__
            self.refuse(cause if isinstance(cause, GleaneryError) else BadRequest())
            return
        # Bytes that brought neither a request nor a body: a head that grows, or trailers.
        if self._in_message and self._begun == begun and not self._has_moved_on:
            self._grow_head(len(data))
        elif is_between and not self._in_message and self._begun == begun + 1 and self._head:
            self._head.was(data)

    def _repeats(self, data: bytes) -> bool:
        """Begins what is the last request again from another cursor; tells if this is such."""
        cursor = None if self._head is None else self._head.cursor_in(data)
        if self._head is None or cursor is None:
            return False
        self._begun += 1
        request = Request(self, self._head, cursor)
        request.keep_alive = not self._is_stopping
        self._enter(request)
        return True

    def _ignore_upgrade(self) -> None:
        """The client offers another protocol. Its request is answered all the same, in ours."""
        self._discarding_input = True
        last = self._queue[-1] if self._queue else self._current
        if last is None:  # it was turned away at the door
            self._transport.close()
        else:
            last.keep_alive = False

    def eof_received(self) -> bool:
        """The client sends nothing more. It may still wait for answers."""
        self._has_heard_all = True
        for request in (self._current, *self._queue):
            if request is not None:
                request.fail(
                    ClientDisconnected(), keep_alive=request.is_whole and bool(self._queue)
                )
        if self._queue:
            self._queue[-1].keep_alive = False
        has_tls = self._transport.get_extra_info("ssl_object") is not None
        return self._current is not None and not has_tls

    def connection_lost(self, error: Exception | None) -> None:
        self._is_lost = True
        self._gate.forget(self)
        self._queue.clear()
        self.resume_writing()
        if self._current is None:
            self._state.connections.discard(self)
        else:
            self._current.fail(ClientDisconnected())

    def pause_writing(self) -> None:
        self._room = self._loop.create_future()

    def resume_writing(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
        self._room = None

    # --- what the parser tells -------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._in_message, self._in_head, self._head_bytes = True, True, 0
        self._url, self._headers = b"", {}
        self._begun += 1

    def on_url(self, url: bytes) -> None:
        self._url += url
        self._head_bytes += len(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_head:  # what comes behind a body is nothing to go by
            return
        name = name.lower()
        if name in self._headers:
            value = self._headers[name] + b", " + value
        self._headers[name] = value
        self._head_bytes += len(name) + len(value)
        if self._head_bytes > _LONGEST_HEAD:
            raise HeadTooLarge(_LONGEST_HEAD)

    def on_headers_complete(self) -> None:
        self._in_head, self._head_bytes, self._has_moved_on = False, 0, True
        if len(self._queue) >= _LONGEST_QUEUE:
            raise BadRequest
        method = self._parser.get_method().decode("ascii")
        head = Head(method, self._url, self._headers)
        request = self._arriving = Request(self, head)
        request.keep_alive = (
            self._parser.should_keep_alive()
            and self._parser.get_http_version() != "1.0"
            and not self._is_stopping
        )
        self._head = head if request.keep_alive else None
        if (
            self._discarding_input
        ):  # since the request before this one, of which the same bytes told
            self._arriving = None
        elif self._current is None:
            self._enter(request)
        else:
            self._queue.append(request)
            self._pause_reading()

    def on_body(self, body: bytes) -> None:
        self._has_moved_on = True
        if self._arriving is not None and self._arriving.add(body):
            self._pause_reading()

    def on_message_complete(self) -> None:
        self._in_message, self._has_moved_on = False, True
        if self._arriving is not None:
            self._arriving.end()
            self._arriving = None

    # --- what a request asks for -----------------------------------------------------------------

    @property
    def is_full(self) -> bool:
        """Whether the client is behind with reading what was written."""
        return self._room is not None

    async def emptied(self) -> None:
        if self._room is not None:
            await self._room
        if self._is_lost:
            raise ClientDisconnected

    def write(self, parts: Sequence[bytes | memoryview]) -> None:
        """What is small goes out in one piece; what is large is not copied for that."""
        if self._is_lost:
            raise ClientDisconnected
        size = sum(map(len, parts))
        self._left += size
        if size <= HELD:
            self._transport.write(b"".join(parts))
        else:
            self._transport.writelines(parts)

    def _pause_reading(self) -> None:
        if not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._is_paused and not self._queue and not self._is_lost:
            self._is_paused = False
            self._transport.resume_reading()

    # --- one request after the other -------------------------------------------------------------

    def _enter(self, request: Request) -> None:
        fault = self._gate.handler.enter(request)
        if fault is None:
            self._current = request
            self._gate.handler.begin(request, partial(self._start, request))
            return
        request.decline()
        if self._room is not None or self._queue:  # who reads no answers gets no more of them
            self._start(request, fault)
        else:  # without a task: to refuse must cost little, or it is no relief
            self._current = request
            self._gate.handler.defer_rejection(partial(self._turn_away, request, fault))

    def _turn_away(self, request: Request, fault: GleaneryError) -> None:
        if not self._is_lost:
            self._gate.handler.send_rejection(request, fault)
        self._finish(request, is_answered=True)

    def _start(self, request: Request, refusal: GleaneryError | None = None) -> None:
        self._current = request
        answering = self._answer(request, refusal)
        if refusal is None and self._gate.handler.runs_inline(request):
            self._step(answering)
        else:
            self._make_task(answering)

    def _step(self, answering: Coroutine[Any, None, None]) -> None:
        """Without a task, which would take longer than all the rest but the reading."""
        try:
            awaited = answering.send(None)
        except StopIteration:
            return
        except Exception:
            return  # which is in the log, and the connection cut; others are still to be begun
        if isinstance(awaited, DeferredRead):
            awaited.go_on = partial(self._step, answering)
        else:
            self._make_task(_gone_on(answering, awaited))

    def _make_task(self, answering: Coroutine[Any, None, None]) -> None:
        task = self._loop.create_task(answering)
        self._state.tasks.add(task)
        task.add_done_callback(self._state.tasks.discard)

    async def _answer(self, request: Request, refusal: GleaneryError | None) -> None:
        is_answered = False
        try:
            if refusal is None:
                await self._gate.handler.serve(request)
            else:
                await self._gate.handler.refuse(request, refusal)
            is_answered = True
        except ClientDisconnected:
            pass
        finally:
            if request.slot is not None:
                request.slot.end()
            self._finish(request, is_answered)

    def _finish(self, request: Request, is_answered: bool) -> None:
        self._current = None
        if self._is_lost:
            self._state.connections.discard(self)
        elif not is_answered:
            self._transport.abort()
        elif not request.keep_alive or self._is_stopping:
            self._close(request)
        elif self._queue:
            self._enter(self._queue.popleft())
            self.resume_reading()
        elif self._refusal is not None:
            self._tell(self._refusal)
        else:
            if self._arriving is request:
                self._arriving = None  # what is left of its body is thrown away
            self.resume_reading()

    def _close(self, request: Request) -> None:
        """A client that is still sending is first let read the answer: else it may never see it."""
        self._discarding_input, self._moved = True, 0
        if request.is_whole or self._has_heard_all or not self._transport.can_write_eof():
            self._transport.close()
            return
        self._transport.write_eof()
        self._queue.clear()
        self.resume_reading()

    def _grow_head(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > _LONGEST_HEAD:
            self.refuse(HeadTooLarge(_LONGEST_HEAD))

    def refuse(self, fault: GleaneryError) -> None:
        """Tells what is wrong, after the answers to all that was well, and hears no more."""
        self._discarding_input, self._in_head = True, False
        if self._arriving is not None:
            self._arriving.fail(fault)  # whose answer tells it
        elif self._current is not None:
            self._refusal = fault
        else:
            self._tell(fault)

    def _tell(self, fault: GleaneryError) -> None:
        request = Request(self, Head("GET", b"/", {}))
        request.keep_alive = False
        self._start(request, fault)

    def shutdown(self) -> None:
        """The server stops: what is under way is finished, and nothing more is taken."""
        self._is_stopping = True
        self._gate.handler.stop_waiting()
        if self._current is None:
            self._transport.close()
        else:
            self._current.keep_alive = False

    # --- slow clients ----------------------------------------------------------------------------

    def check_timeouts(self) -> None:
        """Once a second: has the client kept us waiting for too long?"""
        waiting_for = (self._what_is_waited_for(), self._begun)
        if waiting_for != self._waiting_for:
            self._waiting_for = waiting_for
            self._begin_window()
            return
        self._waited += 1
        what = waiting_for[0]
        if what == "a request" and self._waited >= self._gate.idle_seconds:
            self._give_up()
        elif what == "the end" and self._waited >= _LINGER_SECONDS:
            self._transport.abort()
        elif what == "a head" and self._waited >= self._gate.stall_seconds:
            self.refuse(RequestTimeout())
        elif what in ("a body", "a reader") and self._waited >= self._gate.stall_seconds:
            self._hold_to_pace(what)

    @property
    def is_idle(self) -> bool:
        """Whether its client has asked nothing for a second or more."""
        return self._waited > 0 and self._waiting_for == ("a request", self._begun)

    def close(self) -> None:
        """At a moment when nobody waits for an answer."""
        self._give_up()

    def abort(self) -> None:
        self._transport.abort()

    def _what_is_waited_for(self) -> str:
        if self._room is not None:
            return "a reader"
        if self._discarding_input and self._current is None:
            return "the end"
        if self._in_head and self._current is None:
            return "a head"
        if self._current is None:
            return "a request" if self._arriving is None else "a body"
        return "a body" if self._current.is_awaited else "nothing"

    def _hold_to_pace(self, what: str) -> None:
        moved = self._moved
        if what == "a reader":
            moved = self._left - self._transport.get_write_buffer_size()
        is_slow = moved < _SLOWEST * self._waited
        self._begin_window()
        if is_slow and what == "a body" and self._arriving is not None:
            self.refuse(RequestTimeout())
        elif is_slow:
            self.abort()

    def _give_up(self) -> None:
        if self._transport.get_write_buffer_size():  # an answer that nobody takes
            self._transport.abort()
        else:
            self._transport.close()

    def _begin_window(self) -> None:
        self._waited, self._moved = 0, 0
        self._left = self._transport.get_write_buffer_size()


async def _gone_on(begun: Coroutine[Any, None, None], awaited: Any) -> None:
    """The rest of what was begun outside of a task, and now waits."""
    await _resumed(begun, awaited)


@coroutine
def _resumed(begun: Coroutine[Any, None, None], awaited: Any) -> Any:
    with suppress(StopIteration):
        while True:
            try:
                yield awaited
            except BaseException as error:  # for what was begun: it may know what to do
                awaited = begun.throw(error)
            else:
                awaited = begun.send(None)
