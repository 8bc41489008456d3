"""Checks that a pooler between the service and PostgreSQL fits the settings."""

from __future__ import annotations

import secrets
from contextlib import AsyncExitStack
from typing import Any

from gleanery.errors import SettingsError, Unavailable
from gleanery.storage.database import Engine, Transaction
from gleanery.storage.postgres.connect_errors import explain

_NOTIFY_SECONDS = 5.0
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


async def reject_transaction_pooler(first: Any, second: Any) -> None:
    """Raises SettingsError if one connection has a setting of the other.

    A pooler gives the connection that was used last to the next transaction. While others use it
    too, this check may find nothing.
    """
    value = secrets.token_hex(8)
    await first.execute(f"SET gleanery.pooling_check = '{value}'")
    if await second.fetchval(_OWN_SETTING) == value:
        raise SettingsError(_TRANSACTION_POOLER)


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
