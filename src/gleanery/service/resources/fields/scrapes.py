"""The scrapes of a job: begins a new one after a pause, and keeps the newest ones."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import partial
from typing import NamedTuple, Protocol

import msgspec

from gleanery.service.foundation.values import timestamps
from gleanery.service.resources.fields import documents
from gleanery.service.resources.fields.documents import JobStatistics
from gleanery.service.resources.fields.shapes import Names
from gleanery.service.storage.database import Engine, Row, Transaction
from gleanery.service.storage.group_lock import LockedGroup

IDLE = 30 * 60 * timestamps.SECOND
"""A scrape ends if no output of its job is stored for this time."""
KEPT_SCRAPES = 30

_INSERT = """
INSERT INTO job_scrapes (organization_id, group_id, job_id, started_at, seen_at, counts)
VALUES ($1, $2, $3, $4, $5, $6)
"""
_SELECT = """
SELECT job_id, started_at FROM job_scrapes
WHERE organization_id = $1 AND group_id = $2 AND job_id = $3
"""
_DELETE = """
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
_DELETED_PER_TRANSACTION = 1000


class Scrape(NamedTuple):
    """A scrape of a job: when it was, and which fields the outputs had that it has seen."""

    started_at: int
    seen_at: int
    outputs: int
    counted: int
    """Outputs whose fields are known."""
    fields: Sequence[tuple[Names, dict[str, int]]]
    """Fields with the number of outputs by kind."""


class _StoredScrape(msgspec.Struct, array_like=True):
    """The column ``counts`` of a scrape that has ended. It has names, because slots change."""

    outputs: int
    fields: list[tuple[Names, dict[str, int]]]


_decode = msgspec.json.Decoder(_StoredScrape).decode
_decode_older = msgspec.json.Decoder(dict[str, int]).decode


def current(job: JobStatistics) -> Scrape:
    """Return the current scrape of a job."""
    outputs = job.seen.outputs
    return Scrape(job.started_at, job.seen_at, outputs, outputs, [*job.seen_fields()])


def decode(started_at: int, seen_at: int, counts: str) -> Scrape:
    """Return a scrape that has ended."""
    if counts.startswith("{"):  # outputs by shape, before the migration "field_counts"
        return Scrape(started_at, seen_at, sum(_decode_older(counts).values()), 0, ())
    stored = _decode(counts)
    return Scrape(started_at, seen_at, stored.outputs, stored.outputs, stored.fields)


def _encode(job: JobStatistics) -> str:
    stored = _StoredScrape(job.seen.outputs, [*job.seen_fields()])
    return msgspec.json.encode(stored).decode()


def has_ended(locked: LockedGroup, job: JobStatistics) -> bool:
    """Return True if an output that is stored now begins a new scrape."""
    return locked.scrape_time > job.seen_at + IDLE


async def begin(locked: LockedGroup, jobs: Collection[JobStatistics]) -> None:
    """Make the present time a part of each job's scrape, which is a new one after a pause.

    A new scrape begins after the last one of every output, so an output that was scraped before
    that beginning is not yet counted.
    """
    now = locked.scrape_time
    ended = [job for job in jobs if not job.is_new and has_ended(locked, job)]
    if ended:
        await documents.load_values(locked, ended)
        await _keep(locked, ended)
        await forget_deleted(locked, [job for job in ended if job.seen.deleted])
    for job in jobs:
        if job.is_new or has_ended(locked, job):
            job.begin_scrape(now)
        job.seen_at = max(job.seen_at, now)


async def _keep(locked: LockedGroup, ended: Iterable[JobStatistics]) -> None:
    """Store the scrapes that have ended, and delete old ones."""
    key = (locked.organization_id, locked.group_id)
    by_job = {job.job_id: job for job in ended}
    await locked.transaction.execute_many(
        _INSERT,
        [(*key, job.job_id, job.started_at, job.seen_at, _encode(job)) for job in by_job.values()],
    )
    rows = await locked.transaction.fetch_many(_SELECT, [(*key, job_id) for job_id in by_job])
    old = []
    for job_id in by_job:
        newest = sorted((row for row in rows if row[0] == job_id), key=_start, reverse=True)
        old += [(*key, job_id, _start(row)) for row in newest[KEPT_SCRAPES - 1 :]]
    await locked.transaction.execute_many(_DELETE, old)


def _start(row: Row) -> int:
    return int(row[1])


# --- deleted outputs --------------------------------------------------------------------------


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


async def delete_ended(engine: Engine, now: int) -> None:
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
