"""TODO."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, ValidationError, model_validator

from gleanery.models.fields import (
    MAX_INT64,
    DateTime,
    NonEmptyText,
    Region,
    VersionTime,
    WholeNumber,
)
from gleanery.models.inputs import Query, custom_error
from gleanery.values import countries

_APPROVED_IN_VIEW = (
    "cannot be used with view=approved, which has only approved versions: leave out approved"
)


class OutputTime(Query):
    """Time of the version of an output."""

    at: VersionTime | None = Field(
        default=None,
        description="The output as it was then: a cursor, a date-time, or a date, which is its "
        "midnight in UTC. A date-time without a fraction is the end of its second.",
    )


class VersionQuery(Query):
    """Page of an output's versions."""

    limit: WholeNumber = Field(default=100, ge=1, le=1000, description="Page size.")
    cursor: WholeNumber = Field(
        default=MAX_INT64, ge=0, le=MAX_INT64, description="Only what is before this position."
    )


View = Literal["full", "approved"]


class OutputFilters(Query):
    """Filters of outputs."""

    job_id: NonEmptyText | None = Field(
        default=None, description="Only the outputs of this root job."
    )
    created_after: DateTime | None = Field(
        default=None,
        description="Only outputs created or updated at or after this date or date-time. To sync, "
        "give the newest `update_date` that you have received, never the time of your own clock: a "
        "batch is dated shortly before it becomes visible. Outputs of that second come again.",
    )
    url: NonEmptyText | None = Field(
        default=None, description="Only outputs with exactly this source_url."
    )
    country: NonEmptyText | None = Field(
        default=None,
        max_length=countries.MAX_COUNTRY_LENGTH,
        description="Only outputs of this country: name, ISO code or common alias.",
    )
    region: Region | None = Field(
        default=None, description="Only outputs of this ISO 3166-2 region."
    )
    approved: Literal["true", "false"] | None = Field(
        default=None,
        description="true: only outputs that are approved now. false: only the others.",
    )
    view: View = Field(
        default="full",
        description="approved: each output in its last approved version, in the order of the "
        "approvals, whether or not it has a newer value. full: each output as it is now.",
    )

    @model_validator(mode="after")
    def _reject_approved_in_view(self) -> Self:
        """Rejects the filter by the present approval in the approved view."""
        if self.view == "approved" and self.approved is not None:
            error = custom_error("approved_in_view", _APPROVED_IN_VIEW, ("approved",))
            raise ValidationError.from_exception_data(type(self).__name__, [error])
        return self


class OutputQuery(OutputFilters):
    """Filters and paging of outputs."""

    limit: WholeNumber = Field(default=10, ge=1, le=1000, description="Page size.")
    cursor: WholeNumber = Field(
        default=0, ge=0, le=MAX_INT64, description="Only what comes after this position."
    )
