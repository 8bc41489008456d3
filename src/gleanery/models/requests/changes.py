"""Queries about changes and earlier versions of outputs."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, ValidationError, model_validator

from gleanery.models.fields import MAX_INT64, DateTime, WholeNumber
from gleanery.models.inputs import Query, custom_error
from gleanery.service.resources.outputs.models import View

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
