"""The PostgreSQL engine: handles for tenants, writers' queues and notifications.

A read takes a connection, sets its tenant, runs one statement and gives the connection back::

    PostgresHandle.read → PostgresDatabase.read_for → ConnectionPool.read → TenantScope.read

A write waits twice. First it waits for its turn in ``WriterQueues``: writers with the same key lock
the same rows, and would hold connections while they wait for each other. Then it waits for a
connection, of which the tenants get equal shares::

    PostgresHandle.write → PostgresDatabase.write_for → WriterQueues.turn
      → ConnectionPool.write → TenantScope.write → transactions.transaction
        → the work, with a PostgresTransaction or, on Citus, a ShardTransaction

What always holds:

- A connection has one tenant while it is used. Row-level security hides the rows of others.
- A transaction, except that of a migration, checks the schema when it begins, and locks the table
  of migrations. So no migration commits before it ends.
- Work is repeated only if nothing of it is committed. ``NotSent``: the server had ended the
  connection before. ``MoreIdsNeeded``: on Citus, the ids have to be reserved outside.
- A connection whose server is silent is ended by ``connecting.Watch``. A connection with an error
  does not go back to the pool.
- While the tables are distributed, reads of the catalog use a separate connection. They work while
  the requests wait for a worker of Citus that does not respond.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from typing import Any, Literal, TypeVar
from weakref import WeakValueDictionary

import asyncpg

from gleanery.common.errors import SettingsError
from gleanery.service.foundation.errors import Unavailable
from gleanery.service.foundation.observability.progress import StartProgress, no_progress
from gleanery.service.storage import migrations
from gleanery.service.storage.database import (
    Database,
    LineRead,
    Lines,
    Page,
    PageRead,
    PoolState,
    ReplicaState,
    Row,
    SchemaState,
    Statement,
    Subscription,
    Transaction,
    Watch,
)
from gleanery.service.storage.postgres import row_security, schema
from gleanery.service.storage.postgres.citus import distribution
from gleanery.service.storage.postgres.citus.distribution import WorkerPlaces
from gleanery.service.storage.postgres.citus.transactions import (
    MoreIdsNeeded,
    ReservedIds,
    ShardTransaction,
)
from gleanery.service.storage.postgres.connecting import Hosts
from gleanery.service.storage.postgres.errors import check_url
from gleanery.service.storage.postgres.listener import Listener, check_notifications
from gleanery.service.storage.postgres.pool import ConnectionPool, NotSent
from gleanery.service.storage.postgres.replicas import Replicas
from gleanery.service.storage.postgres.tenants import (
    DetectedScope,
    DistributedScope,
    PostgresHandle,
    TenantScope,
)
from gleanery.service.storage.postgres.transactions import (
    SERVER_TIME,
    ArrayStatements,
    PostgresTransaction,
    to_postgres,
)
from gleanery.service.storage.tenancy import ALL_TENANTS, NO_TENANT

T = TypeVar("T")
# A request waits for the catalog first, and then for its own statements.
_CATALOG_SECONDS = 10.0
_QUEUE_SECONDS = 20.0  # maximum wait of a writer for earlier writers


class _QueueLock(asyncio.Lock):
    """Serialises the writers of one queue key; a writer waits for a limited time."""

    async def acquire(self) -> Literal[True]:
        try:
            async with asyncio.timeout(_QUEUE_SECONDS):
                return await super().acquire()
        except TimeoutError:
            raise Unavailable("Too many requests write here at once; try again") from None


class WriterQueues:
    """The queues, which exist while somebody uses them."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[tuple[int, Hashable], _QueueLock] = WeakValueDictionary()

    def turn(self, organization_id: int, queue_key: Hashable) -> AbstractAsyncContextManager[None]:
        """Wait until the earlier writers with this key are done; None is no key."""
        if queue_key is None:
            return nullcontext()
        key = (organization_id, queue_key)
        lock = self._locks.get(key)
        if lock is None:
            lock = self._locks[key] = _QueueLock()
        return lock


