"""Reading reviews: the latest of each job, all of a group, one with findings, those of a job."""

from __future__ import annotations

from typing import NamedTuple

from gleanery.service.foundation.errors import NotFound, no_review
from gleanery.service.foundation.models import ReviewStatus
from gleanery.service.foundation.values import json_text, timestamps
from gleanery.service.resources.reviews.models import ReviewOut
from gleanery.service.storage import group_lock, paging
from gleanery.service.storage.database import Database, Row, Statement, indexed
from gleanery.service.storage.paging import ListPage, ListQuery, PageLimits

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
FROM {{reviews}}
WHERE reviews.organization_id = $1 AND reviews.group_id = {_GROUP_ID} AND reviews.id < $2
"""
_HISTORY_SIZES = indexed(
    f"""
SELECT reviews.id, {_FRAME_BYTES} + octet_length(comment) {_HISTORY}
ORDER BY reviews.id DESC LIMIT $3
""",
    reviews="reviews_of_group",
)
_HISTORY_ROWS = indexed(
    f"""
SELECT {_JOB_NAME}, review_id, created_at, status, comment, reviews.id {_HISTORY}
    AND reviews.id >= $3 ORDER BY reviews.id DESC
""",
    reviews="reviews_of_group",
)
_ONE = indexed(
    f"""
SELECT {_JOB_NAME}, review_id, created_at, status, comment,
    person, as_of, output_ids, skipped_output_ids, findings
FROM {{reviews}}
WHERE organization_id = $1 AND review_id = $2 AND +group_id = (
    SELECT id FROM groups WHERE organization_id = $1 AND name = $3)
""",
    reviews="reviews_by_review_id",
)


async def latest_reviews(database: Database, group: str, limits: PageLimits) -> ListPage:
    """Read a page of the newest reviews of each reviewed job, newest first."""
    return await _read_page(database, group, _LATEST_SIZES, _LATEST_ROWS, limits)


async def review_history(database: Database, group: str, limits: PageLimits) -> ListPage:
    """Read a page of all reviews of the group, newest first."""
    return await _read_page(database, group, _HISTORY_SIZES, _HISTORY_ROWS, limits)


async def read_review(database: Database, group: str, review_id: str) -> bytes:
    """Return one review with its findings, as JSON text. Raise NotFound."""
    rows = await database.read(_ONE, database.organization_id, review_id, group)
    if not rows:
        await group_lock.require_group(database, group)
        raise no_review()
    *review, person, as_of, output_ids, skipped_output_ids, findings = rows[0]
    # The arrays can be long. They are stored as JSON text, so they are not parsed.
    members = (
        json_text.encode(to_response(*review)).removesuffix(b"}"),
        b'"person":' + json_text.encode(person),
        b'"as_of":' + json_text.encode(as_of),
        b'"output_ids":' + (output_ids or "null").encode(),
        b'"skipped_output_ids":' + (skipped_output_ids or "null").encode(),
        b'"findings":' + findings.encode(),
    )
    return b",".join(members) + b"}"


async def _read_page(
    database: Database, group: str, sizes: Statement, rows: Statement, limits: PageLimits
) -> ListPage:
    query = ListQuery(database, sizes, rows, (group,), _encode)
    page = await paging.read_page(query, limits)
    if not page.records:
        await group_lock.require_group(database, group)
    return page


def _encode(row: Row) -> bytes:
    return json_text.encode(to_response(*row[:-1]))


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


# --- the reviews of one job, for the console ----------------------------------------------------

SHOWN_REVIEWS = 20
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
WHERE {_OF_JOB} ORDER BY id DESC LIMIT {SHOWN_REVIEWS}
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
