"""The server: accepts connections on a listening socket, with or without TLS, and stops in order.

A TLS connection counts from its acceptance. Its handshake and its close are limited in time.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections import deque
from collections.abc import Callable, Sequence

from gleanery.service.http.application import HttpError
from gleanery.service.http.connection import Connection, State
from gleanery.service.http.registry import ConnectionRegistry, EvictionOrder
from gleanery.service.http.sockets import address_in, unconfirmed_bytes

TlsContext = Callable[[], ssl.SSLContext]
"""Returns the context for the next connection, so that certificates can be replaced."""

_CANCEL_SECONDS = 1.0


class HttpServer:
    """Serves an application between ``start`` and ``stop``."""

    _listener: asyncio.Server | TlsListener
    _timeouts: asyncio.Task[None]

    def __init__(self, registry: ConnectionRegistry, tls_context: TlsContext | None = None) -> None:
        self._registry = registry
        self._tls_context = tls_context

    async def start(self, listener: socket.socket, backlog: int = 100) -> None:
        """Accept connections on a bound socket."""
        loop = asyncio.get_running_loop()
        if self._tls_context is None:
            self._listener = await loop.create_server(
                lambda: Connection(self._registry), sock=listener, backlog=backlog
            )
        else:
            self._listener = TlsListener(self._registry, self._tls_context)
            self._listener.start(listener, backlog)
        self._timeouts = loop.create_task(self._registry.watch_timeouts())

    async def stop(self, seconds: float) -> int:
        """Accept nothing more, and wait so long for the requests in progress.

        Return the number of requests that were cut off.
        """
        self._listener.close()
        self._registry.shutdown()
        cut_off = 0
        if not await self._has_ended(seconds):
            cut_off = self._registry.abort()
            await self._has_ended(_CANCEL_SECONDS)
        self._timeouts.cancel()
        await asyncio.gather(self._timeouts, return_exceptions=True)
        return cut_off

    async def _has_ended(self, seconds: float) -> bool:
        """Wait so long for the end of all requests."""
        try:
            async with asyncio.timeout(seconds):
                await self._registry.wait_ended()
        except TimeoutError:
            return False
        return True


# --- TLS ----------------------------------------------------------------------------------------

_MAX_ACCEPTED = 100  # in one event-loop iteration
_NO_FILES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_RETRY_SECONDS = 1.0  # after which the system may have a file descriptor again
_PIECE_BYTES = 256 * 1024
_CLOSE_SECONDS = 1.0  # for the client's answer to the end of TLS


class TlsListener:
    """Accepts TLS connections on a listening socket.

    The event loop could do that too. But then a socket would count only after its handshake.
    """

    def __init__(self, registry: ConnectionRegistry, context: TlsContext) -> None:
        self._registry = registry
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._socket: socket.socket | None = None
        self._is_paused = False  # there is no file descriptor for a connection

    def start(self, listener: socket.socket, backlog: int) -> None:
        listener.setblocking(False)
        listener.listen(backlog)
        self._socket = listener
        self._loop.add_reader(listener, self._accept)

    def close(self) -> None:
        """Accept nothing more. The caller closes the socket."""
        if self._socket is not None and not self._is_paused:
            self._loop.remove_reader(self._socket)
        self._socket = None

    def _accept(self) -> None:
        for _ in range(_MAX_ACCEPTED):
            if self._socket is None or not self._accept_one(self._socket):
                return

    def _accept_one(self, listener: socket.socket) -> bool:
        """Return False if there is no connection, or no file descriptor for it."""
        try:
            accepted, peer = listener.accept()
        except OSError as error:
            if error.errno in _NO_FILES:
                self._pause(listener)
            return error.errno == errno.ECONNABORTED
        TlsHandshake(self._registry, accepted, address_in(peer), self._context())
        return True

    def _pause(self, listener: socket.socket) -> None:
        self._is_paused = True
        self._loop.remove_reader(listener)
        self._loop.call_later(_RETRY_SECONDS, self._resume)

    def _resume(self) -> None:
        self._is_paused = False
        if self._socket is not None:
            self._loop.add_reader(self._socket, self._accept)


class TlsHandshake:
    """A socket from its acceptance to the end of the handshake. It counts as a connection."""

    def __init__(
        self,
        registry: ConnectionRegistry,
        accepted: socket.socket,
        client_address: bytes,
        context: ssl.SSLContext,
    ) -> None:
        self._registry = registry
        self._socket = accepted
        self.client_address = client_address
        self._task = registry.start_task(self._run(context))
        registry.add(self)  # which may reject it

    async def _run(self, context: ssl.SSLContext) -> None:
        limits = self._registry.limits
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: TlsConnection(self._registry, self),
                self._socket,
                ssl=context,
                ssl_handshake_timeout=limits.stall_seconds,
                ssl_shutdown_timeout=limits.linger_seconds,
            )
        except (OSError, asyncio.CancelledError):  # errors of TLS are a kind of OSError
            self._socket.close()
        finally:
            self.end()

    def end(self) -> None:
        """Stop counting: the handshake has failed, or the connection counts instead."""
        self._registry.remove(self)
        self._registry.discard(self)

    @property
    def is_unused(self) -> bool:
        return True

    @property
    def eviction_order(self) -> EvictionOrder | None:
        return None

    @property
    def is_replaceable(self) -> bool:
        return True

    def restrict(self) -> None:
        """Change nothing: the connection after the handshake is restricted."""

    def check_timeouts(self) -> None:
        """Do nothing: the event loop limits the time of a handshake."""

    def reject(self, error: HttpError) -> None:
        """Send nothing: a response would need the handshake, which is the costly part."""
        self.abort()

    def close(self) -> None:
        self.abort()

    def shutdown(self) -> None:
        self.abort()

    def abort(self) -> None:
        self._task.cancel()
        self._socket.close()  # or when the event loop releases it
        self.end()


class TlsConnection(Connection):
    """A connection after its handshake.

    The transport would encrypt a large response at once, and count none of it as unsent. So it gets
    a large response in pieces, as the client reads them.
    """

    def __init__(self, registry: ConnectionRegistry, handshake: TlsHandshake) -> None:
        super().__init__(registry)
        self._handshake = handshake
        self._queue: deque[memoryview] = deque()  # what the transport has not got yet
        self._is_transport_full = False
        self._closes_when_sent = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._transport.set_write_buffer_limits(_PIECE_BYTES)

    def _find_address(self) -> bytes:
        return self._handshake.client_address

    def _register(self) -> None:
        self._registry.hand_over(self._handshake, self)

    def eof_received(self) -> bool:
        """Note the end of the connection: TLS ends both directions."""
        self._parser.clear()
        super().eof_received()
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self._queue.clear()
        super().connection_lost(error)

    # --- sending ----------------------------------------------------------------------------------

    @property
    def unsent_bytes(self) -> int:
        return super().unsent_bytes + sum(map(len, self._queue))

    def _send(self, parts: Sequence[bytes | memoryview], size: int) -> None:
        joined = b"".join(parts)  # each write to the transport becomes a TLS record
        if size <= _PIECE_BYTES and not self._queue:
            self._transport.write(joined)
        else:
            self._queue.append(memoryview(joined))
            self._send_queue()

    def _send_queue(self) -> None:
        while self._queue and not self._is_transport_full:
            part = self._queue.popleft()
            self._transport.write(part[:_PIECE_BYTES])
            if len(part) > _PIECE_BYTES:
                self._queue.appendleft(part[_PIECE_BYTES:])

    def pause_writing(self) -> None:
        self._is_transport_full = True
        if not self.is_write_paused:
            super().pause_writing()

    def resume_writing(self) -> None:
        self._is_transport_full = False
        self._send_queue()
        if self._is_transport_full:
            return
        super().resume_writing()
        if self._closes_when_sent:
            self._close_transport()

    # --- closing ----------------------------------------------------------------------------------

    def _close_when_sent(self) -> None:
        """Close the transport when its write buffer is empty.

        A TLS transport that is closed ends after some seconds, with or without its data.
        """
        if self.unsent_bytes:
            self._closes_when_sent = True
            self._transport.set_write_buffer_limits(high=1, low=0)
        else:
            self._close_transport()

    def _close_transport(self) -> None:
        """Close TLS, and soon the socket: the client may never answer the end of TLS."""
        self._transport.close()
        self._loop.call_later(_CLOSE_SECONDS, self._abort_when_received)

    def _abort_when_received(self) -> None:
        """Close the socket when the client has received everything.

        The transport below TLS has a buffer too, which its owner cannot see. It is empty when the
        system has nothing to send. Until then the time limit of the transport applies.
        """
        if self._state is State.CLOSED:
            return
        if unconfirmed_bytes(self._transport):
            self._loop.call_later(_CLOSE_SECONDS, self._abort_when_received)
        else:
            self._transport.abort()
