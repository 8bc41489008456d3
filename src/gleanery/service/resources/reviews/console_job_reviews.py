"""The handler of the console's history of reviews: one job, with reviewers and findings."""

from __future__ import annotations

import json

from typing_extensions import TypedDict

from gleanery.service.api.context import RequestContext
from gleanery.service.api.response import Response
from gleanery.service.foundation.field_types import StoredName
from gleanery.service.foundation.models import Query, ReviewStatus
from gleanery.service.foundation.values import timestamps
from gleanery.service.foundation.values.json_text import encode
from gleanery.service.resources.reviews import job_history
from gleanery.service.resources.reviews.console_sample import LastApproval, describe
from gleanery.service.resources.reviews.models import FindingOut

_SHOWN_FINDINGS = 50


class JobReviewsQuery(Query):
    """The job."""

    job_id: StoredName


class JobReviewOut(TypedDict):
    """A review of the job."""

    review_id: str
    review_date: str
    status: ReviewStatus
    comment: str
    """Its beginning, if it is long."""
    person: str | None
    is_of_job: bool
    """False if the review is about single outputs."""
    findings: list[FindingOut]
    has_more_findings: bool


class JobReviews(TypedDict):
    """The newest reviews of a job, and the counts of its outputs."""

    outputs: int
    approved: int
    last_approval: LastApproval | None
    reviews: list[JobReviewOut]


async def get_job_reviews(context: RequestContext[JobReviewsQuery, None]) -> Response:
    database = context.database
    job = await job_history.find_job(database, context.path["group_id"], context.query.job_id)
    reviews = await job_history.newest_reviews(database, job)
    body = JobReviews(
        outputs=job.output_count,
        approved=job.approved_count,
        last_approval=describe(await job_history.last_approval(database, job)),
        reviews=[_describe_review(review) for review in reviews],
    )
    return Response(encode(body))


def _describe_review(review: job_history.JobReview) -> JobReviewOut:
    findings = json.loads(review.findings or "[]")
    return JobReviewOut(
        review_id=review.review_id,
        review_date=timestamps.render_microseconds(review.created_at),
        status=review.status,
        comment=review.comment,
        person=review.person,
        is_of_job=bool(review.is_of_job),
        findings=findings[:_SHOWN_FINDINGS],
        has_more_findings=review.findings is None or len(findings) > _SHOWN_FINDINGS,
    )
