"""Concurrency limits with slots that the tenants share fairly.

A tenant gets a slot while it holds fewer slots than are free. One tenant alone can hold half of
them, two can hold a third each, and so on. An idle tenant always gets a slot while one is free.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from gleanery.errors import Overloaded

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

    __slots__ = ("_limit", "_organization_id")

    def __init__(self, limit: ConcurrencyLimit, organization_id: int) -> None:
        limit.acquire(organization_id)
        self._limit = limit
        self._organization_id = organization_id

    @property
    def organization_id(self) -> int:
        return self._organization_id

    def assign_tenant(self, organization_id: int) -> None:
        """Count the slot for the tenant that authentication has found."""
        if organization_id != self._organization_id:
            self._exchange(self._limit, organization_id)

    def transfer(self, limit: ConcurrencyLimit) -> None:
        """Exchanges the slot for one of another limit. Raises ``Overloaded``."""
        self._exchange(limit, self._organization_id)

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
        self._limit.release(self._organization_id)

    def _exchange(self, limit: ConcurrencyLimit, organization_id: int) -> None:
        if not limit.can_acquire(organization_id):
            raise Overloaded
        self.release()
        limit.acquire(organization_id)
        self._limit, self._organization_id = limit, organization_id
