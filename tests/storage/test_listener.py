"""The connection of PostgreSQL that listens for notifications."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import asyncpg
import pytest

from gleanery.service.foundation.errors import Unavailable
from gleanery.service.storage.database import Subscription
from gleanery.service.storage.postgres import listener, row_security
from gleanery.service.storage.postgres.listener import POSTGRES_CHANNEL, Listener
from tests.support.forwarder import Forwarder
from tests.support.postgres_server import PostgresServer
from tests.support.waiting import TIMEOUT_SECONDS

CHANNEL = "a channel"


@pytest.fixture
def url(postgres: PostgresServer) -> str:
    database = postgres.new_database()
    return str(postgres.settings(database).get("listen_database", database))


@asynccontextmanager
async def subscribed(to: str) -> AsyncIterator[Subscription]:
    listening = Listener(to)
    try:
        async with listening.subscribe(CHANNEL) as subscription:
            yield subscription
    finally:
        await listening.close()


async def notify(url: str) -> None:
    connection: Any = await asyncpg.connect(url)
    await connection.execute("SELECT pg_notify($1, $2)", POSTGRES_CHANNEL, CHANNEL)
    await connection.close()


def test_a_connection_that_was_dropped_silently_is_replaced(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "_MAX_SILENT_SECONDS", 0.0)
    monkeypatch.setattr(listener, "_TIMEOUT_SECONDS", 1.0)
    parts = urlsplit(url)
    query = {name: values[0] for name, values in parse_qs(parts.query).items()}
    path = Forwarder(f"{query['host']}/.s.PGSQL.{query.get('port', 5432)}")
    through = f"postgresql://postgres@127.0.0.1:{path.port}{parts.path}?sslmode=disable"

    async def use() -> None:
        async with subscribed(through) as subscription:
            path.freeze()
            frozen = asyncio.create_task(subscription.wait(TIMEOUT_SECONDS))
            assert await asyncio.to_thread(path.withholds.wait, TIMEOUT_SECONDS)
            with pytest.raises(Unavailable):  # a new connection does not get through either
                await frozen
            path.thaw()
            assert await subscription.wait(TIMEOUT_SECONDS)  # a notification may have been lost
            await notify(url)
            assert await subscription.wait(TIMEOUT_SECONDS)

    path.start()
    try:
        asyncio.run(use())
    finally:
        path.stop()


def test_a_cancelled_request_leaves_no_connection_that_does_not_listen(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_role = row_security.set_role
    connected = asyncio.Event()

    async def stop_here(connection: Any) -> None:
        connected.set()
        await asyncio.Event().wait()

    async def use() -> None:
        listening = Listener(url)
        monkeypatch.setattr(row_security, "set_role", stop_here)
        cancelled = asyncio.create_task(listening.connect())
        await connected.wait()
        cancelled.cancel()
        await asyncio.wait([cancelled])
        monkeypatch.setattr(row_security, "set_role", set_role)
        async with listening.subscribe(CHANNEL) as subscription:
            await notify(url)
            assert await subscription.wait(TIMEOUT_SECONDS)
        await listening.close()

    asyncio.run(use())


def test_a_watch_learns_of_a_new_connection(url: str) -> None:
    """Nobody has told it what happened before the connection listened."""

    async def use() -> None:
        listening = Listener(url)
        async with listening.watch() as watch:
            await listening.close()
            watch.take()
            await listening.connect()
            assert await watch.wait(TIMEOUT_SECONDS)
            assert watch.take() is None
        await listening.close()

    asyncio.run(use())
