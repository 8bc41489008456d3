"""The PostgreSQL engine: handles for tenants, writers' queues, migrations and notifications."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, Literal, NamedTuple, TypeVar
from weakref import WeakValueDictionary

import asyncpg

from gleanery.errors import SettingsError, Unavailable
from gleanery.storage import migrations
from gleanery.storage.database import (
    ITEM_SEPARATOR,
    Database,
    LineRead,
    Lines,
    Page,
    PageRead,
    PageTooLarge,
    PoolState,
    ReplicaState,
    Row,
    SchemaState,
    Transaction,
)
from gleanery.storage.notifications import Subscription
from gleanery.storage.postgres import distribution, pooling, row_security
from gleanery.storage.postgres.connect_errors import check_url
from gleanery.storage.postgres.connections import ConnectionPool
from gleanery.storage.postgres.listener import Listener
from gleanery.storage.postgres.replicas import Replica, Replicas
from gleanery.storage.postgres.tenant_scope import DistributedScope, SessionScope, TenantScope
from gleanery.storage.postgres.transactions import (
    SERVER_TIME,
    ArrayStatements,
    PostgresTransaction,
)
from gleanery.storage.tenancy import ALL_TENANTS, NO_TENANT, TENANT_TABLES

T = TypeVar("T")
_log = logging.getLogger("gleanery")

ONE_MIGRATION = "SELECT pg_advisory_xact_lock(x'676C65616E'::bigint)"  # the id is "glean"
"""Waits until no other process migrates."""
_QUEUE_SECONDS = 20.0  # maximum wait of a writer for earlier writers
_MIGRATION_SETTINGS = f"""
SET LOCAL ROLE NONE; {row_security.SET_ALL_TENANTS};
SET LOCAL lock_timeout = 0; SET LOCAL statement_timeout = 0;
SET LOCAL idle_in_transaction_session_timeout = 0;
SET LOCAL enable_seqscan = on; SET LOCAL enable_bitmapscan = on
"""
# Writes wait behind this lock, so it waits for less time than they do.
_LOCK_MIGRATIONS = """
SAVEPOINT before_lock; SET LOCAL lock_timeout = '3s';
LOCK TABLE migrations IN ACCESS EXCLUSIVE MODE; SET LOCAL lock_timeout = 0
"""
_LOCK_PAUSE_SECONDS = 3.0

_DEFINED_NAMES = """
SELECT relname::text FROM pg_class WHERE relnamespace = current_schema()::regnamespace
UNION ALL SELECT tgname::text FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid
WHERE relnamespace = current_schema()::regnamespace AND NOT tgisinternal
"""


class _QueueLock(asyncio.Lock):
    """Serialises the writers of one queue key; a writer waits for a limited time."""

    async def acquire(self) -> Literal[True]:
        try:
            async with asyncio.timeout(_QUEUE_SECONDS):
                return await super().acquire()
        except TimeoutError:
            raise Unavailable("Too many requests write here at once; try again") from None


class PostgresDatabase:
    """An ``Engine`` on a PostgreSQL server."""

    engine = "postgres"
    page_reader = None
    organization_id = NO_TENANT

    def __init__(
        self,
        url: str,
        pool_size: int,
        new_scope: Callable[[], TenantScope] = SessionScope,
        listen_url: str | None = None,
        replica_urls: Sequence[str] = (),
    ) -> None:
        """Creates the engine. ``new_scope`` creates the scope of each pool of connections."""
        self._connections = ConnectionPool(url, pool_size, new_scope())
        self._replicas = Replicas(replica_urls, pool_size, new_scope)
        self._listen_url = listen_url
        self._listener = Listener(listen_url or url)
        self._queue_locks: WeakValueDictionary[tuple[int, Hashable], _QueueLock] = (
            WeakValueDictionary()
        )
        self._array_statements: ArrayStatements = {}
        self._is_distributed = False

    @property
    def pool_state(self) -> PoolState:
        return self._connections.state

    @property
    def replica_states(self) -> Sequence[ReplicaState]:
        return [
            ReplicaState(replica.host, replica.is_usable, replica.lag_seconds)
            for replica in self._replicas.all
        ]

    async def open(self, create: bool = True) -> None:
        if self._listen_url is not None:
            check_url(self._listen_url, "--listen-database")
        await self._connections.open()
        try:
            await self._detect_distribution()
        except BaseException:
            await self._connections.close()
            raise
        self._replicas.start(self.read)

    async def _detect_distribution(self) -> None:
        """Uses the scope and the statements of Citus if the tables are distributed."""
        self._is_distributed = await distribution.is_distributed(self.read)
        if self._is_distributed:
            if self._replicas.all:
                raise SettingsError(distribution.NO_REPLICAS)
            self._array_statements.clear()
            await self._connections.change_scope(DistributedScope())

    async def close(self) -> None:
        await self._replicas.close()
        await self._listener.close()
        await self._connections.close()

    # --- schema ----------------------------------------------------------------------------------

    async def migrate(self, accept_compatible: bool = False) -> None:
        if await self._is_owned_by_another_user():
            await self._check_migrated_by_owner(accept_compatible)
            return

        async def apply(transaction: Transaction) -> None:
            await transaction.run_script(_MIGRATION_SETTINGS)
            await transaction.run_script(ONE_MIGRATION)
            schema = await self._check_load(transaction.fetch)
            await _wait_for_writers(transaction, schema.number)
            if self._is_distributed:
                await transaction.run_script(distribution.SETTINGS)
            await migrations.apply(self.engine, transaction, accept_compatible)
            if self._is_distributed:
                await distribution.distribute(transaction)  # the new tables
            else:
                await row_security.enable(transaction)

        try:
            await self.write_for(NO_TENANT, apply, None, checks_schema=False)
        except asyncpg.InsufficientPrivilegeError as error:
            raise SettingsError(
                f"The user of --database may not update the schema ({error}): let a superuser make "
                "that user the owner of the database"
            ) from None
        await self._connections.expire()  # new connections take the serving role
        await self.security_warning()

    async def distribute(self) -> None:
        await distribution.check(self.read)

        async def apply(transaction: Transaction) -> None:
            await transaction.run_script(_MIGRATION_SETTINGS)
            await transaction.run_script(ONE_MIGRATION)
            await distribution.distribute(transaction)

        try:
            await self.write_for(NO_TENANT, apply, None)
        except asyncpg.PostgresError as error:
            raise distribution.explain(error) from error
        await self._detect_distribution()

    async def check_schema(self, accept_compatible: bool = False) -> None:
        schema = await self._check_load(self.for_all_tenants().read)
        migrations.check(self.engine, schema, accept_compatible)
        await self.security_warning()

    async def _check_load(self, fetch: Callable[[str], Awaitable[Sequence[Row]]]) -> SchemaState:
        """Returns the schema. Raises SettingsError if the load of a dump was interrupted.

        A dump creates the tables first, then loads the rows, and creates indexes and triggers last.
        """
        found = {row[0] for row in await fetch(_DEFINED_NAMES)}
        schema = await _read_state(fetch) if "migrations" in found else SchemaState(0, 0)
        is_newer = schema.number > migrations.newest(self.engine)
        expected = set() if is_newer else migrations.expected_names(self.engine, schema.number)
        unexpected = found & set(TENANT_TABLES) if not schema.number else set()
        if unexpected or expected - found:
            raise SettingsError(
                "The database is incomplete, as after an interrupted load of a dump: load the dump "
                "again into a new database, and run gleanery restored"
            )
        return schema

    async def _is_owned_by_another_user(self) -> bool:
        """Returns True if another user owns the tables, so that this user cannot migrate them."""
        rows = await self.read(row_security.OWNED_BY_ANOTHER_USER)
        return bool(rows and rows[0][0])

    async def _check_migrated_by_owner(self, accept_compatible: bool) -> None:
        """Raises SettingsError if the schema is older than this program, or cannot be accepted."""
        schema = await self.schema_state()
        migrations.reject_newer(self.engine, schema, accept_compatible)
        needed = migrations.newest(self.engine)
        if schema.number < needed:
            raise SettingsError(
                f"The database has schema {schema.number}, this program needs schema {needed}, and "
                "the tables belong to another user: run gleanery migrate with the --database URL "
                "of their owner"
            )

    async def schema_state(self) -> SchemaState:
        [[exists]] = await self.read("SELECT to_regclass('migrations') IS NOT NULL")
        return await _read_state(self.read) if exists else SchemaState(0, 0)

    async def server_time(self) -> int:
        return int((await self.read(SERVER_TIME))[0][0])

    async def security_warning(self) -> str | None:
        async with self._connections.read(NO_TENANT) as connection:
            return await row_security.security_warning(connection)

    # --- reads and writes ------------------------------------------------------------------------

    def for_tenant(self, organization_id: int) -> Database:
        assert organization_id >= NO_TENANT
        return _PostgresHandle(self, organization_id)

    def for_replica(self, organization_id: int) -> Database | None:
        replica = self._replicas.choose()
        return None if replica is None else _PostgresHandle(replica, organization_id)

    def for_all_tenants(self) -> Database:
        return _PostgresHandle(self, ALL_TENANTS)

    async def read(self, sql: str, *values: Any) -> Sequence[Row]:
        return await self.read_for(NO_TENANT, sql, values)

    async def read_large(self, sql: str, *values: Any) -> Sequence[Row]:
        return await self.read(sql, *values)

    async def read_page(self, read: PageRead) -> Page:
        return await self.for_tenant(NO_TENANT).read_page(read)

    async def read_lines(self, read: LineRead) -> Lines:
        return await self.for_tenant(NO_TENANT).read_lines(read)

    async def write(
        self, work: Callable[[Transaction], Awaitable[T]], queue_key: Hashable = None
    ) -> T:
        return await self.write_for(NO_TENANT, work, queue_key)

    async def read_for(
        self, organization_id: int, sql: str, values: Sequence[Any]
    ) -> Sequence[Row]:
        async with self._connections.read(organization_id) as connection:
            rows: Sequence[Row] = await connection.fetch(sql, *values)
            return rows

    async def write_for(
        self,
        organization_id: int,
        work: Callable[[Transaction], Awaitable[T]],
        queue_key: Hashable,
        checks_schema: bool = True,
    ) -> T:
        schema = migrations.newest(self.engine) if checks_schema else None
        async with (
            self._queue_lock(organization_id, queue_key),
            self._connections.write(organization_id, schema) as connection,
        ):
            return await work(
                PostgresTransaction(
                    connection, organization_id, self._array_statements, self._is_distributed
                )
            )

    def _queue_lock(
        self, organization_id: int, queue_key: Hashable
    ) -> AbstractAsyncContextManager[None]:
        if queue_key is None:
            return nullcontext()
        key = (organization_id, queue_key)
        lock = self._queue_locks.get(key)
        if lock is None:
            lock = self._queue_locks[key] = _QueueLock()
        return lock

    # --- notifications ---------------------------------------------------------------------------

    def subscribe(self, channel: str) -> AbstractAsyncContextManager[Subscription]:
        return self._listener.subscribe(channel)

    async def check_notifications(self) -> None:
        if self._listen_url is not None:
            await pooling.check_notifications(self, self._listen_url)

    def stop_subscriptions(self) -> None:
        self._listener.subscriptions.stop()


async def _read_state(fetch: Callable[[str], Awaitable[Sequence[Row]]]) -> SchemaState:
    """Reads the schema. Raises SettingsError if the table cannot be read, or is not Gleanery's."""
    try:
        return await migrations.read_state(PostgresDatabase.engine, fetch)
    except asyncpg.InsufficientPrivilegeError:
        raise SettingsError(row_security.NO_PRIVILEGES) from None
    except (asyncpg.UndefinedColumnError, asyncpg.DatatypeMismatchError):
        raise SettingsError(migrations.FOREIGN) from None


