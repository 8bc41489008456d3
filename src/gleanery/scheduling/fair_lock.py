"""A lock for which the tenants wait in rotation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gleanery.scheduling.fair_queue import FairQueue


class FairLock:
    """Gives the lock to the waiting tenants in rotation."""

    def __init__(self) -> None:
        self._is_held = False
        self._waiting = FairQueue[asyncio.Future[None]]()

    @asynccontextmanager
    async def held_for(self, organization_id: int) -> AsyncIterator[None]:
        """Holds the lock until the context ends."""
        await self._acquire(organization_id)
        try:
            yield
        finally:
            self._release()

    async def _acquire(self, organization_id: int) -> None:
        if not self._is_held:
            self._is_held = True
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.add(organization_id, turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # the lock was given to a cancelled request
                self._release()
            raise

    def _release(self) -> None:
        while self._waiting:
            turn = self._waiting.take()
            if not turn.done():
                turn.set_result(None)
                return
        self._is_held = False
