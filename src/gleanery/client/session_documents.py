"""Documents with session state: those that the client sends, and those that it gets."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http.cookiejar import CookieJar
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from gleanery.client.errors import InvalidResponse
from gleanery.client.record_lists import to_json
from gleanery.client.responses import Response

if TYPE_CHECKING:
    from gleanery.client.sessions import ReadResult, SessionState, WriteResult

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
    body: bytes = field(repr=False)
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
        from gleanery.client.sessions import document

        parsed = document.parse(self.content)
        return parsed.value if parsed.is_json else parsed.text


def prepare(given: Any, format_: str, url: str | None) -> PreparedDocument:
    """Return the document to send. Raise InvalidSession if it is not one.

    ``url`` is the page of the cookies of a jar that have no domain. Only a state and a jar are
    converted: the service keeps the fields of stored cookies that the format of a document lacks.
    """
    from gleanery.client import sessions

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
    from gleanery.client import sessions

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
