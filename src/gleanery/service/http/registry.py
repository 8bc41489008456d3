"""All connections of one server process, with their limits and timeouts.

A connection is regular, reserved, or evicted:

- Up to ``max_connections`` are regular. One more evicts a connection that waits for its client: the
  oldest one that has never sent a whole head, or else the first in the order of
  ``ManagedConnection.eviction_order``. So a client that sends its request soon is served, as long
  as fewer than ``max_connections`` others connect within ``unused_seconds``.
- If none can be evicted, the new connection is reserved. What a client wants is known only when its
  head is read. So a reserved connection may send one request. If that is not always admitted, it is
  rejected. A new reserved connection replaces the oldest one that waits for its client. So clients
  that send nothing cannot hold the reserve.
- An evicted connection is closed. With TLS that takes a moment.

The log and two counters tell when the limit is reached.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Coroutine
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Any, Protocol

from gleanery.service.http.application import Application, HttpError

_log = logging.getLogger("gleanery.service.http")

# --- limits and timeouts of one connection ------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one server process."""

    idle_seconds: float = 75
    """Time for which a connection without a request stays open."""
    stall_seconds: float = 30
    """Time in which a head must be complete. Also the period of a speed measurement."""
    max_connections: int = 2000
    unused_seconds: float = 0.25
    """Time that a client has for its first head at least, if ``max_connections`` is reached."""
    max_head_bytes: int = 64 * 1024
    """Size of the request line and the headers; also of the trailers after a chunked body."""
    min_bytes_per_second: int = 1024
    """Minimum speed of a client that sends a body or reads a response, in bytes per second."""
    linger_seconds: float = 30
    """Time for which input is discarded, so that a client can read the last response."""
    linger_bytes: int = 64 * 1024 * 1024
    """Maximum number of bytes that are discarded for the same reason."""
    reserved_connections: int = 100
    """Connections above the limit, on which only requests that are always admitted are handled."""
    reserve_seconds: float = 5
    """Time limit of each wait on a connection above the limit."""
    check_seconds: float = 1.0
    """Interval at which the timeouts are checked."""


class Awaited(Enum):
    """Event that the server waits for on a connection."""

    NOTHING = auto()
    """The application handles a request."""
    REQUEST = auto()
    """The client sends a request."""
    HEAD = auto()
    """The client completes the head that it began."""
    BODY = auto()
    """The client sends more of a body that the application reads."""
    READER = auto()
    """The client reads what was sent."""
    CLOSE = auto()
    """The client reads the last response and closes the connection."""


# A head belongs to the wait for its request.
_WAIT = {Awaited.HEAD: Awaited.REQUEST}


class Timeouts:
    """Measures at each check how long the server waits for the client, and the client's speed.

    The wait for a request begins when the connection was last useful: when it was made, or when its
    last response was complete. Only a complete head ends it, so no other bytes prolong it. It takes
    ``idle_seconds`` and, if a head has begun by then, ``stall_seconds`` more.
    """

    __slots__ = (
        "_head_began",
        "_limits",
        "_seconds",
        "_unread",
        "_waiting_for",
        "received",
        "written",
    )

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._waiting_for: tuple[Awaited, int] = (Awaited.NOTHING, 0)
        self._seconds = 0.0
        self._head_began: float | None = None  # in seconds of the wait; None without a head
        self._unread = 0  # bytes that the client had not received when the measurement began
        self.received = 0
        """Bytes received since the measurement began."""
        self.written = 0
        """Bytes put into the write buffer since then."""

    def is_overdue(self, awaited: Awaited, request_number: int, unread: int) -> bool:
        """Count one more interval. Return True if the client exceeds its time or is too slow.

        ``request_number`` distinguishes the wait for one request from the wait for the next.
        """
        wait = (_WAIT.get(awaited, awaited), request_number)
        if self._waiting_for != wait:
            self._waiting_for = wait
            self._begin_measurement(unread)
            self._head_began = 0.0 if awaited is Awaited.HEAD else None
            return False
        self._seconds += self._limits.check_seconds
        if awaited is Awaited.HEAD:
            return self._is_head_overdue()
        self._head_began = None
        if self._seconds < self._allowed_seconds(awaited):
            return False
        return self._is_too_slow(awaited, unread)

    def _is_head_overdue(self) -> bool:
        if self._head_began is None:
            self._head_began = self._seconds
        return self._seconds - self._head_began >= self._limits.stall_seconds

    def waited(self, awaited: Awaited, request_number: int) -> float:
        """Return for how long the server has waited; zero until the second check of this wait."""
        wait = (_WAIT.get(awaited, awaited), request_number)
        return self._seconds if self._waiting_for == wait else 0.0

    @property
    def is_head_old(self) -> bool:
        """True if more than one check has found the same wait in a head."""
        return self._head_began is not None and self._seconds > self._head_began

    def _allowed_seconds(self, awaited: Awaited) -> float:
        match awaited:
            case Awaited.NOTHING:
                return float("inf")
            case Awaited.REQUEST:
                return self._limits.idle_seconds
            case Awaited.CLOSE:
                return self._limits.linger_seconds
        return self._limits.stall_seconds

    def _is_too_slow(self, awaited: Awaited, unread: int) -> bool:
        """Return True if the client is too slow. A body and a reader have a minimum speed."""
        if awaited is Awaited.BODY:
            moved = self.received
        elif awaited is Awaited.READER:
            moved = self._unread + self.written - unread
        else:
            return True
        too_slow = moved < self._limits.min_bytes_per_second * self._seconds
        self._begin_measurement(unread)
        return too_slow

    def _begin_measurement(self, unread: int) -> None:
        self._seconds, self.received, self.written = 0.0, 0, 0
        self._unread = unread


