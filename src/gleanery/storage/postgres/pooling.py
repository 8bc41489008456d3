"""Checks that a pooler between the service and PostgreSQL fits the settings."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

from gleanery.errors import SettingsError, Unavailable
from gleanery.storage.database import Engine, Transaction
from gleanery.storage.postgres.connect_errors import LOST_STATEMENT, explain
from gleanery.storage.postgres.errors import LOST_STATEMENT_ERRORS

_NOTIFY_SECONDS = 5.0
_ROUNDS = 10
_TRANSACTION_POOLER = (
    "The pooler of --database gives each transaction another connection of the server: give "
    "--pooling transaction and --listen-database, or set its pool_mode to session"
)
_NO_NOTIFICATION = (
    "--listen-database does not receive the notifications of --database: give the direct address "
    "of the same database, without a pooler"
)
_BACKEND = "SELECT pg_backend_pid()"


async def has_pooler(connection: Any) -> bool:
    """Return True if a pooler answers: it tells another process id than the server's."""
    pid = connection.get_server_pid()
    return bool(await connection.execute(f"SELECT WHERE pg_backend_pid() = {pid:d}") == "SELECT 0")


async def check_pooler(connect: Callable[[], Awaitable[Any]], needs_session: bool) -> None:
    """Raise SettingsError if the pooler does not fit.

    One that gives each transaction another connection of the server must keep prepared statements,
    and does not fit where the service needs a session, for notifications.
    """
    async with AsyncExitStack() as stack:
        connections = []
        for _ in range(2):
            connections.append(await connect())
            stack.callback(connections[-1].terminate)
        try:
            is_shared = await _share_backends(*connections)
            loses_statements = is_shared and await _keeps_name(connections[0])
        except LOST_STATEMENT_ERRORS:
            is_shared = loses_statements = True
    if is_shared and needs_session:
        raise SettingsError(_TRANSACTION_POOLER)
    if loses_statements:
        raise SettingsError(f"The database cannot be used: {LOST_STATEMENT}")


async def _share_backends(first: Any, second: Any) -> bool:
    """Return True if the first connection changes its server process, or the second one gets it.

    A pooler gives the next transaction the process that was used last, or the one that was not used
    for longest. If others use the pooler, chance decides, so this is repeated. No transaction stays
    open: many workers that start together would wait for each other.
    """
    backend = await first.fetchval(_BACKEND)
    for _ in range(_ROUNDS):
        for connection, is_same in ((first, True), (second, False)):
            if (await connection.fetchval(_BACKEND) == backend) != is_same:
                return True
    return False


async def _keeps_name(connection: Any) -> bool:
    """Return True if a prepared statement has the client's name on the server.

    A pooler that keeps the statements of many clients has to rename them.
    """
    await connection.execute("BEGIN")
    statement = await connection.prepare("SELECT 1")
    name = statement.get_name()
    found = await connection.execute(f"SELECT FROM pg_prepared_statements WHERE name = '{name}'")
    return bool(found != "SELECT 0")


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
