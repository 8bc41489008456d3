"""The usage of organizations: counted in memory and stored by the sweep, which measures their data.

A process that is killed loses what it has counted since its last sweep. One that stops in order
stores everything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gleanery.observability.usage import UsageMeter
from gleanery.storage import usage
from gleanery.storage.database import Engine
from gleanery.storage.maintenance import storage_bytes

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
