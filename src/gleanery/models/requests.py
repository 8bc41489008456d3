"""Bodies and queries of requests, as strict pydantic models.

The models give each validation error its location and type, and the OpenAPI document its schemas.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import AfterValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import InitErrorDetails

from gleanery.models.fields import (
    LIST_OF_FORMATS,
    MAX_INT64,
    MAX_NAME_LENGTH,
    Cursor,
    DateTime,
    Days,
    Domain,
    FileId,
    HeaderText,
    ListLimit,
    Name,
    OutputId,
    PageUrl,
    QueryNumericGroupId,
    ReadFormat,
    Region,
    SessionCursor,
    SessionPosition,
    Text,
    VersionCount,
    VersionTime,
    WholeNumber,
    WrittenFormat,
    as_validation_error,
)
from gleanery.models.inputs import Input, Query, condition, custom_error
from gleanery.models.responses import ReviewStatus
from gleanery.models.session_state import DEFAULT_PROFILE
from gleanery.values import countries

# --- cookies and local storage ------------------------------------------------------------------


class DomainQuery(Query):
    """Filter and paging of cookies."""

    domain: Domain | None = Field(
        default=None,
        description="Only the records that a page on this host sees (RFC 6265 domain-match).",
    )
    limit: ListLimit | None = Field(
        default=None, description="Page size. Without it, as many records as fit."
    )
    cursor: WholeNumber = Field(
        default=0, ge=0, le=MAX_INT64, description="Cursor from the Link header."
    )


class LocalStorageQuery(DomainQuery):
    """Filters and paging of local-storage entries."""

    for_group: QueryNumericGroupId | None = Field(
        default=None,
        description="Only the entries that the group with this `id` uses: its own, and those of "
        "group 0.",
    )


class CookieDeletion(Query):
    """Cookies to delete."""

    domain: Domain = Field(description="Exact domain, including a leading dot.")
    name: HeaderText | None = Field(default=None, description="Only the cookies with this name.")


class LocalStorageDeletion(Query):
    """Local-storage entries to delete."""

    domain: Domain = Field(description="Exact domain, including a leading dot.")
    key: Text | None = Field(default=None, description="Only the entries with this key.")


_PROFILE = "Account at the site, if there are several."


class SessionsQuery(Query):
    """Filters and paging of sessions."""

    domain: Domain | None = Field(
        default=None, description="Only this host. A leading dot makes no difference."
    )
    profile: Name | None = Field(default=None, description="Only this profile.")
    limit: ListLimit = Field(default=100, description="Page size.")
    cursor: SessionCursor = Field(
        default=SessionPosition("", ""), description="Cursor from the Link header."
    )


class SessionDeletion(Query):
    """Session to delete."""

    domain: Domain = Field(description="Host. A leading dot makes no difference.")
    profile: Name = Field(default=DEFAULT_PROFILE, description=_PROFILE)


class SessionExport(Query):
    """Format and filters of an export of session state."""

    format: WrittenFormat = Field(
        default="playwright", description=f"Format of the response:\n{LIST_OF_FORMATS}"
    )
    domain: Domain | None = Field(
        default=None,
        description="Only what pages on this host see (RFC 6265 domain-match). A leading dot "
        "includes its subdomains.",
    )
    url: PageUrl | None = Field(
        default=None,
        description="Only what a page at this URL sees. Formats with the cookies of one page need "
        "it: `cookie`, `set-cookie` and `curl`.",
    )
    group_id: Name | None = Field(
        default=None,
        description="Only the local-storage entries that this group uses: its own, and those for "
        "every group. Its own win. Name of the group, or its `id`.",
    )
    profile: Name = Field(default=DEFAULT_PROFILE, description=_PROFILE)


class SessionImport(Query):
    """Format and destination of an import of session state."""

    format: ReadFormat = Field(
        default="auto",
        description=f"Format of the body. `auto` recognises it.\n{LIST_OF_FORMATS}",
    )
    url: PageUrl | None = Field(
        default=None,
        description="Page that the cookies belong to, for formats that do not say it.",
    )
    group_id: Name | None = Field(
        default=None,
        description="Group that uses the local-storage entries: its name or its `id`. Without it, "
        "every group.",
    )
    profile: Name = Field(default=DEFAULT_PROFILE, description=_PROFILE)
    replace: Literal["true", "false"] = Field(
        default="false",
        description="true: of the hosts in the body, delete the records that the body does not "
        "have. A format without local storage deletes only cookies. A Cookie header or a curl "
        "command deletes only cookies that its page gets. A body without any record is an error.",
    )
    dry_run: Literal["true", "false"] = Field(
        default="false", description="true: store nothing, and list what would be stored."
    )


# --- reviews ------------------------------------------------------------------------------------


class FindingIn(Input):
    """What a reviewer has found in one output."""

    output_id: OutputId = Field(description="Output of the reviewed job.")
    path: Text | None = Field(
        default=None,
        max_length=1000,
        description="Path inside `data`, such as `offer.price`. Default: the whole output.",
    )
    note: Text | None = Field(default=None, max_length=2000, description="Default: empty.")


def _output_ids(ids: list[str]) -> list[str]:
    if len(set(ids)) != len(ids):
        raise ValueError("must not contain an output_id twice")
    return ids


class ReviewIn(Input):
    """Review of a job's outputs."""

    job_id: Name = Field(description="Job whose outputs are reviewed.")
    status: ReviewStatus
    comment: Text | None = Field(default=None, description="Default: empty.")
    as_of: Cursor | None = Field(
        default=None,
        description="Cursor of the group, from the change feed or a sample. Outputs whose value "
        "was stored later keep their approval as it is. Default: the present.",
    )
    output_ids: (
        Annotated[list[OutputId], AfterValidator(as_validation_error("output_ids", _output_ids))]
        | None
    ) = Field(
        default=None,
        min_length=1,
        max_length=1000,
        description="Only these outputs of the job. Such a review is in the history, and does not "
        "become the latest review of the job. Default: all outputs of the job.",
        json_schema_extra={"uniqueItems": True},
    )
    findings: list[FindingIn] | None = Field(
        default=None,
        max_length=1000,
        description="What the reviewer has found in single outputs. They do not change them.",
    )


