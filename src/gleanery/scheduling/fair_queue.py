"""A queue that serves the tenants in rotation (round robin)."""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """Serves the tenants in rotation; within one tenant, the oldest entry first."""

    def __init__(self) -> None:
        self._entries: dict[int, deque[T]] = {}  # the next tenant is first

    def __bool__(self) -> bool:
        return bool(self._entries)

    def add(self, organization_id: int, entry: T) -> None:
        self._entries.setdefault(organization_id, deque()).append(entry)

    def take(self) -> T:
        """Removes and returns the next entry; its tenant moves to the end of the queue."""
        organization_id = next(iter(self._entries))
        entries = self._entries.pop(organization_id)
        entry = entries.popleft()
        if entries:
            self._entries[organization_id] = entries
        return entry
