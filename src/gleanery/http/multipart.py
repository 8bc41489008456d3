"""Parsing of a ``multipart/form-data`` body with one file, as a stream (RFC 7578)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from email.message import Message
from email.parser import HeaderParser
from typing import NamedTuple

from gleanery.http.errors import InvalidForm

_MAX_BOUNDARY_BYTES = 70
_MAX_HEAD_BYTES = 8192
_HEAD_END = b"\r\n\r\n"
_PLAIN_ENCODINGS = ("", "7bit", "8bit", "binary")
# HTML escapes these characters of a file name, and no others.
_ESCAPES = (("%22", '"'), ("%0D", "\r"), ("%0A", "\n"))
_NO_FILE = "the form has no file: its first part must have a filename"
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
        """Reads the headers of the part."""
        start = self._boundary + b"\r\n"
        while _HEAD_END not in self._buffer:
            if len(self._buffer) > _MAX_HEAD_BYTES or not await self._read_more():
                break
        if not self._buffer.startswith(start):
            raise InvalidForm("the form does not start with its boundary")
        head, end, self._buffer = self._buffer[len(start) :].partition(_HEAD_END)
        if not end or len(head) > _MAX_HEAD_BYTES:
            raise InvalidForm("the headers of the form's part do not end, or are too long")
        return _parse_head(head)

    async def content(self) -> AsyncIterator[bytes]:
        """Yields the bytes of the file; then checks that the form ends."""
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
        """Adds a chunk to the buffer; returns False at the end of the body."""
        chunk = await anext(self._chunks, b"")
        self._buffer += chunk
        return bool(chunk)


def _boundary(content_type: str) -> bytes:
    message = Message()
    message["Content-Type"] = content_type
    boundary = message.get_boundary("")
    if not boundary.isascii() or not 1 <= len(boundary) <= _MAX_BOUNDARY_BYTES:
        raise InvalidForm("the Content-Type has no valid boundary")
    return boundary.encode()


def _parse_head(head: bytes) -> FileHead:
    try:
        part = HeaderParser().parsestr(head.decode())
    except UnicodeDecodeError:
        raise InvalidForm("the headers of the form's part are not UTF-8") from None
    if part.get_content_disposition() != "form-data":
        raise InvalidForm("the form's part has no Content-Disposition: form-data")
    if not part.get_filename():
        raise InvalidForm(_NO_FILE)
    if part.get("content-transfer-encoding", "").strip().lower() not in _PLAIN_ENCODINGS:
        raise InvalidForm("the form's part must be sent without Content-Transfer-Encoding")
    filename = part.get_filename("")
    for escape, character in _ESCAPES:
        filename = filename.replace(escape, character)
    return FileHead(filename, part.get("content-type", ""))
