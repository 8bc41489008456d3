"""Ids of outputs on Citus, reserved from the coordinator's sequence before they are used.

A worker commits before the coordinator does. If the coordinator crashes in between, its sequence
has forgotten the ids that it issued in that transaction, and would issue them again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from gleanery.storage.database import Row

# More than the 32 numbers that PostgreSQL logs ahead: so the commit always waits for the disk.
_BLOCK = 1000
NEW_IDS = "SELECT nextval('output_ids') FROM generate_series(1, $1)"


class MoreIdsNeeded(Exception):
    """The transaction needs this many ids; it is to be repeated after their reservation.

    They include those that it has already taken: the repetition takes as many again.
    """

    def __init__(self, count: int) -> None:
        self.count = count


class ReservedIds:
    """Ids that no other process uses."""

    def __init__(self) -> None:
        self._ids: deque[int] = deque()

    def take(self, count: int, taken: int) -> Sequence[int]:
        """Return ascending ids. Raise MoreIdsNeeded if there are too few.

        ``taken`` is the number of ids that the transaction took before.
        """
        if count > len(self._ids):
            raise MoreIdsNeeded(taken + count)
        return sorted(self._ids.popleft() for _ in range(count))

    async def reserve(self, read: Callable[..., Awaitable[Sequence[Row]]], count: int) -> None:
        """Reserves ids in a transaction of its own, which is on the disk when this returns."""
        rows: Sequence[Any] = await read(NEW_IDS, count + _BLOCK)
        self._ids.extend(row[0] for row in rows)
