"""What clients send: bodies and queries, which give the OpenAPI document their schemas.

They are pydantic models, strict, so that every fault has its place and name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from gleanery.models.fields import (
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
    as_validation_error,
)
from gleanery.models.responses import ReviewStatus
from gleanery.values import countries


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


class ReviewIn(Input):
    """A reviewer's word on a job's outputs."""

    job_id: Name
    status: ReviewStatus
    comment: Text | None = Field(default=None, description="Empty if absent.")


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
    key_fields: (
        Annotated[list[Text], AfterValidator(as_validation_error("key_fields", _member_names))]
        | None
    ) = Field(
        default=None,
        min_length=1,
        max_length=16,
        description="The members of data that make an output's key, unless it brings a key.",
        json_schema_extra={"uniqueItems": True},
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


NamedFile = Annotated[FileIn, AfterValidator(as_validation_error("file", _some_file))]


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

    def checked(self) -> Output:
        return Output(self.job_id, self.source_url, self.data, self.key, self.tags, self.files)


class Output(NamedTuple):
    """The same, known to be in order."""

    job_id: str
    source_url: str
    data: dict[str, Any]
    key: str | None = None
    tags: dict[str, Any] | None = None
    files: Sequence[FileIn] | None = None


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
        max_length=countries.LONGEST_COUNTRY,
        description="Only outputs of this country: its name, ISO code or everyday alias.",
    )
    region: Region | None = Field(
        default=None, description="Only outputs of this ISO 3166-2 region."
    )
