"""Responses, as typed dictionaries that give the OpenAPI document its schemas."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field, WithJsonSchema
from typing_extensions import TypedDict

DateTime = Annotated[str, Field(json_schema_extra={"format": "date-time"})]
"""Date-time in the one form that the API returns: ``YYYY-MM-DDTHH:MM:SSZ``."""
_JSON_TYPES = ("object", "array", "string", "number", "boolean", "null")
JsonValue = Annotated[
    Any, WithJsonSchema({"type": [*_JSON_TYPES], "additionalProperties": True, "items": {}})
]

# --- cookies and local storage --------------------------------------------------------------------


class CookieOut(TypedDict):
    """Stored cookie."""

    name: str
    value: str
    url: Annotated[str, Field(description="URL at which a browser sends the cookie.")]
    domain: str
    path: str
    expires: Annotated[int, Field(description="Epoch seconds; -1 for a session cookie.")]
    http_only: Annotated[bool, Field(json_schema_extra={"default": False})]
    secure: Annotated[bool, Field(json_schema_extra={"default": False})]


class LocalStorageOut(TypedDict):
    """Stored local-storage entry."""

    organization_id: int
    domain: str
    key: str
    value: str
    expires: Annotated[DateTime | None, Field(description="null if it never expires.")]
    id: int
    group_id: Annotated[
        int, Field(description="`id` of the group that uses it; 0 for every group.")
    ]
    path: str
    create_date: DateTime
    update_date: DateTime


class SessionOut(TypedDict):
    """Number of records of one host and profile, and when they expire."""

    domain: Annotated[str, Field(description="Host, without a leading dot.")]
    profile: str
    cookies: int
    local_storage: int
    expired: Annotated[int, Field(description="Records that have expired.")]
    expiring: Annotated[int, Field(description="Records that expire within a day.")]
    first_expiry: Annotated[
        DateTime | None,
        Field(description="First date of expiry, also if it is past; null if nothing expires."),
    ]
    last_change: DateTime


class WriteCounts(TypedDict):
    """Result of a write: the number of records of each kind."""

    created: int
    updated: int
    unchanged: int


class ImportCounts(WriteCounts):
    """Result of an import for one kind of record."""

    deleted: Annotated[int, Field(description="Only with `replace=true`.")]


class ImportedRecord(TypedDict):
    """Record of an import, without its value."""

    kind: Literal["cookie", "local_storage"]
    change: Literal["created", "updated", "unchanged", "deleted"]
    domain: Annotated[str, Field(description="A leading dot includes its subdomains.")]
    origin: Annotated[str | None, Field(description="Only of a local-storage entry.")]
    path: str
    name: Annotated[str, Field(description="Name of the cookie, or key of the entry.")]
    expires: Annotated[DateTime | None, Field(description="null if it has no date of expiry.")]


class ImportResult(TypedDict):
    """Result of an import. It contains no values."""

    format: Annotated[str, Field(description="Format of the body.")]
    profile: str
    dry_run: bool
    cookies: ImportCounts
    local_storage: ImportCounts
    losses: Annotated[
        list[str], Field(description="What could not be kept, one sentence for each reason.")
    ]
    records: NotRequired[
        Annotated[
            list[ImportedRecord], Field(description="With `dry_run=true`: what would be stored.")
        ]
    ]


# --- reviews and groups ---------------------------------------------------------------------------

ReviewStatus = Literal["pending", "in_review", "approved", "changes_requested", "rejected"]


class ReviewOut(TypedDict):
    """Review of a job."""

    job_id: str
    review_id: str
    review_date: DateTime
    status: ReviewStatus
    comment: str


class AddedReview(ReviewOut):
    """Added review; with `output_ids`, also the outputs to which it does not apply."""

    skipped_output_ids: NotRequired[
        Annotated[
            list[str],
            Field(
                description="Those of `output_ids` whose present value was stored after `as_of`. "
                "The review does not change the approval of that value."
            ),
        ]
    ]


class FindingOut(TypedDict):
    """What a reviewer has found in one output."""

    output_id: str
    path: Annotated[str | None, Field(description="Path inside `data`; null: the whole output.")]
    note: str


class ReviewDetails(ReviewOut):
    """Review with what it is about."""

    person: Annotated[
        str | None,
        Field(description="Name of the reviewer in the console; null: added with a token alone."),
    ]
    as_of: Annotated[
        int | None,
        Field(description="It applies to values that were stored up to this position; null: all."),
    ]
    output_ids: Annotated[
        list[str] | None, Field(description="It applies only to these; null: the whole job.")
    ]
    skipped_output_ids: Annotated[
        list[str] | None, Field(description="Those of `output_ids` that had a later value.")
    ]
    findings: list[FindingOut]


class JobOut(TypedDict):
    """Job of a group, which is a lasting source such as one site, with its counts."""

    job_id: str
    outputs: int
    approved: int
    latest_review: ReviewOut | None


class PageMetadata(TypedDict):
    """Link to the next page. Both members are null on the last page, and only there."""

    next_url: str | None
    next_cursor: int | None


class GroupSettingsOut(TypedDict):
    """Group without its jobs and countries."""

    group_id: str
    id: Annotated[
        int, Field(description="Number of the group; `group_id` of local-storage entries.")
    ]
    display_name: str | None
    outputs: int
    last_change: DateTime | None
    cursor: Annotated[int, Field(description="Current end of the change feed.")]
    key_fields: list[str] | None
    schema: dict[str, Any] | None
    retain_days: int | None
    keep_versions: Annotated[
        int, Field(description="Number of earlier versions that each output keeps.")
    ]
    keep_days: Annotated[int, Field(description="Days for which an earlier version is kept.")]


class GroupOut(GroupSettingsOut):
    """Group with its settings, its counts and a page of its jobs."""

    countries: Annotated[
        dict[str, int],
        Field(
            description="Number of outputs by ISO code, or by name if the country is unknown. At "
            "most 1000 countries, in alphabetical order."
        ),
    ]
    has_more_countries: Annotated[
        bool, Field(description="True if the group has more countries than these.")
    ]
    jobs: Annotated[list[JobOut], Field(description="Jobs in the order of their creation.")]
    metadata: Annotated[PageMetadata, Field(description="Link to the next page of jobs.")]


_Rate = Annotated[float, Field(ge=0, le=1)]


class ScrapedField(TypedDict):
    """Field, and how often outputs have it."""

    path: Annotated[
        str,
        Field(
            description="Member of `data`, or a member of an object in it: `price`, `offer.price`. "
            'An unusual name is quoted: `["a.b"]`.'
        ),
    ]
    filled: Annotated[int, Field(description="Outputs in which it is not missing, null or empty.")]
    fill_rate: Annotated[_Rate, Field(description="`filled` as a share of the counted outputs.")]
    kinds: Annotated[
        dict[str, int],
        Field(
            description="Number of outputs by the kind of the value: `null`, `boolean`, `integer`, "
            "`number`, `string`, `array`, `object`, `empty_string`, `empty_array` or "
            "`empty_object`."
        ),
    ]


class ValueRange(TypedDict):
    """Smallest and largest number."""

    min: float
    max: float


class LengthRange(TypedDict):
    """Lengths of strings in characters, and of arrays in elements."""

    min: int
    median: Annotated[int, Field(description="An estimate.")]
    max: int


class FieldOut(ScrapedField):
    """Field with the ranges of its values."""

    range: Annotated[
        ValueRange | None,
        Field(
            description="Of all numbers that were stored, also those that were replaced or deleted "
            "later. null if there was none."
        ),
    ]
    length: Annotated[
        LengthRange | None,
        Field(description="Of all strings and arrays that were stored, without empty ones."),
    ]


class ScrapeOut(TypedDict):
    """Scrape of a job, and the fields of the outputs that it has seen."""

    job_id: str
    started: DateTime
    last_seen: DateTime
    outputs: Annotated[int, Field(description="Outputs that were sent, each counted once.")]
    fields: list[ScrapedField]


class Drift(TypedDict):
    """Field that the newest scrape of a job fills more or less often than earlier ones."""

    job_id: str
    path: str
    before: Annotated[_Rate, Field(description="Median of the fill rates of earlier scrapes.")]
    now: Annotated[_Rate, Field(description="Fill rate of the newest scrape.")]


class FieldsOut(TypedDict):
    """Statistics of the fields of a group, or of one job."""

    group_id: str
    job_id: str | None
    outputs: int
    counted_outputs: Annotated[
        int,
        Field(
            description="Outputs whose fields are counted. Not counted are outputs that were last "
            "changed before the service counted fields, those beyond 256 different sets of "
            "fields in a job, and jobs after the first ones with millions of fields."
        ),
    ]
    fields: Annotated[
        list[FieldOut], Field(description="By path; at most the 256 most frequent fields.")
    ]
    scrapes: Annotated[
        list[ScrapeOut],
        Field(
            description="The newest 10, newest first. A scrape of a job ends if no output is sent "
            "for 30 minutes."
        ),
    ]
    drift: Annotated[list[Drift], Field(description="The largest difference first; at most 100.")]
    schema: Annotated[
        dict[str, Any],
        Field(
            description="Suggested JSON Schema (2020-12) of `data`, which every stored output "
            "meets."
        ),
    ]


# --- outputs, their files and their changes -------------------------------------------------------


class OutputResult(TypedDict):
    """Result of one output of a batch."""

    id: int
    output_id: str
    change: Literal["created", "updated", "unchanged"]


class ErrorDetailOut(TypedDict):
    """One problem of a request. It never contains the value."""

    loc: list[str]
    msg: str
    type: str


class IngestCounts(WriteCounts):
    """Result of stored outputs: the counts and, with `on_error=skip`, the skipped elements."""

    skipped: NotRequired[
        Annotated[int, Field(description="With `on_error=skip`: number of skipped elements.")]
    ]
    errors: NotRequired[
        Annotated[
            list[ErrorDetailOut],
            Field(description="With `on_error=skip`: the first 100 errors of skipped elements."),
        ]
    ]


class IngestResult(IngestCounts):
    """Result of a batch: the counts, and one result per element of the batch, in its order."""

    results: Annotated[
        list[OutputResult | None], Field(description="null for an element that is skipped.")
    ]


class NdjsonResult(IngestCounts):
    """Result of an NDJSON body: the counts, and the number of its lines."""

    lines: int


class FileOut(TypedDict):
    """File of an output."""

    id: str
    field: Annotated[str, Field(description="Path inside `data`.")]
    url_etag_hash: str
    blob_key: str
    blob_url: str
    source_url: str
    create_date: DateTime
    file_url: str
    file_type: str
    file_checksum: str
    file_metadata: dict[str, Any]


class ExportLink(TypedDict):
    """Signed link to an export."""

    url: Annotated[str, Field(description="It works without a token, and only for reading.")]
    expires: Annotated[DateTime, Field(description="End of its validity.")]


class StoredFile(TypedDict):
    """Uploaded file."""

    id: str
    blob_key: str
    file_checksum: str
    file_type: str
    url_etag_hash: str
    size: int


class OutputOut(TypedDict):
    """Stored output."""

    source_url: str
    data: dict[str, Any]
    id: int
    output_id: str
    root_job_id: str
    create_date: DateTime
    update_date: DateTime
    last_scraped_date: DateTime
    key_hash: str
    value_hash: str
    is_approved: bool
    tags: dict[str, Any]
    files: list[FileOut]


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


class SampledOutput(TypedDict):
    """Output of a sample, with the reason for its choice."""

    reason: Annotated[
        Literal["random", "changed", "rare_shape", "outlier"],
        Field(
            description="random: each output of the job was equally likely. changed: it has a "
            "newer value than its last approved version. rare_shape: few outputs of the job have "
            "the same fields and kinds. outlier: it has an extreme value."
        ),
    ]
    detail: Annotated[str | None, Field(description="What is unusual; null if nothing is.")]
    output: OutputOut
    approved_output: Annotated[
        OutputOut | None,
        Field(description="Last approved version, if the output has a newer value; else null."),
    ]
    fields: Annotated[
        list[FieldChange] | None,
        Field(
            description="What has changed since `approved_output`. null if there is none, or if "
            "the text is too large."
        ),
    ]


class ReviewSample(TypedDict):
    """Sample of a job's outputs for a review."""

    seed: Annotated[str, Field(description="Text that gives the same sample again.")]
    job_id: str
    cursor: Annotated[int, Field(description="Send it as `as_of` of the review.")]
    outputs: Annotated[int, Field(description="Number of outputs of the job.")]
    sample: list[SampledOutput]


