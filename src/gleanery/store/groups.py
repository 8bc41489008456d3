"""Groups: their names, their clocks, and the lock under which a group's records change."""

from __future__ import annotations

from collections.abc import Callable

from gleanery.errors import NotFound
from gleanery.store.database import Database, Row, Transaction

Clock = Callable[[], int]

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
_JOB = "SELECT id FROM jobs WHERE organization_id = $1 AND group_id = $2 AND name = $3"
_EXISTS = "SELECT 1 FROM groups WHERE organization_id = $1 AND name = $2"


class Turn:
    """A group while this transaction holds its lock; hands out the group's sequence numbers.

    A number is the microsecond of the change, or one more than the number before it if the
    clock has not moved on or has gone back. So the numbers rise in the order of commit, never
    repeat, not even after a restore, and a moment in time is a place in the order.
    """

    def __init__(
        self, transaction: Transaction, organization_id: int, row: Row, clock: Clock
    ) -> None:
        self.transaction = transaction
        self.organization_id = organization_id
        self.group_id: int = row[0]
        self.clock: int = row[1]
        self.now = clock()  # under the lock: what waited for it must not be dated before it

    def next_sequence_number(self) -> int:
        self.clock = max(self.clock + 1, self.now)
        return self.clock

    async def find_job(self, name: str) -> int | None:
        """The number of the job of this name, if the group has one."""
        rows = await self.transaction.fetch(_JOB, self.organization_id, self.group_id, name)
        return rows[0][0] if rows else None

    async def end(self) -> None:
        """Keeps the clock; the lock goes with the transaction."""
        await self.transaction.fetch(_KEEP_CLOCK, self.organization_id, self.group_id, self.clock)


async def enter(transaction: Transaction, organization_id: int, name: str, clock: Clock) -> Turn:
    """The turn of a group that must exist."""
    rows = await transaction.fetch(_ENTER, organization_id, name)
    if not rows:
        raise NotFound
    return Turn(transaction, organization_id, rows[0], clock)


async def enter_or_create(
    transaction: Transaction, organization_id: int, name: str, clock: Clock
) -> Turn:
    """The turn of a group that comes into being on its first write."""
    [row] = await transaction.fetch(_ENTER_NEW, organization_id, name)
    return Turn(transaction, organization_id, row, clock)


async def must_exist(database: Database, organization_id: int, name: str) -> None:
    if not await database.read(_EXISTS, organization_id, name):
        raise NotFound
