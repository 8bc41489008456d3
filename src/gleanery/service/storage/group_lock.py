"""The lock on a group's row; under it the group's outputs, sequence numbers and counts change.

Every batch reads and writes this row. So the row also has the number of changes on each of the last
days, in one short text: the newest day, as days since 1970, and the numbers from that day back.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Collection
from typing import Literal, NamedTuple

from gleanery.service.foundation.errors import NotFound, no_group
from gleanery.service.foundation.values import timestamps
from gleanery.service.storage.database import Database, PageReader, Transaction

Clock = Callable[[], int]
FIRST_SEQ = 1_577_836_800 * timestamps.SECOND
"""The smallest sequence number, 2020-01-01, even if a clock is wrong. A smaller cursor is either 0
or has another meaning; see ``outputs.changes``."""
DEFAULT_KEEP_VERSIONS = 20
"""Earlier versions of each output that a group keeps."""
DEFAULT_KEEP_DAYS = 90
"""Days for which a group keeps an earlier version."""
DEFAULT_RUN_TIMEOUT_MINUTES = 360
"""Minutes without a batch after which a started run is abandoned."""
IDENTITY_FORMAT = 2
"""The identity format of new groups; see ``outputs.elements``."""
BulkJobKind = Literal["approve", "unapprove", "delete"]
# Both statements lock the group's row, so transactions on one group commit in the order in which
# they get the lock.
_LOCK_OR_CREATE = f"""
INSERT INTO groups (organization_id, name, last_seq, identity_format)
VALUES ($1, $2, 0, {IDENTITY_FORMAT})
ON CONFLICT (organization_id, name) DO UPDATE SET deleted = FALSE
RETURNING id, last_seq, output_count, key_fields, schema, keep_versions, keep_days, daily_changes,
    identity_format, run_timeout_minutes
"""
_LOCK = """
UPDATE groups SET name = name WHERE organization_id = $1 AND name = $2 AND NOT deleted
RETURNING id, last_seq, output_count, key_fields, schema, keep_versions, keep_days, daily_changes,
    identity_format, run_timeout_minutes
"""
_SAVE_GROUP = """
UPDATE groups SET last_seq = $3, output_count = output_count + $4,
    approved_count = approved_count + $5, daily_changes = $6
WHERE organization_id = $1 AND id = $2
"""
_SAVE_JOB = """
UPDATE jobs SET output_count = output_count + $3, approved_count = approved_count + $4,
    waits_since = CASE WHEN output_count + $3 > approved_count + $4 THEN waits_since END
WHERE organization_id = $1 AND id = $2
"""
_START_WAITING = """
UPDATE jobs SET waits_since = $3
WHERE organization_id = $1 AND id = $2 AND output_count > approved_count
"""
_SAVE_COUNTRY = """
INSERT INTO country_counts (organization_id, group_id, country, output_count)
VALUES ($1, $2, $3, $4)
ON CONFLICT (organization_id, group_id, country)
DO UPDATE SET output_count = country_counts.output_count + excluded.output_count
"""
_FIND_JOB = """
SELECT name, id, waits_since FROM jobs
WHERE organization_id = $1 AND group_id = $2 AND name = $3
"""
# The next sweep looks at the schedule of the new job.
_CREATE_JOB = """
INSERT INTO jobs (organization_id, group_id, name, waits_since, run_due_at)
VALUES ($1, $2, $3, $4, $5)
RETURNING name, id
"""
_PENDING_BULK_JOB = """
SELECT id, job_id, kind, until_seq, done_seq, as_of FROM bulk_jobs
WHERE organization_id = $1 AND group_id = $2 ORDER BY id LIMIT 1
"""
_FIND_GROUP = "SELECT id FROM groups WHERE organization_id = $1 AND name = $2 AND NOT deleted"
_FIND_NUMBER = "SELECT id FROM groups WHERE organization_id = $1 AND id = $2 AND NOT deleted"
_GROUP_NUMBER = re.compile("[1-9][0-9]{0,17}")
_GROUP_ACCEPTS_RECORDS = """
SELECT id FROM groups WHERE organization_id = $1 AND id = $2 AND NOT deleted AND NOT EXISTS (
    SELECT 1 FROM bulk_jobs WHERE bulk_jobs.organization_id = $1 AND group_id = $2
        AND kind = 'delete' AND job_id IS NULL)
