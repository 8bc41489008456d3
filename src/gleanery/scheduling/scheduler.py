"""The order in which admitted requests start and other ones are rejected."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from gleanery.scheduling.fair_queue import FairQueue
from gleanery.scheduling.limits import ConcurrencyLimit, Slot

_PER_TURN = 8


class RequestScheduler:
    """Starts requests at once while few are under way, else a few per event-loop iteration.

    The tenants take turns. The sockets are read between two turns. So a tenant that sends one
    request waits for few others, however many another tenant has sent. The scheduler limits
    nothing: a started request that waits for its client or the database delays nobody.

    As many requests are rejected per turn. A rejection takes a third of the time of a response.
    The rejections of a flood, sent at once, would leave no time for the admitted requests. A
    client that waits for a rejection sends nothing more, so a flood slows down.
    """

    def __init__(self, limit: ConcurrencyLimit) -> None:
        self._limit = limit
        self._after_turn: tuple[Callable[[], None], ...] = ()
        self._starts = FairQueue[Callable[[], None]]()
        self._rejections = deque[Callable[[], None]]()
        self._is_scheduled = False

    def after_each_turn(self, callback: Callable[[], None]) -> None:
        """Calls the callback at the end of each turn, once all of its requests have started."""
        self._after_turn += (callback,)

    def add(self, slot: Slot, start: Callable[[], None]) -> None:
        """Calls ``start`` at once or at its turn."""
        if self._starts or self._limit.is_busy:
            self.add_to_turn(slot, start)
        else:
            start()

    def add_to_turn(self, slot: Slot, start: Callable[[], None]) -> None:
        """Calls ``start`` at its turn, also if few requests are under way."""
        self._starts.add(slot.organization_id, start)
        self._schedule()

    def defer_rejection(self, send_rejection: Callable[[], None]) -> None:
        """Calls ``send_rejection`` at once or in a later turn."""
        if self._rejections or self._limit.is_busy:
            self._rejections.append(send_rejection)
            self._schedule()
        else:
            send_rejection()

    async def turn(self, slot: Slot) -> None:
        """Waits until it is the turn of a request that goes on after a pause."""
        turn = asyncio.get_running_loop().create_future()
        self.add(slot, lambda: None if turn.done() else turn.set_result(None))
        await turn

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._run_turn)

    def _run_turn(self) -> None:
        self._is_scheduled = False
        starts = [self._starts.take() for _ in range(_PER_TURN) if self._starts]
        rejections = [self._rejections.popleft() for _ in range(_PER_TURN) if self._rejections]
        if self._starts or self._rejections:
            self._schedule()
        for callback in (*starts, *self._after_turn, *rejections):
            try:
                callback()
            except Exception as error:  # the other ones are not started by anybody else
                _report(error)


def _report(error: Exception) -> None:
    context = {"message": "a scheduled request failed to start", "exception": error}
    asyncio.get_running_loop().call_exception_handler(context)
