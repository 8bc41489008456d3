"""The sweep: runs retention at intervals while the service runs, and stores the usage.

The usage of organizations is counted in memory. A process that is killed loses what it has counted
since its last sweep. One that stops in order stores everything.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from gleanery.common.settings import Settings
from gleanery.service.foundation.blobs import Blobs
from gleanery.service.foundation.errors import Overloaded, Unavailable
from gleanery.service.foundation.observability.telemetry import UsageMeter
from gleanery.service.foundation.security.vault import Vault
from gleanery.service.maintenance import retention, storage_bytes
from gleanery.service.maintenance.clock_guard import ClockGuard, SweepClock
from gleanery.service.resources.access import console_sessions
from gleanery.service.resources.access.authentication import TokenUse
from gleanery.service.resources.sessions import summaries
from gleanery.service.storage import metadata, usage
from gleanery.service.storage.database import Engine

_log = logging.getLogger("gleanery")


class Sweep:
    """A task that runs one round every ``sweep_seconds``, from ``start`` to ``stop``."""

    def __init__(
        self,
        engine: Engine,
        blobs: Blobs,
        vault: Vault,
        token_use: TokenUse,
        usage: UsageStore,
        settings: Settings,
        clock: Callable[[], int],
        sweep_clock: SweepClock,
    ) -> None:
        self._engine = engine
        self._blobs = blobs
        self._vault = vault
        self._token_use = token_use
        self._usage = usage
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
        now = await self._guard.confirmed_time()
        if now is not None:
            await console_sessions.delete_ended(self._engine, now)
        await retention.sweep(self._engine, self._blobs, self._clock, self._retention_days, now)
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


# --- usage of organizations ---------------------------------------------------------------------

_ORGANIZATIONS = 500  # in one transaction


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
