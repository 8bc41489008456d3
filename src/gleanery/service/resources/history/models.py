"""What clients receive about earlier versions of outputs, and about changed fields."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from gleanery.service.foundation.models import DateTimeOut, JsonValue, PageMetadata


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
    version_date: DateTimeOut
    replaced_date: Annotated[
        DateTimeOut | None,
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
    version_date: DateTimeOut
    reason: NotRequired[
        Annotated[
            Literal["missing"],
            Field(
                description="Only of a deletion by the service that is still in the change feed: "
                "complete runs of the job did not send the output any more."
            ),
        ]
    ]


class VersionPage(TypedDict):
    """Page of an output's versions, newest first."""

    metadata: PageMetadata
    versions: list[VersionOut | DeletionOut]
