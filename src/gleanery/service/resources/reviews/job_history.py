"""The reviews of one job for the console: newest first, with reviewers and findings."""

from __future__ import annotations

from typing import NamedTuple

from gleanery.service.foundation.errors import NotFound
from gleanery.service.foundation.models import ReviewStatus
from gleanery.service.storage import group_lock
from gleanery.service.storage.database import Database, indexed

SHOWN = 20
"""The most reviews of a history."""
MAX_FINDINGS_BYTES = 64 * 1024
"""Findings with more bytes are left out, so that a history is small."""
_MAX_COMMENT = 2000

_JOB = """
SELECT groups.id, jobs.id, jobs.output_count, jobs.approved_count FROM groups
JOIN jobs ON jobs.organization_id = groups.organization_id AND jobs.group_id = groups.id
WHERE groups.organization_id = $1 AND groups.name = $2 AND jobs.name = $3
"""
_OF_JOB = "organization_id = $1 AND group_id = $2 AND job_id = $3"
_NEWEST = indexed(
    f"""
SELECT review_id, created_at, status, substr(comment, 1, {_MAX_COMMENT}), person,
    CASE WHEN octet_length(findings) <= {MAX_FINDINGS_BYTES} THEN findings END,
    CASE WHEN output_ids IS NULL THEN 1 ELSE 0 END
FROM {{reviews}}
WHERE {_OF_JOB} ORDER BY id DESC LIMIT {SHOWN}
""",
    reviews="reviews_of_job",
)
_LAST_APPROVAL = indexed(
    f"""
SELECT review_id, created_at, person FROM {{reviews}}
WHERE {_OF_JOB} AND status = 'approved' AND output_ids IS NULL ORDER BY id DESC LIMIT 1
""",
    reviews="reviews_approving_job",
)


class JobReview(NamedTuple):
    """A review of the job."""

    review_id: str
    created_at: int
    status: ReviewStatus
    comment: str
    """Its beginning, if it is long."""
    person: str | None
    findings: str | None
    """JSON text; None if it is too large."""
    is_of_job: int
    """0 if the review is about single outputs."""


class Approval(NamedTuple):
    """The last approval of the whole job."""

    review_id: str
    created_at: int
    person: str | None


class ReviewedJob(NamedTuple):
    """A job with the counts of its outputs."""

    group_id: int
    id: int
    output_count: int
    approved_count: int


async def find_job(database: Database, group: str, job: str) -> ReviewedJob:
    """Return the job. Raise NotFound."""
    rows = await database.read(_JOB, database.organization_id, group, job)
    if not rows:
        await group_lock.require_group(database, group)
        raise NotFound(("query", "job_id"), "This group has no job with this job_id")
    return ReviewedJob(*rows[0])


async def newest_reviews(database: Database, job: ReviewedJob) -> list[JobReview]:
    rows = await database.read(_NEWEST, database.organization_id, job.group_id, job.id)
    return [JobReview(*row) for row in rows]


async def last_approval(database: Database, job: ReviewedJob) -> Approval | None:
    rows = await database.read(_LAST_APPROVAL, database.organization_id, job.group_id, job.id)
    return Approval(*rows[0]) if rows else None