async def _wait_for_writers(transaction: Transaction, applied: int) -> None:
    """Waits for the transactions that write, and lets later ones wait until the commit.

    An older program then finds the new migration, and writes only if it is compatible.
    """
    if not (applied and migrations.pending(PostgresDatabase.engine, applied)):
        return
    is_reported = False
    while not await _try_to_lock(transaction):
        if not is_reported:
            _log.warning("the migration waits for a long transaction, perhaps of pg_dump")
            is_reported = True
        await asyncio.sleep(_LOCK_PAUSE_SECONDS)


async def _try_to_lock(transaction: Transaction) -> bool:
    """Locks the table of migrations. Returns False if a long transaction uses the table.

    Writes wait meanwhile. Afterwards they succeed, until the next try.
    """
    try:
        await transaction.run_script(_LOCK_MIGRATIONS)
    except asyncpg.LockNotAvailableError:
        await transaction.run_script("ROLLBACK TO SAVEPOINT before_lock")
        return False
    return True


class _PostgresHandle(NamedTuple):
    """A handle with the rows of one tenant, or of all."""

    database: PostgresDatabase | Replica
    organization_id: int

    async def read(self, sql: str, *values: Any) -> Sequence[Row]:
        return await self.database.read_for(self.organization_id, sql, values)

    async def read_large(self, sql: str, *values: Any) -> Sequence[Row]:
        return await self.read(sql, *values)

    async def read_page(self, read: PageRead) -> Page:
        """Joins the items in this process, because all nodes share the database server."""
        sql = f"{read.search} LIMIT ${len(read.values) + 1}"
        values = (*read.values, read.limit + 1)
        rows = await self.database.read_for(self.organization_id, sql, values)
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
        sql = f"{read.search} LIMIT ${len(read.values) + 1}"
        rows = await self.database.read_for(self.organization_id, sql, (*read.values, read.limit))
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
        return await self.database.write_for(self.organization_id, work, queue_key)
