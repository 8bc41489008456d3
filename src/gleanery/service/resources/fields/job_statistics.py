"""The statistics of a job as they are stored, and the scrapes of the job.

A job has one row, which a batch reads and writes once. The row has the fields of the job's outputs
with their counts, the ranges, and the current scrape. A scrape ends if no output is stored for some
time. The next batch stores the ended scrape in a row of the table ``job_scrapes``.

The table ``deleted_in_scrape`` has the outputs that the current scrape has seen and that were
deleted since then. If such an output returns, the scrape does not count it a second time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property, partial
from typing import NamedTuple, Protocol

import msgspec

from gleanery.service.foundation.values import timestamps
from gleanery.service.resources.fields.job_fields import JobFields, SlotCounts
from gleanery.service.resources.fields.shapes import (
    Column,
    Names,
    Ranges,
    decode_ranges,
    encode_ranges,
)
from gleanery.service.storage.database import Engine, Row, Transaction
from gleanery.service.storage.group_lock import LockedGroup

IDLE = 30 * 60 * timestamps.SECOND
"""A scrape ends if no output of its job is stored for this time."""
KEPT_SCRAPES = 30
_DELETED_PER_TRANSACTION = 1000
# The statement has no plus sign and no join: it runs once per batch for all its jobs.
_SELECT = """
SELECT job_id, scrape_started_at, scrape_seen_at, scrape_counts, field_counts, ranges
FROM job_statistics WHERE organization_id = $1 AND group_id = $2 AND job_id = $3
"""
# Without the long columns, which only changed outputs need.
_SELECT_SCRAPES = """
SELECT job_id, scrape_started_at, scrape_seen_at, scrape_counts
FROM job_statistics WHERE organization_id = $1 AND group_id = $2 AND job_id = $3
"""
_INSERT = """
INSERT INTO job_statistics
    (organization_id, group_id, job_id, scrape_started_at, scrape_seen_at, scrape_counts,
     field_counts, ranges)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
"""
_UPDATE = """
UPDATE job_statistics SET scrape_started_at = $4, scrape_seen_at = $5, scrape_counts = $6,
    field_counts = $7, ranges = $8
WHERE organization_id = $1 AND group_id = $2 AND job_id = $3
"""
# A scrape without changes writes only these columns, which are short.
_UPDATE_SCRAPE = """
UPDATE job_statistics SET scrape_started_at = $4, scrape_seen_at = $5, scrape_counts = $6
WHERE organization_id = $1 AND group_id = $2 AND job_id = $3
"""
_DELETE_STATISTICS = [
    f"DELETE FROM {table} WHERE organization_id = $1 AND group_id = $2 AND job_id = $3"
    for table in ("deleted_in_scrape", "job_scrapes", "job_statistics")
]
_INSERT_SCRAPE = """
INSERT INTO job_scrapes (organization_id, group_id, job_id, started_at, seen_at, counts)
VALUES ($1, $2, $3, $4, $5, $6)
"""
_SELECT_STARTS = """
SELECT job_id, started_at FROM job_scrapes
WHERE organization_id = $1 AND group_id = $2 AND job_id = $3
"""
_DELETE_SCRAPE = """
DELETE FROM job_scrapes
WHERE organization_id = $1 AND group_id = $2 AND job_id = $3 AND started_at = $4
"""
_KEEP_DELETED = """
INSERT INTO deleted_in_scrape (organization_id, group_id, job_id, identity, fields)
VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (organization_id, group_id, job_id, identity) DO UPDATE SET fields = excluded.fields
"""
_TAKE_DELETED = """
DELETE FROM deleted_in_scrape
WHERE organization_id = $1 AND group_id = $2 AND job_id = $3 AND identity = $4
RETURNING identity, fields
"""
_FORGET_DELETED = """
DELETE FROM deleted_in_scrape WHERE organization_id = $1 AND group_id = $2 AND job_id = $3
"""
_ENDED = """
SELECT DISTINCT deleted.organization_id, deleted.group_id, deleted.job_id
FROM deleted_in_scrape AS deleted JOIN job_statistics AS job
    ON job.organization_id = deleted.organization_id AND job.group_id = deleted.group_id
    AND job.job_id = deleted.job_id
