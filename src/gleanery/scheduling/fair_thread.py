"""Turns of the tenants for work that takes much processor time: computations, large writes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import ParamSpec, TypeVar

from gleanery.errors import Overloaded
from gleanery.scheduling.fair_lock import FairLock
from gleanery.scheduling.fair_semaphore import FairSemaphore

_LARGE_WRITES = 2  # of which one organization gets one
_WAIT_SECONDS = 30.0
_TOO_MANY_LARGE_WRITES = "Too many large batches are being stored; try again, or send fewer at once"

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


class FairThread:
    """Runs one computation at a time.

    Python threads do not compute at the same time. The event loop waits for its turn among them,
    5 ms for each, so several of them would only delay all other requests.
    """

    def __init__(self) -> None:
        self._lock = FairLock()
        self._large_writes = FairSemaphore(_LARGE_WRITES)

    @asynccontextmanager
    async def large_write(self, organization_id: int) -> AsyncIterator[None]:
        """Holds the turn of an organization to write a large batch. Raises Overloaded."""
        try:
            await self._large_writes.acquire(organization_id, _WAIT_SECONDS)
        except TimeoutError:
            raise Overloaded(_TOO_MANY_LARGE_WRITES) from None
        try:
            yield
        finally:
            self._large_writes.release(organization_id)

    async def run(
        self,
        organization_id: int,
        function: Callable[_Parameters, _Result],
        *args: _Parameters.args,
        **kwargs: _Parameters.kwargs,
    ) -> _Result:
        async with self._lock.held_for(organization_id):
            return await asyncio.to_thread(function, *args, **kwargs)
