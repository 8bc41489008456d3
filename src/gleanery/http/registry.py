"""All connections of one server process."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Protocol

from gleanery.http.application import Application
from gleanery.http.errors import HttpError, TooManyConnections
from gleanery.http.limits import Limits


class ManagedConnection(Protocol):
    """The part of a connection that the registry uses."""

    @property
    def is_idle(self) -> bool:
        """True if the client has sent no request since the last check."""

    def check_timeouts(self) -> None:
        """Closes the connection if the client exceeds a timeout."""

    def reject(self, error: HttpError) -> None:
        """Responds with an error and reads nothing more."""

    def close(self) -> None:
        """Closes an idle connection."""

    def shutdown(self) -> None:
        """Closes the connection after the current response."""

    def abort(self) -> None:
        """Closes the connection at once."""


class ConnectionRegistry:
    """Limits the number of connections, checks their timeouts, and waits for their end."""

    def __init__(self, application: Application, limits: Limits) -> None:
        self.application = application
        self.limits = limits
        self.is_stopping = False
        self.connections: set[ManagedConnection] = set()
        """Connections that are open, or whose last request is still in progress."""
        self._counted: dict[ManagedConnection, None] = {}  # the oldest first
        self._evicted: dict[ManagedConnection, None] = {}  # their sockets are not closed yet
        self._tasks: set[asyncio.Task[None]] = set()
        self._ended = asyncio.Event()

    @property
    def open_connections(self) -> int:
        """Number of open sockets."""
        return len(self._counted) + len(self._evicted)

    @property
    def running_tasks(self) -> int:
        """Number of requests and handshakes in progress."""
        return len(self._tasks)

    def add(self, connection: ManagedConnection) -> None:
        """Adds a new connection.

        One above the limit replaces the oldest idle connection. If none is idle, it is rejected.
        """
        self.connections.add(connection)
        self._counted[connection] = None
        if self.is_stopping:  # it was accepted, or began its handshake, before the stop
            connection.shutdown()
            return
        excess = len(self._counted) - self.limits.max_connections
        if excess <= 0:
            return
        idle = next((one for one in self._counted if one.is_idle), None)
        if idle is not None:
            self._evict(idle)
        elif excess <= self.limits.max_rejected_connections:
            connection.reject(TooManyConnections())
        else:
            connection.abort()

    def _evict(self, connection: ManagedConnection) -> None:
        """Closes an idle connection. With TLS the client is given a moment to close it too."""
        del self._counted[connection]
        self._evicted[connection] = None
        connection.close()
        if len(self._evicted) > self.limits.max_rejected_connections:
            next(iter(self._evicted)).abort()

    def remove(self, connection: ManagedConnection) -> None:
        """Removes a connection whose socket is closed."""
        self._counted.pop(connection, None)
        self._evicted.pop(connection, None)

    def discard(self, connection: ManagedConnection) -> None:
        """Forgets a connection: it is closed, and has no request in progress."""
        self.connections.discard(connection)
        self._check_ended()

    def start_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Runs a task of a connection. A stop waits for it."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._end_task)
        return task

    def _end_task(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if self.is_stopping:
            self._check_ended()

    async def watch_timeouts(self) -> None:
        """Checks the timeouts of all connections, until it is cancelled."""
        while True:
            await asyncio.sleep(self.limits.check_seconds)
            for connection in (*self._counted, *self._evicted):
                connection.check_timeouts()

    def shutdown(self) -> None:
        """Ends requests that only wait, and closes each connection after its response."""
        if self.is_stopping:
            return
        self.is_stopping = True
        self.application.shutdown()
        for connection in tuple(self.connections):
            connection.shutdown()
        self._check_ended()

    async def wait_ended(self) -> None:
        """Returns when all connections and tasks have ended. Call ``shutdown`` first."""
        await self._ended.wait()

    def abort(self) -> int:
        """Ends all connections and tasks at once. Returns how many requests were in progress."""
        for connection in tuple(self.connections):
            connection.abort()
        for task in self._tasks:
            task.cancel()
        return len(self._tasks)

    def _check_ended(self) -> None:
        if self.is_stopping and not self.connections and not self._tasks:
            self._ended.set()