class ReviewSampleQuery(Query):
    """Job and size of a sample of outputs."""

    job_id: Name = Field(description="Job whose outputs are reviewed.")
    seed: Text | None = Field(
        default=None,
        max_length=200,
        description="Any text. While no output of the job changes, the same seed gives the same "
        "sample. Default: a new one, which the response contains.",
    )
    size: WholeNumber = Field(default=50, ge=1, le=200, description="Number of outputs.")


class ReviewQuery(Query):
    """Choice between the latest reviews and all reviews."""

    history: Literal["true", "false"] = Field(
        default="false",
        description="true: all reviews, newest first. false: the latest review of each job.",
    )
    limit: ListLimit | None = Field(
        default=None, description="Page size. Without it, as many reviews as fit."
    )
    cursor: WholeNumber = Field(
        default=MAX_INT64, ge=0, le=MAX_INT64, description="Cursor from the Link header."
    )


# --- groups -------------------------------------------------------------------------------------


def _member_names(names: list[str]) -> list[str]:
    if len(set(names)) != len(names):
        raise ValueError("must not contain a name twice")
    return names


class GroupSettings(Input):
    """Settings of a group. A missing setting is reset."""

    display_name: Text | None = Field(default=None, max_length=MAX_NAME_LENGTH)
    key_fields: (
        Annotated[list[Text], AfterValidator(as_validation_error("key_fields", _member_names))]
        | None
    ) = Field(
        default=None,
        min_length=1,
        max_length=16,
        description="Members of data that make the key of an output without `key`. If one of them "
        "is missing or null, the key is `source_url`.",
        json_schema_extra={"uniqueItems": True},
    )
    schema_: dict[str, Any] | None = Field(
        default=None,
        alias="schema",
        description="JSON Schema (2020-12) that the data of every stored output must meet.",
    )
    retain_days: Days | None = Field(
        default=None,
        description="Days after which an output is deleted that no scraper has sent again.",
    )
    keep_versions: VersionCount | None = Field(
        default=None,
        description="Number of earlier versions that each output keeps. 0 keeps none. The default "
        "is 20.",
    )
    keep_days: Days | None = Field(
        default=None,
        description="Days for which an earlier version is kept after another one has replaced it. "
        "The default is 90.",
    )


class GroupsQuery(Query):
    """Page of the organization's groups."""

    limit: WholeNumber = Field(default=100, ge=1, le=1000, description="Page size.")
    cursor: WholeNumber = Field(
        default=0,
        ge=0,
        le=MAX_INT64,
        description="Only the groups after this `id`. The Link header has the next page.",
    )


class GroupQuery(Query):
    """Page of a group's jobs."""

    limit: WholeNumber = Field(default=1000, ge=1, le=1000, description="Page size.")
    cursor: WholeNumber = Field(
        default=0, ge=0, le=MAX_INT64, description="Only the jobs after this position."
    )


