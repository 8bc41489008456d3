"""Short answers from the statistics of jobs: how well a group is filled, and which jobs drift."""

from __future__ import annotations

from typing import NamedTuple

from gleanery.service.foundation.scheduling.fair_shares import FairThread
from gleanery.service.foundation.values import timestamps
from gleanery.service.resources.fields import reading
from gleanery.service.resources.fields.drift import Drift, find_drift
from gleanery.service.resources.fields.reading import StoredRows
from gleanery.service.resources.fields.summary import Summary
from gleanery.service.storage.database import Database

_MAX_JOBS = 10  # of a group, for its rate
_RECENT = 30 * 86_400 * timestamps.SECOND
_LISTED_JOBS = 500
_COMPARED_JOBS = 40
_JOBS = """
SELECT group_id, job_id, scrape_seen_at FROM job_statistics
WHERE organization_id = $1 AND (group_id, job_id) > ($2, $3)
ORDER BY group_id, job_id LIMIT $4
"""
_GROUP_NAMES = "SELECT name, display_name FROM groups WHERE organization_id = $1 AND id = $2"


class FillRate(NamedTuple):
    """The mean fill rate of the fields of a group, and its least filled field."""

    mean: float
    lowest: float
    lowest_path: tuple[str, ...]


async def read_fill_rate(
    database: Database, computations: FairThread, group_id: int
) -> FillRate | None:
    """Sum the first jobs of a group; None if nothing is known about their fields."""
    summary, count = Summary(), 0
    async for rows in reading.read_jobs(database, group_id):
        await computations.run(database.organization_id, _add, summary, rows)
        count += 1
        if count == _MAX_JOBS:
            break
    rates = summary.fill_rates()
    if not rates:
        return None
    lowest = min(rates, key=lambda names: (rates[names], names))
    return FillRate(sum(rates.values()) / len(rates), rates[lowest], lowest)


def _add(summary: Summary, rows: StoredRows) -> None:
    summary.add_job(rows.decode().statistics.fields)


class JobPosition(NamedTuple):
    """A position in the order of all jobs that have statistics."""

    group_id: int
    job_id: int


class DriftingJob(NamedTuple):
    """A job whose newest scrape fills fields more or less often, the largest difference first."""

    group: str
    group_name: str | None
    """Display name of the group."""
    job: str
    scraped_at: int
    drift: list[Drift]


class DriftPage(NamedTuple):
    """Jobs with drift, and the position up to which jobs were compared."""

    jobs: list[DriftingJob]
    next_position: JobPosition | None


async def find_drifting_jobs(
    database: Database, computations: FairThread, after: JobPosition, now: int
) -> DriftPage:
    """Compare the scrapes of some jobs, because the statistics of all would take long.

    Jobs without a recent scrape are left out.
    """
    key = (database.organization_id, *after)
    rows = await database.read_large(_JOBS, *key, _LISTED_JOBS)
    drifting: list[DriftingJob] = []
    compared = 0
    for group_id, job_id, seen_at in rows:
        if seen_at < now - _RECENT:
            continue
        if compared == _COMPARED_JOBS:
            return DriftPage(drifting, after)
        compared, after = compared + 1, JobPosition(group_id, job_id)
        found = await _compare(database, computations, after)
        if found is not None:
            drifting.append(found)
    is_last = len(rows) < _LISTED_JOBS
    return DriftPage(drifting, None if is_last else JobPosition(*rows[-1][:2]))


async def _compare(
    database: Database, computations: FairThread, position: JobPosition
) -> DriftingJob | None:
    key = (database.organization_id, position.group_id)
    async for rows in reading.read_jobs(database, *position):
        drift = await computations.run(database.organization_id, _find_drift, rows)
        names = await database.read(_GROUP_NAMES, *key) if drift else ()
        if names:
            [[name, display_name]] = names
            return DriftingJob(name, display_name, rows.job[1], rows.job[4], drift)
    return None


def _find_drift(rows: StoredRows) -> list[Drift]:
    if not rows.scrapes:
        return []
    job = rows.decode()
    summaries = []
    for scrape in job.scrapes:
        summary = Summary()
        summary.add_scrape(scrape)
        summaries.append(summary)
    return sorted(find_drift(summaries), key=lambda one: -abs(one.now - one.before))
