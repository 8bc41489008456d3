"""Reads the stored statistics of jobs, without a lock."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Sequence
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
    """Rows of some jobs, which take time to decode."""

    jobs: Sequence[Row]
    shapes: Sequence[Row]
    scrapes: Sequence[Row]

    def decode(self) -> list[StoredJob]:
        fields = defaultdict[int, dict[int, list[Field] | None]](dict)
        for job_id, shape, text in self.shapes:
            fields[job_id][shape] = decode_fields(text)
        ended = defaultdict[int, list[Scrape]](list)
        for job_id, started_at, seen_at, counts in self.scrapes:
            ended[job_id].append(Scrape(started_at, seen_at, decode_counts(counts)))
        return [_stored_job(row, fields[row[0]], ended[row[0]]) for row in self.jobs]


async def read_jobs(
    database: Database, group_id: int, job_id: int | None = None
) -> AsyncIterator[StoredRows]:
    """Reads the statistics of a job, or of all jobs of a group, a few jobs at a time."""
    after, until = (0, _EVERY_JOB) if job_id is None else (job_id - 1, job_id)
    key = (database.organization_id, group_id)
    while rows := await database.read_large(_JOBS, *key, after, until, _JOBS_PER_READ):
        job_range = (after, rows[-1][0])
        shapes = await database.read_large(_SHAPES, *key, *job_range)
        scrapes = await database.read_large(_SCRAPES, *key, *job_range)
        yield StoredRows(rows, shapes, scrapes)
        after = rows[-1][0]


def _stored_job(
    row: Row, fields: dict[int, list[Field] | None], ended: Sequence[Scrape]
) -> StoredJob:
    job_id, name, output_count, started_at, *_ = row
    statistics = JobStatistics(job_id, None if started_at is None else row[3:])
    scrapes = [*ended]
    if not statistics.is_new:
        scrapes.append(Scrape(statistics.started_at, statistics.seen_at, statistics.seen))
    scrapes.sort(key=lambda scrape: scrape.started_at, reverse=True)
    return StoredJob(name, output_count, statistics, fields, scrapes)
