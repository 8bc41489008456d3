"""Groups and their jobs as the console lists them: bounded numbers, no settings, no countries."""

from __future__ import annotations

from typing import NamedTuple

from gleanery.service.resources.groups.waiting import MAX_COUNT, BoundedCount, LatestReview
from gleanery.service.storage import group_lock
from gleanery.service.storage.database import Database, indexed

_MAX_COMMENT = 300  # characters
_GROUPS = indexed(
    f"""
SELECT id, name, display_name, output_count, approved_count, last_seq, daily_changes,
    (SELECT count(*) FROM (
        SELECT 1 FROM {{jobs}}
        WHERE organization_id = $1 AND group_id = groups.id AND id > 0
        LIMIT {MAX_COUNT + 1}) AS counted)
FROM groups WHERE organization_id = $1 AND name > $2 AND NOT deleted ORDER BY name LIMIT $3
""",
    jobs="jobs_in_order",
)
_GROUP = """
SELECT id, name, display_name, output_count, approved_count, last_seq, daily_changes, 0
FROM groups WHERE organization_id = $1 AND name = $2
"""
_JOBS = indexed(
    f"""
SELECT jobs.id, jobs.name, output_count, approved_count, waits_since,
    (SELECT scrape_seen_at FROM job_statistics
        WHERE organization_id = $1 AND group_id = jobs.group_id AND job_id = jobs.id),
    status, substr(comment, 1, {_MAX_COMMENT}), person, created_at
FROM {{jobs}} LEFT JOIN reviews
    ON reviews.organization_id = jobs.organization_id AND reviews.id = latest_review_id
WHERE jobs.organization_id = $1 AND jobs.group_id = $2 AND jobs.id > 0 AND jobs.id > $3
ORDER BY jobs.group_id, jobs.id LIMIT $4
""",
    jobs="jobs_in_order",
)


class GroupOverview(NamedTuple):
    """A group with its numbers."""

    id: int
    name: str
    display_name: str | None
    output_count: int
    approved_count: int
    last_seq: int
    daily_changes: list[int]
    """Changes of the last days, oldest first."""
    jobs: BoundedCount


class JobOverview(NamedTuple):
    """A job with its numbers, its last scrape and its latest review."""

    id: int
    name: str
    output_count: int
    approved_count: int
    waits_since: int | None
    scraped_at: int | None
    review: LatestReview | None


async def list_groups(
    database: Database, after: str, limit: int, now: int
) -> tuple[list[GroupOverview], str | None]:
    """Read groups by name, and the name after which the next page begins."""
    key = (database.organization_id, after, limit + 1)
    found = await database.read_large(_GROUPS, *key)
    groups = [_to_group(*row, now=now) for row in found[:limit]]
    return groups, groups[-1].name if len(found) > limit else None


async def read_group(database: Database, name: str, now: int) -> GroupOverview:
    """Read one group, without the number of its jobs. Raise NotFound."""
    await group_lock.require_group(database, name)
    [row] = await database.read(_GROUP, database.organization_id, name)
    return _to_group(*row, now=now)


def _to_group(
    id_: int,
    name: str,
    display_name: str | None,
    output_count: int,
    approved_count: int,
    last_seq: int,
    changes: str | None,
    jobs: int,
    *,
    now: int,
) -> GroupOverview:
    days = group_lock.read_daily_changes(changes, now // group_lock.DAY)
    numbers = (output_count, approved_count, last_seq)
    return GroupOverview(id_, name, display_name, *numbers, days, BoundedCount.of(jobs))


async def list_jobs(
    database: Database, group_id: int, after: int, limit: int
) -> tuple[list[JobOverview], int | None]:
    """Read jobs in the order of their creation, and the id after which the next page begins."""
    key = (database.organization_id, group_id, after, limit + 1)
    jobs = []
    found = await database.read_large(_JOBS, *key)
    for id_, name, *numbers, status, comment, person, created_at in found[:limit]:
        review = None if status is None else LatestReview(status, comment, person, created_at)
        outputs, approved, waits_since, scraped_at = numbers
        job = JobOverview(id_, name, outputs, approved, waits_since, scraped_at, review)
        jobs.append(job)
    return jobs, jobs[-1].id if len(found) > limit else None
