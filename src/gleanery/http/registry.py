"""The registry: all connections of a worker, so many and no more, and what answers their requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from gleanery.errors import GleaneryError, Overloaded
from gleanery.http.request import Request

_TOLD = 100  # connections beyond the limit that are told so; further ones are cut off


class Handler(Protocol):
    """What answers requests."""

    def enter(self, request: Request) -> GleaneryError | None:
        """Gives the request its place, before anything is done for it; or tells why it has none."""

    def begin(self, request: Request, start: Callable[[], None]) -> None:
        """Calls ``start`` when it is the turn of the request, which has its place."""

    def runs_inline(self, request: Request) -> bool:
        """Whether it is answered as soon as it is begun, unless its client or a store is slow."""

    def defer_rejection(self, refusal: Callable[[], None]) -> None:
        """Calls it when there is time for those who have no place."""

    def send_rejection(self, request: Request, fault: GleaneryError) -> None:
        """Answers who has no place, without waiting for anything."""

    async def serve(self, request: Request) -> None:
        """Answers. An exception cuts the connection, so that half an answer looks like one."""

    async def refuse(self, request: Request, fault: GleaneryError) -> None:
        """Answers what can't be read."""

    def stop_waiting(self) -> None:
        """Lets the requests that only wait for something to happen come to their end."""


class ManagedConnection(Protocol):
    """What the registry asks of a connection."""

    @property
    def is_idle(self) -> bool:
        """Whether its client has asked nothing for a second or more."""

    def check_timeouts(self) -> None:
        """Once a second: has the client kept us waiting for too long?"""

    def refuse(self, fault: GleaneryError) -> None:
        """Tells what is wrong, and hears no more."""

    def close(self) -> None:
        """At a moment when nobody waits for an answer."""

    def abort(self) -> None:
        """At once, whoever waits."""


class ConnectionRegistry:
    """All connections of a worker, and the limits they are held to."""

    def __init__(
        self, handler: Handler, idle_seconds: int, stall_seconds: int, max_connections: int
    ) -> None:
        self.handler = handler
        self.idle_seconds = idle_seconds
        self.stall_seconds = stall_seconds
        self._max_connections = max_connections
        self._connections: dict[ManagedConnection, None] = {}  # the oldest first

    def open(self, connection: ManagedConnection) -> None:
        """One too many takes the room of one that is idle; if none is, it is not served."""
        self._connections[connection] = None
        if len(self._connections) <= self._max_connections:
            return
        idle = next((one for one in self._connections if one.is_idle), None)
        if idle is not None:
            self.forget(idle)
            idle.close()
        elif len(self._connections) <= self._max_connections + _TOLD:
            connection.refuse(Overloaded())
        else:
            connection.abort()

    def forget(self, connection: ManagedConnection) -> None:
        self._connections.pop(connection, None)

    async def watch_timeouts(self) -> None:
        """Looks after all connections, once a second."""
        while True:
            await asyncio.sleep(1)
            for connection in tuple(self._connections):
                connection.check_timeouts()
