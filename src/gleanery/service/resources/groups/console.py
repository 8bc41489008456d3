"""The handlers of the console's groups and their jobs."""

from __future__ import annotations

from pydantic import Field
from typing_extensions import TypedDict

from gleanery.service.api.context import AnyContext, RequestContext
from gleanery.service.api.response import Response
from gleanery.service.foundation.field_types import MAX_INT64, Text, WholeNumber
from gleanery.service.foundation.models import Query
from gleanery.service.foundation.values import json_text
from gleanery.service.foundation.values.json_text import encode
from gleanery.service.resources.fields.reports import read_fill_rate
from gleanery.service.resources.groups import overview
from gleanery.service.resources.groups.console_inbox import (
    Count,
    ReviewSummary,
    to_count,
    to_review,
)
from gleanery.service.resources.groups.overview import GroupOverview, JobOverview

_GROUPS = 25
_JOBS = 50
_MAX_NAME = 200
_MAX_PATH = 200
"""Characters of the path of a field; its names come from data."""


class ConsoleGroupsQuery(Query):
    """Page of the groups."""

    after: Text = Field(default="", max_length=_MAX_NAME, description="`next` of a page.")


class ConsoleJobsQuery(Query):
    """Page of the jobs of a group."""

    after: WholeNumber = Field(default=0, ge=0, le=MAX_INT64, description="`next` of a page.")


class FillRateOut(TypedDict):
    """The mean fill rate of the fields of a group, and its least filled field."""

    mean: float
    lowest: float
    lowest_path: str


class GroupSummary(TypedDict):
    """A group. Times are in microseconds."""

    group_id: str
    display_name: str | None
    outputs: int
    approved: int
    last_change: int | None
    changes: list[int]
    """Changes of each of the last 30 days, oldest first. Days begin at midnight UTC."""


class ListedGroup(GroupSummary):
    """A group in the list of groups."""

    jobs: Count
    fill_rate: FillRateOut | None


class ListedGroups(TypedDict):
    """Groups by name."""

    groups: list[ListedGroup]
    next: str | None


class ListedJob(TypedDict):
    """A job. Times are in microseconds."""

    job_id: str
    outputs: int
    approved: int
    waits_since: int | None
    last_run_at: int | None
    review: ReviewSummary | None


class JobsOfGroup(TypedDict):
    """A group with a page of its jobs."""

    group: GroupSummary
    jobs: list[ListedJob]
    next: int | None


async def console_groups(context: RequestContext[ConsoleGroupsQuery, None]) -> Response:
    now = context.services.clock()
    groups, last = await overview.list_groups(context.database, context.query.after, _GROUPS, now)
    listed = [
        ListedGroup(
            **_to_group(group),
            jobs=to_count(group.jobs),
            fill_rate=await _fill_rate(context, group.id),
        )
        for group in groups
    ]
    return Response(encode(ListedGroups(groups=listed, next=last)))


async def _fill_rate(context: AnyContext, group_id: int) -> FillRateOut | None:
    services = context.services
    found = await read_fill_rate(
        context.database, services.computations, group_id, services.clock()
    )
    if found is None:
        return None
    path = json_text.path_of_names(found.lowest_path)[:_MAX_PATH]
    return FillRateOut(mean=round(found.mean, 4), lowest=found.lowest, lowest_path=path)


async def console_jobs(context: RequestContext[ConsoleJobsQuery, None]) -> Response:
    database, now = context.database, context.services.clock()
    group = await overview.read_group(database, context.path["group_id"], now)
    jobs, last = await overview.list_jobs(database, group.id, context.query.after, _JOBS)
    listed = [_to_job(context, job) for job in jobs]
    found = JobsOfGroup(group=_to_group(group), jobs=listed, next=last)
    return Response(encode(found))


def _to_group(group: GroupOverview) -> GroupSummary:
    return GroupSummary(
        group_id=group.name,
        display_name=group.display_name,
        outputs=group.output_count,
        approved=group.approved_count,
        last_change=group.last_seq or None,
        changes=group.daily_changes,
    )


def _to_job(context: AnyContext, job: JobOverview) -> ListedJob:
    return ListedJob(
        job_id=job.name,
        outputs=job.output_count,
        approved=job.approved_count,
        waits_since=job.waits_since,
        last_run_at=job.last_run_at,
        review=to_review(context, job.review),
    )
