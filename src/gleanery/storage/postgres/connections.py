"""The pool of PostgreSQL connections: fair to the tenants, with one tenant per connection use."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import asyncpg

from gleanery.errors import SettingsError, Unavailable
from gleanery.scheduling.fair_semaphore import FairSemaphore
from gleanery.storage.database import PoolState
from gleanery.storage.postgres import row_security
from gleanery.storage.postgres.connect_errors import check_url, explain, short_reason
from gleanery.storage.postgres.errors import (
    CONNECTION_ERRORS,
    SERVER_DISCONNECTING,
    is_temporary,
)

_ACQUIRE_SECONDS = 5.0
_CLOSE_SECONDS = 5.0  # for the server to confirm the end of the connections
_STATEMENT_SECONDS = 30.0
_NO_FREE_CONNECTION = "Too many requests wait for the database; try again"
_MAX_IDLE_SECONDS = 300  # a firewall may have dropped a connection that is idle for longer

# Every statement is an index seek. PostgreSQL would plan a scan for a table that is still empty,
# and would keep that plan while the table grows. One generic plan serves all values, because
# planning takes longer than the seek.
_PLANNER_SETTINGS = """
SET enable_seqscan = off; SET enable_bitmapscan = off; SET jit = off;
SET plan_cache_mode = force_generic_plan
"""
_LOCK_TIMEOUT = "SET lock_timeout = '10s'"
# A statement that has waited for a lock must see what the owner of the lock has committed. The
# database may have another default.
_ISOLATION = "SET default_transaction_isolation = 'read committed'"


async def _initialize(connection: Any) -> None:
    await connection.execute(f"{_PLANNER_SETTINGS}; {_LOCK_TIMEOUT}; {_ISOLATION}")
    await row_security.set_role(connection)


async def _skip_reset(connection: Any) -> None:
    """Replaces the pool's reset: only the tenant outlives a transaction, and each use sets it."""


class _Connection(asyncpg.Connection):
    """A connection that remembers its tenant, so that it sets the tenant only if it changes."""

    _tenant: int | None = None

    async def set_tenant(self, organization_id: int) -> None:
        if self._tenant != organization_id:
            self._tenant = None  # unknown until the server has confirmed
            await self.execute(f"SET gleanery.organization = '{organization_id:d}'")
            self._tenant = organization_id


class ConnectionPool:
    """Connections of one service to one PostgreSQL database.

    The tenants share them by a ``FairSemaphore``, because transactions can be long. The queue of
    asyncpg's pool is not used: there a later request can overtake, and a tenant with many requests
    delays the others.
    """

    def __init__(self, url: str, size: int) -> None:
        self._url = url
        self._size = size
        self._slots = FairSemaphore(size, _ACQUIRE_SECONDS, _NO_FREE_CONNECTION)
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None
        # Idle connections with the time of their last use. They stay outside asyncpg's pool,
        # which creates two tasks for each use: as much work as half a small page.
        self._idle: list[tuple[Any, float]] = []
        self._is_closing = False

    @property
    def state(self) -> PoolState:
        return PoolState(self._size, self._slots.held, self._slots.waiting)

    async def open(self) -> None:
        """Connects once. Raises SettingsError if that fails."""
        check_url(self._url)
        self._is_closing = False  # an earlier attempt has failed
        try:
            self._pool = await asyncpg.create_pool(
                self._url,
                min_size=0,  # a minimum would log each attempt to reach a server that is away
                max_size=self._size,
                command_timeout=_STATEMENT_SECONDS,
                timeout=_ACQUIRE_SECONDS,
                connection_class=_Connection,
                init=_initialize,
                reset=_skip_reset,
            )
            await self._return(await self._take(), is_intact=True)
        except (ValueError, *CONNECTION_ERRORS) as error:
            await self.close()
            raise SettingsError(explain(error, self._url)) from None

    async def close(self) -> None:
        """Closes all connections. Those to a server that does not respond are ended."""
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
        """Replaces all connections by new ones, which take the serving role."""
        assert self._pool is not None
        await self._release_idle()
        await self._pool.expire_connections()

    @asynccontextmanager
    async def use(self, organization_id: int) -> AsyncIterator[Any]:
        """Provides a connection with this tenant. Temporary errors become ``Unavailable``.

        Raises ``Overloaded`` if the tenant waits too long for a connection of its share.
        """
        await self._slots.acquire(organization_id)
        try:
            try:
                connection = await self._take()
                is_intact = False
                try:
                    await connection.set_tenant(organization_id)
                    yield connection
                    is_intact = True
                except SERVER_DISCONNECTING:
                    connection.terminate()
                    raise
                finally:
                    await self._return(connection, is_intact)
            finally:
                self._slots.release(organization_id)
        except CONNECTION_ERRORS as error:
            if not is_temporary(error):
                raise
            raise Unavailable(reason=short_reason(error)) from error

    async def _take(self) -> Any:
        assert self._pool is not None, "open() comes first"
        while self._idle:
            connection, last_used = self._idle.pop()
            if _is_open(connection):
                if time.monotonic() - last_used <= _MAX_IDLE_SECONDS:
                    return connection
                connection.terminate()
            await self._pool.release(connection)
        return await self._pool.acquire(timeout=_ACQUIRE_SECONDS)

    async def _return(self, connection: Any, is_intact: bool) -> None:
        if is_intact and not self._is_closing:
            self._idle.append((connection, time.monotonic()))
        elif self._pool is not None:
            # An error has ended the connection. It must not replace the error of its user: a task
            # that is cancelled would continue.
            with suppress(*CONNECTION_ERRORS):
                await self._pool.release(connection)

    async def _release_idle(self) -> None:
        assert self._pool is not None
        while self._idle:
            await self._pool.release(self._idle.pop()[0])


def _is_open(connection: Any) -> bool:
    try:
        return not connection.is_closed()
    except asyncpg.InterfaceError:  # a lost connection returns to asyncpg's pool by itself
        return False
