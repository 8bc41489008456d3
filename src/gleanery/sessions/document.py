"""The document that a format reads, and the description of a format.

A document is a text, a JSON value, or both. The number of its lines is limited. A format says how a
document is recognised, read and written.
"""

from __future__ import annotations

import codecs
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from gleanery.sessions.browser_rules import Page
from gleanery.sessions.model import InvalidSession, Losses, SessionState

_BYTE_ORDER_MARK = "\ufeff"
_JSON_TYPES = (dict, list, int, float)
_NO_DOCUMENT = (
    "Expected a text, bytes, a JSON value, a Path or an open file. Read a cookie jar with "
    "from_cookiejar"
)
_FILE_NAME = re.compile(r"[^\r\n\t=;{\[]+\.(?:txt|json|har)", re.IGNORECASE)
_MAX_FILE_NAME = 1000
_NO_CONTENT = (
    "Expected the content of a file, not its name: in Python read Path(…), in curl use "
    "--data-binary @file"
)
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class _NoJson:
    def __repr__(self) -> str:
        return "NO_JSON"


NO_JSON: Final = _NoJson()
"""The value of a document that is not JSON."""


@dataclass(frozen=True, slots=True)
class Document:
    """Content to read. Its representation does not contain it."""

    text: str
    """The text; empty if the caller gave a JSON value."""
    value: Any
    """The JSON value, or ``NO_JSON``."""

    def __repr__(self) -> str:
        return "Document()"

    @property
    def is_json(self) -> bool:
        return self.value is not NO_JSON

    @property
    def looks_like_json(self) -> bool:
        return self.is_json or self.text.lstrip().startswith(("{", "["))

    def require_json(self) -> None:
        """Raise InvalidSession that says where the text is not JSON."""
        self.reject_file_name()
        if not self.is_json:
            raise InvalidSession(f"The document is not valid JSON: {_problem(self.text)}")

    def reject_file_name(self) -> None:
        """Raise InvalidSession if the text looks like the name of a file.

        Do not look for the file: a client of the service must not learn which files exist.
        """
        if len(self.text) <= _MAX_FILE_NAME and _FILE_NAME.fullmatch(self.text.strip()):
            raise InvalidSession(_NO_CONTENT)


def parse(content: Any) -> Document:
    """Return the document of a text, its bytes, a JSON value, a path or an open file."""
    content = _load(content)
    if isinstance(content, _JSON_TYPES):
        return Document("", content)
    if not isinstance(content, str | bytes | bytearray):
        raise InvalidSession(_NO_DOCUMENT)
    text = content if isinstance(content, str) else _decode(bytes(content))
    text = text.removeprefix(_BYTE_ORDER_MARK)
    if not text.strip():
        raise InvalidSession("The document is empty")
    return Document(text, _parse_json(text))


def _load(content: Any) -> Any:
    """Return the bytes of a path, the content of an open file, and everything else as it is."""
    if isinstance(content, os.PathLike):
        return Path(content).read_bytes()
    return content.read() if hasattr(content, "read") else content


def _decode(content: bytes) -> str:
    try:
        return content.decode("utf-16" if content.startswith(_UTF_16) else "utf-8")
    except UnicodeDecodeError:
        raise InvalidSession("The document is not text in UTF-8 or UTF-16") from None


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_reject_constant)
    except RecursionError:
        raise InvalidSession("The document is nested too deeply") from None
    except ValueError:
        return NO_JSON


def _reject_constant(_: str) -> None:
    raise ValueError


def _problem(text: str) -> str:
    """Return why a text is not JSON, without its content."""
    try:
        json.loads(text, parse_constant=_reject_constant)
    except json.JSONDecodeError as error:
        # The place of a string without an end is its start.
        if error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated"):
            return f"it ends too early, after {len(text)} characters"
        reason = error.msg[0].lower() + error.msg[1:].removesuffix(" at")
        return f"line {error.lineno}, column {error.colno}: {reason}"
    except ValueError:
        pass
    return "NaN and Infinity are not allowed, nor numbers with 4300 digits"


# str.splitlines also splits at characters that the value of a cookie may contain.
_LINE = re.compile(r"[^\n]+")

MAX_LINES = 100_000
"""More than a browser's cookies have. Reading this many takes seconds."""
_TOO_MANY = f"The document has more than {MAX_LINES} {{noun}}: read less at a time"

Found = TypeVar("Found")


def numbered_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the number and the content of each line that is not blank."""
    if text.count("\n") > MAX_LINES:
        raise InvalidSession(_TOO_MANY.format(noun="lines"))
    number, counted = 1, 0
    for match in _LINE.finditer(text):
        number += text.count("\n", counted, match.start())
        counted = match.start()
        line = match[0].removesuffix("\r")
        if line.strip(" \t"):
            yield number, line


def limited(found: Iterable[Found], noun: str) -> Iterator[Found]:
    """Yield what is found. Raise InvalidSession if it is more than a document has lines."""
    for count, one in enumerate(found, start=1):
        if count > MAX_LINES:
            raise InvalidSession(_TOO_MANY.format(noun=noun))
        yield one


JSON = "application/json"
TEXT = "text/plain; charset=utf-8"
OPTIONAL_FIELDS = (
    "host_only",
    "path",
    "expires",
    "secure",
    "http_only",
    "same_site",
    "partition_key",
)
"""Fields of a cookie that some formats do not have."""


def _no_pages(document: Document, url: str | None) -> Iterable[Page]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One format: how it is recognised, read and written."""

    name: str
    """The name in ``read``, ``write`` and the API."""
    title: str
    """The name in sentences for people, such as ``cookies.txt``."""
    description: str
    """What it is, for people who choose a format. Backquotes mark code."""
    other_names: tuple[str, ...] = ()
    """What people also call it. The names are suggested, and not accepted."""
    media_type: str
    file_name: str
    carries: frozenset[str]
    """The ``OPTIONAL_FIELDS`` that the format has, and ``local_storage``."""
    detect: Callable[[Document], bool]
    """Returns True if a document has the format. Two formats never detect the same document."""
    read: Callable[[Document, Losses, str | None], SessionState]
    """Reads a document; the third argument is the URL that the document belongs to."""
    write: Callable[[SessionState, Losses, str | None], Any]
    """Returns a text or a JSON value. The state has only what the format carries."""
    pages: Callable[[Document, str | None], Iterable[Page]] = _no_pages
    """Returns the pages whose requests a document has, if its cookies have no domain and path."""
    needs_url: bool = False
    """True if a document has the cookies of one page, whose URL ``write`` needs."""