"""
_BYTES_PER_NUMBER = 16 * 1024  # at most 16 MiB in a millisecond, and one output more
DAY = 86_400 * timestamps.SECOND
KEPT_DAYS = 30


def channel(organization_id: int, name: str) -> str:
    """Names the notification channel of a group."""
    return f"{organization_id}/{name}"


class BulkJob(NamedTuple):
    """Operation on many outputs of a group; see the package ``bulk_jobs``."""

    id: int
    job_id: int | None
    """None: all jobs of the group."""
    kind: BulkJobKind
    until_seq: int
    done_seq: int
    as_of: int
    """An approval skips outputs whose values were stored after this position."""

    def covers(self, job_id: int, seq: int) -> bool:
        """Return True if the bulk job has not yet processed this output of this job."""
        return self.job_id in (None, job_id) and self.done_seq < seq <= self.until_seq


class _GroupRow(NamedTuple):
    """The row that a statement has locked; its columns in the order of ``_LOCK``."""

    group_id: int
    last_seq: int
    output_count: int
    key_fields: str | None
    schema: str | None
    keep_versions: int | None
    keep_days: int | None
    daily_changes: str | None
    identity_format: int
    run_timeout_minutes: int | None


class LockedGroup:
    """A group that this transaction has locked; issues the group's sequence numbers.

    A sequence number is the time of the change in microseconds, or the previous number plus one if
    that is larger. So the numbers increase in commit order. They never repeat, not even after a
    restore or when the clock goes back. A time is also a position in the change order.
    """

    def __init__(self, transaction: Transaction, name: str, row: _GroupRow, clock: Clock) -> None:
        self.transaction = transaction
        self.organization_id = transaction.organization_id
        self.name = name
        self.group_id = row.group_id
        self.last_seq = row.last_seq
        self.output_count = row.output_count
        self.key_fields = row.key_fields
        self.schema = row.schema
        self.keep_versions = _or_default(row.keep_versions, DEFAULT_KEEP_VERSIONS)
        self.keep_days = _or_default(row.keep_days, DEFAULT_KEEP_DAYS)
        self._daily_changes = row.daily_changes
        self.identity_format = row.identity_format
        self.run_timeout_minutes = _or_default(row.run_timeout_minutes, DEFAULT_RUN_TIMEOUT_MINUTES)
        self._clock = clock
        # Read under the lock: a transaction that waited for it must not be dated before the wait.
        self.now: int = max(clock(), FIRST_SEQ)
        self._initial_seq: int = self.last_seq
        self._earliest_scrape = self.last_seq
        self._output_changes: Counter[int] = Counter()
        self._approved_changes: Counter[int] = Counter()
        self._country_changes: Counter[str] = Counter()
        self._value_changes = 0
        self._new_waiting: list[int] = []

    @property
    def scrape_time(self) -> int:
        """Time of the scrape. It is never before an earlier change, or it could expire at once."""
        return max(self.now, self._earliest_scrape)

    def scrape_not_before(self, time: int) -> None:
        """Keep the scrape from being before this time, even if the clock has gone back."""
        self._earliest_scrape = max(self._earliest_scrape, time)

    def refresh_time(self) -> None:
        """Read the clock again.

        Callers do so directly before they issue numbers and write them. A date should be little
        earlier than the commit, because until then no client can see the output.
        """
        self.now = max(self.now, self._clock())

    def next_sequence_number(self, size: int = 0) -> int:
        """Issues the number of a change. ``size`` is the length of an output that is not new.

        A page of changes can end only after a whole millisecond. So large outputs get numbers at
        some distance from each other, and few of them share a millisecond.
        """
        self.last_seq = max(self.last_seq + 1 + size // _BYTES_PER_NUMBER, self.now)
        return self.last_seq

    def change_counts(
        self, job_id: int, *, outputs: int = 0, approved: int = 0, country: str | None = None
    ) -> None:
        """Add to the counts of the group, a job and a country; ``save_counts`` stores them."""
        self.output_count += outputs
        self._output_changes[job_id] += outputs
        self._approved_changes[job_id] += approved
        if country is not None:
            self._country_changes[country] += outputs

    def count_value_changes(self, count: int) -> None:
        """Count outputs that are stored or deleted, for the changes of the day."""
        self._value_changes += count

    async def pending_bulk_job(self) -> BulkJob | None:
        """Read the group's unfinished bulk job."""
        rows = await self.transaction.fetch(_PENDING_BULK_JOB, self.organization_id, self.group_id)
        return BulkJob(*rows[0]) if rows else None

    async def find_job(self, name: str) -> int | None:
        """Return the id of the job with this name."""
        rows = await self.transaction.fetch(_FIND_JOB, self.organization_id, self.group_id, name)
        return rows[0][1] if rows else None

    async def find_or_create_jobs(self, names: Collection[str]) -> dict[str, int]:
        """Return the id of each job. One statement finds all, another creates the missing ones.

        The jobs get new values, so they wait for a review from now on. The lock on the group
        excludes other creators of the same jobs.
        """
        key = (self.organization_id, self.group_id)
        found = await self.transaction.fetch_many(_FIND_JOB, [(*key, name) for name in names])
        jobs: dict[str, int] = {row[0]: row[1] for row in found}
        waiting = [*self._new_waiting, *(row[1] for row in found if row[2] is None)]
        self._new_waiting = [*dict.fromkeys(waiting)]
        missing = [(*key, name, self.now, self.now) for name in names if name not in jobs]
        created = await self.transaction.fetch_many(_CREATE_JOB, missing)
        return jobs | {row[0]: row[1] for row in created}

    async def find_or_create_empty_job(self, name: str) -> int:
        """Return the id of the job. A new one has no values, so it does not wait for a review."""
        job_id = await self.find_job(name)
        if job_id is None:
            row = (self.organization_id, self.group_id, name, None, self.now)
            [[_, job_id]] = await self.transaction.fetch(_CREATE_JOB, *row)
        return job_id

    async def commit_counts(self) -> None:
        """Save the counts and notify the group's channel if there were changes.

        The lock ends with the transaction.
        """
        await self.save_counts()
        if self.last_seq != self._initial_seq:
            await self.transaction.notify(channel(self.organization_id, self.name))

    async def save_counts(self) -> None:
        """Store the last sequence number and the changed counts."""
        group_key = (self.organization_id, self.group_id)
        outputs, approved = self._output_changes, self._approved_changes
        if self._value_changes:
            day = self.now // DAY
            self._daily_changes = add_daily_changes(self._daily_changes, day, self._value_changes)
        counts = (outputs.total(), approved.total(), self._daily_changes)
        await self.transaction.fetch(_SAVE_GROUP, *group_key, self.last_seq, *counts)
        jobs = sorted(outputs.keys() | approved.keys())
        await self.transaction.execute_many(
            _SAVE_JOB,
            [
                (self.organization_id, job, outputs[job], approved[job])
                for job in jobs
                if outputs[job] or approved[job]
            ],
        )
        await self.transaction.execute_many(
            _START_WAITING, [(self.organization_id, job, self.now) for job in self._new_waiting]
        )
        await self.transaction.execute_many(
            _SAVE_COUNTRY,
            [(*group_key, country, n) for country, n in sorted(self._country_changes.items()) if n],
        )
        for counter in (outputs, approved, self._country_changes):
            counter.clear()
        self._value_changes = 0
        self._new_waiting.clear()


