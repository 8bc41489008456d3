"""The handlers of the console's inbox: jobs to review, and expiring sessions."""

from __future__ import annotations

from pydantic import Field
from typing_extensions import TypedDict

from gleanery.service.api.context import AnyContext, RequestContext
from gleanery.service.api.response import Response
from gleanery.service.foundation.field_types import Text
from gleanery.service.foundation.models import Query
from gleanery.service.foundation.values import timestamps
from gleanery.service.foundation.values.json_text import encode
from gleanery.service.resources.access.console_login import grant_of
from gleanery.service.resources.groups import overview
from gleanery.service.resources.groups.overview import BoundedCount, LatestReview, WaitingJob
from gleanery.service.resources.sessions import summaries

_JOBS = 25
_SHOWN_SESSIONS = 50
_EXPIRING_SECONDS = 3 * 86_400
_POSITION = r"^[0-9]{1,18}\.[0-9]{1,18}$"


class InboxQuery(Query):
    """Page of the waiting jobs."""

    after: Text | None = Field(default=None, pattern=_POSITION, description="`next` of a page.")


class Count(TypedDict):
    """A number, or the number up to which was counted."""

    count: int
    has_more: bool


class ReviewSummary(TypedDict):
    """The latest review of a job, with the beginning of its comment.

    The comment is empty and the person is null without the scope ``reviews:read``.
    """

    status: str
    comment: str
    person: str | None
    created_at: int


class WaitingJobOut(TypedDict):
    """A job that waits for a review. Times are in microseconds."""

    group_id: str
    group_name: str | None
    job_id: str
    waits_since: int
    outputs: int
    approved: int
    approved_at: int | None
    new: int | None
    """Null if too many have changed to know."""
    changed: Count
    removed: Count
    review: ReviewSummary | None


class WaitingJobs(TypedDict):
    """Waiting jobs, oldest first."""

    jobs: list[WaitingJobOut]
    next: str | None


class ExpiringSession(TypedDict):
    """A session with records that have expired, or expire within three days."""

    domain: str
    profile: str
    expired: int
    expiring: int
    first_expiry: str


class ExpiringSessions(TypedDict):
    """Sessions by their first expiry."""

    sessions: list[ExpiringSession]
    is_complete: bool
    """False if there are more sessions than are listed, or more records than were read."""


class Inbox(TypedDict):
    """What waits for a person. A part is null if the scopes of the token do not allow it."""

    waiting: WaitingJobs | None
    sessions: ExpiringSessions | None


async def console_inbox(context: RequestContext[InboxQuery, None]) -> Response:
    scopes = grant_of(context).scopes
    found = Inbox(waiting=None, sessions=None)
    if "outputs:read" in scopes:
        found["waiting"] = await _waiting(context)
    if "session:read" in scopes and context.query.after is None:
        found["sessions"] = await _sessions(context)
    return Response(encode(found))


async def _waiting(context: RequestContext[InboxQuery, None]) -> WaitingJobs:
    after = overview.Position(*_numbers(context.query.after))
    page = await overview.list_waiting(context.database, after, _JOBS)
    jobs = [_to_job(context, job) for job in page.jobs]
    return WaitingJobs(jobs=jobs, next=_text(page.next_position))


def _numbers(position: str | None) -> tuple[int, int]:
    first, _, second = (position or "0.0").partition(".")
    return int(first), int(second)


def _text(position: tuple[int, int] | None) -> str | None:
    return None if position is None else f"{position[0]}.{position[1]}"


def _to_job(context: AnyContext, job: WaitingJob) -> WaitingJobOut:
    return WaitingJobOut(
        group_id=job.group,
        group_name=job.group_name,
        job_id=job.job,
        waits_since=job.waits_since,
        outputs=job.output_count,
        approved=job.approved_count,
        approved_at=job.approved_seq,
        new=job.new_count,
        changed=to_count(job.changed),
        removed=to_count(job.removed),
        review=to_review(context, job.review),
    )


def to_count(count: BoundedCount) -> Count:
    return Count(count=count.count, has_more=count.has_more)


def to_review(context: AnyContext, review: LatestReview | None) -> ReviewSummary | None:
    if review is None:
        return None
    may_read = "reviews:read" in grant_of(context).scopes
    return ReviewSummary(
        status=review.status,
        comment=review.comment if may_read else "",
        person=review.person if may_read else None,
        created_at=review.created_at,
    )


async def _sessions(context: AnyContext) -> ExpiringSessions:
    now = context.services.clock() // timestamps.SECOND
    found = await summaries.find_expiring(context.database, now, _EXPIRING_SECONDS)
    sessions = [
        ExpiringSession(
            domain=one.host,
            profile=one.profile,
            expired=one.expired,
            expiring=one.expiring,
            first_expiry=timestamps.render(one.first_expiry),
        )
        for one in found.sessions[:_SHOWN_SESSIONS]
    ]
    is_complete = found.is_complete and len(found.sessions) <= _SHOWN_SESSIONS
    return ExpiringSessions(sessions=sessions, is_complete=is_complete)
