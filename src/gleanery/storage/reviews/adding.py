"""Adding a review: an append-only history per job, and its effect on the job's outputs."""

from __future__ import annotations

import uuid
from functools import partial

from gleanery.errors import NotFound
from gleanery.models.requests import ReviewIn
from gleanery.models.responses import AuditAbout, FindingOut, ReviewOut
from gleanery.storage import audit, group_lock
from gleanery.storage.bulk_jobs import jobs as bulk_jobs
from gleanery.storage.database import Database
from gleanery.storage.group_lock import LockedGroup
from gleanery.storage.idempotency import IdempotentRequest
from gleanery.storage.reviews import named_outputs
from gleanery.storage.reviews.reading import to_response
from gleanery.values import json_text
from gleanery.values.hashing import hash_parts

_APPEND = """
INSERT INTO reviews
    (organization_id, group_id, job_id, review_id, status, comment, created_at, findings)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
RETURNING id
"""
_SET_LATEST = "UPDATE jobs SET latest_review_id = $3 WHERE organization_id = $1 AND id = $2"
# The bulk job that a status starts. Other statuses leave the outputs as they are.
_BULK_JOB_OF_STATUS: dict[str, group_lock.BulkJobKind] = {
    "approved": "approve",
    "changes_requested": "unapprove",
    "rejected": "unapprove",
}


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
    await named_outputs.check_findings(locked, job_id, review.findings or ())
    review_id, status, comment = uuid.uuid4().hex, review.status, review.comment or ""
    job_key = (locked.organization_id, locked.group_id, job_id)
    [[row_id]] = await locked.transaction.fetch(
        _APPEND, *job_key, review_id, status, comment, locked.now, _findings_text(review)
    )
    await locked.transaction.fetch(_SET_LATEST, locked.organization_id, job_id, row_id)
    if status in _BULK_JOB_OF_STATUS:
        await bulk_jobs.create(locked, _BULK_JOB_OF_STATUS[status], job_id)
    about = AuditAbout(
        group_id=locked.name, job_id=review.job_id, review_id=review_id, status=status
    )
    await audit.append(locked.transaction, actor, locked.now, "add_review", about)
    return to_response(review.job_id, review_id, locked.now, status, comment)


def _findings_text(review: ReviewIn) -> str:
    """Returns the findings as JSON text, as a client gets them."""
    findings = [
        FindingOut(output_id=finding.output_id, path=finding.path, note=finding.note or "")
        for finding in review.findings or ()
    ]
    return json_text.encode(findings).decode()