def _or_default(value: int | None, default: int) -> int:
    return default if value is None else value


async def lock(transaction: Transaction, name: str, clock: Clock) -> LockedGroup:
    """Locks an existing group. Raises NotFound if there is none."""
    rows = await transaction.fetch(_LOCK, transaction.organization_id, name)
    if not rows:
        raise no_group()
    return LockedGroup(transaction, name, _GroupRow(*rows[0]), clock)


async def lock_or_create(transaction: Transaction, name: str, clock: Clock) -> LockedGroup:
    """Locks a group, which is created first if it does not exist."""
    [row] = await transaction.fetch(_LOCK_OR_CREATE, transaction.organization_id, name)
    return LockedGroup(transaction, name, _GroupRow(*row), clock)


Lock = Callable[[Transaction, str, Clock], Awaitable[LockedGroup]]


async def require_group(database: Database, name: str) -> int:
    """Return the id of the group. Raise NotFound if there is none."""
    rows = await database.read(_FIND_GROUP, database.organization_id, name)
    if not rows:
        raise no_group()
    return int(rows[0][0])


def no_group_in_query() -> NotFound:
    return NotFound(("query", "group_id"), "There is no group with this name or number")


async def find_number(database: Database, name: str) -> int:
    """Return the id of the group with this name or, if there is none, with this id.

    Raise NotFound for the query parameter ``group_id``.
    """
    rows = await database.read(_FIND_GROUP, database.organization_id, name)
    if not rows and _GROUP_NUMBER.fullmatch(name):
        rows = await database.read(_FIND_NUMBER, database.organization_id, int(name))
    if not rows:
        raise no_group_in_query()
    return int(rows[0][0])


def has_group(reader: PageReader, organization_id: int, name: str) -> bool:
    """Return True if the tenant has a group of this name. Read synchronously."""
    return bool(reader.read_for(organization_id, _FIND_GROUP, (organization_id, name)))


async def accepts_records(transaction: Transaction, group_id: int) -> bool:
    """Return True if the group exists and no request is deleting it."""
    key = (transaction.organization_id, group_id)
    return bool(await transaction.fetch(_GROUP_ACCEPTS_RECORDS, *key))


# --- changes of each day -------------------------------------------------------------------------


def add_daily_changes(stored: str | None, day: int, count: int) -> str:
    """Add changes of a day. If a clock went back, they count for the newest day."""
    if stored is not None and stored.startswith(f"{day} "):  # as in most batches
        newest_day, first, *rest = stored.split(" ", 2)
        return " ".join((newest_day, str(int(first) + count), *rest))
    newest, counts = _decode_daily_changes(stored, day)
    if day > newest:
        counts = [0] * min(day - newest, KEPT_DAYS) + counts
        newest = day
    counts[0] += count
    return " ".join(map(str, (newest, *counts[:KEPT_DAYS])))


def read_daily_changes(stored: str | None, today: int) -> list[int]:
    """Return the numbers of the last days, oldest first; the last one is of today."""
    newest, counts = _decode_daily_changes(stored, today)
    missing = min(max(today - newest, 0), KEPT_DAYS)
    padded = [0] * missing + counts + [0] * KEPT_DAYS
    return padded[:KEPT_DAYS][::-1]


def _decode_daily_changes(stored: str | None, day: int) -> tuple[int, list[int]]:
    if stored is None:
        return day, [0]
    newest, *counts = map(int, stored.split())
    return newest, counts
