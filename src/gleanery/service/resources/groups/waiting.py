"""Jobs that wait for a review, oldest first, with what changed since their last approval.

Counts are bounded: a job can have millions of outputs, and its reviewer needs to know whether there
are few or many.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gleanery.service.storage.database import Database, Row, indexed

MAX_COUNT = 1000
"""A larger number is not counted."""
_MAX_COMMENT = 300  # characters
# Names of the group are subqueries, because a planner could reverse a join and sort all jobs. The
# range of one job and the order let PostgreSQL choose the index of the job, also in an empty table.
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


class Position(NamedTuple):
    """A position in the order of waiting jobs."""

    waits_since: int
    job_id: int


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


async def list_waiting(database: Database, after: Position, limit: int) -> WaitingPage:
    """Read a page of waiting jobs."""
    key = (database.organization_id, *after, limit + 1)
    found = await database.read_large(_WAITING, *key)
    rows = found[:limit]
    removed = await _Removed.read(database, rows)
    jobs = [_to_job(row, removed.of_job(row)) for row in rows]
    last = Position(rows[-1][3], rows[-1][9]) if len(found) > limit else None
    return WaitingPage(jobs, last)


def _to_job(row: Row, removed: BoundedCount) -> WaitingJob:
    *counts, changed, _, _, status, comment, person, created_at = row
    review = None if status is None else LatestReview(status, comment, person, created_at)
    group, group_name, job, waits_since, output_count, approved_count, approved_seq = counts
    numbers = (waits_since, output_count, approved_count, approved_seq)
    return WaitingJob(group, group_name, job, *numbers, BoundedCount.of(changed), removed, review)


class _Removed:
    """The newest deletions of each group of a page."""

    def __init__(self) -> None:
        self._by_group: dict[int, Sequence[Row]] = {}

    @classmethod
    async def read(cls, database: Database, rows: Collection[Row]) -> _Removed:
        removed = cls()
        approved = [row for row in rows if row[6] is not None]
        for group_id in {row[8] for row in approved}:
            since = min(row[6] for row in approved if row[8] == group_id)
            key = (database.organization_id, group_id, since)
            removed._by_group[group_id] = await database.read(_REMOVED, *key)
        return removed

    def of_job(self, row: Row) -> BoundedCount:
        """Count the deletions of a job since its approval; a job without one has none."""
        approved_seq, group_id = row[6], row[8]
        if approved_seq is None:
            return BoundedCount(0, has_more=False)
        deletions = self._by_group[group_id]
        count = Counter(name for name, seq in deletions if seq > approved_seq)[row[2]]
        # Earlier deletions of the group were not read, and some may be of this job.
        is_partial = len(deletions) > MAX_COUNT and deletions[-1][1] > approved_seq
        return BoundedCount(min(count, MAX_COUNT), is_partial and count > 0)
