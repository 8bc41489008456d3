"""What clients send and receive about reviews and their samples."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired

from pydantic import AfterValidator, Field
from typing_extensions import TypedDict

from gleanery.service.console.values import Node
from gleanery.service.foundation.field_types import (
    MAX_INT64,
    Cursor,
    ListLimit,
    OutputId,
    StoredName,
    Text,
    WholeNumber,
    as_validation_error,
)
from gleanery.service.foundation.models import DateTimeOut, Input, Query, ReviewStatus
from gleanery.service.resources.history.models import FieldChange
from gleanery.service.resources.outputs.models import OutputOut

SampleReason = Literal["random", "changed", "rare_shape", "outlier"]
"""Why an output is in a sample."""


class FindingIn(Input):
    """What a reviewer has found in one output."""

    output_id: OutputId = Field(description="Output of the reviewed job.")
    path: Text | None = Field(
        default=None,
        max_length=1000,
        description="Path inside `data`, such as `offer.price`. Default: the whole output.",
    )
    note: Text | None = Field(default=None, max_length=2000, description="Default: empty.")


def _output_ids(ids: list[str]) -> list[str]:
    if len(set(ids)) != len(ids):
        raise ValueError("must not contain an output_id twice")
    return ids


class ReviewIn(Input):
    """Review of a job's outputs."""

    job_id: StoredName = Field(description="Job whose outputs are reviewed.")
    status: ReviewStatus
    comment: Text | None = Field(default=None, description="Default: empty.")
    as_of: Cursor | None = Field(
        default=None,
        description="Cursor of the group, from the change feed or a sample. Outputs whose value "
        "was stored later keep their approval as it is. Default: the present.",
    )
    output_ids: (
        Annotated[
            list[OutputId],
            Field(min_length=1, max_length=1000),
            AfterValidator(as_validation_error("output_ids", _output_ids)),
        ]
        | None
    ) = Field(
        default=None,
        description="Only these outputs of the job. Such a review is in the history, and does not "
        "become the latest review of the job. Default: all outputs of the job.",
        json_schema_extra={"uniqueItems": True},
    )
    findings: list[FindingIn] | None = Field(
        default=None,
        max_length=1000,
        description="What the reviewer has found in single outputs. They do not change them.",
    )


class ReviewSampleQuery(Query):
    """Job and size of a sample of outputs."""

    job_id: StoredName = Field(description="Job whose outputs are reviewed.")
    seed: Text | None = Field(
        default=None,
        max_length=200,
        description="Any text. While no output of the job changes, the same seed gives the same "
        "sample. Default: a new one, which the response contains.",
    )
    size: WholeNumber = Field(default=50, ge=1, le=200, description="Number of outputs.")


class ReviewQuery(Query):
    """Choice between the latest reviews and all reviews."""

    history: Literal["true", "false"] = Field(
        default="false",
        description="true: all reviews, newest first. false: the latest review of each job.",
    )
    limit: ListLimit | None = Field(
        default=None, description="Page size. Without it, as many reviews as fit."
    )
    cursor: WholeNumber = Field(
        default=MAX_INT64, ge=0, le=MAX_INT64, description="Cursor from the Link header."
    )


class ReviewOut(TypedDict):
    """Review of a job."""

    job_id: str
    review_id: str
    review_date: DateTimeOut
    status: ReviewStatus
    comment: str


class AddedReview(ReviewOut):
    """Added review. With `output_ids`, it lists the outputs to which it does not apply."""

    skipped_output_ids: NotRequired[
        Annotated[
            list[str],
            Field(
                description="Those of `output_ids` whose present value was stored after `as_of`. "
                "The review does not change the approval of that value."
            ),
        ]
    ]


class FindingOut(TypedDict):
    """What a reviewer has found in one output."""

    output_id: str
    path: Annotated[str | None, Field(description="Path inside `data`; null: the whole output.")]
    note: str


class ReviewDetails(ReviewOut):
    """Review with what it is about."""

    person: Annotated[
        str | None,
        Field(description="Name of the reviewer in the console; null: added with a token alone."),
    ]
    as_of: Annotated[
        int | None,
        Field(description="It applies to values that were stored up to this position; null: all."),
    ]
    output_ids: Annotated[
        list[str] | None, Field(description="It applies only to these; null: the whole job.")
    ]
    skipped_output_ids: Annotated[
        list[str] | None, Field(description="Those of `output_ids` that had a later value.")
    ]
    findings: list[FindingOut]


