"""Turns of the tenants for work that takes much processor time: computations, large writes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import ParamSpec, TypeVar

from gleanery.scheduling.fair_semaphore import FairSemaphore

_LARGE_WRITES = 2  # of which one organization gets one
_WAIT_SECONDS = 30.0
_TOO_MANY_COMPUTATIONS = "Too many batches are being prepared; try again"
_TOO_MANY_LARGE_WRITES = "Too many large batches are being stored; try again, or send fewer at once"

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


class FairThread:
    """Runs one computation at a time.

    Python threads do not compute at the same time. The event loop waits for its turn among them,
    5 ms for each, so several of them would only delay all other requests.
    """

    def __init__(self) -> None:
        self._turns = FairSemaphore(1, _WAIT_SECONDS, _TOO_MANY_COMPUTATIONS)
        self._large_writes = FairSemaphore(_LARGE_WRITES, _WAIT_SECONDS, _TOO_MANY_LARGE_WRITES)

    def large_write(self, organization_id: int) -> AbstractAsyncContextManager[None]:
        """Hold the turn of an organization to write a large batch. Raise Overloaded."""
        return self._large_writes.held_for(organization_id)

    async def run(
        self,
        organization_id: int,
        function: Callable[_Parameters, _Result],
        *args: _Parameters.args,
        **kwargs: _Parameters.kwargs,
    ) -> _Result:
        async with self._turns.held_for(organization_id):
            return await asyncio.to_thread(function, *args, **kwargs)

    async def run_if_long(
        self,
        is_long: bool,
        organization_id: int,
        function: Callable[_Parameters, _Result],
        *args: _Parameters.args,
        **kwargs: _Parameters.kwargs,
    ) -> _Result:
        """Run a short computation at once: it ends before a thread could begin."""
        if not is_long:
            return function(*args, **kwargs)
        return await self.run(organization_id, function, *args, **kwargs)
