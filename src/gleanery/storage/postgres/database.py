"""The engine for many nodes: PostgreSQL through a pool of asyncpg connections."""

from __future__ import annotations

import asyncio
import time
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Hashable,
    Iterable,
    Sequence,
)
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    nullcontext,
)
from typing import Any, Literal, NamedTuple, TypeVar
from weakref import WeakValueDictionary

import asyncpg

from gleanery.errors import SettingsError, Unavailable
from gleanery.scheduling.fair_queue import FairQueue
from gleanery.storage import migrations
from gleanery.storage.database import BETWEEN_ITEMS, Database, Page, Row, Transaction
from gleanery.storage.notifications import Subscription
from gleanery.storage.postgres import row_security
from gleanery.storage.postgres.array_statements import over_arrays
from gleanery.storage.postgres.errors import (
    CONNECTION_ERRORS,
    SERVER_DISCONNECTING,
    is_temporary,
)
from gleanery.storage.postgres.listener import POSTGRES_CHANNEL, Listener
from gleanery.storage.tenancy import ALL_TENANTS, NO_TENANT

T = TypeVar("T")

_MIGRATION_LOCK = 0x676C65616E  # "glean": an advisory lock that only migrating takes
_REST_SECONDS = 300  # after which a connection may have been dropped on the way, unsaid
_ACQUIRE_SECONDS = 5.0
_STATEMENT_SECONDS = 30.0
_NO_LIMIT = 24 * 3600.0  # for a migration, which takes the time it takes
_LOCK_SECONDS = 10  # how long another node's writer may keep ours waiting
_ROLLBACK_SECONDS = 2.0
_MANY = 8  # sets of values, for which a statement over arrays takes less time
_QUEUE_SECONDS = 20.0  # a writer waits at most this long for the writers before it

# Every statement of ours is a seek in an index. A plan made while a table was still empty would
# scan it, and be kept while the table grows. One plan serves all values: to make one anew for each
# takes longer than to run it.
_SEEK = """
SET enable_seqscan = off; SET enable_bitmapscan = off; SET jit = off;
SET plan_cache_mode = force_generic_plan
"""
_MIGRATING = f"""
SET LOCAL ROLE NONE; {row_security.SET_ALL_TENANTS};
SET LOCAL lock_timeout = 0; SET LOCAL enable_seqscan = on; SET LOCAL enable_bitmapscan = on
"""
_SKIP_IDS = """
SELECT setval(format('%I.%I', schemaname, sequencename)::regclass, coalesce(last_value, 0) + $1)
FROM pg_sequences WHERE schemaname = current_schema()
"""
_PATIENCE = f"SET lock_timeout = '{_LOCK_SECONDS}s'"


async def _set_up(connection: Any) -> None:
    await connection.execute(f"{_SEEK}; {_PATIENCE}")
    await row_security.set_role(connection)


async def _leave_as_is(connection: Any) -> None:
    """Nothing outlives its transaction but whom it works for, which is set before each use."""


class _Connection(asyncpg.Connection):
    """A connection that knows for whom it works; it tells the server only if that is another."""

    _works_for: int | None = None

    async def work_for(self, organization_id: int) -> None:
        if self._works_for != organization_id:
            self._works_for = None  # until the server has answered, nobody knows
            await self.execute(f"SET gleanery.organization = '{organization_id:d}'")
            self._works_for = organization_id


@asynccontextmanager
async def _atomic(connection: Any) -> AsyncIterator[None]:
    """A transaction. A server that does not answer is not waited for a second time to undo it."""
    transaction = connection.transaction()
    await transaction.start()
    try:
        yield
    except BaseException:
        await _roll_back(connection, transaction)
        raise
    await transaction.commit()


async def _roll_back(connection: Any, transaction: Any) -> None:
    try:
        async with asyncio.timeout(_ROLLBACK_SECONDS):
            await transaction.rollback()
    except BaseException:
        connection.terminate()  # the server undoes what is not committed
        raise


def _is_open(connection: Any) -> bool:
    try:
        return not connection.is_closed()
    except asyncpg.InterfaceError:  # it was lost, and so has gone back to the pool by itself
        return False


class _QueueLock(asyncio.Lock):
    """Serialises the writers of one queue key; a writer waits for a limited time."""

    async def acquire(self) -> Literal[True]:
        try:
            async with asyncio.timeout(_QUEUE_SECONDS):
                return await super().acquire()
        except TimeoutError:
            raise Unavailable("Too many write here at once; try again") from None


class _Connections:
    """So many can be used at once. Those who wait take turns, by organization.

    In the pool's own line the last can overtake, and one with many requests keeps others waiting.
    """

    def __init__(self, count: int) -> None:
        self._free = count
        self._waiting = FairQueue[asyncio.Future[None]]()

    async def take(self, organization_id: int) -> None:
        if self._free:
            self._free -= 1
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.add(organization_id, waiter)
        try:
            async with asyncio.timeout(_ACQUIRE_SECONDS):
                await waiter
        except BaseException:
            if waiter.done() and not waiter.cancelled():  # it came when nobody waited any more
                self.give_back()
            raise

    def give_back(self) -> None:
        """To who is next, if anyone still waits."""
        while self._waiting:
            waiter = self._waiting.take()
            if not waiter.done():
                waiter.set_result(None)
                return
        self._free += 1


