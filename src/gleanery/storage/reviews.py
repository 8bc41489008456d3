"""Reviews: an append-only history per job, and the effect of a review on the job's outputs."""

from __future__ import annotations

import uuid
from functools import partial

from gleanery.errors import NotFound
from gleanery.models.requests import ReviewIn
from gleanery.models.responses import AuditAbout, ReviewOut, ReviewStatus
from gleanery.storage import audit, group_lock, list_pages
from gleanery.storage.bulk_jobs import jobs as bulk_jobs
from gleanery.storage.database import Database, Row
from gleanery.storage.group_lock import LockedGroup
from gleanery.storage.idempotency import IdempotentRequest
from gleanery.storage.list_pages import ListPage, ListQuery, PageLimits
from gleanery.values import json_text, timestamps
from gleanery.values.hashing import hash_parts

_APPEND = """
INSERT INTO reviews (organization_id, group_id, job_id, review_id, status, comment, created_at)
VALUES ($1, $2, $3, $4, $5, $6, $7)
RETURNING id
"""
_SET_LATEST = "UPDATE jobs SET latest_review_id = $3 WHERE organization_id = $1 AND id = $2"
_GROUP_ID = "(SELECT id FROM groups WHERE organization_id = $1 AND name = $4)"
_FRAME_BYTES = 100  # of a review, beside its comment
_LATEST = f"""
FROM jobs JOIN reviews
    ON reviews.organization_id = jobs.organization_id AND reviews.id = latest_review_id
WHERE jobs.organization_id = $1 AND jobs.group_id = {_GROUP_ID} AND latest_review_id < $2
"""
_LATEST_SIZES = f"""
SELECT latest_review_id, {_FRAME_BYTES} + octet_length(comment) {_LATEST}
ORDER BY latest_review_id DESC LIMIT $3
"""
_LATEST_ROWS = f"""
SELECT jobs.name, review_id, created_at, status, comment, reviews.id {_LATEST}
    AND latest_review_id >= $3 ORDER BY latest_review_id DESC
"""
# The name of the job is a subquery, because a planner could reverse a join and sort all reviews.
_JOB_NAME = "(SELECT name FROM jobs WHERE organization_id = $1 AND jobs.id = job_id)"
_HISTORY = f"""
FROM reviews /* INDEXED BY reviews_of_group */
WHERE reviews.organization_id = $1 AND reviews.group_id = {_GROUP_ID} AND reviews.id < $2
"""
_HISTORY_SIZES = f"""
SELECT reviews.id, {_FRAME_BYTES} + octet_length(comment) {_HISTORY}
ORDER BY reviews.id DESC LIMIT $3
"""
_HISTORY_ROWS = f"""
SELECT {_JOB_NAME}, review_id, created_at, status, comment, reviews.id {_HISTORY}
    AND reviews.id >= $3 ORDER BY reviews.id DESC
"""
# The bulk job that a status starts. Other statuses leave the outputs as they are.
_BULK_JOB_OF_STATUS: dict[str, group_lock.BulkJobKind] = {
    "approved": "approve",
    "changes_requested": "unapprove",
    "rejected": "unapprove",
}


async def latest_reviews(database: Database, group: str, limits: PageLimits) -> ListPage:
    """Reads a page of the newest reviews of each reviewed job, newest first."""
    return await _read_page(database, group, _LATEST_SIZES, _LATEST_ROWS, limits)


async def review_history(database: Database, group: str, limits: PageLimits) -> ListPage:
    """Reads a page of all reviews of the group, newest first."""
    return await _read_page(database, group, _HISTORY_SIZES, _HISTORY_ROWS, limits)


async def _read_page(
    database: Database, group: str, sizes: str, rows: str, limits: PageLimits
) -> ListPage:
    query = ListQuery(database, sizes, rows, (group,), _encode)
    page = await list_pages.read_page(query, limits)
    if not page.records:
        await group_lock.require_group(database, group)
    return page


def _encode(row: Row) -> bytes:
    return json_text.encode(to_response(*row[:-1]))


async def add_review(
    database: Database,
    group: str,
    review: ReviewIn,
    clock: group_lock.Clock,
    actor: audit.Actor,
    idempotency_key: str | None = None,
) -> ReviewOut:
    """Appends the review and applies its status to the outputs that the job has at that time.

    A repeated request with the same idempotency key gets the response of the first one, and also
    not before the status is applied.
    """
    request = None
    if idempotency_key is not None:
        request = _idempotent_request(group, idempotency_key, review)
        stored: ReviewOut | None = await request.read_response(database)
        if stored is not None:
            await bulk_jobs.finish_bulk_job(database, group, clock)
            return stored
    action = partial(_append_once, review=review, actor=actor, request=request)
    return await bulk_jobs.run_and_finish_bulk_job(database, group, clock, action)


def _idempotent_request(group: str, idempotency_key: str, review: ReviewIn) -> IdempotentRequest:
    content = json_text.canonical(review.model_dump(exclude_none=True))
    return IdempotentRequest(hash_parts("reviews", group, idempotency_key), hash_parts(content))


async def _append_once(
    locked: LockedGroup, review: ReviewIn, actor: audit.Actor, request: IdempotentRequest | None
) -> ReviewOut:
    """Appends the review, unless a concurrent repetition of the request was faster."""
    if request is None:
        return await _append(locked, review, actor)
    response: ReviewOut | None = await request.fetch_response(locked.transaction)
    if response is None:
        response = await _append(locked, review, actor)
        await request.save_response(locked.transaction, response, locked.now)
    return response


async def _append(locked: LockedGroup, review: ReviewIn, actor: audit.Actor) -> ReviewOut:
    job_id = await locked.find_job(review.job_id)
    if job_id is None:
        raise NotFound(("body", "job_id"), "This group has no job with this job_id")
    review_id, status, comment = uuid.uuid4().hex, review.status, review.comment or ""
    job_key = (locked.organization_id, locked.group_id, job_id)
    [[row_id]] = await locked.transaction.fetch(
        _APPEND, *job_key, review_id, status, comment, locked.now
    )
    await locked.transaction.fetch(_SET_LATEST, locked.organization_id, job_id, row_id)
    if status in _BULK_JOB_OF_STATUS:
        await bulk_jobs.create(locked, _BULK_JOB_OF_STATUS[status], job_id)
    about = AuditAbout(
        group_id=locked.name, job_id=review.job_id, review_id=review_id, status=status
    )
    await audit.append(locked.transaction, actor, locked.now, "add_review", about)
    return to_response(review.job_id, review_id, locked.now, status, comment)


def to_response(
    job: str, review_id: str, created_at: int, status: ReviewStatus, comment: str
) -> ReviewOut:
    return ReviewOut(
        job_id=job,
        review_id=review_id,
        review_date=timestamps.render_microseconds(created_at),
        status=status,
        comment=comment,
    )