class SampledOutput(TypedDict):
    """Output of a sample, with the reason for its choice."""

    reason: Annotated[
        SampleReason,
        Field(
            description="random: each output of the job was equally likely. changed: it has a "
            "newer value than its last approved version. rare_shape: few outputs of the job have "
            "this kind of value in a field, or few lack the field. outlier: it has an extreme "
            "value."
        ),
    ]
    detail: Annotated[str | None, Field(description="What is unusual; null if nothing is.")]
    output: OutputOut
    approved_output: Annotated[
        OutputOut | None,
        Field(description="Last approved version, if the output has a newer value; else null."),
    ]
    fields: Annotated[
        list[FieldChange] | None,
        Field(
            description="What has changed since `approved_output`. null if there is none, or if "
            "the text is too large."
        ),
    ]


class ReviewSample(TypedDict):
    """Sample of a job's outputs for a review."""

    seed: Annotated[str, Field(description="Text that gives the same sample again.")]
    job_id: str
    cursor: Annotated[int, Field(description="Send it as `as_of` of the review.")]
    outputs: Annotated[int, Field(description="Number of outputs of the job.")]
    sample: list[SampledOutput]


# --- the console --------------------------------------------------------------------------------


class SampleQuery(Query):
    """Job and size of a sample of outputs."""

    job_id: StoredName
    seed: Text | None = Field(default=None, max_length=200)
    size: WholeNumber = Field(default=100, ge=1, le=300)
    as_of: WholeNumber | None = Field(default=None, ge=0, le=MAX_INT64)


class ChosenOutputs(Input):
    """An earlier sample, to read it again."""

    job_id: StoredName
    as_of: Cursor
    outputs: dict[OutputId, SampleReason] = Field(min_length=1, max_length=300)
    """The reason for each output, in the order of the sample."""


class LaterQuery(Input):
    """The position and the outputs of a sample."""

    job_id: StoredName
    as_of: Cursor
    output_ids: list[OutputId] = Field(max_length=300)


class FieldsQuery(Query):
    """A page of the fields of one output."""

    job_id: StoredName
    stored: WholeNumber = Field(ge=0, le=MAX_INT64)
    as_of: WholeNumber = Field(ge=0, le=MAX_INT64)
    offset: WholeNumber = Field(default=0, ge=0, le=MAX_INT64)


class FieldRow(TypedDict):
    """A field of an output."""

    at: int
    """Its place in the fields of the sample."""
    after: Node | None
    """The present value; null if there is none."""
    before: Node | None
    """The last approved value, if the field has changed since then."""
    is_changed: bool


class NamedRow(TypedDict):
    """A field of an output, by its path."""

    path: str
    after: Node | None
    before: Node | None
    is_changed: bool


class FieldPage(TypedDict):
    """A page of the fields of an output, in the order of its data."""

    rows: list[NamedRow]
    next_offset: int | None


class LaterValues(TypedDict):
    """What was stored or deleted after the position of a sample."""

    outputs: int
    """Number of outputs that the job has now."""
    later: dict[str, int]
    """Positions of later values, by output."""
    deleted: list[str]


class SampleFile(TypedDict):
    """A file of an output."""

    field: str
    file_type: str
    url: str
    """Works without a session for some minutes."""


class SampleOutput(TypedDict):
    """An output to review."""

    output_id: str
    version: str
    """Differs between two versions of the output; an approval does not change it."""
    stored: int
    """Position at which the value was stored. After ``cursor``: the review does not cover it."""
    source_url: str
    last_scraped_date: str
    reason: SampleReason
    detail: str | None
    approval: str
    """``current``: the present value is approved. ``older``: an earlier one is. ``none``."""
    before: Literal["approved", "before"] | None
    """Which version ``before`` of the rows is of: the last approved one, or the one before."""
    rows: list[FieldRow]
    left_out: int
    """Number of fields that are not in the rows."""
    files: list[SampleFile]


class LastApproval(TypedDict):
    """The last approval of the whole job."""

    review_id: str
    review_date: str
    person: str | None


class ConsoleSample(TypedDict):
    """A sample of the outputs of a job."""

    seed: str
    job_id: str
    cursor: int
    """``as_of`` of the review."""
    outputs: int
    last_approval: LastApproval | None
    fields: list[str]
    """Paths in the order in which they are shown. Those outside ``data`` begin with ``$.``."""
    sample: list[SampleOutput]


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
