"""Responses about groups and their jobs."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field
from typing_extensions import TypedDict

from gleanery.models.responses.common import DateTime, PageMetadata
from gleanery.service.resources.reviews.models import ReviewOut


class JobOut(TypedDict):
    """Job of a group, which is a lasting source such as one site, with its counts."""

    job_id: str
    outputs: int
    approved: int
    latest_review: ReviewOut | None


class GroupSettingsOut(TypedDict):
    """Group without its jobs and countries."""

    group_id: str
    id: Annotated[
        int, Field(description="Number of the group; `group_id` of local-storage entries.")
    ]
    display_name: str | None
    outputs: int
    last_change: DateTime | None
    cursor: Annotated[int, Field(description="Current end of the change feed.")]
    key_fields: list[str] | None
    schema: dict[str, Any] | None
    retain_days: int | None
    keep_versions: Annotated[
        int, Field(description="Number of earlier versions that each output keeps.")
    ]
    keep_days: Annotated[int, Field(description="Days for which an earlier version is kept.")]


class GroupOut(GroupSettingsOut):
    """Group with its settings, its counts and a page of its jobs."""

    countries: Annotated[
        dict[str, int],
        Field(
            description="Number of outputs by ISO code, or by name if the country is unknown. At "
            "most 1000 countries, in alphabetical order."
        ),
    ]
    has_more_countries: Annotated[
        bool, Field(description="True if the group has more countries than these.")
    ]
    jobs: Annotated[list[JobOut], Field(description="Jobs in the order of their creation.")]
    metadata: Annotated[PageMetadata, Field(description="Link to the next page of jobs.")]
