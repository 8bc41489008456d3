"""Streaming replicas of the PostgreSQL database: checks them, and chooses one for a read."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NoReturn

from gleanery.errors import Overloaded
from gleanery.storage import migrations
from gleanery.storage.database import Row
from gleanery.storage.postgres.connect_errors import host_of, short_reason
from gleanery.storage.postgres.connections import ConnectionPool
from gleanery.storage.postgres.tenant_scope import TenantScope
from gleanery.storage.tenancy import NO_TENANT

_log = logging.getLogger("gleanery")

_CHECK_SECONDS = 2.0
_READ_SECONDS = 5.0  # a replica that needs longer does not help; then the primary is asked
_MAX_SAMPLES = 1800  # an hour; a lag that is longer is reported as an hour
PRIMARY_POSITION = "SELECT pg_current_wal_lsn() - '0/0'::pg_lsn"
"""The primary's position in its write-ahead log, in bytes."""
# A server that was promoted is no replica any more: it may have other data than the primary.
_STATE = """
SELECT pg_is_in_recovery(), pg_last_wal_replay_lsn() - '0/0'::pg_lsn,
    EXISTS (SELECT FROM migrations
        HAVING max(number) >= $1 AND max(coalesce(compatible_from, number)) <= $1)
"""


class NotAReplica(Exception):
    """The server cannot be used as a replica; the text says why."""


class Replica:
    """One replica. Its methods for reading are those of the primary's engine."""

    def __init__(self, url: str, pool_size: int, scope: TenantScope) -> None:
        self.host = host_of(url)
        self._connections = ConnectionPool(url, pool_size, scope)
        self._is_open = False
        self.is_usable = False
        self.lag_seconds: float | None = None
        """Time since the primary was where the replica is now; None if it is not usable."""

    async def check(self, positions: PrimaryPositions) -> None:
        """Finds out if the replica is usable, and how far it is behind."""
        try:
            async with asyncio.timeout(_READ_SECONDS):
                if not self._is_open:
                    await self._connections.open()
                    self._is_open = True
                newest = (migrations.newest("postgres"),)
                [[in_recovery, position, is_servable]] = await self._fetch(
                    NO_TENANT, _STATE, newest
                )
            if not in_recovery:
                raise NotAReplica("it is a primary: it was promoted, or is another database")
            if not is_servable:
                raise NotAReplica("this program cannot serve its schema, or not yet")
        except Exception as error:
            self.leave_out(error)
            return
        self.lag_seconds = positions.seconds_behind(int(position))
        if not self.is_usable:
            self.is_usable = True
            _log.info("the replica is used", extra={"replica": self.host})

    def leave_out(self, error: Exception) -> None:
        """Uses the replica no more until a check succeeds."""
        self.lag_seconds = None
        if self.is_usable:
            self.is_usable = False
            reason = short_reason(error)
            _log.warning("the replica is left out", extra={"replica": self.host, "error": reason})

    async def read_for(
        self, organization_id: int, sql: str, values: Sequence[Any]
    ) -> Sequence[Row]:
        try:
            async with asyncio.timeout(_READ_SECONDS):
                return await self._fetch(organization_id, sql, values)
        except Overloaded:  # it works, but has enough to do
            raise
        except Exception as error:
            self.leave_out(error)
            raise

    async def _fetch(self, organization_id: int, sql: str, values: Sequence[Any]) -> Sequence[Row]:
        async with self._connections.read(organization_id) as connection:
            rows: Sequence[Row] = await connection.fetch(sql, *values)
            return rows

    async def write_for(self, *_: Any) -> NoReturn:
        raise AssertionError("a replica is read only")

    async def close(self) -> None:
        await self._connections.close()


class PrimaryPositions:
    """Where the primary was at which time, for the lag of replicas in seconds.

    A replica knows the time of the last change that it has, but not if the primary has newer ones.
    """

    def __init__(self) -> None:
        self._samples: deque[tuple[int, float]] = deque(maxlen=_MAX_SAMPLES)

    def add(self, position: int) -> None:
        self._samples.append((position, time.monotonic()))

    def seconds_behind(self, position: int) -> float:
        """Returns for how long the primary has been after this position."""
        passed_at = None
        for sample, sampled_at in reversed(self._samples):
            if sample <= position:
                break
            passed_at = sampled_at
        return 0.0 if passed_at is None else time.monotonic() - passed_at


class Replicas:
    """The replicas of one primary, checked every two seconds from ``start`` to ``close``."""

    def __init__(
        self, urls: Sequence[str], pool_size: int, new_scope: Callable[[], TenantScope]
    ) -> None:
        self.all = [Replica(url, pool_size, new_scope()) for url in urls]
        self._positions = PrimaryPositions()
        self._next = 0
        self._task: asyncio.Task[None] | None = None

    def start(self, read_primary: Callable[[str], Awaitable[Sequence[Row]]]) -> None:
        if self.all:
            self._task = asyncio.create_task(self._run(read_primary))

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for replica in self.all:
            await replica.close()

    def choose(self) -> Replica | None:
        """Returns the next usable replica, so that they share the reads; None if there is none."""
        usable = [replica for replica in self.all if replica.is_usable]
        if not usable:
            return None
        self._next += 1
        return usable[self._next % len(usable)]

    async def _run(self, read_primary: Callable[[str], Awaitable[Sequence[Row]]]) -> None:
        while True:
            with contextlib.suppress(Exception):  # the lag then grows from the last known position
                [[position]] = await read_primary(PRIMARY_POSITION)
                self._positions.add(int(position))
            await asyncio.gather(*(replica.check(self._positions) for replica in self.all))
            await asyncio.sleep(_CHECK_SECONDS)
