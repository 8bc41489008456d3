"""The wire types: what the contract calls a cookie, an entry, a review, an output and a page.

What comes in is a pydantic model, strict, so that every fault has its place and name. What goes
out is a typed dictionary. Both give the OpenAPI document their schemas.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from gleanery import places
from gleanery.fields import (
    LARGEST_CURSOR,
    LONGEST_NAME,
    AskedGroupNumber,
    Days,
    Domain,
    Expiry,
    FileId,
    GroupNumber,
    HeaderText,
    Moment,
    Name,
    Region,
    Text,
    WholeNumber,
    told,
)


class Input(BaseModel):
    """What a client sends: strict types, unknown members ignored."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True, defer_build=True)


# --- cookies and local storage ------------------------------------------------------------------


class CookieIn(Input):
    """A cookie as a client hands it over. Only domain, name and value must be there."""

    domain: Domain = Field(description="Host; a leading dot means its subdomains too.")
    name: HeaderText
    value: HeaderText
    secure: bool | None = None
    http_only: bool | None = None
    expires: Expiry = Field(
        default=None, description="Date-time, or epoch seconds; absent or -1: a session cookie."
    )
    path: HeaderText | None = None


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


class LocalStorageIn(Input):
    """A local-storage entry as a client hands it over."""

    domain: Domain
    key: Text
    value: Text
    group_id: GroupNumber | None = Field(
        default=None,
        description="The number of the group that it is for; absent or 0: for every group.",
    )
    path: Text | None = Field(default=None, description="/ if absent.")
    expires: Expiry = Field(default=None, description="Date-time, or epoch seconds; absent: never.")


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


class DomainQuery(Input):
    """The one filter of the two lists."""

    domain: Domain | None = Field(
        default=None, description="Keep what a page on this host would see (RFC 6265 domain-match)."
    )


class LocalStorageQuery(DomainQuery):
    """The filters of the list of entries."""

    for_group: AskedGroupNumber | None = Field(
        default=None,
        description="Keep what a scraper of the group of this number uses: its own and group 0's.",
    )


class CookieDeletion(Input):
    """Which cookies to remove."""

    domain: Domain = Field(description="Exactly this domain, with its leading dot if it has one.")
    name: HeaderText | None = Field(default=None, description="Only the cookies of this name.")


class LocalStorageDeletion(Input):
    """Which entries to remove."""

    domain: Domain = Field(description="Exactly this domain, with its leading dot if it has one.")
    key: Text | None = Field(default=None, description="Only the entries of this key.")


# --- reviews ------------------------------------------------------------------------------------

ReviewStatus = Literal["pending", "in_review", "approved", "changes_requested", "rejected"]


class ReviewIn(Input):
    """A reviewer's word on a job's outputs."""

    job_id: Name
    status: ReviewStatus
    comment: Text | None = Field(default=None, description="Empty if absent.")


class ReviewOut(TypedDict):
    """A review as it was given."""

    job_id: str
    review_id: str
    review_date: str
    status: ReviewStatus
    comment: str


class ReviewQuery(Input):
    """The latest reviews, or all that there ever were."""

    history: Literal["true", "false"] = Field(
        default="false",
        description="true: every review, newest first, in pages; the Link header has the next.",
    )
    limit: WholeNumber = Field(
        default=100, ge=1, le=1000, description="Size of a page of the history."
    )
    cursor: WholeNumber = Field(
        default=LARGEST_CURSOR, ge=0, le=LARGEST_CURSOR, description="As the Link header has it."
    )


# --- groups -------------------------------------------------------------------------------------


def _member_names(names: list[str]) -> list[str]:
    if len(set(names)) != len(names):
        raise ValueError("names a member twice")
    return names


class GroupSettings(Input):
    """What can be set of a group; what is left out is not set any more."""

    display_name: Text | None = Field(default=None, max_length=LONGEST_NAME)
    key_fields: Annotated[list[Text], AfterValidator(told("key_fields", _member_names))] | None = (
        Field(
            default=None,
            min_length=1,
            max_length=16,
            description="The members of data that make an output's key, unless it brings a key.",
            json_schema_extra={"uniqueItems": True},
        )
    )
    schema_: dict[str, Any] | None = Field(
        default=None,
        alias="schema",
        description="A JSON Schema (2020-12) that the data of every new output must meet.",
    )
    retain_days: Days | None = Field(
        default=None,
        description="Outputs that no scraper has seen for so long are removed.",
    )


