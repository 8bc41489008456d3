"""The pool of PostgreSQL connections: fair to the tenants, with one tenant per connection use.

See ``docs/explanation/postgresql-connections.md``.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import asyncpg

from gleanery.common.errors import SettingsError
from gleanery.service.foundation.errors import Unavailable
from gleanery.service.foundation.scheduling.fair_shares import FairSemaphore, GroupedLimit
from gleanery.service.storage.database import PoolState
from gleanery.service.storage.postgres.citus.distribution import WorkerPlaces
from gleanery.service.storage.postgres.connecting import Hosts, Watch, check_pooler, end, has_pooler
from gleanery.service.storage.postgres.errors import (
    CONNECTION_ERRORS,
    SERVER_DISCONNECTING,
    is_temporary,
    short_reason,
    was_not_sent,
)
from gleanery.service.storage.postgres.tenants import DetectedScope, TenantConnection, TenantScope
from gleanery.service.storage.tenancy import ALL_TENANTS

_OLDEST_VERSION = 15  # of PostgreSQL; the tests run on 15 to 18
_ACQUIRE_SECONDS = 5.0
_CLOSE_SECONDS = 5.0  # for the server to confirm the end of the connections
_STATEMENT_SECONDS = 30.0
_GIVE_UP_SECONDS = 2.5  # after the limit of a statement, for its cancellation and the rollback
_NO_FREE_CONNECTION = "Too many requests wait for the database; try again"
_MAX_IDLE_SECONDS = 300  # a firewall may have dropped a connection that is idle for longer


class NotSent(Unavailable):
    """The server had ended the connection before a statement, or the commit, was sent.

    The same work can be done again at once: nothing of it is committed.
    """


async def _skip_reset(connection: Any) -> None:
    """Replace the pool's reset: only the tenant outlives a transaction, and each use sets it."""


