"""Stores the results of attempts in groups, so that many share a transaction, and counts them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import NamedTuple

from gleanery.service.foundation.errors import GleaneryError
from gleanery.service.resources.webhooks import deliveries
from gleanery.service.resources.webhooks.deliveries import Outcome, State
from gleanery.service.storage.database import Engine

_log = logging.getLogger("gleanery")

_FLUSH_SECONDS = 0.05  # for which results are collected
_RETRY_SECONDS = 1.0  # after an error of the database


class Counts:
    """What this process has delivered, and what waits, for the metrics."""

    def __init__(self) -> None:
        self.succeeded = 0
        self.failed = 0
        """Attempts."""
        self.waiting = 0
        """Deliveries that wait, as far as the holder knows; 0 in other processes."""
        self.oldest_due: int | None = None
        """Since when the oldest one could be sent, of those for webhooks that respond."""


class _Result(NamedTuple):
    outcome: Outcome
    was_failing: bool
    state: asyncio.Future[State | None]


class Recorder:
    """Stores the results of attempts in groups, with one transaction of an organization at a time.

    The organizations do not wait for each other.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._results: dict[int, list[_Result]] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}

    def add(
        self, organization_id: int, outcome: Outcome, was_failing: bool
    ) -> asyncio.Future[State | None]:
        """Store a result soon. The future has the new state of the webhook; None if healthy."""
        future: asyncio.Future[State | None] = asyncio.get_running_loop().create_future()
        self._results.setdefault(organization_id, []).append(_Result(outcome, was_failing, future))
        if organization_id not in self._tasks:
            self._tasks[organization_id] = asyncio.create_task(self._run(organization_id))
        return future

    async def _run(self, organization_id: int) -> None:
        while organization_id in self._results:
            await asyncio.sleep(_FLUSH_SECONDS)
            await self._store(organization_id, self._results.pop(organization_id))
        del self._tasks[organization_id]

    async def drain(self, seconds: float) -> None:
        """Wait until everything is stored, for at most this time. What is left is sent again."""
        tasks = [*self._tasks.values()]
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _store(self, organization_id: int, results: Sequence[_Result]) -> None:
        """Store results of an organization, again and again while the database is away."""
        database = self._engine.for_tenant(organization_id)
        outcomes = [result.outcome for result in results]
        failing = {result.outcome.webhook for result in results if result.was_failing}
        while True:
            try:
                states = await database.write(
                    lambda transaction: deliveries.record(transaction, outcomes, failing)
                )
            except GleaneryError as error:
                _log.warning("results of webhooks wait", extra={"reason": str(error)})
                await asyncio.sleep(_RETRY_SECONDS)
            except Exception as error:
                for result in results:
                    if not result.state.done():
                        result.state.set_exception(error)
                return
            else:
                break
        for result in results:
            if not result.state.done():
                result.state.set_result(states.get(result.outcome.webhook))
