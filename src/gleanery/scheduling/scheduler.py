"""Schedules the start of admitted requests and the rejection of the others."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from gleanery.scheduling.fair_queue import FairQueue
from gleanery.scheduling.limits import ConcurrencyLimit, Slot

_PER_ROUND = 8


class RequestScheduler:
    """Starts requests at once while few are in progress, else in rounds.

    A round starts a few requests per event-loop iteration, from the tenants in rotation. The
    sockets are read between two rounds. So a tenant that sends one request waits for few others,
    even if another tenant has sent many. The scheduler does not limit the requests in progress: a
    started request that waits for its client or the database delays no other request.

    A round also rejects a few requests. A rejection takes a third of the time of a response. If a
    flood of requests were rejected at once, no time would be left for the admitted requests. A
    client that waits for a rejection sends nothing more, so a flood slows down.
    """

    def __init__(self, limit: ConcurrencyLimit) -> None:
        self._limit = limit
        self._after_round: tuple[Callable[[], None], ...] = ()
        self._starts = FairQueue[Callable[[], None]]()
        self._rejections = deque[Callable[[], None]]()
        self._is_scheduled = False

    def after_each_round(self, callback: Callable[[], None]) -> None:
        """Call the callback after the starts of each round."""
        self._after_round += (callback,)

    def add(self, slot: Slot, start: Callable[[], None]) -> None:
        """Call ``start`` at once or in a later round."""
        if self._starts or self._limit.is_busy:
            self.add_to_next_round(slot, start)
        else:
            start()

    def add_to_next_round(self, slot: Slot, start: Callable[[], None]) -> None:
        """Call ``start`` in a later round, even if few requests are in progress."""
        self._starts.add(slot.organization_id, start)
        self._schedule()

    def defer_rejection(self, send_rejection: Callable[[], None]) -> None:
        """Call ``send_rejection`` at once or in a later round."""
        if self._rejections or self._limit.is_busy:
            self._rejections.append(send_rejection)
            self._schedule()
        else:
            send_rejection()

    async def wait_to_continue(self, slot: Slot) -> None:
        """Wait until a paused request may continue; it is scheduled like a new one."""
        ready = asyncio.get_running_loop().create_future()
        self.add(slot, lambda: None if ready.done() else ready.set_result(None))
        await ready

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._run_round)

    def _run_round(self) -> None:
        self._is_scheduled = False
        starts = [self._starts.take() for _ in range(_PER_ROUND) if self._starts]
        rejections = [self._rejections.popleft() for _ in range(_PER_ROUND) if self._rejections]
        if self._starts or self._rejections:
            self._schedule()
        for callback in (*starts, *self._after_round, *rejections):
            try:
                callback()
            except Exception as error:  # the other callbacks must still run
                _report(error)


def _report(error: Exception) -> None:
    context = {"message": "a scheduled request failed to start", "exception": error}
    asyncio.get_running_loop().call_exception_handler(context)
