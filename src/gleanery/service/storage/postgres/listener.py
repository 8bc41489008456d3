"""Receives the notifications of all nodes through one PostgreSQL connection."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

from gleanery.common.errors import SettingsError
from gleanery.service.foundation.errors import Unavailable
from gleanery.service.storage.database import (
    Engine,
    Subscription,
    Subscriptions,
    Transaction,
    Watch,
)
from gleanery.service.storage.postgres import row_security
from gleanery.service.storage.postgres.connecting import Hosts
from gleanery.service.storage.postgres.errors import CONNECTION_ERRORS, explain, short_reason

POSTGRES_CHANNEL = "gleanery"
"""The PostgreSQL channel that carries all notifications; their payloads are our channel names."""
_TIMEOUT_SECONDS = 5.0
_MAX_SILENT_SECONDS = 60.0
_NOTIFY_SECONDS = 5.0
_NO_NOTIFICATION = (
    "--listen-database does not receive the notifications of --database: give the direct address "
    "of the same database, without a pooler"
)


class Listener:
    """One connection that listens for all nodes' notifications and notifies the subscriptions."""

    def __init__(self, url: str) -> None:
        self._hosts = Hosts(url)
        self._connection: Any = None
        self._last_response = 0.0
        self._connect_lock = asyncio.Lock()
        self._failed_at, self._failure = 0.0, ""
        self.subscriptions = Subscriptions()

    @asynccontextmanager
    async def subscribe(self, channel: str) -> AsyncIterator[Subscription]:
        with self.subscriptions.add(channel, _PostgresSubscription(self)) as subscription:
            await self.connect()
            yield subscription

    @asynccontextmanager
    async def watch(self) -> AsyncIterator[Watch]:
        with self.subscriptions.add_watch(_PostgresWatch(self)) as watch:
            await self.connect()
            yield watch

    async def connect(self) -> None:
        """Connect, unless there is a connection that responds.

        Those who wait for an attempt that fails share its failure. One after the other, they would
        wait for a silent server many times as long.
        """
        asked_at = time.monotonic()
        async with self._connect_lock:
            if self._failed_at > asked_at:
                raise Unavailable(reason=self._failure)
            await self._check()
            if self._connection is None or self._connection.is_closed():
                await self._connect()

    async def _check(self) -> None:
        """End a connection that does not respond: a firewall may have dropped it silently."""
        is_recent = time.monotonic() - self._last_response < _MAX_SILENT_SECONDS
        if self._connection is None or self._connection.is_closed() or is_recent:
            return
        try:
            await self._connection.execute("SELECT 1")
            self._last_response = time.monotonic()
        except CONNECTION_ERRORS:
            self._terminate()

    async def _connect(self) -> None:
        """Connect. A failure leaves no connection: it would be open, and would not listen."""
        try:
            connection: Any = await self._hosts.connect(
                seconds=_TIMEOUT_SECONDS, command_timeout=_TIMEOUT_SECONDS
            )
            self._connection = connection
            await row_security.set_role(connection)
            await connection.add_listener(POSTGRES_CHANNEL, self._on_notification)
            connection.add_termination_listener(self._on_termination)
            self._last_response = time.monotonic()
            self.subscriptions.notify_watches()  # there may have been others before
        except CONNECTION_ERRORS as error:
            self._terminate()
            self._failed_at, self._failure = time.monotonic(), short_reason(error)
            raise Unavailable(reason=self._failure) from error
        except BaseException:  # the request that connects is cancelled
            self._terminate()
            raise

    def _on_notification(
        self, connection: Any, pid: int, postgres_channel: str, channel: str
    ) -> None:
        self._last_response = time.monotonic()
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


class _PostgresWatch(Watch):
    """Does the same."""

    def __init__(self, listener: Listener) -> None:
        super().__init__()
        self._listener = listener

    async def wait(self, seconds: float) -> bool:
        await self._listener.connect()
        return await super().wait(seconds)


async def check_notifications(engine: Engine, listen_url: str) -> None:
    """Raise SettingsError unless a notification of the engine arrives at its listener."""
    channel = f"check {secrets.token_hex(8)}"

    async def notify(transaction: Transaction) -> None:
        await transaction.notify(channel)

    async with AsyncExitStack() as stack:
        try:
            subscription = await stack.enter_async_context(engine.subscribe(channel))
        except Unavailable as error:
            cause = error.__cause__
            assert isinstance(cause, Exception)
            raise SettingsError(explain(cause, listen_url, "--listen-database")) from None
        await engine.write(notify)
        if not await subscription.wait(_NOTIFY_SECONDS):
            raise SettingsError(_NO_NOTIFICATION)