class FieldsQuery(Query):
    """Choice of a job."""

    job_id: Text | None = Field(default=None, description="Only the outputs of this job.")


# --- outputs ------------------------------------------------------------------------------------

View = Literal["full", "approved"]
FieldName = Annotated[Text, Field(min_length=1, max_length=MAX_NAME_LENGTH)]
_BARE_ITEM = (
    "is missing: bare items need job_id and url_field. Without both, and without key_field, each "
    "element is an output with job_id, source_url and data"
)
_DIFF_IN_VIEW = "is not possible in the approved view: leave out diff or view"
_NOT_AN_OUTPUT = (
    "is not an output, which has job_id, source_url and data. For bare items, as scrapers write "
    "them, add the parameters job_id and url_field to the URL"
)


def _check_file(file: FileIn) -> FileIn:
    if file.id is None and file.source_url is None and file.file_url is None:
        raise ValueError("refers to no file: give the id of an uploaded file, or a file_url")
    return file


class FileIn(Input):
    """File of an output: an uploaded file by its `id`, or a file that is stored elsewhere."""

    model_config = ConfigDict(
        json_schema_extra=condition(
            {
                "anyOf": [
                    {"required": [name], "properties": {name: {"type": "string"}}}
                    for name in ("id", "source_url", "file_url")
                ]
            }
        )
    )

    field: Text = Field(description="Path inside `data`, such as `attachments[0].url`.")
    id: FileId | None = Field(default=None, description="`id` in the response of `POST /v1/files`.")
    source_url: Text | None = None
    file_url: Text | None = None
    file_type: Text | None = None
    file_checksum: Text | None = None
    file_metadata: dict[str, Any] | None = None


CheckedFile = Annotated[FileIn, AfterValidator(as_validation_error("file", _check_file))]


class OutputIn(Input):
    """Scraped output to store."""

    job_id: Name = Field(
        description="Lasting source of the output, such as one site or one spider. It is not one "
        "run: a new `job_id` for each run stores every output again."
    )
    source_url: Text
    data: dict[str, Any]
    key: Text | None = Field(
        default=None, description="Identifies the output when it is scraped again."
    )
    tags: dict[str, Any] | None = Field(
        default=None,
        description="The filters `country` and `region` use the members with these names.",
    )
    files: Annotated[list[CheckedFile], Field(max_length=200)] | None = Field(
        default=None, description="Files of the output."
    )

    @classmethod
    def _problems(cls, value: dict[str, Any]) -> list[InitErrorDetails]:
        if value.keys().isdisjoint(("job_id", "source_url", "data")):
            return [custom_error("bare_item", _NOT_AN_OUTPUT, ())]
        return super()._problems(value)

    def checked(self) -> Output:
        return Output(self.job_id, self.source_url, self.data, self.key, self.tags, self.files)


class Output(NamedTuple):
    """Validated output."""

    job_id: str
    source_url: str
    data: dict[str, Any]
    key: str | None = None
    tags: dict[str, Any] | None = None
    files: Sequence[FileIn] | None = None


class IngestQuery(Query):
    """How the elements of a batch are read."""

    job_id: Name | None = Field(
        default=None,
        description="Job of bare items, together with `url_field`. Each element of the body is "
        "then the `data` of an output.",
    )
    url_field: FieldName | None = Field(
        default=None, description="Member of a bare item that is its `source_url`."
    )
    key_field: FieldName | None = Field(
        default=None,
        description="Member of a bare item that is its `key`: a string or an integer. Default: the "
        "group's `key_fields`, or else the URL.",
    )
    on_error: Literal["stop", "skip"] = Field(
        default="stop",
        description="stop: an invalid element is an error of the request. skip: the valid elements "
        "are stored, and the response lists the others.",
    )

    @model_validator(mode="after")
    def _require_both(self) -> IngestQuery:
        """Requires job_id and url_field, if one of the parameters of bare items is given."""
        given = {"job_id": self.job_id, "url_field": self.url_field, "key_field": self.key_field}
        missing = [name for name in ("job_id", "url_field") if given[name] is None]
        if missing and any(given.values()):
            errors = [custom_error("missing_parameter", _BARE_ITEM, (name,)) for name in missing]
            raise ValidationError.from_exception_data(type(self).__name__, errors)
        return self


