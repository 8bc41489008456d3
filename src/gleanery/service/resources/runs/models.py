"""What clients send and receive about runs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints
from typing_extensions import TypedDict

from gleanery.service.foundation.field_types import (
    MAX_INT64,
    Name,
    NonEmptyText,
    Text,
    WholeNumber,
    restrict_names,
)
from gleanery.service.foundation.models import Input, PageMetadata, Query
from gleanery.service.resources.run_records.models import RunOut
from gleanery.service.resources.run_records.rows import Status

_MAX_LABELS = 16
_LabelName = Annotated[Text, StringConstraints(min_length=1, max_length=64)]
_LabelValue = Annotated[Text, StringConstraints(max_length=256)]
_Labels = Annotated[
    dict[_LabelName, _LabelValue],
    Field(max_length=_MAX_LABELS, json_schema_extra=restrict_names),
]


class RunIn(Input):
    """Run to start."""

    job_id: Name = Field(description="Job that runs. A new one is created, with its group.")
    labels: _Labels | None = Field(
        default=None,
        description="Arguments of the run, such as a country. Runs with the same labels can be "
        "compared with each other.",
    )


class FinishIn(Input):
    """End of a run."""

    status: Literal["complete", "partial", "failed"] = Field(
        description="complete: the run has sent all outputs that the job has now. Only such a run "
        "makes other outputs missing. partial: it has sent some of them. failed: it has failed."
    )
    message: Text | None = Field(
        default=None, max_length=2000, description="What happened, for people."
    )


class DecisionIn(Input):
    """Decision about a removal that is held."""

    decision: Literal["remove", "keep"] = Field(
        description="remove: the outputs are removed now. keep: they stay, and are removed only "
        "after as many further complete runs as the group's setting says."
    )


class RunsQuery(Query):
    """Filters and paging of runs."""

    job_id: NonEmptyText | None = Field(default=None, description="Only runs of this job.")
    status: Status | None = Field(default=None, description="Only runs with this status.")
    limit: WholeNumber = Field(default=100, ge=1, le=1000, description="Page size.")
    cursor: WholeNumber = Field(
        default=MAX_INT64, ge=0, le=MAX_INT64, description="Only the runs before this position."
    )


class RunPage(TypedDict):
    """Page of runs, newest first."""

    metadata: PageMetadata
    runs: list[RunOut]
