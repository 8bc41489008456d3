"""What clients send and receive about sessions and leases, except the records to store."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from typing_extensions import TypedDict

from gleanery.service.foundation.field_types import (
    LIST_OF_FORMATS,
    MAX_INT64,
    MAX_NAME_LENGTH,
    Domain,
    HeaderText,
    ListLimit,
    Name,
    PageUrl,
    QueryNumericGroupId,
    ReadFormat,
    SessionCursor,
    SessionPosition,
    StoredName,
    Text,
    WholeNumber,
    WrittenFormat,
    float_to_integer,
)
from gleanery.service.foundation.models import (
    DateTimeOut,
    Input,
    Query,
    WriteCounts,
    condition,
    custom_error,
)
from gleanery.service.resources.sessions.state_models import DEFAULT_PROFILE

MAX_LEASE_SECONDS = 3600

LeaseSeconds = Annotated[int, Field(ge=1, le=MAX_LEASE_SECONDS), BeforeValidator(float_to_integer)]
_JSON_TYPES = ["object", "array", "string"]
StateIn = Annotated[
    Any, WithJsonSchema({"type": [*_JSON_TYPES, "null"], "additionalProperties": True, "items": {}})
]
StateOut = Annotated[
    Any, WithJsonSchema({"type": _JSON_TYPES, "additionalProperties": True, "items": {}})
]
_PROFILE = "Account at the site, if there are several."


# --- queries ------------------------------------------------------------------------------------


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


class SessionsQuery(Query):
    """Filters and paging of sessions."""

    domain: Domain | None = Field(
        default=None, description="Only this host. A leading dot makes no difference."
    )
    profile: StoredName | None = Field(default=None, description="Only this profile.")
    limit: ListLimit = Field(default=100, description="Page size.")
    cursor: SessionCursor = Field(
        # A factory, because the position has another type than the text that clients send.
        default_factory=lambda: SessionPosition("", ""),
        description="Cursor from the Link header.",
    )


class SessionDeletion(Query):
    """Session to delete."""

    domain: Domain = Field(description="Host. A leading dot makes no difference.")
    profile: StoredName = Field(default=DEFAULT_PROFILE, description=_PROFILE)


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
    profile: StoredName = Field(default=DEFAULT_PROFILE, description=_PROFILE)


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


# --- responses ----------------------------------------------------------------------------------


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
    expires: Annotated[DateTimeOut | None, Field(description="null if it never expires.")]
    id: int
    group_id: Annotated[
        int, Field(description="`id` of the group that uses it; 0 for every group.")
    ]
    path: str
    create_date: DateTimeOut
    update_date: DateTimeOut


class SessionOut(TypedDict):
    """Number of records of one host and profile, and when they expire."""

    domain: Annotated[str, Field(description="Host, without a leading dot.")]
    profile: str
    cookies: int
    local_storage: int
    expired: Annotated[int, Field(description="Records that have expired.")]
    expiring: Annotated[int, Field(description="Records that expire within a day.")]
    first_expiry: Annotated[
        DateTimeOut | None,
        Field(description="First date of expiry, even if it is past; null if nothing expires."),
    ]
    last_change: DateTimeOut


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
    expires: Annotated[DateTimeOut | None, Field(description="null if it has no date of expiry.")]


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


# --- leases -------------------------------------------------------------------------------------


class LeaseIn(Input):
    """Session to lease, and for how long."""

    domain: Domain = Field(description="Host. A leading dot includes its subdomains.")
    profile: Name = Field(default="default", description="Account of the domain.")
    seconds: LeaseSeconds = Field(
        description=f"Time until the lease expires: 1 to {MAX_LEASE_SECONDS} seconds."
    )
    holder: Text | None = Field(
        default=None, max_length=MAX_NAME_LENGTH, description="Who holds the lease, for people."
    )
    format: WrittenFormat = Field(
        default="playwright", description="Format of the state, as in an export."
    )


class LeaseChange(Input):
    """Changes of a session, and what happens to its lease."""

    model_config = ConfigDict(
        json_schema_extra=condition(
            {
                "dependentRequired": {"format": ["state"], "replace": ["state"]},
                "if": {"properties": {"release": {"const": True}}, "required": ["release"]},
                "then": {"properties": {"seconds": {"type": "null"}}},
            }
        )
    )

    seconds: LeaseSeconds | None = Field(
        default=None,
        description=f"Time until the lease expires, from now: 1 to {MAX_LEASE_SECONDS} seconds. It "
        "never shortens a lease. Without it, the lease keeps its expiry.",
    )
    state: StateIn = Field(default=None, description="Cookies and local storage to store.")
    format: ReadFormat = Field(
        default="auto", description="Format of the state, as in an import. `auto` recognises it."
    )
    replace: bool = Field(
        default=False,
        description="true: deletes the other records of the leased domain. A format without local "
        "storage deletes only cookies. A Cookie header or a curl command deletes only those that "
        "its page gets. A state without any record is an error.",
    )
    release: bool = Field(default=False, description="true: returns the lease.")

    @model_validator(mode="after")
    def _reject_contradictions(self) -> LeaseChange:
        problems = [
            custom_error("conflict", 'has no effect without "state"', [name])
            for name in ("format", "replace")
            if name in self.model_fields_set and self.state is None
        ]
        if self.release and self.seconds is not None:
            msg = 'contradicts "release": send one of them'
            problems.append(custom_error("conflict", msg, ["seconds"]))
        if problems:
            raise ValidationError.from_exception_data(type(self).__name__, problems)
        return self


class LeaseOut(TypedDict):
    """Lease, without the state of the session."""

    id: str
    domain: str
    profile: str
    holder: Annotated[str | None, Field(description="Who holds it, as the holder said.")]
    token_id: Annotated[int, Field(description="Token that acquired it.")]
    acquire_date: DateTimeOut
    expires: DateTimeOut
    seconds: Annotated[
        int,
        Field(
            description="Whole seconds that are left. A holder counts them from the moment at "
            "which it sent the request."
        ),
    ]


class AcquiredLease(LeaseOut):
    """Lease with the state of the session."""

    state: Annotated[StateOut, Field(description="Cookies and local storage, in the format.")]
    losses: Annotated[list[str], Field(description="What the format cannot carry.")]


class ChangedLease(LeaseOut):
    """Lease after a change of its session; `seconds` is 0 if it was returned."""

    cookies: ImportCounts
    local_storage: ImportCounts
    losses: Annotated[list[str], Field(description="What could not be stored.")]
