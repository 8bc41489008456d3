"""Work beside that of the caller, as a task. The twin in ``_sync`` is written by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


class AsyncRepetition:
    """Calls a function again and again, until it returns None instead of the seconds to wait."""

    def __init__(self, step: Callable[[], Awaitable[float | None]]) -> None:
        self._step = step
        self._task: asyncio.Task[None] | None = None

    def start(self, delay: float) -> None:
        """Make the first call after this delay."""
        self._task = asyncio.create_task(self._run(delay))

    async def stop(self) -> None:
        """End the calls, also one that runs."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self, delay: float | None) -> None:
        while delay is not None:
            await asyncio.sleep(delay)
            delay = await self._step()
