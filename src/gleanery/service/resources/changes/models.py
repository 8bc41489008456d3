"""What clients send and receive about the change feed."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired

from pydantic import Field, ValidationError, model_validator
from typing_extensions import TypedDict

from gleanery.service.foundation.field_types import MAX_INT64, DateTime, WholeNumber
from gleanery.service.foundation.models import DateTimeOut, PageMetadata, Query, custom_error
from gleanery.service.resources.history.models import FieldChange
from gleanery.service.resources.outputs.models import OutputOut, View

_DIFF_IN_VIEW = "is not possible in the approved view: leave out diff or view"


class ChangeQuery(Query):
    """Part of the change order to read, and the time to wait for a change."""

    cursor: WholeNumber = Field(
        default=0, ge=0, le=MAX_INT64, description="Only what comes after this position."
    )
    limit: WholeNumber = Field(default=100, ge=1, le=1000, description="Page size.")
    changed_after: DateTime | None = Field(
        default=None,
        description="Only changes at or after this date or date-time. If deletions since then are "
        "no longer known, the response is 410.",
    )
    wait: WholeNumber = Field(
        default=0, ge=0, le=60, description="Seconds to wait if there is no change yet."
    )
    view: View = Field(
        default="full",
        description="full: all outputs. approved: each output in its last approved version. An "
        "output is created in this view by its first approval, updated by a later one, and deleted "
        "when its approval is withdrawn.",
    )
    diff: Literal["true", "false"] = Field(
        default="false",
        description="true: each update has `fields`, which lists its changed fields. Only for the "
        "view `full`.",
    )

    @model_validator(mode="after")
    def _require_full_view(self) -> ChangeQuery:
        """Rejects changed fields of the approved view, of which earlier states are not kept."""
        if self.diff == "true" and self.view != "full":
            error = custom_error("diff_in_view", _DIFF_IN_VIEW, ("diff",))
            raise ValidationError.from_exception_data(type(self).__name__, [error])
        return self


class DeletedOutput(TypedDict):
    """Identification of a deleted output."""

    id: int
    output_id: str
    root_job_id: str


class ChangeOut(TypedDict):
    """One change of an output.

    `create`: the output is new, and has not changed after its creation. `update`: its content or
    approval has changed, even if the client has never seen it. `delete`: it was deleted.
    """

    change: Literal["create", "update", "delete"]
    cursor: Annotated[
        int,
        Field(
            description="Position after this change. A client that continues from it misses "
            "nothing. The cursors of one client never decrease."
        ),
    ]
    change_date: DateTimeOut
    group_id: str
    output_id: str
    output: OutputOut | DeletedOutput
    reason: NotRequired[
        Annotated[
            Literal["missing"],
            Field(
                description="Only of a deletion by the service: complete runs of the job did not "
                "send the output any more."
            ),
        ]
    ]
    fields: NotRequired[
        Annotated[
            list[FieldChange] | None,
            Field(
                description="Only of an update, with `diff=true`: what has changed since the "
                "cursor of the request, or since the version before if the output did not exist "
                "then. null if that version is no longer kept, or if the text or the versions "
                "are too large."
            ),
        ]
    ]


class ChangePage(TypedDict):
    """Changes, oldest first, and the cursor to continue from."""

    metadata: Annotated[
        PageMetadata,
        Field(description="Link to further changes. Both members are null if there are none yet."),
    ]
    cursor: Annotated[int, Field(description="Cursor to continue from, now or later.")]
    changes: list[ChangeOut]
