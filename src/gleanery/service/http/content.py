"""Files over HTTP: uploads as ``multipart/form-data``, ranges and conditional requests.

A form is read as a stream (RFC 7578). A range or a condition concerns a content of known size and
ETag (RFC 9110).
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from typing import NamedTuple
from urllib.parse import unquote

from gleanery.service.http.application import InvalidForm, RangeNotSatisfiable
from gleanery.service.http.request import field_value

# --- forms with one file ------------------------------------------------------------------------

_MAX_BOUNDARY_BYTES = 70
_MAX_HEAD_BYTES = 8192
_HEAD_END = b"\r\n\r\n"
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_PARAMETER = re.compile(rf';\s*({_TOKEN.pattern})\s*=\s*("(?:[^"\\]|\\.)*"|[^;"\s]*)\s*')
_PLAIN_ENCODINGS = ("", "7bit", "8bit", "binary")
# HTML escapes these characters of a file name, and no others.
_ESCAPES = (("%22", '"'), ("%0D", "\r"), ("%0A", "\n"))
_TRUNCATED = "the form ends before its last boundary"


class FileHead(NamedTuple):
    """The headers of the part with the file."""

    filename: str
    content_type: str
    """Empty if the part does not name its type."""


class FileForm:
    """A form with exactly one part, a file. Call ``head`` first, then ``content``.

    Only one chunk of the body is in memory. Any other form raises InvalidForm, which may happen
    after all of the content.
    """

    def __init__(self, content_type: str, chunks: AsyncIterator[bytes]) -> None:
        self._boundary = b"--" + _boundary(content_type)
        self._chunks = chunks
        self._buffer = b""

    async def head(self) -> FileHead:
        """Read the headers of the part."""
        start = self._boundary + b"\r\n"
        limit = len(start) + _MAX_HEAD_BYTES + len(_HEAD_END)
        while _HEAD_END not in self._buffer and len(self._buffer) < limit:
            if not await self._read_more():
                break
        if not self._buffer.startswith(start):
            raise InvalidForm("the form does not start with its boundary")
        head, end, self._buffer = self._buffer[len(start) :].partition(_HEAD_END)
        if not end or len(head) > _MAX_HEAD_BYTES:
            raise InvalidForm("the headers of the form's part do not end, or are too long")
        return _parse_head(head)

    async def content(self) -> AsyncIterator[bytes]:
        """Yield the bytes of the file; then checks that the form ends."""
        delimiter = b"\r\n" + self._boundary
        kept = len(delimiter) - 1  # so many bytes can be the start of a delimiter
        while (end := self._buffer.find(delimiter)) < 0:
            if len(self._buffer) > kept:
                yield self._buffer[:-kept]
                self._buffer = self._buffer[-kept:]
            if not await self._read_more():
                raise InvalidForm(_TRUNCATED)
        if end:
            yield self._buffer[:end]
        self._buffer = self._buffer[end + len(delimiter) :]
        await self._check_end()

    async def _check_end(self) -> None:
        while len(self._buffer) < 2:
            if not await self._read_more():
                raise InvalidForm(_TRUNCATED)
        if self._buffer.startswith(b"\r\n"):
            raise InvalidForm("the form has more than one part; other values belong in the query")
        if not self._buffer.startswith(b"--") or self._buffer[2:].strip():
            raise InvalidForm("the form's last boundary is not followed by its end")
        async for chunk in self._chunks:
            if chunk.strip():
                raise InvalidForm("there are bytes after the end of the form")

    async def _read_more(self) -> bool:
        """Add a chunk to the buffer; return False at the end of the body."""
        chunk = await anext(self._chunks, b"")
        self._buffer += chunk
        return bool(chunk)


def _boundary(content_type: str) -> bytes:
    _, parameters = _parse_value(content_type)
    boundary = parameters.get("boundary", "")
    if not boundary.isascii() or not 1 <= len(boundary) <= _MAX_BOUNDARY_BYTES:
        raise InvalidForm("the Content-Type has no valid boundary")
    return boundary.encode()


def _parse_head(head: bytes) -> FileHead:
    headers = _parse_headers(head)
    disposition, parameters = _parse_value(headers.get("content-disposition", ""))
    if disposition != "form-data":
        raise InvalidForm("the form's part has no Content-Disposition: form-data")
    if headers.get("content-transfer-encoding", "").lower() not in _PLAIN_ENCODINGS:
        raise InvalidForm("the form's part must be sent without Content-Transfer-Encoding")
    filename = _filename(parameters)
    if not filename:
        raise InvalidForm("the form has no file: its first part must have a filename")
    return FileHead(filename, headers.get("content-type", ""))


def _parse_headers(head: bytes) -> dict[str, str]:
    try:
        lines = [line.partition(":") for line in head.decode().split("\r\n")]
    except UnicodeDecodeError:
        raise InvalidForm("the headers of the form's part are not UTF-8") from None
    headers = {name.lower(): value.strip() for name, _, value in lines}
    if len(headers) < len(lines) or not all(_TOKEN.fullmatch(name) for name in headers):
        raise InvalidForm("the headers of the form's part are not valid")
    return headers


def _parse_value(text: str) -> tuple[str, dict[str, str]]:
    """Split a header into its value, in lower case, and its parameters by lower-case name."""
    value, separator, rest = text.partition(";")
    matches = list(_PARAMETER.finditer(separator + rest))
    if "".join(match[0] for match in matches) != separator + rest:
        raise InvalidForm("the headers of the form are not valid")
    parameters = {match[1].lower(): _unquote(match[2]) for match in matches}
    return value.strip().lower(), parameters


def _unquote(text: str) -> str:
    return re.sub(r'\\(["\\])', r"\1", text[1:-1]) if text.startswith('"') else text


def _filename(parameters: dict[str, str]) -> str:
    """Return the name, which old clients encode as ``filename*`` if it is not ASCII."""
    if "filename*" in parameters:
        charset, _, rest = parameters["filename*"].partition("'")
        name = rest.partition("'")[2]  # after the language
        try:
            return unquote(name, errors="strict") if charset.lower() == "utf-8" else ""
        except UnicodeDecodeError:
            return ""
    filename = parameters.get("filename", "")
    for escape, character in _ESCAPES:
        filename = filename.replace(escape, character)
    return filename


# --- ranges and conditional requests ------------------------------------------------------------

_RANGE = re.compile(rb"(?i:bytes)=([0-9]{0,18})-([0-9]{0,18})")


class ContentRange(NamedTuple):
    """The bytes from ``start`` up to ``stop`` of a content of ``size`` bytes."""

    start: int
    stop: int
    size: int
    is_partial: bool = True
    """False if the client gets the whole content with status 200."""

    @property
    def header(self) -> bytes:
        """Value of the Content-Range header."""
        return b"bytes %d-%d/%d" % (self.start, self.stop - 1, self.size)


def requested_range(headers: Mapping[bytes, bytes], etag: bytes, size: int) -> ContentRange:
    """Return the range that the Range header requests.

    It is the whole content if the header asks for several ranges, is not valid, or is not
    wanted for this ETag (If-Range).
    """
    whole = ContentRange(0, size, size, is_partial=False)
    if field_value(headers, b"if-range") not in (b"", etag):
        return whole
    found = _RANGE.fullmatch(field_value(headers, b"range").replace(b" ", b""))
    if found is None or found.group(1, 2) == (b"", b""):
        return whole
    bounds = _bounds(found[1], found[2], size)
    if bounds is None:
        return whole
    start, stop = bounds
    if start >= stop:
        raise RangeNotSatisfiable(size)
    return ContentRange(start, stop, size)


def _bounds(first: bytes, last: bytes, size: int) -> tuple[int, int] | None:
    """Return start and stop, or None for a range that is to be ignored."""
    if not first:
        # The last bytes of an empty content are the whole content.
        return None if size == 0 and int(last) > 0 else (max(size - int(last), 0), size)
    if last and int(last) < int(first):
        return None
    return int(first), min(int(last) + 1, size) if last else size
