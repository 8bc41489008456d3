"""Metadata of a file, read from the response that has it."""

from __future__ import annotations

from email.message import Message
from pathlib import PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import unquote

from scrapy.utils.httpobj import urlparse_cached

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.http import Response

_MAX_VERSION = 1024  # limits of the service
_MAX_FILENAME = 255


def version_of(response: Response) -> str | None:
    """Return the ETag of a response, or else its date; None if it has neither."""
    for name, prefix in (("ETag", ""), ("Last-Modified", "Last-Modified: ")):
        value = (response.headers.get(name) or b"").decode("latin-1").strip()
        if value and len(prefix + value) <= _MAX_VERSION:
            return prefix + value
    return None


def media_type_of(response: Response) -> str | None:
    """Return the Content-Type of a file; None for one that the service takes for a form."""
    value = (response.headers.get("Content-Type") or b"").decode("latin-1").strip()
    is_form = value.lower().startswith(("multipart/", "application/x-www-form-urlencoded"))
    return value if value.isascii() and value and not is_form else None


def filename_of(request: Request, response: Response) -> str:
    """Return the name of a file: that of Content-Disposition, or else the end of the path."""
    message = Message()
    message["Content-Disposition"] = _first_line(response.headers.get("Content-Disposition"))
    name = message.get_filename() or unquote(urlparse_cached(request).path)
    return PurePosixPath(name.replace("\\", "/")).name[:_MAX_FILENAME]


def _first_line(header: bytes | None) -> str:
    return (header or b"").decode("latin-1").partition("\n")[0].strip()
