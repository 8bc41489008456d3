"""Reads the stored statistics of jobs, without a lock."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import NamedTuple

from gleanery.service.resources.fields import scrapes
from gleanery.service.resources.fields.documents import JobStatistics
from gleanery.service.resources.fields.scrapes import Scrape
from gleanery.service.storage.database import Database, Row

_JOBS = """
SELECT jobs.id, jobs.name, jobs.output_count, scrape_started_at, scrape_seen_at, scrape_counts,
    field_counts, ranges
FROM jobs LEFT JOIN job_statistics AS found ON found.organization_id = jobs.organization_id
    AND found.group_id = jobs.group_id AND found.job_id = jobs.id
WHERE jobs.organization_id = $1 AND jobs.group_id = $2 AND jobs.id > 0
    AND jobs.id > $3 AND jobs.id <= $4
ORDER BY jobs.id LIMIT $5
"""
_SCRAPES = """
SELECT job_id, started_at, seen_at, counts FROM job_scrapes
WHERE organization_id = $1 AND group_id = $2 AND job_id > $3 AND job_id <= $4
"""
_JOBS_PER_READ = 10  # each can have some megabytes of statistics
_EVERY_JOB = 2**63 - 1


class StoredJob(NamedTuple):
    """A job with its statistics."""

    name: str
    output_count: int
    statistics: JobStatistics
    scrapes: list[Scrape]
    """Newest first."""


class StoredRows(NamedTuple):
    """Rows of one job, which take time to decode."""

    job: Row
    scrapes: Sequence[Row]

    @property
    def output_count(self) -> int:
        count: int = self.job[2]
        return count

    def decode(self) -> StoredJob:
        job_id, name, output_count, started_at, *_ = self.job
        statistics = JobStatistics(job_id, None if started_at is None else self.job[3:])
        found = [scrapes.decode(*row[1:]) for row in self.scrapes]
        if not statistics.is_new:
            found.append(scrapes.current(statistics))
        found.sort(key=lambda scrape: scrape.started_at, reverse=True)
        return StoredJob(name, output_count, statistics, found)


async def read_jobs(
    database: Database, group_id: int, job_id: int | None = None
) -> AsyncIterator[StoredRows]:
    """Yield the statistics of a job, or of all jobs of a group; read a few jobs at a time."""
    after, until = (0, _EVERY_JOB) if job_id is None else (job_id - 1, job_id)
    key = (database.organization_id, group_id)
    while rows := await database.read_large(_JOBS, *key, after, until, _JOBS_PER_READ):
        job_range = (after, rows[-1][0])
        by_job = _by_job(await database.read_large(_SCRAPES, *key, *job_range))
        for row in rows:
            yield StoredRows(row, by_job[row[0]])
        after = rows[-1][0]


def _by_job(rows: Iterable[Row]) -> Mapping[int, list[Row]]:
    by_job = defaultdict[int, list[Row]](list)
    for row in rows:
        by_job[row[0]].append(row)
    return by_job
