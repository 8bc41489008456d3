"""Groups: their names, clocks and counts, and the lock under which a group's records change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Literal, NamedTuple

from gleanery.errors import NotFound
from gleanery.storage.database import Database, Row, Transaction

Clock = Callable[[], int]
BulkJobKind = Literal["approve", "withdraw", "delete"]

# All take the lock on the group's row: what is written after them is committed in their order.
_ENTER_NEW = """
INSERT INTO groups (organization_id, name, clock) VALUES ($1, $2, 0)
ON CONFLICT (organization_id, name) DO UPDATE SET deleted = FALSE
RETURNING id, clock, outputs, key_fields, schema
"""
_ENTER = """
UPDATE groups SET name = name WHERE organization_id = $1 AND name = $2 AND NOT deleted
RETURNING id, clock, outputs, key_fields, schema
"""
_KEEP = """
UPDATE groups SET clock = $3, outputs = outputs + $4 WHERE organization_id = $1 AND id = $2
"""
_COUNT_JOB = """
UPDATE jobs SET outputs = outputs + $3, approved = approved + $4
WHERE organization_id = $1 AND id = $2
"""
_COUNT_COUNTRY = """
INSERT INTO countries (organization_id, group_id, country, outputs) VALUES ($1, $2, $3, $4)
ON CONFLICT (organization_id, group_id, country)
DO UPDATE SET outputs = countries.outputs + excluded.outputs
"""
_JOB = "SELECT id FROM jobs WHERE organization_id = $1 AND group_id = $2 AND name = $3"
_NEW_JOB = """
INSERT INTO jobs (organization_id, group_id, name) VALUES ($1, $2, $3) RETURNING id
"""
_CHORE = """
SELECT id, job_id, kind, until, done FROM bulk_jobs
WHERE organization_id = $1 AND group_id = $2 ORDER BY id LIMIT 1
"""
_EXISTS = "SELECT id FROM groups WHERE organization_id = $1 AND name = $2 AND NOT deleted"
_EXISTS_BY_NUMBER = "SELECT 1 FROM groups WHERE organization_id = $1 AND id = $2 AND NOT deleted"


def channel(organization_id: int, name: str) -> str:
    """Names the notification channel of a group."""
    return f"{organization_id}/{name}"


class BulkJob(NamedTuple):
    """Long work on the group: what is to become of the outputs of a job, or of all."""

    id: int
    job_id: int | None
    kind: BulkJobKind
    until: int
    done: int

    def concerns(self, job_id: int, seq: int) -> bool:
        """Whether an output at this place in the change order is still to be worked on."""
        return self.job_id in (None, job_id) and self.done < seq <= self.until


class LockedGroup:
    """A group while this transaction holds its lock; hands out the group's sequence numbers.

    A number is the microsecond of the change, or one more than the number before it if the
    clock has not moved on or has gone back. So the numbers rise in the order of commit, never
    repeat, not even after a restore, and a moment in time is a place in the order.
    """

    def __init__(self, transaction: Transaction, name: str, row: Row, clock: Clock) -> None:
        self.transaction = transaction
        self.organization_id = transaction.organization_id
        self.name = name
        self.group_id: int = row[0]
        self.clock: int = row[1]
        self.outputs: int = row[2]
        self.key_fields: str | None = row[3]
        self.schema: str | None = row[4]
        self.now = clock()  # under the lock: what waited for it must not be dated before it
        self._began_at = self.clock
        self._output_changes: Counter[int] = Counter()
        self._approved: Counter[int] = Counter()
        self._countries: Counter[str] = Counter()

    def next_sequence_number(self) -> int:
        self.clock = max(self.clock + 1, self.now)
        return self.clock

    def count(
        self, job_id: int, *, outputs: int = 0, approved: int = 0, country: str | None = None
    ) -> None:
        """Notes by how much the counts of a job, and of a country, have changed."""
        self.outputs += outputs
        self._output_changes[job_id] += outputs
        self._approved[job_id] += approved
        if country is not None:
            self._countries[country] += outputs

    async def bulk_job(self) -> BulkJob | None:
        """The group's bulk_job under way, if there is one."""
        rows = await self.transaction.fetch(_CHORE, self.organization_id, self.group_id)
        return BulkJob(*rows[0]) if rows else None

    async def find_job(self, name: str) -> int | None:
        """The number of the job of this name, if the group has one."""
        rows = await self.transaction.fetch(_JOB, self.organization_id, self.group_id, name)
        return rows[0][0] if rows else None

    async def job(self, name: str) -> int:
        """The same; a job that is new comes into being here."""
        known = await self.find_job(name)
        if known is not None:
            return known
        [[made]] = await self.transaction.fetch(_NEW_JOB, self.organization_id, self.group_id, name)
        return int(made)

    async def commit_counts(self) -> None:
        """Keeps clock and counts, and calls the watchers; the lock goes with the transaction."""
        await self.save_counts()
        if self.clock != self._began_at:
            await self.transaction.notify(channel(self.organization_id, self.name))

    async def save_counts(self) -> None:
        of_group = (self.organization_id, self.group_id)
        await self.transaction.fetch(_KEEP, *of_group, self.clock, self._output_changes.total())
        jobs = sorted(self._output_changes.keys() | self._approved.keys())
        await self.transaction.execute_many(
            _COUNT_JOB,
            [
                (self.organization_id, job, self._output_changes[job], self._approved[job])
                for job in jobs
                if self._output_changes[job] or self._approved[job]
            ],
        )
        await self.transaction.execute_many(
            _COUNT_COUNTRY,
            [(*of_group, country, n) for country, n in sorted(self._countries.items()) if n],
        )
        for counter in (self._output_changes, self._approved, self._countries):
            counter.clear()


async def lock(transaction: Transaction, name: str, clock: Clock) -> LockedGroup:
    """The turn of a group that must exist."""
    rows = await transaction.fetch(_ENTER, transaction.organization_id, name)
    if not rows:
        raise NotFound
    return LockedGroup(transaction, name, rows[0], clock)


async def lock_or_create(transaction: Transaction, name: str, clock: Clock) -> LockedGroup:
    """The turn of a group that comes into being on its first write."""
    [row] = await transaction.fetch(_ENTER_NEW, transaction.organization_id, name)
    return LockedGroup(transaction, name, row, clock)


Lock = Callable[[Transaction, str, Clock], Awaitable[LockedGroup]]


async def must_exist(database: Database, name: str) -> int:
    """The number of the group."""
    rows = await database.read(_EXISTS, database.organization_id, name)
    if not rows:
        raise NotFound
    return int(rows[0][0])


async def exists_by_number(database: Database, group_id: int) -> bool:
    return bool(await database.read(_EXISTS_BY_NUMBER, database.organization_id, group_id))