class PostgresDatabase:
    """A ``Database`` on a PostgreSQL server."""

    engine = "postgres"
    synchronous_reads = False
    organization_id = NO_TENANT

    def __init__(self, url: str, pool_size: int) -> None:
        self._url = url
        self._pool_size = pool_size
        self._turns = _Connections(pool_size)
        self._queue_locks: WeakValueDictionary[tuple[int, Hashable], _QueueLock] = (
            WeakValueDictionary()
        )
        self._listener = Listener(url)
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None
        # Out of the pool but not in use: to take one from there and to give it back costs two
        # tasks, as much as half a small page.
        self._at_hand: list[tuple[Any, float]] = []  # and since when
        self._is_closing = False
        self._whole: dict[str, str | None] = {}  # statements over arrays, for one over each set

    async def open(self) -> None:
        try:
            self._pool = await asyncpg.create_pool(
                self._url,
                min_size=1,
                max_size=self._pool_size,
                command_timeout=_STATEMENT_SECONDS,
                timeout=_ACQUIRE_SECONDS,
                connection_class=_Connection,
                init=_set_up,
                reset=_leave_as_is,
            )
        except ValueError:  # its words would repeat parts of the URL, and so of the password
            raise SettingsError(
                "--database is not a valid URL: percent-encode special characters in the password"
            ) from None
        except CONNECTION_ERRORS as error:
            raise SettingsError(f"Can't reach the PostgreSQL database: {error}") from None

    async def close(self) -> None:
        self._is_closing = True
        await self._listener.close()
        if self._pool is not None:
            await self._give_all_back()
            await self._pool.close()
            self._pool = None

    async def migrate(self) -> None:
        if await self._is_of_another_user():
            await self._refuse_old_schema()
            return

        async def apply_alone(transaction: Transaction) -> None:
            await transaction.run_script(_MIGRATING)
            await transaction.fetch("SELECT pg_advisory_xact_lock($1)", _MIGRATION_LOCK)
            await migrations.apply(self.engine, transaction)
            await row_security.enable(transaction)

        await self.write(apply_alone)
        assert self._pool is not None
        await self._give_all_back()
        await self._pool.expire_connections()  # new ones take the role that serves
        await self.security_warning()

    async def _is_of_another_user(self) -> bool:
        """Whether somebody else made the tables, and has left it to this user to serve them."""
        rows = await self.read(row_security.OWNED_BY_ANOTHER_USER)
        return bool(rows and rows[0][0])

    async def _refuse_old_schema(self) -> None:
        try:
            applied = await self.schema_number()
        except asyncpg.InsufficientPrivilegeError:
            raise SettingsError(row_security.NO_PRIVILEGES) from None
        migrations.reject_newer(self.engine, applied)
        if applied < migrations.newest(self.engine):
            raise SettingsError(
                "The tables are of an older form, and another user's: run gleanery migrate with "
                "the --database URL of their owner"
            )

    async def security_warning(self) -> str | None:
        async with self._connection(NO_TENANT) as connection:
            return await row_security.security_warning(connection)

    def for_tenant(self, organization_id: int) -> Database:
        assert organization_id >= NO_TENANT
        return _PostgresRows(self, organization_id)

    def for_all_tenants(self) -> Database:
        return _PostgresRows(self, ALL_TENANTS)

    def batch_reads(self) -> AbstractContextManager[None]:
        return nullcontext()

    async def schema_number(self) -> int:
        [[listed]] = await self.read("SELECT to_regclass('migrations') IS NOT NULL")
        if not listed:
            return 0
        return int((await self.read(migrations.NEWEST_APPLIED))[0][0])

    async def read(self, sql: str, *values: Any) -> Sequence[Row]:
        return await self.read_for(NO_TENANT, sql, values)

    async def read_page(self, found: str, limit: int, values: Sequence[Any]) -> Page:
        return await self.for_tenant(NO_TENANT).read_page(found, limit, values)

    async def write(
        self, work: Callable[[Transaction], Awaitable[T]], queue_key: Hashable = None
    ) -> T:
        return await self.write_for(NO_TENANT, work, queue_key)

    async def read_for(
        self, organization_id: int, sql: str, values: Sequence[Any]
    ) -> Sequence[Row]:
        async with self._connection(organization_id) as connection:
            rows: Sequence[Row] = await connection.fetch(sql, *values)
            return rows

    async def write_for(
        self, organization_id: int, work: Callable[[Transaction], Awaitable[T]], queue_key: Hashable
    ) -> T:
        async with (
            self._queue_lock(organization_id, queue_key),
            self._connection(organization_id) as connection,
            _atomic(connection),
        ):
            return await work(_PostgresTransaction(connection, organization_id, self._whole))

    @asynccontextmanager
    async def subscribe(self, channel: str) -> AsyncIterator[Subscription]:
        async with self._listener.subscribe(channel) as subscription:
            yield subscription

    def stop_subscriptions(self) -> None:
        self._listener.subscriptions.stop()

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

    @asynccontextmanager
    async def _connection(self, organization_id: int) -> AsyncIterator[Any]:
        try:
            await self._turns.take(organization_id)
            try:
                connection = await self._take()
                is_well = False
                try:
                    await connection.work_for(organization_id)
                    yield connection
                    is_well = True
                except SERVER_DISCONNECTING:
                    connection.terminate()
                    raise
                finally:
                    await self._give_back(connection, is_well)
            finally:
                self._turns.give_back()
        except CONNECTION_ERRORS as error:
            if not is_temporary(error):
                raise
            raise Unavailable from error

    async def _take(self) -> Any:
        assert self._pool is not None, "open() comes first"
        while self._at_hand:
            connection, since = self._at_hand.pop()
            if _is_open(connection):
                if time.monotonic() - since <= _REST_SECONDS:
                    return connection
                connection.terminate()
            await self._pool.release(connection)
        return await self._pool.acquire(timeout=_ACQUIRE_SECONDS)

    async def _give_back(self, connection: Any, is_well: bool) -> None:
        if is_well and not self._is_closing:
            self._at_hand.append((connection, time.monotonic()))
        elif self._pool is not None:
            await self._pool.release(connection)

    async def _give_all_back(self) -> None:
        assert self._pool is not None
        while self._at_hand:
            await self._pool.release(self._at_hand.pop()[0])