class PostgresDatabase:
    """An ``Engine`` on a PostgreSQL server."""

    engine = "postgres"
    page_reader = None
    organization_id = NO_TENANT

    def __init__(
        self,
        url: str,
        pool_size: int,
        new_scope: Callable[..., TenantScope] = DetectedScope,
        listen_url: str | None = None,
        replica_urls: Sequence[str] = (),
        max_replica_lag: float = 30.0,
    ) -> None:
        """Create the engine. ``new_scope`` creates the scope of each pool of connections."""
        self._hosts = Hosts(url)
        self._connections = ConnectionPool(self._hosts, pool_size, new_scope())
        self._catalog: ConnectionPool | None = None
        self._replicas = Replicas(replica_urls, pool_size, new_scope, max_replica_lag)
        self._listen_url = listen_url
        self._listener = Listener(listen_url or url)
        self._queues = WriterQueues()
        self._array_statements: ArrayStatements = {}
        self._is_distributed = False
        self._reserved_ids = ReservedIds()

    @property
    def pool_state(self) -> PoolState:
        return self._connections.state

    @property
    def replica_states(self) -> Sequence[ReplicaState]:
        return [
            ReplicaState(replica.is_usable, replica.lag_seconds) for replica in self._replicas.all
        ]

    async def open(self, create: bool = True) -> None:
        if self._listen_url is not None:
            Hosts(self._listen_url, "--listen-database").check()
        await self._connections.open()
        try:
            await self._detect_distribution()
        except BaseException:
            await self._close_connections()
            raise
        self._replicas.start(self.read)

    async def _detect_distribution(self) -> None:
        """Use the scope and the statements of Citus if the tables are distributed."""
        self._is_distributed = await distribution.is_distributed(self.read)
        if not self._is_distributed or self._catalog is not None:
            return
        if self._replicas.all:
            raise SettingsError(distribution.NO_REPLICAS)
        self._array_statements.clear()
        self._catalog = ConnectionPool(self._hosts, 1, DistributedScope(), _CATALOG_SECONDS)
        await self._catalog.open()
        places = WorkerPlaces(self._read_catalog)
        await self._connections.change_scope(DistributedScope(), places)

    async def close(self) -> None:
        await self._replicas.close()
        await self._listener.close()
        await self._close_connections()

    async def _close_connections(self) -> None:
        if self._catalog is not None:
            await self._catalog.close()
            self._catalog = None
        await self._connections.close()

    # --- schema ----------------------------------------------------------------------------------

    async def migrate(self, accept_compatible: bool = False) -> int:
        if await schema.is_owned_by_another_user(self.read):
            return await schema.check_migrated_by_owner(self.read, accept_compatible)
        migrate = partial(
            schema.migrate,
            is_distributed=self._is_distributed,
            accept_compatible=accept_compatible,
        )
        try:
            applied = await self.write_for(NO_TENANT, migrate, None, checks_schema=False)
        except asyncpg.InsufficientPrivilegeError as error:
            raise schema.explain_migration(error) from None
        await self._connections.expire()  # new connections take the serving role
        await self._remove_local_rows()
        await self.security_warning()
        return applied

    async def distribute(self, progress: StartProgress = no_progress) -> bool:
        await distribution.check(self.read)
        try:
            await self.write_for(NO_TENANT, schema.prepare_role, None)
            async with self._connections.write(NO_TENANT, None) as connection:
                await distribution.check_logins(connection)
            work = partial(schema.distribute, progress=progress)
            is_new = await self.write_for(NO_TENANT, work, None)
        except (Unavailable, asyncpg.PostgresError) as error:
            raise distribution.explain(error, distribution.NOT_DISTRIBUTED) from error
        await self._detect_distribution()
        await self._remove_local_rows()
        return is_new

    async def _remove_local_rows(self) -> None:
        """Do the rest of a distribution, even if it was interrupted after its commit."""
        if not (self._is_distributed and await distribution.has_local_rows(self.read)):
            return
        try:
            await self.write_for(NO_TENANT, schema.remove_local_rows, None)
        except (Unavailable, asyncpg.PostgresError) as error:
            raise distribution.explain(error, distribution.ROWS_NOT_REMOVED) from error

    async def check_schema(self, accept_compatible: bool = False) -> None:
        await schema.check(self.for_all_tenants().read, accept_compatible)
        await self.security_warning()

    async def schema_state(self, waits: bool = True) -> SchemaState:
        await self._require_primary()
        if waits:
            return await schema.read_state(self._read_catalog)
        pool = self._catalog or self._connections
        async with pool.read_in_transaction(NO_TENANT) as connection:
            return await schema.read_state_unless_locked(connection)

    async def _require_primary(self) -> None:
        """Raise Unavailable on a standby. New connections are checked, but a pooler may move."""
        if (await self._read_catalog("SELECT pg_is_in_recovery()"))[0][0]:
            await self._connections.expire()
            raise Unavailable(reason="the server behind the pooler is a standby")

    async def serving_problem(self) -> Unavailable | None:
        is_same = await distribution.is_distributed(self._read_catalog) == self._is_distributed
        return None if is_same else Unavailable(distribution.CHANGED)

    async def _read_catalog(self, sql: str, *values: Any) -> Sequence[Row]:
        """Read while a worker of Citus that hangs holds many connections of the pool."""
        return await _read(self._catalog or self._connections, NO_TENANT, sql, values)

    async def identity(self) -> str:
        return await schema.identity(self._read_catalog, self._is_distributed)

    async def server_time(self) -> int:
        return int((await self.read(SERVER_TIME))[0][0])

    async def security_warning(self) -> str | None:
        async with self._connections.read(NO_TENANT) as connection:
            return await row_security.security_warning(connection)

    # --- reads and writes ------------------------------------------------------------------------

    def for_tenant(self, organization_id: int) -> Database:
        assert organization_id >= NO_TENANT
        return PostgresHandle(self, organization_id)

    def for_replica(self, organization_id: int) -> AbstractAsyncContextManager[Database] | None:
        return self._replicas.use(organization_id)

    def for_all_tenants(self) -> Database:
        return PostgresHandle(self, ALL_TENANTS)

    async def read(self, sql: Statement, *values: Any) -> Sequence[Row]:
        return await self.read_for(NO_TENANT, sql, values)

    async def read_large(self, sql: Statement, *values: Any) -> Sequence[Row]:
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
        self, organization_id: int, sql: Statement, values: Sequence[Any]
    ) -> Sequence[Row]:
        return await _read(self._connections, organization_id, sql, values)

    async def write_for(
        self,
        organization_id: int,
        work: Callable[[Transaction], Awaitable[T]],
        queue_key: Hashable,
        checks_schema: bool = True,
    ) -> T:
        needed_schema = migrations.newest(self.engine) if checks_schema else None
        while True:
            try:
                async with self._queues.turn(organization_id, queue_key):
                    try:
                        return await self._write_once(organization_id, work, needed_schema)
                    except NotSent:
                        return await self._write_once(organization_id, work, needed_schema)
            except MoreIdsNeeded as needed:
                await self._reserved_ids.reserve(self.read, needed.count)

    async def _write_once(
        self,
        organization_id: int,
        work: Callable[[Transaction], Awaitable[T]],
        needed_schema: int | None,
    ) -> T:
        async with self._connections.write(organization_id, needed_schema) as connection:
            return await work(self._new_transaction(connection, organization_id))

    def _new_transaction(self, connection: Any, organization_id: int) -> Transaction:
        statements = self._array_statements
        if self._is_distributed:
            return ShardTransaction(connection, organization_id, statements, self._reserved_ids)
        return PostgresTransaction(connection, organization_id, statements)

    # --- notifications ---------------------------------------------------------------------------

    async def release_space(
        self, progress: StartProgress = no_progress, is_complete: bool = False
    ) -> None:
        """Do nothing: autovacuum does it."""

    def subscribe(self, channel: str) -> AbstractAsyncContextManager[Subscription]:
        return self._listener.subscribe(channel)

    def watch(self) -> AbstractAsyncContextManager[Watch]:
        return self._listener.watch()

    async def check_notifications(self) -> None:
        if self._listen_url is not None:
            await check_notifications(self, self._listen_url)

    def check_replicas(self, urls: Sequence[str]) -> None:
        for url in urls:
            check_url(url, "--replica")
        if urls and self._is_distributed:
            raise SettingsError(distribution.NO_REPLICAS)

    def stop_subscriptions(self) -> None:
        self._listener.subscriptions.stop()


async def _read(
    pool: ConnectionPool, organization_id: int, sql: Statement, values: Sequence[Any]
) -> Sequence[Row]:
    text = to_postgres(sql)
    try:
        return await _read_once(pool, organization_id, text, values)
    except NotSent:  # the idle connections are closed by now
        return await _read_once(pool, organization_id, text, values)


async def _read_once(
    pool: ConnectionPool, organization_id: int, sql: str, values: Sequence[Any]
) -> Sequence[Row]:
    async with pool.read(organization_id) as connection:
        rows: Sequence[Row] = await connection.fetch(sql, *values)
        return rows