WHERE scrape_seen_at < $1
"""
# It checks the scrape again: a batch may have begun a new one.
_DELETE_ENDED = """
DELETE FROM deleted_in_scrape
WHERE organization_id = $1 AND group_id = $2 AND job_id = $3
    AND identity IN (SELECT identity FROM deleted_in_scrape
        WHERE organization_id = $1 AND group_id = $2 AND job_id = $3 LIMIT $5)
    AND EXISTS (SELECT 1 FROM job_statistics
        WHERE organization_id = $1 AND group_id = $2 AND job_id = $3 AND scrape_seen_at < $4)
RETURNING job_id
"""


class ScrapeCounts(msgspec.Struct, array_like=True):
    """The column ``scrape_counts``: the outputs that the current scrape has seen."""

    outputs: int = 0
    by_slot: dict[int, int] = {}
    deleted: int = 0
    """How many of them are deleted; the table ``deleted_in_scrape`` has these."""

    def change(self, changes: SlotCounts) -> None:
        """Add numbers of outputs; negative ones are subtracted."""
        self.outputs += changes.outputs
        for slot, change in changes.by_slot.items():
            self.by_slot[slot] = self.by_slot.get(slot, 0) + change


_decode_fields = msgspec.json.Decoder(JobFields).decode
_decode_scrape = msgspec.json.Decoder(ScrapeCounts).decode


class StatisticsRow(NamedTuple):
    """The columns of a row of ``job_statistics`` after its key."""

    started_at: int
    seen_at: int
    scrape_counts: str
    field_counts: str | None = None
    """None if this column and the next one were not read."""
    ranges: str | None = None


_NO_ROW = StatisticsRow(0, 0, "[]", "[]", "[]")


class JobStatistics:
    """The statistics of one job; decodes what is needed.

    Only ``load_values`` adds the fields and ranges of a job that was loaded without them.
    """

    def __init__(self, job_id: int, row: StatisticsRow | None = None) -> None:
        self.job_id = job_id
        self.is_new = row is None
        self.values_changed = False
        self.forgets_deleted = False
        """True if the rows of ``deleted_in_scrape`` are of no use any more."""
        started_at, seen_at, counts, field_counts, ranges = row or _NO_ROW
        self.started_at = started_at
        self.seen_at = seen_at
        # Before the migration "field_counts", it had counts of shapes, in an object.
        self.seen = _decode_scrape(counts if counts.startswith("[") else "[]")
        """Outputs of the current scrape."""
        self.values: Sequence[str] = (
            () if field_counts is None or ranges is None else (field_counts, ranges)
        )
        """The columns ``field_counts`` and ``ranges``, as they are stored; empty if not loaded."""

    @cached_property
    def fields(self) -> JobFields:
        return _decode_fields(self.values[0])

    @cached_property
    def ranges(self) -> Ranges:
        return decode_ranges(self.values[1])

    @property
    def scrape_columns(self) -> tuple[int, int, str]:
        """The columns of the current scrape."""
        by_slot = {slot: outputs for slot, outputs in self.seen.by_slot.items() if outputs}
        self.seen.by_slot = by_slot
        return self.started_at, self.seen_at, msgspec.json.encode(self.seen).decode()

    @property
    def value_columns(self) -> tuple[str, str]:
        """The columns ``field_counts`` and ``ranges``."""
        return self.fields.encode(), encode_ranges(self.ranges)

    def seen_fields(self) -> Iterator[tuple[Names, dict[str, int]]]:
        """Yield the fields that the current scrape has seen, with the number of each kind."""
        seen = self.seen.by_slot
        for field in self.fields.listed:
            kinds = {name: seen.get(kind.slot, 0) for name, kind in field.kinds.items()}
            if any(kinds.values()):
                yield field.names, kinds

    def begin_scrape(self, now: int) -> None:
        """Begin a new scrape, and forget what only the last one had."""
        self.started_at, self.seen = now, ScrapeCounts()
        self.forget_unused()

    def forget_unused(self) -> None:
        """Make room: forget fields that no output has, even those of the current scrape."""
        if not self.values:
            return
        for field in self.fields.forget_unused(self.seen.by_slot):
            for kind in field.kinds.values():
                self.seen.by_slot.pop(kind.slot, None)
            for is_length in (True, False):
                self.ranges.pop(Column(field.names, is_length), None)
        self.values_changed = True

    def make_room(self) -> None:
        """Forget unused fields although a deleted output of the scrape may have had them."""
        self.forget_unused()
        self.forgets_deleted, self.seen.deleted = True, 0


async def load(
    locked: LockedGroup, jobs: Collection[int], without_values: Collection[int] = ()
) -> dict[int, JobStatistics]:
    """Read the statistics of jobs of the group; a job without any gets empty ones."""
    rows = [
        *await _fetch(locked, _SELECT, jobs),
        *await _fetch(locked, _SELECT_SCRAPES, without_values),
    ]
    found = {job_id: StatisticsRow(*columns) for job_id, *columns in rows}
    return {job_id: JobStatistics(job_id, found.get(job_id)) for job_id in (*jobs, *without_values)}


async def load_values(locked: LockedGroup, jobs: Iterable[JobStatistics]) -> None:
    """Read the fields and ranges of those jobs that were loaded without them."""
    missing = {job.job_id: job for job in jobs if not job.values}
    for job_id, _, _, _, field_counts, ranges in await _fetch(locked, _SELECT, missing.keys()):
        missing[job_id].values = (field_counts, ranges)


async def _fetch(locked: LockedGroup, sql: str, jobs: Collection[int]) -> Sequence[Row]:
    if not jobs:
        return ()
    key = (locked.organization_id, locked.group_id)
    return await locked.transaction.fetch_many(sql, [(*key, job_id) for job_id in jobs])


async def save(locked: LockedGroup, jobs: Iterable[JobStatistics]) -> None:
    """Write the statistics; the long columns only if they have changed."""
    inserts, updates, scrape_updates = [], [], []
    for job in jobs:
        scrape = (locked.organization_id, locked.group_id, job.job_id, *job.scrape_columns)
        if job.is_new:
            inserts.append((*scrape, *job.value_columns))
        elif job.values_changed:
            updates.append((*scrape, *job.value_columns))
        else:
            scrape_updates.append(scrape)
    execute_many = locked.transaction.execute_many
    await execute_many(_INSERT, inserts)
    await execute_many(_UPDATE, updates)
    await execute_many(_UPDATE_SCRAPE, scrape_updates)


async def delete_of_jobs(locked: LockedGroup, jobs: Collection[int]) -> None:
    """Delete the statistics of jobs of the group, which have no outputs."""
    key = (locked.organization_id, locked.group_id)
    for deletion in _DELETE_STATISTICS:
        await locked.transaction.execute_many(deletion, [(*key, job_id) for job_id in jobs])


# --- scrapes ------------------------------------------------------------------------------------


class Scrape(NamedTuple):
    """A scrape of a job: when it was, and which fields the outputs had that it has seen."""

    started_at: int
    seen_at: int
    outputs: int
    counted: int
    """Outputs whose fields are known."""
    fields: Sequence[tuple[Names, dict[str, int]]]
    """Fields with the number of outputs by kind."""


class ScrapeRow(NamedTuple):
    """The columns of a row of ``job_scrapes`` after its key."""

    started_at: int
    seen_at: int
    counts: str


class _StoredScrape(msgspec.Struct, array_like=True):
    """The column ``counts`` of a scrape that has ended. It has names, because slots change."""

    outputs: int
    fields: list[tuple[Names, dict[str, int]]]


_decode_ended = msgspec.json.Decoder(_StoredScrape).decode
_decode_older = msgspec.json.Decoder(dict[str, int]).decode


def current_scrape(job: JobStatistics) -> Scrape:
    """Return the current scrape of a job."""
    outputs = job.seen.outputs
    return Scrape(job.started_at, job.seen_at, outputs, outputs, [*job.seen_fields()])


def decode_scrape(row: ScrapeRow) -> Scrape:
    """Return a scrape that has ended."""
    started_at, seen_at, counts = row
    if counts.startswith("{"):  # outputs by shape, before the migration "field_counts"
        return Scrape(started_at, seen_at, sum(_decode_older(counts).values()), 0, ())
    stored = _decode_ended(counts)
    return Scrape(started_at, seen_at, stored.outputs, stored.outputs, stored.fields)


def _encode_scrape(job: JobStatistics) -> str:
    stored = _StoredScrape(job.seen.outputs, [*job.seen_fields()])
    return msgspec.json.encode(stored).decode()


def scrape_has_ended(locked: LockedGroup, job: JobStatistics) -> bool:
    """Return True if an output that is stored now begins a new scrape."""
    return locked.scrape_time > job.seen_at + IDLE


async def begin_scrapes(locked: LockedGroup, jobs: Collection[JobStatistics]) -> None:
    """Make the present time a part of each job's scrape, which is a new one after a pause.

    A new scrape begins after the last one of every output, so an output that was scraped before
    that beginning is not yet counted.
    """
    now = locked.scrape_time
    ended = [job for job in jobs if not job.is_new and scrape_has_ended(locked, job)]
    if ended:
        await load_values(locked, ended)
        await _keep_scrapes(locked, ended)
        await forget_deleted(locked, [job for job in ended if job.seen.deleted])
    for job in jobs:
        if job.is_new or scrape_has_ended(locked, job):
            job.begin_scrape(now)
        job.seen_at = max(job.seen_at, now)


async def _keep_scrapes(locked: LockedGroup, ended: Iterable[JobStatistics]) -> None:
    """Store the scrapes that have ended, and delete old ones."""
    key = (locked.organization_id, locked.group_id)
    by_job = {job.job_id: job for job in ended}
    await locked.transaction.execute_many(
        _INSERT_SCRAPE,
        [
            (*key, job.job_id, job.started_at, job.seen_at, _encode_scrape(job))
            for job in by_job.values()
        ],
    )
    rows = await locked.transaction.fetch_many(
        _SELECT_STARTS, [(*key, job_id) for job_id in by_job]
    )
    old = []
    for job_id in by_job:
        starts = sorted((start for of_job, start in rows if of_job == job_id), reverse=True)
        old += [(*key, job_id, start) for start in starts[KEPT_SCRAPES - 1 :]]
    await locked.transaction.execute_many(_DELETE_SCRAPE, old)


# --- deleted outputs ----------------------------------------------------------------------------


class _DeletedOutput(Protocol):
    @property
    def identity(self) -> bytes: ...

    @property
    def fields(self) -> bytes | None: ...


async def keep_deleted(
    locked: LockedGroup, job: JobStatistics, outputs: Collection[_DeletedOutput]
) -> None:
    """Remembers deleted outputs that the current scrape has seen."""
    key = (locked.organization_id, locked.group_id, job.job_id)
    job.seen.deleted += len(outputs)
    rows = [(*key, output.identity, output.fields) for output in outputs]
    await locked.transaction.execute_many(_KEEP_DELETED, rows)


async def take_deleted(
    locked: LockedGroup, job: JobStatistics, identities: Collection[bytes]
) -> dict[bytes, bytes]:
    """Return those of the outputs that are remembered, with their bitmaps, and forget them."""
    if not job.seen.deleted or not identities:
        return {}
    key = (locked.organization_id, locked.group_id, job.job_id)
    found = await locked.transaction.fetch_by_keys(identities, _TAKE_DELETED, *key)
    job.seen.deleted -= len(found)
    return {row[0]: row[1] for row in found}


async def forget_deleted(locked: LockedGroup, jobs: Iterable[JobStatistics]) -> None:
    """Forgets the deleted outputs of scrapes that have ended."""
    key = (locked.organization_id, locked.group_id)
    await locked.transaction.execute_many(_FORGET_DELETED, [(*key, job.job_id) for job in jobs])


async def forget_deleted_of_ended_scrapes(engine: Engine, now: int) -> None:
    """Forget the deleted outputs of ended scrapes, whose jobs have begun no new one.

    A scrape that has ended only now is left: the clock of another process may be behind.
    """
    before = now - 2 * IDLE

    async def delete_some(key: Row, transaction: Transaction) -> int:
        values = (*key, before, _DELETED_PER_TRANSACTION)
        return len(await transaction.fetch(_DELETE_ENDED, *values))

    for key in await engine.for_all_tenants().read_large(_ENDED, before):
        write = engine.for_tenant(key[0]).write
        while await write(partial(delete_some, key)) == _DELETED_PER_TRANSACTION:
            pass
