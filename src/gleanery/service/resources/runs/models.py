"""What clients send and receive about runs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints
from typing_extensions import TypedDict

from gleanery.service.foundation.field_types import MAX_INT64, Name, NonEmptyText, Text, WholeNumber
from gleanery.service.foundation.models import DateTimeOut, Input, PageMetadata, Query
from gleanery.service.resources.run_records.rows import Status

Comparison = Literal["pending", "done"]
Removal = Literal["pending", "held", "done", "kept", "replaced"]
_MAX_LABELS = 16
_LabelName = Annotated[Text, StringConstraints(min_length=1, max_length=64)]
_LabelValue = Annotated[Text, StringConstraints(max_length=256)]


class RunIn(Input):
    """Run to start."""

    job_id: Name = Field(description="Job that runs. A new one is created, with its group.")
    labels: Annotated[dict[_LabelName, _LabelValue], Field(max_length=_MAX_LABELS)] | None = Field(
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


class RunCounts(TypedDict):
    """Numbers of outputs. A run counts each output once, with its strongest change."""

    created: int
    updated: int
    unchanged: int
    rejected: Annotated[
        int,
        Field(
            description="Elements that were not valid, each time they were sent: those that were "
            "skipped, and those that the error of a refused request names."
        ),
    ]
    missing: Annotated[
        int,
        Field(
            description="Of a complete run: outputs of the job that no run has sent since its "
            "start."
        ),
    ]
    removed: Annotated[
        int,
        Field(description="Of a complete run: outputs that were removed because they are missing."),
    ]


class RunOut(TypedDict):
    """Run of a job."""

    run_id: str
    group_id: str
    job_id: str
    status: Annotated[
        Status,
        Field(
            description="abandoned: it was started and then silent for the group's "
            "`run_timeout_minutes`. unknown: nobody had started it, and there was a pause of 30 "
            "minutes."
        ),
    ]
    start_date: DateTimeOut
    finish_date: Annotated[
        DateTimeOut | None,
        Field(description="Of a run that ended by silence, the time of its last outputs."),
    ]
    message: str | None
    labels: dict[str, str]
    is_implicit: Annotated[
        bool, Field(description="true: nobody has started it. It began with outputs.")
    ]
    counts: RunCounts
    comparison: Annotated[
        Comparison | None,
        Field(
            description="Of a complete run: pending while its outputs are compared with those of "
            "the job, which takes time if the job has more than 10,000. Then done."
        ),
    ]
    removal: Annotated[
        Removal | None,
        Field(
            description="Removal of outputs that were missing in several complete runs in a row. "
            "held: it waits for a decision, because the outputs are a large share of the job. "
            "kept: the decision was to keep them. replaced: a later complete run counts instead. "
            "null: there is nothing to remove."
        ),
    ]
    removable: Annotated[int, Field(description="Outputs that the removal is about.")]


class RunPage(TypedDict):
    """Page of runs, newest first."""

    metadata: PageMetadata
    runs: list[RunOut]
