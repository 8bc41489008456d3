"""What clients send and receive about outputs: queries, outputs of scrapers, and pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, Self

from pydantic import Field, ValidationError, model_validator
from pydantic_core import InitErrorDetails
from typing_extensions import TypedDict

from gleanery.service.foundation.field_types import (
    MAX_INT64,
    DateTime,
    Name,
    NonEmptyText,
    Region,
    VersionTime,
    WholeNumber,
)
from gleanery.service.foundation.models import (
    DateTimeOut,
    ErrorDetailOut,
    Input,
    PageMetadata,
    Query,
    WriteCounts,
    custom_error,
)
from gleanery.service.foundation.values import countries
from gleanery.service.resources.files.models import CheckedFile, FieldName, FileIn, FileOut

_APPROVED_IN_VIEW = (
    "cannot be used with view=approved, which has only approved versions: leave out approved"
)

_MISSING_IN_VIEW = (
    "cannot be used with view=approved: leave out one of them. An output that is removed because "
    "it is missing leaves the view"
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
    missing: Literal["true"] | None = Field(
        default=None,
        description="true: only outputs that the last complete run of their job did not send.",
    )

    @model_validator(mode="after")
    def _reject_in_view(self) -> Self:
        """Rejects the filters by the present state of outputs in the approved view."""
        errors = []
        if self.view == "approved" and self.approved is not None:
            errors.append(custom_error("approved_in_view", _APPROVED_IN_VIEW, ("approved",)))
        if self.view == "approved" and self.missing is not None:
            errors.append(custom_error("missing_in_view", _MISSING_IN_VIEW, ("missing",)))
        if errors:
            raise ValidationError.from_exception_data(type(self).__name__, errors)
        return self


class OutputQuery(OutputFilters):
    """Filters and paging of outputs."""

    limit: WholeNumber = Field(default=10, ge=1, le=1000, description="Page size.")
    cursor: WholeNumber = Field(
        default=0, ge=0, le=MAX_INT64, description="Only what comes after this position."
    )


_BARE_ITEM = (
    "is missing: bare items need job_id and url_field. Without both, and without key_field, each "
    "element is an output with job_id, source_url and data"
)
_NOT_AN_OUTPUT = (
    "is not an output, which has job_id, source_url and data. For bare items, as scrapers write "
    "them, add the parameters job_id and url_field to the URL"
)


class OutputIn(Input):
    """Scraped output to store."""

    job_id: Name = Field(
        description="Lasting source of the output, such as one site or one spider. It is not one "
        "run: a new `job_id` for each run stores every output again."
    )
    source_url: NonEmptyText
    data: dict[str, Any] = Field(
        description="Integers keep every digit. A number with a fraction or an exponent is rounded "
        "to a double: send one with more digits as a string."
    )
    key: NonEmptyText | None = Field(
        default=None, description="Identifies the output when it is scraped again."
    )
    tags: dict[str, Any] | None = Field(
        default=None,
        description="The filters `country` and `region` use the members with these names.",
    )
    files: Annotated[list[CheckedFile], Field(max_length=200)] | None = Field(
        default=None, description="Files of the output."
    )

    @classmethod
    def _problems(cls, value: dict[str, Any]) -> list[InitErrorDetails]:
        if value.keys().isdisjoint(("job_id", "source_url", "data")):
            return [custom_error("bare_item", _NOT_AN_OUTPUT, ())]
        return super()._problems(value)

    def checked(self) -> Output:
        return Output(self.job_id, self.source_url, self.data, self.key, self.tags, self.files)


class Output(NamedTuple):
    """Validated output."""

    job_id: str
    source_url: str
    data: dict[str, Any]
    key: str | None = None
    tags: dict[str, Any] | None = None
    files: Sequence[FileIn] | None = None


class IngestQuery(Query):
    """How the elements of a batch are read."""

    job_id: Name | None = Field(
        default=None,
        description="Job of bare items, together with `url_field`. Each element of the body is "
        "then the `data` of an output.",
    )
    url_field: FieldName | None = Field(
        default=None, description="Member of a bare item that is its `source_url`."
    )
    key_field: FieldName | None = Field(
        default=None,
        description="Member of a bare item that is its `key`: a string or an integer. Default: the "
        "group's `key_fields`, or else the URL.",
    )
    on_error: Literal["stop", "skip"] = Field(
        default="stop",
        description="stop: an invalid element is an error of the request. skip: the valid elements "
        "are stored, and the response lists the others.",
    )
    run_id: NonEmptyText | None = Field(
        default=None,
        description="Run to which the outputs belong, which are all of its job. Default: the "
        "implicit run of each job, which ends after 30 minutes without outputs.",
    )

    @model_validator(mode="after")
    def _require_both(self) -> IngestQuery:
        """Require job_id and url_field, if one of the parameters of bare items is given."""
        given = {"job_id": self.job_id, "url_field": self.url_field, "key_field": self.key_field}
        missing = [name for name in ("job_id", "url_field") if given[name] is None]
        if missing and any(given.values()):
            errors = [custom_error("missing_parameter", _BARE_ITEM, (name,)) for name in missing]
            raise ValidationError.from_exception_data(type(self).__name__, errors)
        return self


class OutputResult(TypedDict):
    """Result of one output of a batch."""

    id: int
    output_id: str
    change: Literal["created", "updated", "unchanged"]


class IngestCounts(WriteCounts):
    """Result of stored outputs: the counts and, with `on_error=skip`, the skipped elements."""

    skipped: NotRequired[
        Annotated[int, Field(description="With `on_error=skip`: number of skipped elements.")]
    ]
    errors: NotRequired[
        Annotated[
            list[ErrorDetailOut],
            Field(description="With `on_error=skip`: the first 100 errors of skipped elements."),
        ]
    ]


class IngestResult(IngestCounts):
    """Result of a batch: the counts, and one result per element of the batch, in its order."""

    results: Annotated[
        list[OutputResult | None], Field(description="null for an element that is skipped.")
    ]


class NdjsonResult(IngestCounts):
    """Result of an NDJSON body: the counts, and the number of its lines."""

    lines: int


class OutputOut(TypedDict):
    """Stored output."""

    source_url: str
    data: dict[str, Any]
    id: int
    output_id: str
    root_job_id: str
    create_date: DateTimeOut
    update_date: DateTimeOut
    last_scraped_date: DateTimeOut
    key_hash: str
    value_hash: str
    is_approved: bool
    tags: dict[str, Any]
    files: list[FileOut]


class OutputPage(TypedDict):
    """Page of a group's outputs, in the order of their last change."""

    metadata: PageMetadata
    items: list[OutputOut]