class _PostgresRows(NamedTuple):
    """The rows of one organization, or of all."""

    database: PostgresDatabase
    organization_id: int

    async def read(self, sql: str, *values: Any) -> Sequence[Row]:
        return await self.database.read_for(self.organization_id, sql, values)

    async def read_page(self, found: str, limit: int, values: Sequence[Any]) -> Page:
        """Joined here: for what the server spends on it, all nodes would have to wait."""
        sql = f"{found} LIMIT ${len(values) + 1}"
        rows = await self.database.read_for(self.organization_id, sql, (*values, limit + 1))
        items = BETWEEN_ITEMS.join([row[1] for row in rows[:limit]])
        return Page(items, rows[limit][0] - 1 if len(rows) > limit else None)

    async def write(
        self, work: Callable[[Transaction], Awaitable[T]], queue_key: Hashable = None
    ) -> T:
        return await self.database.write_for(self.organization_id, work, queue_key)


class _PostgresTransaction:
    """Statements on one connection, inside its transaction."""

    def __init__(self, connection: Any, organization_id: int, whole: dict[str, str | None]) -> None:
        self._connection = connection
        self._organization_id = organization_id
        self._whole = whole

    @property
    def organization_id(self) -> int:
        return self._organization_id

    async def fetch(self, sql: str, *values: Any) -> Sequence[Row]:
        rows: Sequence[Row] = await self._connection.fetch(sql, *values)
        return rows

    async def fetch_many(self, sql: str, many: Iterable[Row]) -> Sequence[Row]:
        sets = list(many)
        whole = await self._over_arrays(sql, sets)
        rows: Sequence[Row] = (
            await self._connection.fetchmany(sql, sets)
            if whole is None
            else await self._connection.fetch(whole, *zip(*sets, strict=True))
        )
        return rows

    async def execute_many(self, sql: str, many: Iterable[Row]) -> None:
        sets = list(many)
        whole = await self._over_arrays(sql, sets)
        if whole is None and sets:
            await self._connection.executemany(sql, sets)
        elif whole is not None:
            await self._connection.execute(whole, *zip(*sets, strict=True))

    async def _over_arrays(self, sql: str, sets: list[Row]) -> str | None:
        """The statement for all sets at once, if there is one and it is worth it."""
        if len(sets) < _MANY:
            return None
        if sql not in self._whole:
            prepared = await self._connection.prepare(sql)
            types = [type_.name for type_ in prepared.get_parameters()]
            self._whole[sql] = over_arrays(sql, types)
        return self._whole[sql]

    async def fetch_by_keys(self, keys: Collection[bytes], sql: str, *values: Any) -> Sequence[Row]:
        return await self.fetch_many(sql, [(*values, key) for key in keys])

    async def run_script(self, sql: str) -> None:
        await self._connection.execute(sql, timeout=_NO_LIMIT)

    async def notify(self, channel: str) -> None:
        await self._connection.execute("SELECT pg_notify($1, $2)", POSTGRES_CHANNEL, channel)

    async def new_output_ids(self, count: int) -> Sequence[int]:
        rows = await self.fetch("SELECT nextval('output_ids') FROM generate_series(1, $1)", count)
        return [row[0] for row in rows]

    async def skip_ids(self, count: int) -> None:
        """As the owner: what serves may take the next number, and no other."""
        [[role]] = await self.fetch("SELECT current_setting('role')")
        await self.run_script("SET LOCAL ROLE NONE")
        await self.fetch(_SKIP_IDS, count)
        await self.fetch("SELECT set_config('role', $1, true)", role)
