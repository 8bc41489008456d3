"""Fair shares of the tenants: concurrency limits, queues, turns, and the start of requests.

A tenant gets a slot of a limit while it holds fewer slots than are free. One tenant alone can hold
half of them, two can hold a third each, and so on. An idle tenant always gets a slot while one is
free. Tenants that wait are served in rotation.

See ``docs/explanation/overload-and-rate-limits.md``.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from typing import Generic, ParamSpec, TypeVar

from gleanery.service.foundation.errors import Overloaded

# --- limits -------------------------------------------------------------------------------------

_FEW = 8  # concurrent requests up to which the service is not busy


class ConcurrencyLimit:
    """A number of slots for one kind of work, in one worker."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._free = slots
        self._free_when_busy = slots - _FEW
        self._held: dict[int, int] = {}  # by tenant

    def can_acquire(self, organization_id: int) -> bool:
        return self._held.get(organization_id, 0) < self._free

    @property
    def held(self) -> int:
        """Number of slots that are held."""
        return self._slots - self._free

    @property
    def is_busy(self) -> bool:
        """True if more than a few slots are held."""
        return self._free < self._free_when_busy

    def acquire(self, organization_id: int) -> None:
        self._held[organization_id] = self._held.get(organization_id, 0) + 1
        self._free -= 1

    def release(self, organization_id: int) -> None:
        self._free += 1
        held = self._held[organization_id] - 1
        if held:
            self._held[organization_id] = held
        else:
            del self._held[organization_id]


class GroupedLimit(ConcurrencyLimit):
    """Slots that groups of tenants share fairly too, such as all tenants of one server."""

    def __init__(self, slots: int, group_of: Callable[[int], int]) -> None:
        super().__init__(slots)
        self._groups = ConcurrencyLimit(slots)
        self._group_of = group_of
        self._group_of_holder: dict[int, int] = {}  # a tenant keeps its group while it holds a slot

    def can_acquire(self, organization_id: int) -> bool:
        group = self._group_of_holder.get(organization_id, self._group_of(organization_id))
        return super().can_acquire(organization_id) and self._groups.can_acquire(group)

    def acquire(self, organization_id: int) -> None:
        group = self._group_of_holder.setdefault(organization_id, self._group_of(organization_id))
        self._groups.acquire(group)
        super().acquire(organization_id)

    def release(self, organization_id: int) -> None:
        self._groups.release(self._group_of_holder[organization_id])
        super().release(organization_id)
        if organization_id not in self._held:
            del self._group_of_holder[organization_id]


class Slot:
    """The slot that one request holds from its admission to its end."""

    __slots__ = ("_limit", "organization_id")

    def __init__(self, limit: ConcurrencyLimit, organization_id: int) -> None:
        limit.acquire(organization_id)
        self._limit = limit
        self.organization_id = organization_id

    def assign_tenant(self, organization_id: int) -> None:
        """Count the slot for the tenant that authentication has found."""
        if organization_id != self.organization_id:
            self._exchange(self._limit, organization_id)

    def transfer(self, limit: ConcurrencyLimit) -> None:
        """Exchanges the slot for one of another limit. Raises ``Overloaded``."""
        self._exchange(limit, self.organization_id)

    @contextmanager
    def parked_in(self, limit: ConcurrencyLimit) -> Iterator[None]:
        """Hold a slot of another limit for a while.

        If its own limit has no free slot afterwards, the slot stays in the other limit. Otherwise
        many requests that wake up together would take all slots from new ones.
        """
        own = self._limit
        if own is not limit:
            self.transfer(limit)
        try:
            yield
        finally:
            with suppress(Overloaded):
                self.transfer(own)

    def release(self) -> None:
        self._limit.release(self.organization_id)

    def _exchange(self, limit: ConcurrencyLimit, organization_id: int) -> None:
        if not limit.can_acquire(organization_id):
            raise Overloaded
        self.release()
        limit.acquire(organization_id)
        self._limit, self.organization_id = limit, organization_id


# --- queue and semaphore ------------------------------------------------------------------------

T = TypeVar("T")


class FairQueue(Generic[T]):
    """Serves the tenants in rotation; within one tenant, the oldest entry first."""

    def __init__(self) -> None:
        self._entries: dict[int, deque[T]] = {}  # the next tenant is first

    def __bool__(self) -> bool:
        return bool(self._entries)

    def __len__(self) -> int:
        return sum(map(len, self._entries.values()))

    def add(self, organization_id: int, entry: T) -> None:
        self._entries.setdefault(organization_id, deque()).append(entry)

    def add_first(self, organization_id: int, entry: T) -> None:
        """Put back an entry that was taken; it stays the oldest of its tenant."""
        self._entries.setdefault(organization_id, deque()).appendleft(entry)

    def next_tenant(self, is_eligible: Callable[[int], bool]) -> int | None:
        """Return the first tenant in the rotation that is eligible; None if there is none."""
        return next(filter(is_eligible, self._entries), None)

    def first(self, organization_id: int) -> T:
        """Return the oldest entry of a tenant that has one."""
        return self._entries[organization_id][0]

    def take(self, organization_id: int | None = None) -> T:
        """Remove and return the next entry of this tenant, or of the first in the rotation.

        The tenant moves to the end of the rotation.
        """
        if organization_id is None:
            organization_id = next(iter(self._entries))
        entries = self._entries.pop(organization_id)
        entry = entries.popleft()
        if entries:
            self._entries[organization_id] = entries
        return entry

    def remove(self, organization_id: int, entry: T) -> None:
        """Remove an entry that no longer waits; it may have been taken already."""
        entries = self._entries.get(organization_id)
        if entries is not None and entry in entries:
            entries.remove(entry)
            if not entries:
                del self._entries[organization_id]


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


# --- work that takes much processor time --------------------------------------------------------

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


# --- the start of requests ----------------------------------------------------------------------

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
        starts: list[Callable[[], None]] = []
        while self._starts and len(starts) < _PER_ROUND:
            starts.append(self._starts.take())
        rejections: list[Callable[[], None]] = []
        while self._rejections and len(rejections) < _PER_ROUND:
            rejections.append(self._rejections.popleft())
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
