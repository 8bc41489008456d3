"""Responses about cookies, local storage and sessions."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from gleanery.models.responses.common import DateTime, WriteCounts


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
        Field(description="First date of expiry, even if it is past; null if nothing expires."),
    ]
    last_change: DateTime


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
