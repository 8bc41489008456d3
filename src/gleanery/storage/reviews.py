"""Reviews: an append-only history per job, and what the newest means for its outputs."""

from __future__ import annotations

import uuid

from gleanery.errors import NotFound
from gleanery.models.requests import ReviewIn
from gleanery.models.responses import AuditAbout, ReviewOut, ReviewStatus
from gleanery.storage import audit, group_lock
from gleanery.storage.bulk_jobs import jobs
from gleanery.storage.database import Database
from gleanery.values import timestamps

_APPEND = """
INSERT INTO reviews (organization_id, group_id, job_id, review_id, status, comment, created)
VALUES ($1, $2, $3, $4, $5, $6, $7)
RETURNING id
"""
_NOTE_LATEST = "UPDATE jobs SET latest_review = $3 WHERE organization_id = $1 AND id = $2"
_LATEST = """
SELECT jobs.name, review_id, created, status, comment
FROM jobs JOIN reviews
    ON reviews.organization_id = jobs.organization_id AND reviews.id = latest_review
WHERE jobs.organization_id = $1
    AND jobs.group_id = (SELECT id FROM groups WHERE organization_id = $1 AND name = $2)
    AND latest_review IS NOT NULL
ORDER BY latest_review DESC
"""
_HISTORY = """
SELECT jobs.name, review_id, created, status, comment, reviews.id
FROM reviews JOIN jobs ON jobs.organization_id = reviews.organization_id AND jobs.id = job_id
WHERE reviews.organization_id = $1
    AND reviews.group_id = (SELECT id FROM groups WHERE organization_id = $1 AND name = $2)
    AND reviews.id < $3
ORDER BY reviews.id DESC LIMIT $4
"""
# What a status says of the job's outputs; a status not listed says nothing.
_MEANS: dict[str, group_lock.BulkJobKind] = {
    "approved": "approve",
    "changes_requested": "withdraw",
    "rejected": "withdraw",
}


async def latest_reviews(database: Database, group: str) -> list[ReviewOut]:
    """The newest review of each reviewed job, the newest of them first."""
    rows = await database.read(_LATEST, database.organization_id, group)
    if not rows:
        await group_lock.must_exist(database, group)
    return [shown(*row) for row in rows]


async def review_history(
    database: Database, group: str, before: int, limit: int
) -> tuple[list[ReviewOut], int | None]:
    """Every review of the group, the newest first, and where the next page starts."""
    rows = await database.read(_HISTORY, database.organization_id, group, before, limit + 1)
    if not rows:
        await group_lock.must_exist(database, group)
    more = rows[limit - 1][5] if len(rows) > limit else None
    return [shown(*row[:5]) for row in rows[:limit]], more


async def add_review(
    database: Database,
    group: str,
    review: ReviewIn,
    clock: group_lock.Clock,
    actor: audit.Actor,
) -> ReviewOut:
    """Appends the review and carries out what it says of the outputs as they are at its moment."""
    return await jobs.decide_and_carry_out(
        database, group, clock, lambda locked: _append(locked, review, actor)
    )


async def _append(
    locked: group_lock.LockedGroup, review: ReviewIn, actor: audit.Actor
) -> ReviewOut:
    job_id = await locked.find_job(review.job_id)
    if job_id is None:
        raise NotFound(("body", "job_id"), "This group has no such job")
    review_id, status, comment = uuid.uuid4().hex, review.status, review.comment or ""
    [[number]] = await locked.transaction.fetch(
        _APPEND,
        locked.organization_id,
        locked.group_id,
        job_id,
        review_id,
        status,
        comment,
        locked.now,
    )
    await locked.transaction.fetch(_NOTE_LATEST, locked.organization_id, job_id, number)
    if status in _MEANS:
        await jobs.note(locked, _MEANS[status], job_id)
    about = AuditAbout(
        group_id=locked.name, job_id=review.job_id, review_id=review_id, status=status
    )
    await audit.note(locked.transaction, actor, locked.now, "add_review", about)
    return shown(review.job_id, review_id, locked.now, status, comment)


def shown(job: str, review_id: str, created: int, status: ReviewStatus, comment: str) -> ReviewOut:
    return ReviewOut(
        job_id=job,
        review_id=review_id,
        review_date=timestamps.render_moment(created),
        status=status,
        comment=comment,
    )
