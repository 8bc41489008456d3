"""How much is done at once: places for requests, which organizations share, and who is next.

Who has many gets no more once the others would be left with less: an organization is let in while
it has fewer places than there are left. One alone has half of them, two a third each, and so on;
for who has none there is one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress

from gleanery.errors import Overloaded
from gleanery.scheduling.fair_queue import FairQueue

_FEW = 8  # requests, among which nobody has to wait for long


class ConcurrencyLimit:
    """So many of one kind, in one worker."""

    def __init__(self, count: int) -> None:
        self._left = count
        self._left_by_few = count - _FEW
        self._taken: dict[int, int] = {}

    def has_room_for(self, organization_id: int) -> bool:
        return self._taken.get(organization_id, 0) < self._left

    @property
    def is_busy(self) -> bool:
        return self._left < self._left_by_few

    def take(self, organization_id: int) -> None:
        self._taken[organization_id] = self._taken.get(organization_id, 0) + 1
        self._left -= 1

    def give_back(self, organization_id: int) -> None:
        self._left += 1
        kept = self._taken[organization_id] - 1
        if kept:
            self._taken[organization_id] = kept
        else:
            del self._taken[organization_id]


class Slot:
    """The place of one request, from when it is let in until it is answered."""

    __slots__ = ("_organization_id", "_places")

    def __init__(self, places: ConcurrencyLimit, organization_id: int) -> None:
        places.take(organization_id)
        self._places = places
        self._organization_id = organization_id

    @property
    def organization_id(self) -> int:
        return self._organization_id

    def assign_tenant(self, organization_id: int) -> None:
        """It has turned out whose request it is."""
        if organization_id != self._organization_id:
            self._change(self._places, organization_id)

    def move(self, places: ConcurrencyLimit) -> None:
        """To a place of another kind."""
        self._change(places, self._organization_id)

    @contextmanager
    def parked_in(self, places: ConcurrencyLimit) -> Iterator[None]:
        """To a place of another kind and back; if there is no place to go back to, it stays."""
        home = self._places
        if home is not places:
            self.move(places)
        try:
            yield
        finally:
            with suppress(
                Overloaded
            ):  # nobody is refused for the sake of many who come back at once
                self.move(home)

    def end(self) -> None:
        self._places.give_back(self._organization_id)

    def _change(self, places: ConcurrencyLimit, organization_id: int) -> None:
        if not places.has_room_for(organization_id):
            raise Overloaded
        self.end()
        places.take(organization_id)
        self._places, self._organization_id = places, organization_id


class RequestScheduler:
    """When a request is begun: at once among few, else when its organization has its turn.

    A few are begun each time the event loop goes round. So the sockets are heard in between, and
    who has sent one request waits for few others, however many somebody else has sent. It bounds
    nothing: what was begun and waits, for its client or the database, keeps nobody back.

    As few are refused each time. To refuse a request takes a third of the time of answering it:
    done at once, the refusals of a flood would leave no time for those who were let in. Who waits
    to be refused sends nothing more meanwhile, and so a flood is held to the pace of its answers.

    What is answered as soon as it is begun is begun together with others of its kind, and reads the
    database with them, inside of ``together``.
    """

    def __init__(
        self, work: ConcurrencyLimit, together: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._work = work
        self._together = together
        self._turns = FairQueue[Callable[[], None]]()
        self._refusals = deque[Callable[[], None]]()
        self._is_called = False

    def add(self, slot: Slot, begin: Callable[[], None], runs_inline: bool = False) -> None:
        if runs_inline or self._turns or self._work.is_busy:
            self._turns.add(slot.organization_id, begin)
            self._call()
        else:
            begin()

    def defer_rejection(self, refusal: Callable[[], None]) -> None:
        if self._refusals or self._work.is_busy:
            self._refusals.append(refusal)
            self._call()
        else:
            refusal()

    async def turn(self, slot: Slot) -> None:
        """Waits for its turn to go on with what was begun before."""
        turn = asyncio.get_running_loop().create_future()
        self.add(slot, lambda: None if turn.done() else turn.set_result(None))
        await turn

    def _call(self) -> None:
        if not self._is_called:
            self._is_called = True
            asyncio.get_running_loop().call_soon(self._settle_few)

    def _settle_few(self) -> None:
        self._is_called = False
        begun = [self._turns.take() for _ in range(_FEW) if self._turns]
        refused = [self._refusals.popleft() for _ in range(_FEW) if self._refusals]
        if self._turns or self._refusals:
            self._call()
        try:
            with self._together() if len(begun) > 1 else nullcontext():
                for begin in begun:
                    begin()
        finally:  # nobody else knows of them any more
            for refuse in refused:
                refuse()
