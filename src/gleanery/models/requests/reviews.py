"""Bodies and queries about reviews and their samples."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from gleanery.models.fields import (
    MAX_INT64,
    Cursor,
    ListLimit,
    OutputId,
    StoredName,
    Text,
    WholeNumber,
    as_validation_error,
)
from gleanery.models.inputs import Input, Query
from gleanery.models.responses.reviews import ReviewStatus


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
