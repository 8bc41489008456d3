"""Reviews: an append-only history per job, and what the newest means for its outputs."""

from __future__ import annotations

import uuid

from gleanery import instants
from gleanery.errors import NotFound
from gleanery.records import ReviewIn, ReviewOut
from gleanery.store import groups, outputs
from gleanery.store.database import Database, Transaction

_JOB = "SELECT id FROM jobs WHERE organization_id = $1 AND group_id = $2 AND name = $3"
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
# What a status says of the job's outputs; a status not listed says nothing.
_APPROVES = {"approved": True, "changes_requested": False, "rejected": False}


async def latest_reviews(database: Database, organization_id: int, group: str) -> list[ReviewOut]:
    """The newest review of each reviewed job, the newest of them first."""
    rows = await database.read(_LATEST, organization_id, group)
    if not rows:
        await groups.must_exist(database, organization_id, group)
    return [
        ReviewOut(
            job_id=job,
            review_id=review_id,
            review_date=instants.render_moment(created),
            status=status,
            comment=comment,
        )
        for job, review_id, created, status, comment in rows
    ]


async def add_review(
    database: Database, organization_id: int, group: str, review: ReviewIn, now: int
) -> ReviewOut:
    """Appends the review and carries out what it says of the outputs as they are now."""
    review_id, comment = uuid.uuid4().hex, review.comment or ""

    async def work(transaction: Transaction) -> None:
        turn = await groups.enter(transaction, organization_id, group, now)
        jobs = await transaction.fetch(_JOB, organization_id, turn.group_id, review.job_id)
        if not jobs:
            raise NotFound(("body", "job_id"), "This group has no such job")
        [[job_id]] = jobs
        [[number]] = await transaction.fetch(
            _APPEND, organization_id, turn.group_id, job_id, review_id, review.status, comment, now
        )
        await transaction.fetch(_NOTE_LATEST, organization_id, job_id, number)
        if review.status in _APPROVES:
            await outputs.set_approval(turn, job_id, _APPROVES[review.status])
        await turn.end()

    await database.write(work)
    return ReviewOut(
        job_id=review.job_id,
        review_id=review_id,
        review_date=instants.render_moment(now),
        status=review.status,
        comment=comment,
    )
