"""Decoders of a request's body: one with a length, and one in chunks (RFC 9112, section 7.1)."""

from __future__ import annotations

import re

from gleanery.http.errors import BadRequest, HeadTooLarge
from gleanery.http.head import HEADER_LINE, TOKEN

_MAX_LINE_BYTES = 4096  # of a line with the size of a chunk and its extensions
_QUOTED = rb'"(?:[\t !#-\[\]-~\x80-\xff]|\\[\t -~\x80-\xff])*+"'
# RFC 9112 allows whitespace here, but programs differ in where. A difference hides a request.
_EXTENSION = rb";%s(?:=(?:%s|%s))?+" % (TOKEN, TOKEN, _QUOTED)
_FIRST_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})(?:%s)*+\r\n" % _EXTENSION)
# The line end after the bytes of a chunk is read together with the size of the next chunk.
_NEXT_SIZE = re.compile(rb"\r\n" + _FIRST_SIZE.pattern)


# Another program that applies these would find another end of the request.
_FRAMING_TRAILER = re.compile(rb"(?i:content-length|transfer-encoding):")


class LengthDecoder:
    """Body whose length is known."""

    __slots__ = ("_remaining", "is_complete")

    def __init__(self, length: int) -> None:
        self._remaining = length
        self.is_complete = not length

    def decode(self, data: bytes) -> tuple[list[bytes], bytes]:
        """Return pieces of the body, and the bytes after them."""
        piece, rest = data, b""
        if len(data) > self._remaining:
            piece, rest = data[: self._remaining], data[self._remaining :]
        self._remaining -= len(piece)
        self.is_complete = not self._remaining
        return [piece] if piece else [], rest


class ChunkedDecoder:
    """Body in chunks. Extensions and trailers must be well formed; they are ignored."""

    __slots__ = (
        "_in_trailers",
        "_max_trailer_bytes",
        "_remaining",
        "_size_line",
        "_trailer_bytes",
        "is_complete",
    )

    def __init__(self, max_trailer_bytes: int) -> None:
        self._max_trailer_bytes = max_trailer_bytes
        self._trailer_bytes = 0
        self._size_line = _FIRST_SIZE
        self._remaining = 0  # bytes of the present chunk
        self._in_trailers = False
        self.is_complete = False

    def decode(self, data: bytes) -> tuple[list[bytes], bytes]:
        """Return pieces of the body, and the bytes that are left for the next call.

        Raise ``BadRequest`` and ``HeadTooLarge``.
        """
        pieces: list[bytes] = []
        position = 0
        if not self._in_trailers:
            position = self._read_chunks(data, pieces)
        if self._in_trailers:
            position = self._skip_trailers(data, position)
        return pieces, data[position:] if position else data

    def _read_chunks(self, data: bytes, pieces: list[bytes]) -> int:
        """Append the bytes of the chunks. Return the end of what could be read."""
        position, end, remaining = 0, len(data), self._remaining
        while position < end:
            if not remaining:
                size = self._size_line.match(data, position)
                if size is None:
                    _check_incomplete_size(data[position:], self._size_line)
                    break
                if size.end() - position > _MAX_LINE_BYTES:
                    raise BadRequest("the extensions of a chunk are too long")
                position = size.end()
                self._size_line = _NEXT_SIZE
                remaining = int(size[1], 16)
                if not remaining:
                    self._in_trailers = True
                    break
            piece = data[position : position + remaining]
            if piece:
                pieces.append(piece)
            position += len(piece)
            remaining -= len(piece)
        self._remaining = remaining
        return position

    def _skip_trailers(self, data: bytes, start: int) -> int:
        """Return the end of the trailers, or of those that are complete."""
        position = start
        while (line_end := data.find(b"\n", position) + 1) and not self.is_complete:
            if data[position:line_end] == b"\r\n":
                self.is_complete = True
            elif HEADER_LINE.fullmatch(data, position, line_end) is None:
                raise BadRequest("a trailer line is malformed")
            elif _FRAMING_TRAILER.match(data, position):
                raise BadRequest("Content-Length and Transfer-Encoding are not allowed in trailers")
            position = line_end
        unread = 0 if self.is_complete else len(data) - position
        self._trailer_bytes += position - start
        if self._trailer_bytes + unread > self._max_trailer_bytes:
            raise HeadTooLarge(self._max_trailer_bytes)
        return position


def _check_incomplete_size(text: bytes, size_line: re.Pattern[bytes]) -> None:
    """Raise ``BadRequest`` if the line that begins with the text can not become valid."""
    line_end = b"\r\n" if size_line is _NEXT_SIZE else b""
    is_begun = line_end.startswith(text[: len(line_end)])
    if not is_begun or b"\n" in text[len(line_end) :] or len(text) > _MAX_LINE_BYTES:
        raise BadRequest("the size of a chunk is malformed")
