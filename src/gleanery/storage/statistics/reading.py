"""Reads the stored statistics of jobs, without a lock."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import NamedTuple

from gleanery.storage.database import Database, Row
from gleanery.storage.statistics.documents import JobStatistics, decode_counts
from gleanery.storage.statistics.shapes import Field, decode_fields

_JOBS = """
SELECT jobs.id, jobs.name, jobs.output_count, scrape_started_at, scrape_seen_at, scrape_counts,
    shape_counts, ranges
FROM jobs LEFT JOIN job_statistics AS found ON found.organization_id = jobs.organization_id
    AND found.group_id = jobs.group_id AND found.job_id = jobs.id
WHERE jobs.organization_id = $1 AND jobs.group_id = $2 AND jobs.id > 0
    AND jobs.id > $3 AND jobs.id <= $4
ORDER BY jobs.id LIMIT $5
"""
_SHAPES = """
SELECT job_id, shape, fields FROM job_shapes
WHERE organization_id = $1 AND group_id = $2 AND job_id > $3 AND job_id <= $4
"""
_SCRAPES = """
SELECT job_id, started_at, seen_at, counts FROM job_scrapes
WHERE organization_id = $1 AND group_id = $2 AND job_id > $3 AND job_id <= $4
"""
_JOBS_PER_READ = 10  # each can have two megabytes of shapes
_EVERY_JOB = 2**63 - 1


class Scrape(NamedTuple):
    """A scrape of a job: when it was, and how many outputs of each shape it has seen."""

    started_at: int
    seen_at: int
    counts: Counter[int]


class StoredJob(NamedTuple):
    """A job with its statistics."""

    name: str
    output_count: int
    statistics: JobStatistics
    fields: dict[int, list[Field] | None]
    """The fields of each shape; None if the shape has too many."""
    scrapes: list[Scrape]
    """Newest first."""


class StoredRows(NamedTuple):
    """Rows of one job, which take time to decode."""

    job: Row
    shapes: Sequence[Row]
    scrapes: Sequence[Row]

    @property
    def output_count(self) -> int:
        count: int = self.job[2]
        return count

    def decode(self) -> StoredJob:
        job_id, name, output_count, started_at, *_ = self.job
        statistics = JobStatistics(job_id, None if started_at is None else self.job[3:])
        scrapes = [
            Scrape(started_at, seen_at, decode_counts(counts))
            for _, started_at, seen_at, counts in self.scrapes
        ]
        if not statistics.is_new:
            scrapes.append(Scrape(statistics.started_at, statistics.seen_at, statistics.seen))
        scrapes.sort(key=lambda scrape: scrape.started_at, reverse=True)
        fields = {shape: decode_fields(text) for _, shape, text in self.shapes}
        return StoredJob(name, output_count, statistics, fields, scrapes)


async def read_jobs(
    database: Database, group_id: int, job_id: int | None = None
) -> AsyncIterator[StoredRows]:
    """Yields the statistics of a job, or of all jobs of a group; reads a few jobs at a time."""
    after, until = (0, _EVERY_JOB) if job_id is None else (job_id - 1, job_id)
    key = (database.organization_id, group_id)
    while rows := await database.read_large(_JOBS, *key, after, until, _JOBS_PER_READ):
        job_range = (after, rows[-1][0])
        shapes = _by_job(await database.read_large(_SHAPES, *key, *job_range))
        scrapes = _by_job(await database.read_large(_SCRAPES, *key, *job_range))
        for row in rows:
            yield StoredRows(row, shapes[row[0]], scrapes[row[0]])
        after = rows[-1][0]


def _by_job(rows: Iterable[Row]) -> Mapping[int, list[Row]]:
    by_job = defaultdict[int, list[Row]](list)
    for row in rows:
        by_job[row[0]].append(row)
    return by_job
