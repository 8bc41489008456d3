"""Responses about changes and earlier versions of outputs."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from gleanery.models.responses.common import DateTime, JsonValue, PageMetadata
from gleanery.models.responses.outputs import OutputOut


class FieldChange(TypedDict):
    """Difference between two versions of an output."""

    path: Annotated[
        str,
        Field(
            description='Path inside `data`, such as `offer.price`, `images[0]` or `["a.b"]`. '
            "Other members have the prefix `$.`, such as `$.source_url` or `$.tags.country`."
        ),
    ]
    kind: Literal["added", "removed", "changed"]
    before: Annotated[JsonValue, Field(description="null if the field was added.")]
    after: Annotated[JsonValue, Field(description="null if the field was removed.")]


class VersionOut(TypedDict):
    """Version of an output. `create` if it is the first one."""

    change: Literal["create", "update"]
    cursor: Annotated[int, Field(description="Position at which the version began.")]
    version_date: DateTime
    replaced_date: Annotated[
        DateTime | None,
        Field(
            description="null for the present version, and for the last approved one if the "
            "versions after it are no longer kept."
        ),
    ]
    key_hash: str
    value_hash: str
    is_approved: Annotated[
        bool, Field(description="Approval at the end of the version, or its present approval.")
    ]
    fields: Annotated[
        list[FieldChange] | None,
        Field(
            description="Differences from the version before. Empty for the first version, null "
            "if the version before is no longer kept."
        ),
    ]


class DeletionOut(TypedDict):
    """Deletion of an output, after its last version."""

    change: Literal["delete"]
    cursor: Annotated[int, Field(description="Position of the deletion.")]
    version_date: DateTime


class VersionPage(TypedDict):
    """Page of an output's versions, newest first."""

    metadata: PageMetadata
    versions: list[VersionOut | DeletionOut]


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
