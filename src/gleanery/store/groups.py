"""Groups: their names, their clocks, and the lock under which a group's records change."""

from __future__ import annotations

from gleanery.errors import NotFound
from gleanery.store.database import Database, Row, Transaction

# Both take the lock on the group's row: what is written after them is committed in their order.
_ENTER_NEW = """
INSERT INTO groups (organization_id, name, clock) VALUES ($1, $2, 0)
ON CONFLICT (organization_id, name) DO UPDATE SET name = excluded.name
RETURNING id, clock
"""
_ENTER = """
UPDATE groups SET name = name WHERE organization_id = $1 AND name = $2 RETURNING id, clock
"""
_KEEP_CLOCK = "UPDATE groups SET clock = $3 WHERE organization_id = $1 AND id = $2"
_EXISTS = "SELECT 1 FROM groups WHERE organization_id = $1 AND name = $2"


class Turn:
    """A group while this transaction holds its lock; hands out the group's sequence numbers.

    A number is the microsecond of the change, or one more than the number before it if the
    clock has not moved on or has gone back. So the numbers rise in the order of commit, never
    repeat, not even after a restore, and a moment in time is a place in the order.
    """

    def __init__(self, transaction: Transaction, organization_id: int, row: Row, now: int) -> None:
        self.transaction = transaction
        self.organization_id = organization_id
        self.group_id: int = row[0]
        self.clock: int = row[1]
        self.now = now

    def next_sequence_number(self) -> int:
        self.clock = max(self.clock + 1, self.now)
        return self.clock

    async def end(self) -> None:
        """Keeps the clock; the lock goes with the transaction."""
        await self.transaction.fetch(_KEEP_CLOCK, self.organization_id, self.group_id, self.clock)


async def enter(transaction: Transaction, organization_id: int, name: str, now: int) -> Turn:
    """The turn of a group that must exist."""
    rows = await transaction.fetch(_ENTER, organization_id, name)
    if not rows:
        raise NotFound
    return Turn(transaction, organization_id, rows[0], now)


async def enter_or_create(
    transaction: Transaction, organization_id: int, name: str, now: int
) -> Turn:
    """The turn of a group that comes into being on its first write."""
    [row] = await transaction.fetch(_ENTER_NEW, organization_id, name)
    return Turn(transaction, organization_id, row, now)


async def must_exist(database: Database, organization_id: int, name: str) -> None:
    if not await database.read(_EXISTS, organization_id, name):
        raise NotFound
