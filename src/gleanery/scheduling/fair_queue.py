"""Who is next where many wait: the organizations in turns, of each whoever came first."""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """What waits, by the organization that it waits for."""

    def __init__(self) -> None:
        self._waiting: dict[int, deque[T]] = {}  # whose turn is next, stands first

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, organization_id: int, one: T) -> None:
        self._waiting.setdefault(organization_id, deque()).append(one)

    def take(self) -> T:
        """The next one; others of its organization have their turn after everyone else's."""
        organization_id = next(iter(self._waiting))
        line = self._waiting.pop(organization_id)
        one = line.popleft()
        if line:
            self._waiting[organization_id] = line
        return one
