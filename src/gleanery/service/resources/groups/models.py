"""What clients send and receive about groups and their jobs."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Field
from typing_extensions import TypedDict

from gleanery.service.foundation.field_types import (
    MAX_INT64,
    MAX_NAME_LENGTH,
    Days,
    Minutes,
    NonEmptyText,
    RunCount,
    Text,
    VersionCount,
    WholeNumber,
    as_validation_error,
)
from gleanery.service.foundation.models import DateTimeOut, Input, PageMetadata, Query
from gleanery.service.resources.reviews.models import ReviewOut
from gleanery.service.resources.run_records.comparison import DEFAULT_MAX_SHARE


def _member_names(names: list[str]) -> list[str]:
    if len(set(names)) != len(names):
        raise ValueError("must not contain a name twice")
    return names


class MissingSettings(Input):
    """What happens with outputs that complete runs do not send any more."""

    after_runs: RunCount | None = Field(
        default=None,
        description="An output is removed after it was missing in this many complete runs in a "
        "row. null: it is never removed.",
    )
    max_share: Annotated[float, Field(ge=0, le=1)] = Field(
        default=DEFAULT_MAX_SHARE,
        description="If more than this share of the outputs of the job would be removed, the "
        "removal is held until a person decides.",
    )


class GroupSettings(Input):
    """Settings of a group. A missing setting is reset."""

    display_name: Text | None = Field(default=None, max_length=MAX_NAME_LENGTH)
    key_fields: (
        Annotated[
            list[Text],
            Field(min_length=1, max_length=16),
            AfterValidator(as_validation_error("key_fields", _member_names)),
        ]
        | None
    ) = Field(
        default=None,
        description="Members of data that make the key of an output without `key`. If one of them "
        "is missing or null, the key is `source_url`.",
        json_schema_extra={"uniqueItems": True},
    )
    schema_: dict[str, Any] | None = Field(
        default=None,
        alias="schema",
        description="JSON Schema (2020-12) that the data of every stored output must meet.",
    )
    retain_days: Days | None = Field(
        default=None,
        description="Days after which an output is deleted that no scraper has sent again. A job "
        "that has stored nothing since then keeps its outputs.",
    )
    keep_versions: VersionCount | None = Field(
        default=None,
        description="Number of earlier versions that each output keeps. 0 keeps none. The default "
        "is 20.",
    )
    keep_days: Days | None = Field(
        default=None,
        description="Days for which an earlier version is kept after another one has replaced it. "
        "The default is 90.",
    )
    run_timeout_minutes: Minutes | None = Field(
        default=None,
        description="Minutes without outputs after which a run that was started is abandoned. The "
        "default is 360.",
    )
    missing: MissingSettings | None = Field(
        default=None,
        description="When outputs are removed that complete runs do not send any more. The "
        "default is never.",
    )


class GroupsQuery(Query):
    """Page of the organization's groups."""

    limit: WholeNumber = Field(default=100, ge=1, le=1000, description="Page size.")
    cursor: WholeNumber = Field(
        default=0,
        ge=0,
        le=MAX_INT64,
        description="Only the groups after this `id`. The Link header has the next page.",
    )


class GroupQuery(Query):
    """Page of a group's jobs."""

    limit: WholeNumber = Field(default=1000, ge=1, le=1000, description="Page size.")
    cursor: WholeNumber = Field(
        default=0, ge=0, le=MAX_INT64, description="Only the jobs after this position."
    )


class FieldsQuery(Query):
    """Choice of a job."""

    job_id: NonEmptyText | None = Field(default=None, description="Only the outputs of this job.")


class JobOut(TypedDict):
    """Job of a group, which is a lasting source such as one site, with its counts."""

    job_id: str
    outputs: int
    approved: int
    latest_review: ReviewOut | None


class MissingSettingsOut(TypedDict):
    """When outputs are removed that complete runs do not send any more."""

    after_runs: int | None
    max_share: float


class GroupSettingsOut(TypedDict):
    """Group without its jobs and countries."""

    group_id: str
    id: Annotated[
        int, Field(description="Number of the group; `group_id` of local-storage entries.")
    ]
    display_name: str | None
    outputs: int
    last_change: DateTimeOut | None
    cursor: Annotated[int, Field(description="Current end of the change feed.")]
    key_fields: list[str] | None
    schema: dict[str, Any] | None
    retain_days: int | None
    keep_versions: Annotated[
        int, Field(description="Number of earlier versions that each output keeps.")
    ]
    keep_days: Annotated[int, Field(description="Days for which an earlier version is kept.")]
    run_timeout_minutes: Annotated[
        int, Field(description="Minutes without outputs after which a run is abandoned.")
    ]
    missing: MissingSettingsOut


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