class OutputPage(TypedDict):
    """Page of a group's outputs, in the order of their last change."""

    metadata: PageMetadata
    items: list[OutputOut]


class DeletedOutput(TypedDict):
    """Identification of a deleted output."""

    id: int
    output_id: str
    root_job_id: str


class ChangeOut(TypedDict):
    """One change of an output.

    `create`: the output is new, and has not changed after its creation. `update`: its content or
    approval has changed, also if the client has never seen it. `delete`: it was deleted.
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


class Deleted(TypedDict):
    """Number of deleted records."""

    deleted: int


# --- the audit log --------------------------------------------------------------------------------

AuditAction = Literal[
    "get_cookies",
    "set_cookies",
    "delete_cookies",
    "get_local_storage",
    "set_local_storage",
    "delete_local_storage",
    "export_session",
    "import_session",
    "delete_session",
    "reveal_value",
    "acquire_lease",
    "renew_lease",
    "release_lease",
    "add_review",
    "create_export_link",
    "create_token",
    "revoke_token",
    "create_login_link",
    "sign_in",
    "refuse_sign_in",
    "sign_out",
    "rename_organization",
    "delete_organization",
    "rotate_keys",
    "forget_keys",
    "restore",
]


class AuditAbout(TypedDict, total=False):
    """Object of an action. Its members depend on the action."""

    records: Annotated[int, Field(description="Number of cookies or entries.")]
    domains: Annotated[
        list[str],
        Field(
            description="Affected domains; all domains if absent. At most 20 for stored records."
        ),
    ]
    for_group: Annotated[
        int, Field(description="`id` of the group in the filter, or of the deleted group.")
    ]
    profile: Annotated[str, Field(description="Account at the site.")]
    format: Annotated[str, Field(description="Format of an import, an export or a lease.")]
    dry_run: Annotated[bool, Field(description="True if an import stored nothing.")]
    group_id: str
    job_id: str
    review_id: str
    status: ReviewStatus
    outputs: Annotated[int, Field(description="Number of outputs, if a review names them.")]
    token_id: Annotated[
        int,
        Field(description="Token that was created or revoked, or of the session or login link."),
    ]
    scopes: list[str]
    key: Annotated[str, Field(description="Fingerprint of the new key.")]
    person: Annotated[str, Field(description="Name of the person, for actions in the console.")]
    of_person: Annotated[
        str,
        Field(description="Person of the login link, or of the session that somebody else ended."),
    ]
    everywhere: Annotated[bool, Field(description="True if all sessions of the token ended.")]
    reason: Annotated[
        Literal["expired_token", "revoked_token", "expired_link"],
        Field(description="Why a sign-in was refused."),
    ]


class AuditEntry(TypedDict):
    """Entry of the audit log. It never contains a value, a cookie's name or an entry's key."""

    id: int
    date: DateTime
    token_id: Annotated[int | None, Field(description="Actor; null for the command line.")]
    request_id: Annotated[str | None, Field(description="X-Request-ID of the response.")]
    action: Annotated[AuditAction, Field(description="Operation or command.")]
    about: AuditAbout


class AuditPage(TypedDict):
    """Entries, oldest first, and the cursor to continue from."""

    cursor: int
    entries: list[AuditEntry]
