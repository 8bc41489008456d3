"""Streaming replicas of the PostgreSQL database: checks them, and chooses one for a request.

``PrimaryStates`` knows the state of the primary over time. A check of a replica compares its state
with that: whether both have the same history, and how far the replica is behind.

See ``docs/explanation/replicas.md``.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any, NamedTuple, NoReturn

from gleanery.service.foundation.errors import Overloaded, Unavailable
from gleanery.service.storage import migrations
from gleanery.service.storage.database import Database, Row, Statement
from gleanery.service.storage.postgres import row_security
from gleanery.service.storage.postgres.connecting import Hosts, end
from gleanery.service.storage.postgres.errors import host_of, short_reason
from gleanery.service.storage.postgres.pool import ConnectionPool
from gleanery.service.storage.postgres.tenants import PostgresHandle, TenantScope
from gleanery.service.storage.postgres.transactions import to_postgres
from gleanery.service.storage.tenancy import NO_TENANT

_log = logging.getLogger("gleanery")
SAMPLE_SECONDS = 2.0
"""The time between two samples."""
_STATEMENT_SECONDS = 5.0  # a replica that needs longer does not help; then the primary is asked
# The service does not wait for the end of a statement. The server must not go on with it.
_SETTINGS = (f"statement_timeout = '{_STATEMENT_SECONDS:.0f}s'",)
_MAX_CHECK_AGE = 3 * SAMPLE_SECONDS
ReadPrimary = Callable[[str], Awaitable[Sequence[Row]]]
_MAX_SAMPLES = 1800  # an hour; a lag that is longer is reported as an hour
_STALE_SECONDS = 3 * SAMPLE_SECONDS
_POSITION = "{} - '0/0'::pg_lsn"  # in the write-ahead log, in bytes
_RESTORE_TIME = "(SELECT value FROM metadata WHERE name = 'restore_time')"
PRIMARY_STATE = f"""
SELECT {_POSITION.format("pg_current_wal_lsn()")}, system_identifier,
    substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8), {_RESTORE_TIME}
FROM pg_control_system()
"""
# Only pg_read_all_stats may see the timeline that is received. The other one is of the last
# restartpoint: after a failover it is too old for some minutes, never too new.
REPLICA_STATE = f"""
SELECT pg_is_in_recovery(), {_POSITION.format("pg_last_wal_replay_lsn()")}, system_identifier,
    coalesce((SELECT received_tli FROM pg_stat_wal_receiver), timeline_id), {_RESTORE_TIME},
    EXISTS (SELECT FROM migrations
        HAVING max(number) >= $1 AND max(coalesce(compatible_from, number)) <= $1),
    date_part('epoch', now() - pg_last_xact_replay_timestamp())
FROM pg_control_system(), pg_control_checkpoint()
"""


# --- the state of the primary --------------------------------------------------------------------


class NotUsable(Exception):
    """The server cannot be used as a replica; the text says why."""


class History(NamedTuple):
    """Which changes a server has had. A server with another history has other data."""

    system_identifier: int
    timeline: int
    """A promotion begins a new one."""
    restore_time: str | None

    def check_replica(self, replica: History) -> None:
        """Raise NotUsable unless the replica follows the primary with this history."""
        if replica.system_identifier != self.system_identifier:
            raise NotUsable("it is not a copy of the primary: create it with pg_basebackup")
        if replica.timeline != self.timeline:
            raise NotUsable(
                f"it is on timeline {replica.timeline}, and the primary on {self.timeline}: let it "
                "follow this primary. If it does, run CHECKPOINT on the primary and then on it"
            )
        if replica.restore_time != self.restore_time:
            raise NotUsable("it does not have the last gleanery restored yet")


class _Sample(NamedTuple):
    """Where the primary was at a time."""

    position: int
    taken_at: float


class PrimaryStates:
    """The history of the primary, and where it was at which time, for the lag of replicas.

    A replica knows the time of the last change that it has, but not if the primary has newer ones.
    """

    def __init__(self) -> None:
        self._samples: deque[_Sample] = deque(maxlen=_MAX_SAMPLES)
        self._history: History | None = None

    @property
    def history(self) -> History:
        if self._history is None:
            raise NotUsable("the state of the primary is not known")
        return self._history

    def add(
        self, position: int, system_identifier: int, timeline: str, restored: str | None
    ) -> None:
        """Add a row of ``PRIMARY_STATE``."""
        history = History(system_identifier, int(timeline, 16), restored)
        if history != self._history:  # positions of different timelines cannot be compared
            self._history = history
            self._samples.clear()
        self._samples.append(_Sample(int(position), time.monotonic()))

    def seconds_behind(self, position: int, seconds_since_change: float | None) -> float:
        """Return for how long the primary has been after this position.

        If that was before the first sample, the replica's last change tells it.
        ``seconds_since_change`` is None if the replica has had no change since its start.
        """
        now, passed_at = time.monotonic(), None
        for sample in reversed(self._samples):
            if sample.position <= position:
                return self._since_sample(now) if passed_at is None else now - passed_at
            passed_at = sample.taken_at
        if passed_at is None or seconds_since_change is None:
            return math.inf
        return max(now - passed_at, seconds_since_change)

    def _since_sample(self, now: float) -> float:
        """Return 0, or for how long the primary has not been asked successfully."""
        seconds = now - self._samples[-1].taken_at
        return seconds if seconds > _STALE_SECONDS else 0.0


# --- replicas ------------------------------------------------------------------------------------


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
                [row] = await connection.fetch(REPLICA_STATE, migrations.newest("postgres"))
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
            [row] = await read_primary(PRIMARY_STATE)
            self._primary.add(*row)


async def _repeat(check: Callable[[], Awaitable[None]]) -> None:
    while True:
        await check()
        await asyncio.sleep(SAMPLE_SECONDS)
