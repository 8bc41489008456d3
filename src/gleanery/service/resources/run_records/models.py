"""What clients receive about a run."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypedDict

from gleanery.service.foundation.models import DateTimeOut
from gleanery.service.resources.run_records.rows import Status

Comparison = Literal["pending", "done"]
Removal = Literal["pending", "held", "done", "kept", "replaced"]


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
