"""All connections of one server process."""

from __future__ import annotations

import asyncio
from typing import Protocol

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

    def abort(self) -> None:
        """Closes the connection at once."""


class ConnectionRegistry:
    """Limits the number of connections, and checks their timeouts."""

    def __init__(self, application: Application, limits: Limits) -> None:
        self.application = application
        self.limits = limits
        self.is_stopping = False
        self._connections: dict[ManagedConnection, None] = {}  # the oldest first

    def add(self, connection: ManagedConnection) -> None:
        """Adds a new connection.

        One above the limit replaces the oldest idle connection. If none is idle, it is rejected.
        """
        self._connections[connection] = None
        excess = len(self._connections) - self.limits.max_connections
        if excess <= 0:
            return
        idle = next((one for one in self._connections if one.is_idle), None)
        if idle is not None:
            self.remove(idle)
            idle.close()
        elif excess <= self.limits.max_rejected_connections:
            connection.reject(TooManyConnections())
        else:
            connection.abort()

    @property
    def open_connections(self) -> int:
        return len(self._connections)

    def remove(self, connection: ManagedConnection) -> None:
        self._connections.pop(connection, None)

    async def watch_timeouts(self) -> None:
        """Checks the timeouts of all connections, until it is cancelled."""
        while True:
            await asyncio.sleep(self.limits.check_seconds)
            for connection in tuple(self._connections):
                connection.check_timeouts()

    def shutdown(self) -> None:
        """Tells the application to end waiting requests. Each connection closes itself."""
        if not self.is_stopping:
            self.is_stopping = True
            self.application.shutdown()
