"""Streaming replicas of the PostgreSQL database: checks them, and chooses one for a request."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any, NoReturn

from gleanery.errors import Overloaded, Unavailable
from gleanery.storage import migrations
from gleanery.storage.database import Database, Row, Statement
from gleanery.storage.postgres import primary_state, row_security
from gleanery.storage.postgres.array_statements import to_postgres
from gleanery.storage.postgres.connect_errors import host_of, short_reason
from gleanery.storage.postgres.connecting import Hosts, end
from gleanery.storage.postgres.connections import ConnectionPool
from gleanery.storage.postgres.handle import PostgresHandle
from gleanery.storage.postgres.primary_state import (
    SAMPLE_SECONDS,
    History,
    NotUsable,
    PrimaryStates,
)
from gleanery.storage.postgres.tenant_scope import TenantScope
from gleanery.storage.tenancy import NO_TENANT

_log = logging.getLogger("gleanery")

_STATEMENT_SECONDS = 5.0  # a replica that needs longer does not help; then the primary is asked
# The service does not wait for the end of a statement. The server must not go on with it.
_SETTINGS = (f"statement_timeout = '{_STATEMENT_SECONDS:.0f}s'",)
_MAX_CHECK_AGE = 3 * SAMPLE_SECONDS

ReadPrimary = Callable[[str], Awaitable[Sequence[Row]]]


class Replica:
    """One replica."""

    def __init__(self, url: str, pool_size: int, scope: TenantScope, max_lag: float) -> None:
        self.host = host_of(url)
        hosts = Hosts(url, "--replica", is_replica=True)
        self._connections = ConnectionPool(hosts, pool_size, scope, _STATEMENT_SECONDS)
        self._max_lag = max_lag
        self._is_open = False
        self._was_usable = False
        self._checked_at = 0.0
        self._reason: str | None = None
        self.lag_seconds = 0.0
        """Time for which the primary has had changes that the replica lacks."""

    @property
    def is_usable(self) -> bool:
        """True if the last check has succeeded, and is not too long ago."""
        return self._was_usable and time.monotonic() - self._checked_at < _MAX_CHECK_AGE

    def can_read(self, organization_id: int) -> bool:
        """Return True if a request of the tenant can use the replica without waiting."""
        return self.is_usable and self._connections.has_free(organization_id)

    async def check(self, primary: PrimaryStates) -> None:
        """Find out if the replica is usable, and how far it is behind."""
        try:
            self.lag_seconds = await self._read_lag(primary)
            if self.lag_seconds > self._max_lag:
                raise NotUsable("it is further behind the primary than --max-replica-lag-seconds")
        except Overloaded:  # it works, but has enough to do
            return
        except Exception as error:
            self.leave_out(error)
            return
        self._checked_at = time.monotonic()
        if not self._was_usable:
            self._was_usable, self._reason = True, None
            _log.info("the replica is used", extra={"replica": self.host})

    async def _read_lag(self, primary: PrimaryStates) -> float:
        """Return the lag. Raise NotUsable or SettingsError if the replica must not be used."""
        if not self._is_open:
            await self._connections.open()
            self._is_open = True
        async with self._connections.read(NO_TENANT) as connection:
            try:
                await row_security.security_warning(connection)
                [row] = await connection.fetch(
                    primary_state.REPLICA_STATE, migrations.newest("postgres")
                )
            except Exception:
                end(connection)  # a new one takes the role that the replica has by then
                raise
        is_replica, position, system_identifier, timeline, restored, is_servable, seconds = row
        if not is_replica:
            raise NotUsable("it is a primary: it was promoted, or is another database")
        primary.history.check_replica(History(system_identifier, timeline, restored))
        if not is_servable:
            raise NotUsable("this program cannot serve its schema, or not yet")
        return primary.seconds_behind(int(position), seconds)

    def leave_out(self, error: Exception) -> None:
        """Use the replica no more until a check succeeds. Log each reason once."""
        self._was_usable = False
        reason = _reason(error)
        if reason != self._reason:
            self._reason = reason
            _log.warning(
                "the server of --replica is left out",
                extra={"replica": self.host, "reason": reason},
            )

    @asynccontextmanager
    async def use(self, organization_id: int) -> AsyncIterator[Database]:
        """Provide a handle whose statements use one connection, so all ask the same server."""
        async with AsyncExitStack() as stack:
            try:
                connection = await stack.enter_async_context(
                    self._connections.read(organization_id)
                )
            except Overloaded:
                raise
            except Exception as error:
                self.leave_out(error)
                raise
            yield PostgresHandle(_ReplicaConnection(self, connection), organization_id)

    async def close(self) -> None:
        await self._connections.close()


def _reason(error: BaseException) -> str:
    """Says for the operator why a replica cannot be used."""
    if isinstance(error, Unavailable) and error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, TimeoutError):
        return "it does not respond"
    if isinstance(error, ConnectionRefusedError):
        return "it refuses connections: start the server"
    return short_reason(error).replace("--database", "--replica")


class _ReplicaConnection:
    """The connection of one request to a replica."""

    def __init__(self, replica: Replica, connection: Any) -> None:
        self._replica, self._connection = replica, connection

    async def read_for(
        self, organization_id: int, sql: Statement, values: Sequence[Any]
    ) -> Sequence[Row]:
        try:
            rows: Sequence[Row] = await self._connection.fetch(to_postgres(sql), *values)
        except ValueError:  # the driver rejects a value; the primary's answer says that
            raise
        except Exception as error:
            self._replica.leave_out(error)
            end(self._connection)  # the server may not respond to a cancellation either
            raise
        return rows

    async def write_for(self, *_: Any) -> NoReturn:
        raise AssertionError("a replica is read only")


class Replicas:
    """The replicas of one primary, checked every two seconds from ``start`` to ``close``."""

    def __init__(
        self,
        urls: Sequence[str],
        pool_size: int,
        new_scope: Callable[[Sequence[str]], TenantScope],
        max_lag: float,
    ) -> None:
        """Create them. ``new_scope`` gets further settings for its connections."""
        self.all = [Replica(url, pool_size, new_scope(_SETTINGS), max_lag) for url in urls]
        self._primary = PrimaryStates()
        self._next = 0
        self._task: asyncio.Task[None] | None = None

    def start(self, read_primary: ReadPrimary) -> None:
        if self.all:
            self._task = asyncio.create_task(self._run(read_primary))

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await asyncio.gather(*(replica.close() for replica in self.all))

    def use(self, organization_id: int) -> AbstractAsyncContextManager[Database] | None:
        """Return the next replica that has time, so that they share the requests; or None."""
        free = [replica for replica in self.all if replica.can_read(organization_id)]
        if not free:
            return None
        self._next += 1
        return free[self._next % len(free)].use(organization_id)

    async def _run(self, read_primary: ReadPrimary) -> None:
        """Check each server in a task of its own: one that does not respond delays no other."""
        await self._sample_primary(read_primary)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_repeat(partial(self._sample_primary, read_primary)))
            for replica in self.all:
                tasks.create_task(_repeat(partial(replica.check, self._primary)))

    async def _sample_primary(self, read_primary: ReadPrimary) -> None:
        with contextlib.suppress(Exception):  # the lag then grows from the last sample
            [row] = await read_primary(primary_state.PRIMARY_STATE)
            self._primary.add(*row)


async def _repeat(check: Callable[[], Awaitable[None]]) -> None:
    while True:
        await check()
        await asyncio.sleep(SAMPLE_SECONDS)
