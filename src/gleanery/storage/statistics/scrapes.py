"""The scrapes of a job: begins a new one after a pause, and keeps the newest ones."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from gleanery.storage.database import Row
from gleanery.storage.group_lock import LockedGroup
from gleanery.storage.statistics import definitions, documents
from gleanery.storage.statistics.documents import JobStatistics, decode_counts, encode_counts
from gleanery.storage.statistics.shapes import OTHER
from gleanery.values import timestamps

IDLE = 30 * 60 * timestamps.SECOND
"""A scrape ends if no output of its job is stored for this time."""
KEPT_SCRAPES = 30

_INSERT = """
INSERT INTO job_scrapes (organization_id, group_id, job_id, started_at, seen_at, counts)
VALUES ($1, $2, $3, $4, $5, $6)
"""
_SELECT = """
SELECT job_id, started_at, counts FROM job_scrapes
WHERE organization_id = $1 AND group_id = $2 AND job_id = $3
"""
_DELETE = """
DELETE FROM job_scrapes
WHERE organization_id = $1 AND group_id = $2 AND job_id = $3 AND started_at = $4
"""


async def begin(locked: LockedGroup, jobs: Collection[JobStatistics]) -> None:
    """Makes the present time a part of each job's scrape, which is a new one after a pause.

    A new scrape begins after the last one of every output, so an output that was scraped before
    that beginning is not yet counted.
    """
    now = locked.scrape_time
    ended = [job for job in jobs if not job.is_new and now > job.seen_at + IDLE]
    if ended:
        await _keep(locked, ended)
    for job in jobs:
        if job.is_new or now > job.seen_at + IDLE:
            job.started_at = now
            job.seen.clear()
        job.seen_at = max(job.seen_at, now)


async def _keep(locked: LockedGroup, ended: Iterable[JobStatistics]) -> None:
    """Stores the scrapes that have ended, and deletes old ones with the shapes only they have."""
    key = (locked.organization_id, locked.group_id)
    by_job = {job.job_id: job for job in ended}
    await documents.load_values(locked, by_job.values())
    await locked.transaction.execute_many(
        _INSERT,
        [
            (*key, job.job_id, job.started_at, job.seen_at, encode_counts(job.seen))
            for job in by_job.values()
        ],
    )
    rows = await locked.transaction.fetch_many(_SELECT, [(*key, job_id) for job_id in by_job])
    old, unused = [], []
    for job in by_job.values():
        newest = sorted((row for row in rows if row[0] == job.job_id), key=_start, reverse=True)
        kept, others = newest[: KEPT_SCRAPES - 1], newest[KEPT_SCRAPES - 1 :]
        old += [(*key, job.job_id, _start(row)) for row in others]
        used = {shape for row in kept for shape in decode_counts(row[2])}
        unused += [(job.job_id, shape) for shape in _remove_unused(job, used)]
    await locked.transaction.execute_many(_DELETE, old)
    await definitions.delete(locked, unused)


def _start(row: Row) -> int:
    return int(row[1])


def _remove_unused(job: JobStatistics, used: Collection[int]) -> list[int]:
    unused = [
        shape
        for shape, counted in job.shapes.items()
        if not counted.output_count and shape not in used and shape != OTHER
    ]
    for shape in unused:
        job.values_changed = True
        del job.shapes[shape]
    return unused
