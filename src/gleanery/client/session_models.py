"""Sessions as requests and responses describe them: records, leases and documents.

No representation has a value.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from datetime import datetime
from http.cookiejar import CookieJar
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from msgspec import Raw, Struct, field

from gleanery.client.errors import InvalidResponse
from gleanery.client.requests import to_json
from gleanery.client.responses import Response

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


if TYPE_CHECKING:
    from gleanery.sessions import ReadResult, SessionState, WriteResult

    class SupportsRead(Protocol):
        """Open file."""

        def read(self) -> str | bytes: ...

    class HasJar(Protocol):
        """Cookies of a client of httpx2 or httpx."""

        jar: CookieJar

    SessionDocument = (
        SessionState
        | ReadResult
        | CookieJar
        | HasJar
        | Mapping[str, Any]
        | Sequence[Any]
        | str
        | bytes
        | os.PathLike[str]
        | SupportsRead
    )
    """State, cookie jar, JSON value, text, path or open file."""

LOSSLESS_FORMAT = "playwright"
"""Format that has every field of a cookie, and local storage."""


@dataclass(frozen=True, slots=True)
class SessionExport:
    """Session in the format of a tool. Its representation has no values."""

    format: str
    body: bytes = dataclass_field(repr=False)
    """The document as the service sent it, for a file."""
    is_json: bool
    losses: tuple[str, ...]
    """What the format cannot carry, one sentence for each reason."""
    etag: str
    """Version of the exported records, for ``if_match``."""

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def content(self) -> Any:
        """JSON value of a JSON format; else the text."""
        return json.loads(self.body) if self.is_json else self.text


def read_export(response: Response, format_: str) -> SessionExport:
    """Return the document of a response, and what its headers say."""
    headers = response.headers
    try:
        losses = tuple(map(str, json.loads(headers.get("gleanery-losses", "[]"))))
    except ValueError:
        raise InvalidResponse("The header Gleanery-Losses of the response is damaged") from None
    is_json = headers.get("content-type", "").startswith("application/json")
    return SessionExport(format_, response.body, is_json, losses, headers.get("etag", ""))


class PreparedDocument(NamedTuple):
    """Document to send. Its content is bytes, a text or a JSON value."""

    content: Any
    format: str
    losses: tuple[str, ...] = ()
    """What was lost when it was made of a state or a cookie jar."""

    def __repr__(self) -> str:
        return f"PreparedDocument({self.format!r})"

    def to_body(self) -> bytes:
        """Return the document as the body of a request."""
        if isinstance(self.content, str):
            return _encode(self.content)
        return self.content if isinstance(self.content, bytes) else to_json(self.content)

    def to_value(self) -> Any:
        """Return the document as a JSON value or a text, for a member of a body."""
        from gleanery.sessions import document

        parsed = document.parse(self.content)
        return parsed.value if parsed.is_json else parsed.text


def prepare(given: Any, format_: str, url: str | None) -> PreparedDocument:
    """Return the document to send. Raise InvalidSession if it is not one.

    ``url`` is the page of the cookies of a jar that have no domain. Only a state and a jar are
    converted: the service keeps the fields of stored cookies that the format of a document lacks.
    """
    from gleanery import sessions

    jar = getattr(given, "jar", given)
    if isinstance(jar, CookieJar):
        found = sessions.from_cookiejar(jar, url)
        return _convert(found, found.losses)
    if isinstance(given, sessions.SessionState | sessions.ReadResult):
        return _convert(given, ())
    if isinstance(given, os.PathLike):
        given = Path(given).read_bytes()
    elif hasattr(given, "read"):
        given = given.read()
    return PreparedDocument(bytes(given) if isinstance(given, bytearray) else given, format_)


def _convert(state: SessionState | ReadResult, losses: Sequence[object]) -> PreparedDocument:
    from gleanery import sessions

    written: WriteResult = sessions.write(state, LOSSLESS_FORMAT)
    sentences = tuple(str(loss) for loss in (*losses, *written.losses))
    return PreparedDocument(written.content, LOSSLESS_FORMAT, sentences)


def _encode(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:  # its representation has the whole text
        raise ValueError("The document is not valid Unicode") from None


def page_of(domain: str) -> str:
    """Return the URL of the page that a document without one belongs to."""
    return f"https://{domain.removeprefix('.')}/"
