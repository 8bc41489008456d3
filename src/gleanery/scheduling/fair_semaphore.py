"""A semaphore whose slots the tenants share fairly."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gleanery.errors import Overloaded
from gleanery.scheduling.fair_queue import FairQueue
from gleanery.scheduling.limits import ConcurrencyLimit


class FairSemaphore:
    """Slots of a ``ConcurrencyLimit``, with a fair queue of the tenants that wait for one.

    The limit decides how many slots a tenant may hold at the same time. So a tenant that holds its
    slots for long leaves some for the others. The queue decides who gets a slot next.
    """

    def __init__(
        self, slots: int | ConcurrencyLimit, wait_seconds: float, overload_message: str
    ) -> None:
        self._limit = ConcurrencyLimit(slots) if isinstance(slots, int) else slots
        self._wait_seconds = wait_seconds
        self._overload_message = overload_message
        self._waiting = FairQueue[asyncio.Future[None]]()

    @property
    def held(self) -> int:
        """Number of slots that are held."""
        return self._limit.held

    @property
    def waiting(self) -> int:
        """Number of requests that wait for a slot."""
        return len(self._waiting)

    def can_acquire(self, organization_id: int) -> bool:
        """Return True if ``acquire`` does not wait."""
        return self._limit.can_acquire(organization_id)

    @asynccontextmanager
    async def held_for(self, organization_id: int) -> AsyncIterator[None]:
        """Hold a slot until the context ends. Raise Overloaded like ``acquire``."""
        await self.acquire(organization_id)
        try:
            yield
        finally:
            self.release(organization_id)

    async def acquire(self, organization_id: int) -> None:
        """Wait for a slot. Raise Overloaded if that takes too long."""
        if self.can_acquire(organization_id):  # then no earlier request of it waits
            self._limit.acquire(organization_id)
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.add(organization_id, waiter)
        try:
            async with asyncio.timeout(self._wait_seconds):
                await waiter
        except BaseException as error:
            if waiter.done() and not waiter.cancelled():  # granted at the moment of the timeout
                self.release(organization_id)
            else:
                self._waiting.remove(organization_id, waiter)
            if isinstance(error, TimeoutError):
                raise Overloaded(self._overload_message) from None
            raise

    def release(self, organization_id: int) -> None:
        """Releases a slot, and passes free slots on to the tenants that wait for one."""
        self._limit.release(organization_id)
        while (tenant := self._waiting.next_tenant(self._limit.can_acquire)) is not None:
            waiter = self._waiting.take(tenant)
            if not waiter.done():
                self._limit.acquire(tenant)
                waiter.set_result(None)
