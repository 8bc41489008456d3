"""Receives the notifications of all nodes through one PostgreSQL connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import asyncpg

from gleanery.errors import Unavailable
from gleanery.storage.notifications import Subscription, Subscriptions
from gleanery.storage.postgres import row_security
from gleanery.storage.postgres.connect_errors import short_reason
from gleanery.storage.postgres.errors import CONNECTION_ERRORS

POSTGRES_CHANNEL = "gleanery"
"""The PostgreSQL channel that carries all notifications; their payloads are our channel names."""
_TIMEOUT_SECONDS = 5.0


class Listener:
    """One connection that listens for all nodes' notifications and notifies the subscriptions."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: Any = None
        self._connect_lock = asyncio.Lock()
        self.subscriptions = Subscriptions()

    @asynccontextmanager
    async def subscribe(self, channel: str) -> AsyncIterator[Subscription]:
        with self.subscriptions.add(channel, _PostgresSubscription(self)) as subscription:
            await self.connect()
            yield subscription

    async def connect(self) -> None:
        """Connects, unless there is an open connection."""
        async with self._connect_lock:
            if self._connection is not None and not self._connection.is_closed():
                return
            try:
                connection: Any = await asyncpg.connect(
                    self._url, timeout=_TIMEOUT_SECONDS, command_timeout=_TIMEOUT_SECONDS
                )
                self._connection = connection
                await row_security.set_role(connection)
                await connection.add_listener(POSTGRES_CHANNEL, self._on_notification)
                connection.add_termination_listener(self._on_termination)
            except CONNECTION_ERRORS as error:
                self._terminate()
                raise Unavailable(reason=short_reason(error)) from error

    def _on_notification(
        self, connection: Any, pid: int, postgres_channel: str, channel: str
    ) -> None:
        self.subscriptions.notify(channel)

    def _on_termination(self, connection: Any) -> None:
        """Notifies all subscriptions, because notifications may have been lost."""
        self.subscriptions.notify_all()

    def _terminate(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(TimeoutError):  # the driver has then ended the connection
                await connection.close(timeout=_TIMEOUT_SECONDS)


class _PostgresSubscription(Subscription):
    """Reconnects the listener, if needed, before it waits."""

    def __init__(self, listener: Listener) -> None:
        super().__init__()
        self._listener = listener

    async def wait(self, seconds: float) -> bool:
        await self._listener.connect()
        return await super().wait(seconds)
