"""The tenant of a connection: its handle, and how a connection gets its role and settings.

``SessionScope`` keeps them and the tenant on the connection. ``TransactionScope`` sets them in each
transaction, because a transaction pooler gives every transaction another connection of the server.
``DetectedScope`` chooses between them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, NamedTuple, Protocol, TypeVar

from gleanery.service.storage.database import (
    ITEM_SEPARATOR,
    LineRead,
    Lines,
    Page,
    PageRead,
    PageTooLarge,
    Row,
    Statement,
    Transaction,
)
from gleanery.service.storage.postgres import row_security
from gleanery.service.storage.postgres.connecting import WatchedConnection, has_pooler
from gleanery.service.storage.postgres.transactions import ARRAY_TYPES, transaction

T = TypeVar("T")
# Every statement is an index seek. PostgreSQL would plan a scan for a table that is still empty,
# and would keep that plan while the table grows. One generic plan serves all values, because
# planning takes longer than the seek.
INDEX_SEEKS = ("enable_seqscan = off", "enable_bitmapscan = off", "jit = off")
_PLANNER_SETTINGS = (*INDEX_SEEKS, "plan_cache_mode = force_generic_plan")
# A statement for all tenants would open up to 16 connections to each worker, in every process of
# every node. It must stand before the propagation.
_ONE_CONNECTION = "citus.max_adaptive_executor_pool_size = 1"
# Citus sends the following settings of the transaction to the workers.
_PROPAGATION = "citus.propagate_set_commands = 'local'"
LOCK_TIMEOUT = "lock_timeout = '10s'"
# A statement that has waited for a lock must see what the owner of the lock has committed. The
# database may have another default.
_ISOLATION = "default_transaction_isolation = 'read committed'"
# The driver asks the server for the description of an array type at its first use, and sets jit on
# the connection for that.
_DESCRIBE_ARRAYS = "SELECT " + ", ".join(
    f"${number}::{name}[]" for number, name in enumerate(ARRAY_TYPES, 1)
)
_BEGIN_SESSION = "BEGIN"
_BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED"
# Citus would look for shards in the catalog, and the driver's query would take seconds. A server
# without Citus accepts the setting as well.
_BEGIN_INITIALIZATION = f"{_BEGIN}; SET LOCAL citus.override_table_visibility = off"


# --- handles -------------------------------------------------------------------------------------


class TenantAccess(Protocol):
    """A server on which a tenant reads, and writes if it is no replica."""

    async def read_for(
        self, organization_id: int, sql: Statement, values: Sequence[Any]
    ) -> Sequence[Row]: ...

    async def write_for(
        self,
        organization_id: int,
        work: Callable[[Transaction], Awaitable[T]],
        queue_key: Hashable,
    ) -> T: ...


class PostgresHandle(NamedTuple):
    """A handle with the rows of one tenant, or of all."""

    server: TenantAccess
    organization_id: int

    async def read(self, sql: Statement, *values: Any) -> Sequence[Row]:
        return await self.server.read_for(self.organization_id, sql, values)

    async def read_large(self, sql: Statement, *values: Any) -> Sequence[Row]:
        return await self.read(sql, *values)

    async def read_page(self, read: PageRead) -> Page:
        """Join the items in this process, because all nodes share the database server."""
        sql = f"{read.search.postgres} LIMIT ${len(read.values) + 1}"
        values = (*read.values, read.limit + 1)
        rows = await self.server.read_for(self.organization_id, sql, values)
        items = [row[1] for row in rows]
        if None in items:  # an item is longer than the search allows
            raise PageTooLarge
        next_cursor = None
        if len(rows) > read.limit or (items and not items[-1]):
            items.pop()
            next_cursor = rows[-1][0] - 1
        joined = ITEM_SEPARATOR.join(items)
        if len(joined) > read.max_bytes:
            raise PageTooLarge
        return Page((joined,) if joined else (), next_cursor)

    async def read_lines(self, read: LineRead) -> Lines:
        sql = f"{read.search.postgres} LIMIT ${len(read.values) + 1}"
        rows = await self.server.read_for(self.organization_id, sql, (*read.values, read.limit))
        if not rows:
            return Lines((), 0, b"")
        items = [row[2] for row in rows]
        if None in items:  # an item is longer than the search allows
            raise PageTooLarge
        items.append(b"")  # ends the last line
        return Lines([row[1] for row in rows], rows[-1][0], b"\n".join(items))

    async def write(
        self, work: Callable[[Transaction], Awaitable[T]], queue_key: Hashable = None
    ) -> T:
        return await self.server.write_for(self.organization_id, work, queue_key)


# --- scopes --------------------------------------------------------------------------------------


class TenantConnection(WatchedConnection):
    """A connection that remembers its tenant, so that it sets the tenant only if it changes."""

    _tenant: int | None = None

    async def set_tenant(self, organization_id: int) -> None:
        if self._tenant != organization_id:
            self._tenant = None  # unknown until the server has confirmed
            await self.execute(f"SET gleanery.organization = '{organization_id:d}'")
            self._tenant = organization_id


class TenantScope(Protocol):
    """Uses of a connection by one tenant, who sees only its own rows."""

    async def initialize(self, connection: Any) -> None:
        """Prepare a new connection."""

    def read(self, connection: Any, organization_id: int) -> AbstractAsyncContextManager[None]:
        """Lets the tenant read until the context ends."""

    def write(
        self, connection: Any, organization_id: int, schema: int | None
    ) -> AbstractAsyncContextManager[None]:
        """Run a transaction of the tenant: see ``transactions.transaction``."""


class SessionScope:
    """Role, settings and tenant stay on the connection of the server."""

    def __init__(self, more_settings: Sequence[str] = ()) -> None:
        self._more_settings = more_settings

    async def initialize(self, connection: Any) -> None:
        settings = (*_PLANNER_SETTINGS, LOCK_TIMEOUT, _ISOLATION, *self._more_settings)
        await connection.execute("; ".join(f"SET {setting}" for setting in settings))
        await row_security.set_role(connection)

    @asynccontextmanager
    async def read(self, connection: Any, organization_id: int) -> AsyncIterator[None]:
        await connection.set_tenant(organization_id)
        yield

    @asynccontextmanager
    async def write(
        self, connection: Any, organization_id: int, schema: int | None
    ) -> AsyncIterator[None]:
        await connection.set_tenant(organization_id)
        async with transaction(connection, _BEGIN_SESSION, schema):
            yield


class TransactionScope:
    """Role, settings and tenant are set in each transaction, with its first query.

    Nothing is set on the connection of the server, and nothing on it is relied on.
    """

    settings: tuple[str, ...] = (*_PLANNER_SETTINGS, LOCK_TIMEOUT)

    def __init__(self, more_settings: Sequence[str] = ()) -> None:
        self._more_settings = more_settings
        self._begin = ""

    async def initialize(self, connection: Any) -> None:
        """Learns the role and the schema, as ``SessionScope`` does for each connection."""
        await connection.execute(_BEGIN_INITIALIZATION)
        try:
            await connection.prepare(_DESCRIBE_ARRAYS)
            role = await row_security.role_settings(connection)
        finally:
            await connection.execute("ROLLBACK")
        settings = (*role, *self.settings, *self._more_settings)
        set_local = "".join(f"; SET LOCAL {setting}" for setting in settings)
        self._begin = f"{_BEGIN}{set_local}"

    def read(self, connection: Any, organization_id: int) -> AbstractAsyncContextManager[None]:
        return self.write(connection, organization_id, None)

    def write(
        self, connection: Any, organization_id: int, schema: int | None
    ) -> AbstractAsyncContextManager[None]:
        return transaction(connection, f"{self._begin}; {_set_tenant(organization_id)}", schema)


class DetectedScope:
    """``SessionScope``; from the first connection with a pooler on, ``TransactionScope``.

    A pooler in session mode can change to transaction mode while the service runs. See
    ``docs/explanation/postgresql-connections.md``.
    """

    def __init__(self, more_settings: Sequence[str] = ()) -> None:
        self._more_settings = more_settings
        self._scope: SessionScope | TransactionScope = SessionScope(more_settings)

    async def initialize(self, connection: Any) -> None:
        if isinstance(self._scope, SessionScope) and await has_pooler(connection):
            scope = TransactionScope(self._more_settings)
            await scope.initialize(connection)
            self._scope = scope
            return
        await self._scope.initialize(connection)

    def read(self, connection: Any, organization_id: int) -> AbstractAsyncContextManager[None]:
        return self._scope.read(connection, organization_id)

    def write(
        self, connection: Any, organization_id: int, schema: int | None
    ) -> AbstractAsyncContextManager[None]:
        return self._scope.write(connection, organization_id, schema)


class DistributedScope(TransactionScope):
    """Role, settings and tenant are set in each transaction; the tenant on the workers too.

    A worker gets its settings from the role that the coordinator connects as. A generic plan would
    not know the organization, which chooses the worker.
    """

    settings = (*INDEX_SEEKS, LOCK_TIMEOUT, _ONE_CONNECTION, _PROPAGATION)

    @asynccontextmanager
    async def write(
        self, connection: Any, organization_id: int, schema: int | None
    ) -> AsyncIterator[None]:
        async with transaction(connection, self._begin, schema):
            # A query of its own: Citus sends the whole text of the query to the workers.
            await connection.execute(_set_tenant(organization_id))
            yield


def _set_tenant(organization_id: int) -> str:
    """Return the statement. The tenant is an integer, so it contains no text of a client."""
    return f"SET LOCAL gleanery.organization = '{organization_id:d}'"
