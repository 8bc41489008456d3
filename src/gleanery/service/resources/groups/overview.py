"""Groups and jobs as the console lists them, and the jobs that wait for a review, oldest first.

Counts are bounded: a job can have millions of outputs, and its reviewer needs to know whether there
are few or many. A waiting job has the numbers of what changed since its last approval.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gleanery.service.storage import group_lock
from gleanery.service.storage.database import Database, Row, indexed

MAX_COUNT = 1000
"""A larger number is not counted."""
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
    (SELECT seen_at FROM runs
        WHERE organization_id = $1 AND group_id = jobs.group_id AND job_id = jobs.id
        ORDER BY id DESC LIMIT 1),
    status, substr(comment, 1, {_MAX_COMMENT}), person, created_at
FROM {{jobs}} LEFT JOIN reviews
    ON reviews.organization_id = jobs.organization_id AND reviews.id = latest_review_id
WHERE jobs.organization_id = $1 AND jobs.group_id = $2 AND jobs.id > 0 AND jobs.id > $3
ORDER BY jobs.group_id, jobs.id LIMIT $4
""",
    jobs="jobs_in_order",
)
# Names of the group are subqueries, because a planner could reverse a join and sort all jobs. The
# range of one job and the order let PostgreSQL choose the index of the job, even in an empty table.
_WAITING = indexed(
    f"""
SELECT (SELECT name FROM groups WHERE organization_id = $1 AND groups.id = jobs.group_id),
    (SELECT display_name FROM groups WHERE organization_id = $1 AND groups.id = jobs.group_id),
    jobs.name, waits_since, output_count, approved_count, approved_seq,
    (SELECT count(*) FROM (
        SELECT 1 FROM {{approved_versions}}
        WHERE organization_id = $1 AND group_id = jobs.group_id
            AND job_id BETWEEN jobs.id AND jobs.id
        ORDER BY job_id, seq LIMIT {MAX_COUNT + 1}) AS changed),
    jobs.group_id, jobs.id, status, substr(comment, 1, {_MAX_COMMENT}), person, created_at
FROM {{jobs}} LEFT JOIN reviews
    ON reviews.organization_id = jobs.organization_id AND reviews.id = latest_review_id
WHERE jobs.organization_id = $1 AND waits_since IS NOT NULL AND (waits_since, jobs.id) > ($2, $3)
ORDER BY waits_since, jobs.id LIMIT $4
""",
    approved_versions="approved_versions_by_job",
    jobs="jobs_waiting",
)
_REMOVED = f"""
SELECT job_name, seq FROM tombstones
WHERE organization_id = $1 AND group_id = $2 AND seq > $3
ORDER BY seq DESC LIMIT {MAX_COUNT + 1}
"""


@dataclass(frozen=True, slots=True)
class BoundedCount:
    """A number; or the number up to which was counted, if there are more."""

    count: int
    has_more: bool

    @classmethod
    def of(cls, found: int) -> BoundedCount:
        return cls(min(found, MAX_COUNT), found > MAX_COUNT)


class LatestReview(NamedTuple):
    """The latest review of a job, with the beginning of its comment."""

    status: str
    comment: str
    person: str | None
    created_at: int


# --- groups and their jobs ----------------------------------------------------------------------


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
    """A job with its numbers, its last run and its latest review."""

    id: int
    name: str
    output_count: int
    approved_count: int
    waits_since: int | None
    last_run_at: int | None
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
        outputs, approved, waits_since, last_run_at = numbers
        job = JobOverview(id_, name, outputs, approved, waits_since, last_run_at, review)
        jobs.append(job)
    return jobs, jobs[-1].id if len(found) > limit else None


# --- jobs that wait for a review ----------------------------------------------------------------


class Position(NamedTuple):
    """A position in the order of waiting jobs."""

    waits_since: int
    job_id: int


class WaitingJob(NamedTuple):
    """A job that waits for a review."""

    group: str
    group_name: str | None
    """Display name of the group."""
    job: str
    waits_since: int
    output_count: int
    approved_count: int
    approved_seq: int | None
    changed: BoundedCount
    """Outputs with another value than the approved one."""
    removed: BoundedCount
    """Outputs that were deleted since the last approval."""
    review: LatestReview | None

    @property
    def new_count(self) -> int | None:
        """Outputs without an approved value; None if too many have changed to know."""
        if self.changed.has_more:
            return None
        return max(0, self.output_count - self.approved_count - self.changed.count)


class WaitingPage(NamedTuple):
    """Waiting jobs, and the position after which the next page begins."""

    jobs: list[WaitingJob]
    next_position: Position | None


class _WaitingRow(NamedTuple):
    """A row of the waiting jobs."""

    group: str
    group_name: str | None
    job: str
    waits_since: int
    output_count: int
    approved_count: int
    approved_seq: int | None
    changed: int
    group_id: int
    job_id: int
    status: str | None
    """None if the job has no review. Then the other columns of the review are None."""
    comment: str
    person: str | None
    created_at: int


async def list_waiting(database: Database, after: Position, limit: int) -> WaitingPage:
    """Read a page of waiting jobs."""
    key = (database.organization_id, *after, limit + 1)
    found = await database.read_large(_WAITING, *key)
    rows = [_WaitingRow(*row) for row in found[:limit]]
    removed = await _Removed.read(database, rows)
    jobs = [_to_waiting_job(row, removed.of_job(row)) for row in rows]
    last = Position(rows[-1].waits_since, rows[-1].job_id) if len(found) > limit else None
    return WaitingPage(jobs, last)


def _to_waiting_job(row: _WaitingRow, removed: BoundedCount) -> WaitingJob:
    review = None
    if row.status is not None:
        review = LatestReview(row.status, row.comment, row.person, row.created_at)
    return WaitingJob(
        row.group,
        row.group_name,
        row.job,
        row.waits_since,
        row.output_count,
        row.approved_count,
        row.approved_seq,
        BoundedCount.of(row.changed),
        removed,
        review,
    )


class _Removed:
    """The newest deletions of each group of a page."""

    def __init__(self) -> None:
        self._by_group: dict[int, Sequence[Row]] = {}

    @classmethod
    async def read(cls, database: Database, rows: Collection[_WaitingRow]) -> _Removed:
        removed = cls()
        since: dict[int, int] = {}
        for row in rows:
            if row.approved_seq is not None:
                earliest = since.get(row.group_id, row.approved_seq)
                since[row.group_id] = min(earliest, row.approved_seq)
        for group_id, seq in since.items():
            key = (database.organization_id, group_id, seq)
            removed._by_group[group_id] = await database.read(_REMOVED, *key)
        return removed

    def of_job(self, row: _WaitingRow) -> BoundedCount:
        """Count the deletions of a job since its approval; a job without one has none."""
        approved_seq = row.approved_seq
        if approved_seq is None:
            return BoundedCount(0, has_more=False)
        deletions = self._by_group[row.group_id]
        count = Counter(name for name, seq in deletions if seq > approved_seq)[row.job]
        # Earlier deletions of the group were not read, and some may be of this job.
        is_partial = len(deletions) > MAX_COUNT and deletions[-1][1] > approved_seq
        return BoundedCount(min(count, MAX_COUNT), is_partial and count > 0)
