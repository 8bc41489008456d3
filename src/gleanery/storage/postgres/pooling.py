"""Checks that a pooler between the service and PostgreSQL fits the settings."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

from gleanery.errors import SettingsError, Unavailable
from gleanery.storage.database import Engine, Transaction
from gleanery.storage.postgres.connect_errors import explain
from gleanery.storage.postgres.errors import LOST_STATEMENT_ERRORS

_NOTIFY_SECONDS = 5.0
_REPETITIONS = 10
_TRANSACTION_POOLER = (
    "The pooler of --database gives each transaction another connection of the server: give "
    "--pooling transaction and --listen-database, or set its pool_mode to session"
)
_NO_NOTIFICATION = (
    "--listen-database does not receive the notifications of --database: give the direct address "
    "of the same database, without a pooler"
)
_OWN_SETTING = "SELECT current_setting('gleanery.pooling_check', true)"


async def has_pooler(connection: Any) -> bool:
    """Returns True if a pooler answers: it tells another process id than the server's."""
    return bool(await connection.fetchval("SELECT pg_backend_pid()") != connection.get_server_pid())


async def reject_transaction_pooler(connect: Callable[[], Awaitable[Any]]) -> None:
    """Raises SettingsError if a connection does not keep its own setting for itself."""
    async with AsyncExitStack() as stack:
        connections = []
        for _ in range(2):
            connections.append(await connect())
            stack.callback(connections[-1].terminate)
        try:
            keeps = await _keeps_settings(*connections)
        except LOST_STATEMENT_ERRORS:
            keeps = False
        if not keeps:
            raise SettingsError(_TRANSACTION_POOLER)


async def _keeps_settings(first: Any, second: Any) -> bool:
    """Returns False if the first connection loses its setting, or the second one gets it.

    A pooler gives the connection of the server that was used last to the next transaction. If
    nobody else uses the pooler, the second connection gets the setting. Otherwise the first one
    loses it: its connection of the server is taken by others, or by the second one's transaction.
    """
    value = secrets.token_hex(8)
    await first.execute(f"SET gleanery.pooling_check = '{value}'")
    if await second.fetchval(_OWN_SETTING) == value:
        return False
    await second.execute("BEGIN")
    return all([await first.fetchval(_OWN_SETTING) == value for _ in range(_REPETITIONS)])


async def check_notifications(engine: Engine, listen_url: str) -> None:
    """Raises SettingsError unless a notification of the engine arrives at its listener."""
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
