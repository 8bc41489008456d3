"""Records of sessions, as the service describes them. No ``repr`` contains a value."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from msgspec import Raw, Struct, field

_HIDDEN = ("value", "state")


class WriteCounts(Struct, frozen=True, gc=False, kw_only=True):
    """Number of records that a write has created, updated and left as they were."""

    created: int
    updated: int
    unchanged: int


class Deleted(Struct, frozen=True, gc=False, kw_only=True):
    """Number of deleted records."""

    deleted: int


class _Secret(Struct, frozen=True, gc=False, kw_only=True):
    """Record with a credential, which is left out of every representation."""

    def __repr__(self) -> str:
        members = ", ".join(f"{name}={value!r}" for name, value in self.__rich_repr__())
        return f"{type(self).__name__}({members})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """Return the members that the library Rich may show."""
        return [
            (name, getattr(self, name)) for name in self.__struct_fields__ if name not in _HIDDEN
        ]


class NewCookie(_Secret, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """Cookie to store. Without an expiry, it is a session cookie."""

    domain: str
    """Host. A leading dot includes its subdomains."""
    name: str
    value: str
    path: str | None = None
    expires: datetime | int | float | str | None = None
    """Date, or seconds since 1970. A date without a zone is in UTC."""
    secure: bool | None = None
    http_only: bool | None = None
    same_site: Literal["Strict", "Lax", "None"] | None = None
    """Without it, a stored cookie keeps what it has."""


class StoredCookie(_Secret, frozen=True, gc=False, kw_only=True):
    """Cookie that is stored."""

    name: str
    value: str
    url: str
    domain: str
    path: str
    expires: int
    """Seconds since 1970; -1 for a session cookie."""
    http_only: bool
    secure: bool


class NewEntry(_Secret, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """Local-storage entry to store. Without an expiry, it never expires."""

    domain: str
    key: str
    value: str
    path: str | None = None
    expires: datetime | int | float | str | None = None
    origin: str | None = None
    """Origin such as ``https://shop.example:8443``. Its host is the domain."""
    group_id: int | None = None
    """Number of the group that uses the entry. Without it, every group."""


class StoredEntry(_Secret, frozen=True, gc=False, kw_only=True):
    """Local-storage entry that is stored."""

    organization_id: int
    domain: str
    key: str
    value: str
    expires: datetime | None
    id: int
    group_id: int
    """Number of the group that uses the entry; 0 for every group."""
    path: str
    create_date: datetime
    update_date: datetime


class SessionSummary(Struct, frozen=True, gc=False, kw_only=True):
    """Number of records of one host and profile, and when they expire."""

    domain: str
    profile: str
    cookies: int
    local_storage: int
    expired: int
    expiring: int
    """Records that expire within a day."""
    first_expiry: datetime | None
    last_change: datetime


class ImportCounts(WriteCounts, frozen=True, gc=False, kw_only=True):
    """Number of records of one kind that an import has changed."""

    deleted: int


class ImportedRecord(Struct, frozen=True, gc=False, kw_only=True):
    """Record of a dry run, without its value."""

    kind: Literal["cookie", "local_storage"]
    change: Literal["created", "updated", "unchanged", "deleted"]
    domain: str
    origin: str | None
    path: str
    name: str
    expires: datetime | None


class ImportResult(Struct, frozen=True, gc=False, kw_only=True):
    """What an import has stored, or would store. It contains no values."""

    format: str
    profile: str
    dry_run: bool
    cookies: ImportCounts
    local_storage: ImportCounts
    losses: list[str]
    """What could not be kept, one sentence for each reason."""
    records: list[ImportedRecord] = field(default_factory=list)
    """What a dry run would store."""
    etag: str = ""
    """Version of all records of the profile, for ``if_match``."""


class AcquiredLease(_Secret, frozen=True, gc=False, kw_only=True):
    """Lease, and the state of its session in the format of Playwright."""

    id: str
    seconds: int
    state: Raw
    losses: list[str]


class ChangedLease(Struct, frozen=True, gc=False, kw_only=True):
    """What was stored with a lease."""

    seconds: int
    """Seconds until the lease expires, from the moment at which the request was sent."""
    cookies: ImportCounts
    local_storage: ImportCounts
    losses: list[str]
    """What could not be stored, one sentence for each reason."""
    etag: str = ""
