"""Responses about reviews and their samples."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from gleanery.models.responses.common import DateTime
from gleanery.service.resources.history.models import FieldChange
from gleanery.service.resources.outputs.models import OutputOut

ReviewStatus = Literal["pending", "in_review", "approved", "changes_requested", "rejected"]


class ReviewOut(TypedDict):
    """Review of a job."""

    job_id: str
    review_id: str
    review_date: DateTime
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
        Literal["random", "changed", "rare_shape", "outlier"],
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
