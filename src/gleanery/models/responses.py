"""What the service answers: typed dictionaries, which give the OpenAPI document their schemas."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field
from typing_extensions import TypedDict

# --- cookies and local storage --------------------------------------------------------------------


class CookieOut(TypedDict):
    """A cookie as it is listed."""

    name: str
    value: str
    url: Annotated[str, Field(description="An address at which a browser would send it.")]
    domain: str
    path: str
    expires: Annotated[int, Field(description="Epoch seconds; -1 for a session cookie.")]
    http_only: Annotated[bool, Field(json_schema_extra={"default": False})]
    secure: Annotated[bool, Field(json_schema_extra={"default": False})]


class LocalStorageOut(TypedDict):
    """A local-storage entry as it is listed."""

    organization_id: int
    domain: str
    key: str
    value: str
    expires: Annotated[str | None, Field(description="null: never.")]
    id: int
    group_id: Annotated[int, Field(description="0: for every group.")]
    path: str
    create_date: str
    update_date: str


class Tally(TypedDict):
    """What became of the records of one request."""

    created: int
    updated: int
    unchanged: int


# --- reviews and groups ---------------------------------------------------------------------------

ReviewStatus = Literal["pending", "in_review", "approved", "changes_requested", "rejected"]


class ReviewOut(TypedDict):
    """A review as it was given."""

    job_id: str
    review_id: str
    review_date: str
    status: ReviewStatus
    comment: str


class JobOut(TypedDict):
    """A job of a group, with its counts."""

    job_id: str
    outputs: int
    approved: int
    latest_review: ReviewOut | None


class GroupOut(TypedDict):
    """A group with its jobs, counts and settings."""

    group_id: str
    id: Annotated[int, Field(description="Its number, as local storage names it.")]
    display_name: str | None
    outputs: int
    countries: Annotated[
        dict[str, int], Field(description="Outputs by ISO code, or by name if unknown.")
    ]
    last_change: str | None
    cursor: Annotated[int, Field(description="Where the change feed stands.")]
    key_fields: list[str] | None
    schema: dict[str, Any] | None
    retain_days: int | None
    jobs: list[JobOut]


# --- outputs, their files and their changes -------------------------------------------------------


class StoredOutput(TypedDict):
    """What became of one output of the batch."""

    id: int
    output_id: str
    change: Literal["created", "updated", "unchanged"]


class IngestAnswer(Tally):
    """The tally of a batch, and its elements one by one in the order they came."""

    results: list[StoredOutput]


class FileOut(TypedDict):
    """A file that an output carries."""

    id: str
    field: Annotated[str, Field(description="Where in data it belongs.")]
    url_etag_hash: str
    blob_key: str
    blob_url: str
    source_url: str
    create_date: str
    file_url: str
    file_type: str
    file_checksum: str
    file_metadata: dict[str, Any]


class StoredFile(TypedDict):
    """What became of an uploaded file."""

    id: str
    blob_key: str
    file_checksum: str
    file_type: str
    url_etag_hash: str
    size: int


class OutputOut(TypedDict):
    """An output as clients take it out."""

    source_url: str
    data: dict[str, Any]
    id: int
    output_id: str
    root_job_id: str
    create_date: str
    update_date: str
    last_scraped_date: str
    key_hash: str
    value_hash: str
    is_approved: bool
    tags: dict[str, Any]
    files: list[FileOut]


class PageMetadata(TypedDict):
    """Where the next page is; both null on the last page, and only there."""

    next_url: str | None
    next_cursor: int | None


class OutputPage(TypedDict):
    """One page of a group's outputs, in the order in which they last changed."""

    metadata: PageMetadata
    items: list[OutputOut]


class DeletedOutput(TypedDict):
    """What is left of an output that was removed."""

    id: int
    output_id: str
    root_job_id: str


class ChangeOut(TypedDict):
    """One change: `create` if the output has not changed since, `update`, or `delete`."""

    change: Literal["create", "update", "delete"]
    output: OutputOut | DeletedOutput


class ChangePage(TypedDict):
    """Some changes, oldest first, and the cursor to go on from, which is always there."""

    cursor: int
    changes: list[ChangeOut]


class Deleted(TypedDict):
    """How many records were removed."""

    deleted: int


# --- the audit log --------------------------------------------------------------------------------

AuditAction = Literal[
    "get_cookies",
    "set_cookies",
    "delete_cookies",
    "get_local_storage",
    "set_local_storage",
    "delete_local_storage",
    "add_review",
    "create_token",
    "revoke_token",
    "rotate_keys",
    "forget_keys",
    "restore",
]


class AuditAbout(TypedDict, total=False):
    """What was touched; which members there are depends on the action."""

    records: Annotated[int, Field(description="How many cookies or entries.")]
    domains: Annotated[
        list[str],
        Field(description="Of which domains: of all, if it is absent; the first 20 that were set."),
    ]
    for_group: Annotated[int, Field(description="The number of the group that was asked for.")]
    group_id: str
    job_id: str
    review_id: str
    status: ReviewStatus
    token_id: Annotated[int, Field(description="The token that was created or revoked.")]
    scopes: list[str]
    key: Annotated[str, Field(description="The fingerprint of the new key.")]


class AuditEntry(TypedDict):
    """Who did what. It never holds a value, a cookie's name or an entry's key."""

    id: int
    date: str
    token_id: Annotated[int | None, Field(description="Who; null: somebody at the command line.")]
    request_id: Annotated[str | None, Field(description="As the answer had it in X-Request-ID.")]
    action: Annotated[AuditAction, Field(description="The operation, or the command.")]
    about: AuditAbout


class AuditPage(TypedDict):
    """Some entries, oldest first, and the cursor to go on from, which is always there."""

    cursor: int
    entries: list[AuditEntry]
