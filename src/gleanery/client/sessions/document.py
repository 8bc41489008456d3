"""The document that a format reads: a text, a JSON value, or both."""

from __future__ import annotations

import codecs
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gleanery.client.sessions.errors import InvalidSession

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
