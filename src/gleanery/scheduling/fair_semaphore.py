"""A semaphore whose slots the tenants share fairly."""

from __future__ import annotations

import asyncio

from gleanery.scheduling.fair_queue import FairQueue
from gleanery.scheduling.limits import ConcurrencyLimit


class FairSemaphore:
    """Slots of a ``ConcurrencyLimit``, with a fair queue of the tenants that wait for one.

    The limit decides how many slots a tenant may hold at the same time. So a tenant that holds its
    slots for long leaves some for the others. The queue decides who gets a slot next.
    """

    def __init__(self, slots: int) -> None:
        self._limit = ConcurrencyLimit(slots)
        self._waiting = FairQueue[asyncio.Future[None]]()

    async def acquire(self, organization_id: int, seconds: float) -> None:
        """Waits for a slot. Raises TimeoutError after this many seconds."""
        if self._limit.can_acquire(organization_id):  # then no earlier request of it waits
            self._limit.acquire(organization_id)
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.add(organization_id, waiter)
        try:
            async with asyncio.timeout(seconds):
                await waiter
        except BaseException:
            if waiter.done() and not waiter.cancelled():  # granted at the moment of the timeout
                self.release(organization_id)
            else:
                self._waiting.remove(organization_id, waiter)
            raise

    def release(self, organization_id: int) -> None:
        """Releases a slot, and passes free slots on to the tenants that wait for one."""
        self._limit.release(organization_id)
        while (tenant := self._waiting.next_tenant(self._limit.can_acquire)) is not None:
            waiter = self._waiting.take(tenant)
            if not waiter.done():
                self._limit.acquire(tenant)
                waiter.set_result(None)
