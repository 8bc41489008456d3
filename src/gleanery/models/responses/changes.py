"""Responses about changes and earlier versions of outputs."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from gleanery.models.responses.common import DateTime, PageMetadata
from gleanery.service.resources.history.models import FieldChange
from gleanery.service.resources.outputs.models import OutputOut


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
    change_date: DateTime
    group_id: str
    output_id: str
    output: OutputOut | DeletedOutput
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