# --- the registry -------------------------------------------------------------------------------

EvictionOrder = tuple[int, float]
"""The connection with the lowest value is evicted first."""

_REPORT_SECONDS = 60.0  # between two log lines about the limit


class ManagedConnection(Protocol):
    """The part of a connection that the registry uses."""

    @property
    def is_unused(self) -> bool:
        """True until the client has sent a whole head."""

    @property
    def eviction_order(self) -> EvictionOrder | None:
        """Order among the used connections that can be evicted.

        None if the connection is in use, or has not waited for its client since the last check.
        """

    @property
    def is_replaceable(self) -> bool:
        """True if the server waits for the client, and not the client for the server."""

    def restrict(self) -> None:
        """Allow only one request, which must be always admitted, and little time."""

    def check_timeouts(self) -> None:
        """Close the connection if the client exceeds a timeout."""

    def reject(self, error: HttpError) -> None:
        """Responds with an error and reads nothing more."""

    def close(self) -> None:
        """Close a connection without a request in progress."""

    def shutdown(self) -> None:
        """Close the connection after the current response."""

    def abort(self) -> None:
        """Close the connection at once."""


class ConnectionRegistry:
    """Limits the number of connections, checks their timeouts, and waits for their end."""

    def __init__(self, application: Application, limits: Limits) -> None:
        self.application = application
        self.limits = limits
        seconds = limits.reserve_seconds
        self.reserve_limits = replace(
            limits, idle_seconds=seconds, stall_seconds=seconds, linger_seconds=seconds
        )
        """Limits of a reserved connection."""
        self.is_stopping = False
        self.connections: set[ManagedConnection] = set()
        """Connections that are open, or whose last request is still in progress."""
        self._regular: dict[ManagedConnection, None] = {}
        self._reserved: dict[ManagedConnection, None] = {}  # the oldest first
        self._evicted: dict[ManagedConnection, None] = {}  # their sockets are not closed yet
        self._unused: dict[ManagedConnection, float] = {}  # with their start, the oldest first
        self._evictable: list[ManagedConnection] | None = None  # the first to evict at the end
        self.evicted_connections = 0
        """Connections that were closed for others since the start."""
        self.refused_connections = 0
        """Connections above the limit since the start."""
        self._reported = (0, 0)
        self._reported_at = -math.inf
        self._tasks: set[asyncio.Task[None]] = set()
        self._ended = asyncio.Event()

    @property
    def open_connections(self) -> int:
        """Number of open sockets."""
        return len(self._regular) + len(self._reserved) + len(self._evicted)

    @property
    def running_tasks(self) -> int:
        """Number of requests and handshakes in progress."""
        return len(self._tasks)

    # --- the limit --------------------------------------------------------------------------------

    def add(self, connection: ManagedConnection) -> None:
        """Add a new connection."""
        self.connections.add(connection)
        if self.is_stopping:  # it was accepted, or began its handshake, before the stop
            self._regular[connection] = None
            connection.shutdown()
        elif len(self._regular) < self.limits.max_connections or self._evict_one():
            self._add_regular(connection)
        else:
            self.refused_connections += 1
            self._reserve(connection)

    def hand_over(self, handshake: ManagedConnection, connection: ManagedConnection) -> None:
        """Give a connection the place of its handshake."""
        is_regular, is_reserved = handshake in self._regular, handshake in self._reserved
        self.remove(handshake)
        if self.is_stopping or not (is_regular or is_reserved):
            self.add(connection)
        elif is_regular:
            self.connections.add(connection)
            self._add_regular(connection)
        else:
            self.connections.add(connection)
            self._reserve(connection)
        self.discard(handshake)

    def _add_regular(self, connection: ManagedConnection) -> None:
        self._regular[connection] = None
        self._unused[connection] = asyncio.get_running_loop().time()

    def _reserve(self, connection: ManagedConnection) -> None:
        if len(self._reserved) >= self.limits.reserved_connections:
            replaced = next((one for one in self._reserved if one.is_replaceable), None)
            if replaced is None:
                connection.abort()
                return
            del self._reserved[replaced]
            replaced.abort()
        self._reserved[connection] = None
        connection.restrict()

    def _evict_one(self) -> bool:
        """Close a connection that waits for its client. Return False if there is none."""
        connection = self._oldest_unused() or self._first_evictable()
        if connection is None:
            return False
        self._evict(connection)
        return True

    def _oldest_unused(self) -> ManagedConnection | None:
        """Return a connection whose client has had some time, and has sent no whole head."""
        oldest = asyncio.get_running_loop().time() - self.limits.unused_seconds
        while self._unused:
            connection, start = next(iter(self._unused.items()))
            if connection.is_unused:
                return connection if start <= oldest else None
            del self._unused[connection]
        return None

    def _first_evictable(self) -> ManagedConnection | None:
        if self._evictable is None:
            self._evictable = self._find_evictable()
        while self._evictable:
            connection = self._evictable.pop()
            if connection in self._regular and connection.eviction_order is not None:
                return connection
        return None

    def _find_evictable(self) -> list[ManagedConnection]:
        """Return the used connections that can be evicted. The next check can find others."""
        orders = ((one.eviction_order, one) for one in self._regular)
        found = [(order, one) for order, one in orders if order is not None]
        found.sort(key=lambda pair: pair[0])
        return [one for _, one in reversed(found)]

    def _evict(self, connection: ManagedConnection) -> None:
        """Close a connection. With TLS the client is given a moment to close it too."""
        self.evicted_connections += 1
        self.remove(connection)
        self._evicted[connection] = None
        connection.close()
        if len(self._evicted) > self.limits.reserved_connections:
            oldest = next(iter(self._evicted))
            del self._evicted[oldest]
            oldest.abort()

    def _report_limit(self) -> None:
        """Log that the limit is reached, but not in each second."""
        counts = (self.evicted_connections, self.refused_connections)
        now = asyncio.get_running_loop().time()
        if counts == self._reported or now < self._reported_at + _REPORT_SECONDS:
            return
        evicted, refused = (count - old for count, old in zip(counts, self._reported, strict=True))
        self._reported, self._reported_at = counts, now
        _log.warning(
            "the connection limit is reached",
            extra={
                "max_connections": self.limits.max_connections,
                "evicted": evicted,
                "refused": refused,
            },
        )

    # --- timeouts and the end ---------------------------------------------------------------------

    def remove(self, connection: ManagedConnection) -> None:
        """Remove a connection whose socket is closed."""
        self._regular.pop(connection, None)
        self._unused.pop(connection, None)
        self._reserved.pop(connection, None)
        self._evicted.pop(connection, None)

    def discard(self, connection: ManagedConnection) -> None:
        """Forgets a connection: it is closed, and has no request in progress."""
        self.connections.discard(connection)
        self._check_ended()

    def start_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a task of a connection. A stop waits for it."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._end_task)
        return task

    def _end_task(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if self.is_stopping:
            self._check_ended()

    async def watch_timeouts(self) -> None:
        """Check the timeouts of all connections, until it is cancelled."""
        while True:
            await asyncio.sleep(self.limits.check_seconds)
            for connection in (*self._regular, *self._reserved, *self._evicted):
                self._check_timeouts(connection)
            self._evictable = None
            self._report_limit()

    def _check_timeouts(self, connection: ManagedConnection) -> None:
        """Check one connection. An error must not end the check of the others."""
        try:
            connection.check_timeouts()
        except Exception as error:
            context = {"message": "the check of a connection failed", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)

    def shutdown(self) -> None:
        """End requests that only wait, and close each connection after its response."""
        if self.is_stopping:
            return
        self.is_stopping = True
        self.application.shutdown()
        for connection in tuple(self.connections):
            connection.shutdown()
        self._check_ended()

    async def wait_ended(self) -> None:
        """Return when all connections and tasks have ended. Call ``shutdown`` first."""
        await self._ended.wait()

    def abort(self) -> int:
        """End all connections and tasks at once. Return how many requests were in progress."""
        for connection in tuple(self.connections):
            connection.abort()
        for task in self._tasks:
            task.cancel()
        return len(self._tasks)

    def _check_ended(self) -> None:
        if self.is_stopping and not self.connections and not self._tasks:
            self._ended.set()
