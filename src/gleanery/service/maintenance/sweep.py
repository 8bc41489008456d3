"""The sweep: runs retention at intervals while the service runs, and stores the usage.

The usage of organizations is counted in memory. A process that is killed loses what it has counted
since its last sweep. One that stops in order stores everything.

The clock guard decides if the clock is reliable enough to delete expired data. A clock that jumps
ahead makes data look old. Each round of the sweep compares the time with the time of the last
round, which the database holds, and with the time that really passed. If the clock moved much
further than that, it has jumped, or no service ran for a while. The guard cannot tell which. So
nothing is deleted until the clock has run steadily: for an hour per day of the jump, at most for a
day.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from gleanery.common.settings import Settings
from gleanery.service.foundation.blobs import Blobs
from gleanery.service.foundation.errors import Overloaded, Unavailable
from gleanery.service.foundation.observability.telemetry import UsageMeter
from gleanery.service.foundation.security.vault import Vault
from gleanery.service.foundation.values import timestamps
from gleanery.service.maintenance import retention, storage_bytes
from gleanery.service.resources.access import console_sessions
from gleanery.service.resources.access.authentication import TokenUse
from gleanery.service.resources.monitors.evaluation import Monitors
from gleanery.service.resources.monitors.metrics import JobMetrics
from gleanery.service.resources.sessions import summaries
from gleanery.service.storage import metadata, usage
from gleanery.service.storage.database import Engine, Transaction
from gleanery.service.storage.group_lock import Clock

_log = logging.getLogger("gleanery")

_ORGANIZATIONS = 500  # in one transaction
_HOUR = 3600 * timestamps.SECOND
_DAY = 24 * _HOUR
_TOLERANCE = timestamps.MAX_CLOCK_DIFFERENCE
_MAX_PAUSE = _DAY
_JUMP_PER_PAUSE = _DAY // _HOUR  # a jump of a day pauses deletion for an hour


class Sweep:
    """A task that runs one round every ``sweep_seconds``, from ``start`` to ``stop``."""

    def __init__(
        self,
        engine: Engine,
        blobs: Blobs,
        monitors: Monitors,
        vault: Vault,
        token_use: TokenUse,
        usage: UsageStore,
        job_metrics: JobMetrics,
        settings: Settings,
        clock: Callable[[], int],
        sweep_clock: SweepClock,
    ) -> None:
        self._engine = engine
        self._blobs = blobs
        self._monitors = monitors
        self._vault = vault
        self._token_use = token_use
        self._usage = usage
        self.job_metrics = job_metrics
        self._seconds = settings.sweep_seconds
        self._retention_days = retention.RetentionDays(
            tombstones=settings.tombstone_days,
            unreferenced_files=settings.unreferenced_file_days,
            audit_entries=settings.audit_days,
        )
        self._clock = clock
        self._guard = ClockGuard(engine, sweep_clock)
        self._task: asyncio.Task[None] | None = None
        self.session_records = summaries.ExpiryCounts()
        """Session records that had expired, or were about to, in the last round."""

    async def start(self) -> None:
        with suppress(Unavailable):  # a full disk must not stop the service; a round tries again
            await self._guard.confirmed_time()  # the time at the start, before anything is stored
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Cancel the current round. Its transactions are complete or rolled back."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            for store in (self._token_use.store, self._usage.store):
                with suppress(Exception):  # the database may be the reason of the stop
                    await store()

    async def run_once(self) -> None:
        """Run one round. Before it, detect a new active key, and store what was counted."""
        if (problem := await self._engine.serving_problem()) is not None:
            raise problem
        await metadata.load_active_key(self._engine, self._vault)
        await self._token_use.store()
        failure = await self._store_usage()
        self.session_records = await summaries.count_expiring(self._engine, self._clock())
        await self.job_metrics.refresh()
        now = await self._guard.confirmed_time()
        if now is not None:
            await console_sessions.delete_ended(self._engine, now)
        await retention.sweep(
            self._engine, self._blobs, self._monitors, self._clock, self._retention_days, now
        )
        if failure is not None:
            raise failure

    async def _store_usage(self) -> Exception | None:
        """Store what was counted, and measure the stored bytes.

        Return the failure instead of raising it: a full disk must not prevent the deletions.
        """
        try:
            await self._usage.store()
            await self._usage.measure()
        except Exception as failure:
            return failure
        return None

    async def _run(self) -> None:
        while True:
            try:
                await self.run_once()
            except Exception as error:
                _log_failure(error)
            await asyncio.sleep(self._seconds)


def _log_failure(error: Exception) -> None:
    """Log one line if every failure is temporary and has a known cause, else a traceback."""
    failures = error.exceptions if isinstance(error, ExceptionGroup) else (error,)
    reasons = [_known_reason(failure) for failure in failures]
    if None in reasons:
        _log.error("sweep failed", exc_info=error)
        return
    _log.warning("the sweep failed, and will be tried again", extra={"reason": reasons[0]})


def _known_reason(failure: Exception) -> str | None:
    """Return the reason of a temporary failure; None if the cause is not known."""
    if isinstance(failure, Overloaded):
        return str(failure)
    if isinstance(failure, Unavailable) and (failure.reason or failure.__cause__ is None):
        return failure.reason or str(failure)
    return None


class UsageStore:
    """Stores what the meter of this worker has counted, and gives it the stored bytes."""

    def __init__(self, engine: Engine, meter: UsageMeter, clock: Callable[[], int]) -> None:
        self._engine = engine
        self._meter = meter
        self._clock = clock
        self._lock = asyncio.Lock()

    async def store(self) -> None:
        """Store what was counted. After a failure, the next call tries again.

        A cancellation does not interrupt it: the transaction may commit, and would be repeated.
        """
        await asyncio.shield(asyncio.create_task(self._store()))

    async def measure(self) -> None:
        """Continue to measure the stored bytes, and show the last results in the metrics."""
        now = self._clock()
        await storage_bytes.run_round(self._engine, now)
        for organization_id in self._meter.organizations:
            database = self._engine.for_tenant(organization_id)
            storage = await usage.last_storage(database, now // usage.DAY)
            total = None if storage is None else storage.database_bytes + storage.file_bytes
            self._meter.set_stored_bytes(organization_id, total)

    async def _store(self) -> None:
        async with self._lock:
            waiting = self._meter.take()
            day = self._clock() // usage.DAY
            try:
                while waiting:
                    some = dict(list(waiting.items())[:_ORGANIZATIONS])
                    await usage.add(self._engine, day, some)
                    for organization_id in some:
                        del waiting[organization_id]
            except BaseException:
                self._meter.put_back(waiting)
                raise


# --- the clock guard ----------------------------------------------------------------------------


class Reading(NamedTuple):
    """The clocks at one moment, in microseconds."""

    time: int
    """The time that all nodes share: the database server's, or this machine's on SQLite."""
    node_time: int
    monotonic: int
    """A count that never jumps, for differences within this process."""


class SweepClock:
    """Reads the clocks of the sweep."""

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock

    async def read(self) -> Reading:
        server_time = await self._engine.server_time()
        node_time, monotonic = self._clock(), time.monotonic_ns() // 1000
        return Reading(node_time if server_time is None else server_time, node_time, monotonic)


class _ClockState(NamedTuple):
    """What the database remembers of the last round, of any process."""

    time: int
    pause: int
    """The time that the clock must still run steadily before anything is deleted."""


class ClockGuard:
    """Compares the clock with the last round of any process, and of this process."""

    def __init__(self, engine: Engine, clock: SweepClock) -> None:
        self._engine = engine
        self._clock = clock
        self._last_monotonic: int | None = None
        self._node_differs = False

    async def confirmed_time(self) -> int | None:
        """Return the current time, or None while nothing may be deleted."""
        reading = await self._clock.read()
        self._compare_with_server(reading)

        async def work(transaction: Transaction) -> tuple[_ClockState, int]:
            stored = await metadata.lock_sweep_clock(transaction)
            state, jump = self._next_state(stored, reading)
            await metadata.set_sweep_clock(transaction, json.dumps(state._asdict()))
            return state, jump

        state, jump = await self._engine.write(work)
        self._last_monotonic = reading.monotonic
        if jump:
            _warn_of_jump(jump, state.pause)
        return None if state.pause else reading.time

    def _next_state(self, stored: str | None, reading: Reading) -> tuple[_ClockState, int]:
        """Return the new state, and how far the clock jumped; 0 if it ran steadily."""
        if stored is None:  # the first round on this database: nothing confirms the clock yet
            return _ClockState(reading.time, _MAX_PAUSE), 0
        last = _ClockState(**json.loads(stored))
        passed = self._passed(reading)
        step = reading.time - last.time
        if -_TOLERANCE <= step <= passed + _TOLERANCE:
            return _ClockState(reading.time, max(last.pause - max(min(step, passed), 0), 0)), 0
        jump = step if step < 0 else step - passed
        pause = min(last.pause + abs(jump) // _JUMP_PER_PAUSE, _MAX_PAUSE)
        return _ClockState(reading.time, pause), jump

    def _passed(self, reading: Reading) -> int:
        """Return the time since the last round of this process."""
        return 0 if self._last_monotonic is None else reading.monotonic - self._last_monotonic

    def _compare_with_server(self, reading: Reading) -> None:
        """Warns once if this machine's clock differs from the database server's."""
        difference = reading.node_time - reading.time
        differs = abs(difference) > _TOLERANCE
        if differs and not self._node_differs:
            _log.warning(
                "the clock of this machine differs from the database server's: dates are wrong",
                extra={"difference_seconds": difference // timestamps.SECOND},
            )
        self._node_differs = differs


def _warn_of_jump(jump: int, pause: int) -> None:
    _log.warning(
        "the clock jumped, or no service ran for a while: nothing expires until the clock has run "
        "steadily",
        extra={
            "jump_seconds": jump // timestamps.SECOND,
            "pause_seconds": pause // timestamps.SECOND,
        },
    )