class GroupsQuery(Input):
    """A page of the organization's groups."""

    limit: WholeNumber = Field(default=100, ge=1, le=1000, description="Size of a page.")
    cursor: WholeNumber = Field(
        default=0,
        ge=0,
        le=LARGEST_CURSOR,
        description="The groups after this `id`; the Link header has the next page.",
    )


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


# --- outputs ------------------------------------------------------------------------------------


def _some_file(file: FileIn) -> FileIn:
    if file.id is None and file.source_url is None and file.file_url is None:
        raise ValueError("names no file: give the id of an uploaded one, or a file_url")
    return file


class FileIn(Input):
    """A file that an output names: one that was uploaded, by its `id`, or one kept elsewhere."""

    model_config = ConfigDict(
        json_schema_extra={
            "anyOf": [
                {"required": [name], "properties": {name: {"type": "string"}}}
                for name in ("id", "source_url", "file_url")
            ]
        }
    )

    field: Text = Field(description="Path inside `data`, such as `attachments[0].url`.")
    id: FileId | None = Field(default=None, description="As `POST /v1/files` answered it.")
    source_url: Text | None = None
    file_url: Text | None = None
    file_type: Text | None = None
    file_checksum: Text | None = None
    file_metadata: dict[str, Any] | None = None


NamedFile = Annotated[FileIn, AfterValidator(told("file", _some_file))]


class OutputIn(Input):
    """What a scraper found at one place."""

    job_id: Name
    source_url: Text
    data: dict[str, Any]
    key: Text | None = Field(default=None, description="What makes it the same output next time.")
    tags: dict[str, Any] | None = Field(
        default=None,
        description="country and region in here are what the filters of the same name see.",
    )
    files: Annotated[list[NamedFile], Field(max_length=200)] | None = Field(
        default=None, description="The files that belong to it."
    )


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


class FileUpload(Input):
    """Where an uploaded file comes from."""

    source_url: Text = Field(
        default="", max_length=4096, description="Address that the scraper had it from."
    )
    etag: Text = Field(default="", max_length=1024, description="The ETag that came with it.")
    filename: Text = Field(
        default="", max_length=255, description="Name under which it is to be saved."
    )


class FileQuery(Input):
    """Asks for a file by where it comes from."""

    source_url: Text = Field(description="As it was given with the file.")
    etag: Text = Field(default="", description="As it was given with the file.")


class BlobQuery(Input):
    """What makes a link valid."""

    organization: Text = Field(description="As in the link.")
    expires: Text = Field(description="As in the link.")
    signature: Text = Field(description="As in the link.")


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


class ChangeQuery(Input):
    """From where in the change order, how much, and how long to wait for something new."""

    cursor: WholeNumber = Field(
        default=0, ge=0, le=LARGEST_CURSOR, description="What comes after this position."
    )
    limit: WholeNumber = Field(default=100, ge=1, le=1000, description="How many at once.")
    wait: WholeNumber = Field(
        default=0, ge=0, le=60, description="Seconds to wait if there is nothing new yet."
    )


# --- the audit log ------------------------------------------------------------------------------

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


class AuditQuery(Input):
    """From where in the log, and how much."""

    cursor: WholeNumber = Field(
        default=0,
        ge=0,
        le=LARGEST_CURSOR,
        description="What comes after this one; or after a moment, in microseconds since 1970.",
    )
    limit: WholeNumber = Field(default=100, ge=1, le=1000, description="How many at once.")


# --- pages of outputs ---------------------------------------------------------------------------


class OutputQuery(Input):
    """Which outputs of a group, and how many at once."""

    job_id: Text | None = Field(default=None, description="Only this root job's outputs.")
    created_after: Moment | None = Field(
        default=None,
        description="Only outputs created or updated at or after this date or date-time.",
    )
    url: Text | None = Field(default=None, description="Only outputs of exactly this source_url.")
    limit: WholeNumber = Field(default=10, ge=1, le=1000, description="Page size.")
    cursor: WholeNumber = Field(
        default=0, ge=0, le=LARGEST_CURSOR, description="What comes after this position."
    )
    country: Text | None = Field(
        default=None,
        max_length=places.LONGEST_COUNTRY,
        description="Only outputs of this country: its name, ISO code or everyday alias.",
    )
    region: Region | None = Field(
        default=None, description="Only outputs of this ISO 3166-2 region."
    )