class ConnectionPool:
    """Connections of one service to one PostgreSQL database.

    The tenants share them by a ``FairSemaphore``, because transactions can be long. The queue of
    asyncpg's pool is not used: there a later request can overtake, and a tenant with many requests
    delays the others.
    """

    def __init__(
        self,
        hosts: Hosts,
        size: int,
        scope: TenantScope,
        statement_seconds: float | None = None,
    ) -> None:
        self._hosts = hosts
        self._size = size
        self._scope = scope
        self._statement_seconds = statement_seconds or _STATEMENT_SECONDS
        self._watch = Watch(self._statement_seconds + _GIVE_UP_SECONDS)
        self._slots = FairSemaphore(size, _ACQUIRE_SECONDS, _NO_FREE_CONNECTION)
        self._places: WorkerPlaces | None = None
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None
        # Idle connections with the time of their last use. They stay outside asyncpg's pool,
        # which creates two tasks for each use: as much work as half a small page.
        self._idle: list[tuple[Any, float]] = []
        self._is_closing = False

    @property
    def state(self) -> PoolState:
        return PoolState(self._size, self._slots.held, self._slots.waiting)

    def has_free(self, organization_id: int) -> bool:
        """Return True if the tenant need not wait for a connection of its share."""
        return self._slots.can_acquire(organization_id)

    async def open(self) -> None:
        """Connect once. Raise SettingsError if that fails."""
        self._hosts.check()
        self._is_closing = False  # an earlier attempt has failed
        try:
            self._pool = await asyncpg.create_pool(
                connect=self._hosts.connect,
                min_size=0,  # a minimum would log each attempt to reach a server that is away
                max_size=self._size,
                command_timeout=self._statement_seconds,
                connection_class=TenantConnection,
                init=self._initialize,
                reset=_skip_reset,
            )
            await self._check_server()
        except SettingsError:
            await self.close()
            raise
        except (ValueError, *CONNECTION_ERRORS) as error:
            await self.close()
            raise SettingsError(self._hosts.explain(error)) from None

    async def _initialize(self, connection: Any) -> None:
        try:
            await self._scope.initialize(connection)
        except BaseException:
            end(connection)  # the driver would wait for the server to confirm the end
            raise

    async def change_scope(self, scope: TenantScope, places: WorkerPlaces) -> None:
        """Replace all connections by new ones, which use this scope.

        The workers of Citus then share the connections fairly too, so that one that hangs does not
        hold them all.
        """
        self._scope, self._places = scope, places
        limit = GroupedLimit(self._size, places.worker_of)
        self._slots = FairSemaphore(limit, _ACQUIRE_SECONDS, _NO_FREE_CONNECTION)
        await self.expire()

    async def _check_server(self) -> None:
        """Raise SettingsError if the server is too old, or its pooler does not fit."""
        connection = await self._take()
        try:
            _check_version(connection.get_server_version())
            is_pooled = await has_pooler(connection)
        finally:
            await self._return(connection, is_intact=False)
        if is_pooled:
            await check_pooler(self._connect, isinstance(self._scope, DetectedScope))

    async def _connect(self) -> Any:
        """Open a connection outside the pool."""
        return await self._hosts.connect(command_timeout=_ACQUIRE_SECONDS)

    async def close(self) -> None:
        """Close all connections. Those to a server that does not respond are ended."""
        self._is_closing = True
        if self._pool is not None:
            try:
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await self._release_idle()
                    await self._pool.close()
            except TimeoutError:
                self._pool.terminate()
            self._pool = None

    async def expire(self) -> None:
        """Replace all connections by new ones, which take the serving role."""
        assert self._pool is not None
        await self._release_idle()
        await self._pool.expire_connections()

    @asynccontextmanager
    async def read(self, organization_id: int) -> AsyncIterator[Any]:
        """Provide a connection on which this tenant can read."""
        async with (
            self._use(organization_id) as connection,
            self._scope.read(connection, organization_id),
        ):
            yield connection

    @asynccontextmanager
    async def read_in_transaction(self, organization_id: int) -> AsyncIterator[Any]:
        """Provide a connection in a transaction, whose settings end with it."""
        async with (
            self._use(organization_id) as connection,
            self._scope.write(connection, organization_id, None),
        ):
            yield connection

    @asynccontextmanager
    async def write(self, organization_id: int, schema: int | None) -> AsyncIterator[Any]:
        """Provide a connection in a transaction of this tenant.

        Raise ``Unavailable`` if a program of this schema cannot serve the database. None does not
        check it.
        """
        # A write without a tenant waits for all workers of Citus. Reads without one do not.
        tenant = organization_id or ALL_TENANTS
        async with (
            self._use(tenant) as connection,
            self._scope.write(connection, organization_id, schema),
        ):
            yield connection

    @asynccontextmanager
    async def _use(self, organization_id: int) -> AsyncIterator[Any]:
        """Provide a connection of the tenant's share. Temporary errors become ``Unavailable``.

        Raise ``Overloaded`` if the tenant waits too long for a connection of its share.
        """
        if self._places is not None:
            await self._places.find(organization_id)
        slots, watched = self._slots, None
        await slots.acquire(organization_id)
        try:
            try:
                connection = await self._take()
                is_intact, began = False, time.monotonic()
                watched = connection.watched
                self._watch.start(watched)
                try:
                    yield connection
                    is_intact = True
                except SERVER_DISCONNECTING:
                    end(connection)
                    raise
                finally:
                    try:
                        await self._return(connection, is_intact)
                    finally:
                        self._watch.stop(watched)
                    if not is_intact and watched.is_closed():
                        await self._end_idle(began)  # they go to the same server
            finally:
                slots.release(organization_id)
        except CONNECTION_ERRORS as error:
            if not is_temporary(error):
                raise
            if watched is not None and watched.has_ended_silent:
                error = TimeoutError()  # the driver only knows that the connection has ended
            kind = NotSent if was_not_sent(error) else Unavailable
            raise kind(reason=self._reason(error, organization_id)) from error

    def _reason(self, error: Exception, organization_id: int) -> str:
        """Says for the log what failed. A timeout does not name the worker of Citus by itself."""
        reason, place = short_reason(error), ""
        if isinstance(error, TimeoutError) and self._places is not None:
            place = self._places.describe(organization_id)
        return f"{reason}; {place}" if place else reason

    async def _take(self) -> Any:
        assert self._pool is not None, "open() comes first"
        while self._idle:
            connection, last_used = self._idle.pop()
            if _is_open(connection):
                if time.monotonic() - last_used <= _MAX_IDLE_SECONDS:
                    return connection
                end(connection)
            await self._pool.release(connection)
        connection = await self._pool.acquire(timeout=_ACQUIRE_SECONDS)
        connection.is_closed()  # raises InterfaceError if it was lost in the meantime
        return connection

    async def _return(self, connection: Any, is_intact: bool) -> None:
        if is_intact and not self._is_closing:
            self._idle.append((connection, time.monotonic()))
        elif self._pool is not None:
            # An error has ended the connection. It must not replace the error of its user: a task
            # that is cancelled would continue.
            with suppress(*CONNECTION_ERRORS):
                await self._pool.release(connection)

    async def _end_idle(self, time_of_use: float) -> None:
        """End the idle connections that were not used since then."""
        for connection, last_used in self._idle:
            if last_used < time_of_use:
                end(connection)
        if self._pool is not None:
            await self._pool.expire_connections()  # those that are idle in asyncpg's pool

    async def _release_idle(self) -> None:
        assert self._pool is not None
        while self._idle:
            await self._pool.release(self._idle.pop()[0])


def _check_version(version: Any) -> None:
    if version.major < _OLDEST_VERSION:
        raise SettingsError(
            f"The PostgreSQL server of --database has version {version.major}.{version.minor}: "
            f"upgrade it to {_OLDEST_VERSION} or newer"
        )


def _is_open(connection: Any) -> bool:
    try:
        return not connection.is_closed()
    except asyncpg.InterfaceError:  # a lost connection returns to asyncpg's pool by itself
        return False
