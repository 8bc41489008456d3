"""What every node announces through PostgreSQL, heard on one connection for all who watch."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from gleanery.errors import Unavailable
from gleanery.storage.notifications import Watch, Watches
from gleanery.storage.postgres import row_security
from gleanery.storage.postgres.errors import AWAY

CHANNEL = "gleanery"
_PATIENCE = 5.0  # seconds, for the server to answer


class Listener:
    """One connection that hears what every node announces, and wakes this process's watchers."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: Any = None
        self._opening = asyncio.Lock()
        self.watches = Watches()

    @asynccontextmanager
    async def watch(self, line: str) -> AsyncIterator[Watch]:
        with self.watches.adding(line, _PostgresWatch(self)) as watch:
            await self.listen()
            yield watch

    async def listen(self) -> None:
        """Sees to it that the connection stands; one that was lost is made anew."""
        async with self._opening:
            if self._connection is not None and not self._connection.is_closed():
                return
            try:
                connection: Any = await asyncpg.connect(
                    self._url, timeout=_PATIENCE, command_timeout=_PATIENCE
                )
                self._connection = connection
                await row_security.take_role(connection)
                await connection.add_listener(CHANNEL, self._heard)
                connection.add_termination_listener(self._lost)
            except AWAY as error:
                self._drop()
                raise Unavailable from error

    def _heard(self, connection: Any, pid: int, channel: str, line: str) -> None:
        self.watches.wake(line)

    def _lost(self, connection: Any) -> None:
        """Something may have been announced that nobody heard: let everyone look."""
        self.watches.wake_all()

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()


class _PostgresWatch(Watch):
    """Sees to it, before it waits, that somebody is listening."""

    def __init__(self, listener: Listener) -> None:
        super().__init__()
        self._listener = listener

    async def wait(self, seconds: float) -> bool:
        await self._listener.listen()
        return await super().wait(seconds)
