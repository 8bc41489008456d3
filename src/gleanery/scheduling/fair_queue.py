"""A queue that serves the tenants in rotation (round robin)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

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