class FileUpload(Query):
    """Source of an uploaded file."""

    source_url: Text = Field(
        default="", max_length=4096, description="URL from which the scraper downloaded it."
    )
    etag: Text = Field(default="", max_length=1024, description="ETag of the download.")
    filename: Text = Field(default="", max_length=255, description="File name for downloads.")


class FileQuery(Query):
    """Source of the file to find."""

    source_url: Text = Field(description="Value from the upload.")
    etag: Text = Field(default="", description="Value from the upload.")


class BlobQuery(Query):
    """Signed parts of a link to a file."""

    organization: Text = Field(description="Value from the link.")
    expires: Text = Field(description="Value from the link.")
    signature: Text = Field(description="Value from the link.")


class OutputTime(Query):
    """Time of the version of an output."""

    at: VersionTime | None = Field(
        default=None,
        description="The output as it was then: a cursor, a date-time, or a date, which is its "
        "midnight in UTC. A date-time without a fraction is the end of its second.",
    )


class VersionQuery(Query):
    """Page of an output's versions."""

    limit: WholeNumber = Field(default=100, ge=1, le=1000, description="Page size.")
    cursor: WholeNumber = Field(
        default=MAX_INT64, ge=0, le=MAX_INT64, description="Only what is before this position."
    )


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


# --- the audit log ------------------------------------------------------------------------------


class AuditQuery(Query):
    """Part of the audit log to read."""

    cursor: WholeNumber = Field(
        default=0,
        ge=0,
        le=MAX_INT64,
        description="Only entries after this cursor, or after a time in microseconds since 1970.",
    )
    limit: WholeNumber = Field(default=100, ge=1, le=1000, description="Page size.")


# --- pages of outputs ---------------------------------------------------------------------------


_APPROVED_IN_VIEW = (
    "cannot be used with view=approved, which has only approved versions: leave out approved"
)


class OutputFilters(Query):
    """Filters of outputs."""

    job_id: Text | None = Field(default=None, description="Only the outputs of this root job.")
    created_after: DateTime | None = Field(
        default=None,
        description="Only outputs created or updated at or after this date or date-time. To sync, "
        "give the newest `update_date` that you have received, never the time of your own clock: a "
        "batch is dated shortly before it becomes visible. Outputs of that second come again.",
    )
    url: Text | None = Field(default=None, description="Only outputs with exactly this source_url.")
    country: Text | None = Field(
        default=None,
        max_length=countries.MAX_COUNTRY_LENGTH,
        description="Only outputs of this country: name, ISO code or common alias.",
    )
    region: Region | None = Field(
        default=None, description="Only outputs of this ISO 3166-2 region."
    )
    approved: Literal["true", "false"] | None = Field(
        default=None,
        description="true: only outputs that are approved now. false: only the others.",
    )
    view: View = Field(
        default="full",
        description="approved: each output in its last approved version, in the order of the "
        "approvals, whether or not it has a newer value. full: each output as it is now.",
    )

    @model_validator(mode="after")
    def _reject_approved_in_view(self) -> Self:
        """Rejects the filter by the present approval in the approved view."""
        if self.view == "approved" and self.approved is not None:
            error = custom_error("approved_in_view", _APPROVED_IN_VIEW, ("approved",))
            raise ValidationError.from_exception_data(type(self).__name__, [error])
        return self


class OutputQuery(OutputFilters):
    """Filters and paging of outputs."""

    limit: WholeNumber = Field(default=10, ge=1, le=1000, description="Page size.")
    cursor: WholeNumber = Field(
        default=0, ge=0, le=MAX_INT64, description="Only what comes after this position."
    )


class ExportQuery(OutputFilters):
    """Filters and format of an export."""

    format: Literal["jsonl", "csv", "parquet"] = Field(
        default="jsonl",
        description="jsonl: one JSON object per line, sent while it is read. csv and parquet: a "
        "table with a column for each member of an output and for each key of its `data`, in the "
        "same form as `gleanery export` writes it. It is sent when it is complete.",
    )


class ExportLinkQuery(ExportQuery):
    """Filters and format of the export, and the validity of the link."""

    valid_seconds: WholeNumber = Field(
        default=3600,
        ge=60,
        le=604_800,
        description="Time for which the link is valid: a minute to a week.",
    )


class SignedExportQuery(ExportQuery):
    """Signed parts of a link to an export."""

    organization: Text = Field(description="Value from the link.")
    token: Text = Field(description="Value from the link: the number of the token.")
    expires: Text = Field(description="Value from the link.")
    signature: Text = Field(description="Value from the link.")
