"""Parser of one connection: finds the requests in the bytes that arrive (RFC 9112).

First comes the head with its grammar and the cache of repeated headers, then the decoders of the
body, then the parser that uses both.

See ``docs/decisions/0060-own-http-parser.md``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gleanery.service.http.application import (
    BadRequest,
    HeaderBlock,
    HeadTooLarge,
    UnsupportedExpectation,
    UnsupportedMethod,
    UnsupportedTransferEncoding,
    UnsupportedVersion,
)
from gleanery.service.http.request import HttpRequest, Transport

# --- the head -----------------------------------------------------------------------------------

TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]++"
_VALUE = rb"[\t -~\x80-\xff]*+"
_PORT = rb"(?::[0-9]{0,5})?"
_HOST = rb"(?:\[[0-9A-Fa-f:.]++\]|(?:[A-Za-z0-9._~!$&'()*+,;=-]++|%[0-9A-Fa-f]{2})++)"

REQUEST_LINE = re.compile(rb'([A-Z][A-Z_-]{0,31}) ([!"$-~]++) HTTP/([0-9])\.([0-9])\r\n')
"""Method, target without a fragment, and the two digits of the version."""
_HEADER_LINE = re.compile(TOKEN + b":" + _VALUE + rb"\r\n")
_HEADERS = re.compile(rb"(?m)^(%s):[\t ]*+(%s)\r\n" % (TOKEN, _VALUE))
_AUTHORITY = re.compile(_HOST + _PORT)
# A scheme, a host, and the part that origin-form has alone. User information is an error.
_ABSOLUTE_TARGET = re.compile(rb"[Hh][Tt][Tt][Pp][Ss]?://%s%s(?=[/?]|\Z)" % (_HOST, _PORT))
_LENGTH = re.compile(rb"[0-9]{1,18}")

_MAX_CACHED_BYTES = 4096
_METHOD = b"GET "
_VERSION = b" HTTP/1.1"
_TARGET_BYTES = bytes(byte for byte in range(0x21, 0x7F) if byte != 0x23)  # 0x23 is #
_NOT_CACHED = {b"content-length", b"transfer-encoding", b"expect"}


class RequestHead(NamedTuple):
    """A valid head, and what it says about the body and the connection."""

    method: str
    path: bytes
    query: bytes
    block: HeaderBlock
    keep_alive: bool
    body_length: int | None
    """Length of the body in bytes; None if it is chunked."""
    expects_continue: bool
    is_1_1: bool
    """True for HTTP/1.1, False for HTTP/1.0."""


def parse_head(data: bytes) -> RequestHead:
    """Parse a head with its empty line. Raise ``HttpError`` for everything unclear."""
    line = REQUEST_LINE.match(data)
    if line is None:
        raise BadRequest("the request line is malformed")
    method, target, major, minor = line.groups()
    if major != b"1" or minor > b"1":
        raise UnsupportedVersion
    headers = _parse_headers(data, line.end())
    is_1_1 = minor == b"1"
    _check_host(headers, is_1_1)
    path, query = _split_target(method, target)
    return RequestHead(
        method.decode("ascii"),
        path,
        query,
        HeaderBlock(headers),
        is_1_1 and not _closes(headers),
        _body_length(headers, is_1_1),
        is_1_1 and _expects_continue(headers),
        is_1_1,
    )


def _parse_headers(data: bytes, start: int) -> dict[bytes, bytes]:
    """Return the headers by lower-case name. The values of a repeated header are joined."""
    lines = _HEADERS.findall(data, start)
    if len(lines) != data.count(b"\n", start) - 1:  # the last line is empty
        raise BadRequest("a header line is malformed")
    headers = {name.lower(): value.rstrip(b"\t ") for name, value in lines}
    return headers if len(headers) == len(lines) else _joined(lines)


def _joined(lines: Sequence[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    values: dict[bytes, list[bytes]] = {}
    for name, value in lines:
        values.setdefault(name.lower(), []).append(value.rstrip(b"\t "))
    return {name: b", ".join(found) for name, found in values.items()}


def _check_host(headers: Mapping[bytes, bytes], is_1_1: bool) -> None:
    """Check that there is one valid host. The joined values of several are not valid."""
    host = headers.get(b"host")
    if host is None:
        if is_1_1:
            raise BadRequest("the Host header is missing")
    elif _AUTHORITY.fullmatch(host) is None:
        raise BadRequest("the Host header must be one host name, with or without a port")


def _split_target(method: bytes, target: bytes) -> tuple[bytes, bytes]:
    """Return path and query as they were sent."""
    if method == b"CONNECT":
        raise UnsupportedMethod
    if target[0] != 0x2F:  # a slash
        if target == b"*" and method == b"OPTIONS":
            return target, b""
        absolute = _ABSOLUTE_TARGET.match(target)
        if absolute is None:
            raise BadRequest("the request target must be a path or an http URL")
        target = target[absolute.end() :]
    path, _, query = target.partition(b"?")
    return path or b"/", query


def _closes(headers: Mapping[bytes, bytes]) -> bool:
    """Return True if the client asks to close the connection after the response."""
    value = headers.get(b"connection", b"").lower()
    return b"close" in value and b"close" in [option.strip(b"\t ") for option in value.split(b",")]


def _body_length(headers: Mapping[bytes, bytes], is_1_1: bool) -> int | None:
    """Return the length of the body, None if it is chunked. Two statements are an error."""
    length, coding = headers.get(b"content-length"), headers.get(b"transfer-encoding")
    if coding is not None:
        if length is not None or not is_1_1:
            raise BadRequest("Transfer-Encoding is not allowed beside Content-Length or in 1.0")
        if coding.lower() != b"chunked":
            raise UnsupportedTransferEncoding
        return None
    if length is None:
        return 0
    if _LENGTH.fullmatch(length) is None:
        raise BadRequest("Content-Length must be one number")
    return int(length)


def _expects_continue(headers: Mapping[bytes, bytes]) -> bool:
    value = headers.get(b"expect")
    if value is None:
        return False
    if value.lower() != b"100-continue":
        raise UnsupportedExpectation
    return True


class HeaderCache:
    """Recognises a GET request that repeats the header block of the previous request.

    A client that sends many requests on a connection usually changes nothing but the target. Then
    the head is not parsed: that would take 10 µs, a comparison takes less than 1 µs.
    """

    __slots__ = ("_end", "block")

    def __init__(self) -> None:
        self.block = HeaderBlock({})
        self._end = b""

    def store(self, data: bytes, head: RequestHead) -> None:
        """Store the header block of a head that consisted of exactly these bytes."""
        if (
            len(data) <= _MAX_CACHED_BYTES
            and head.method == "GET"
            and head.keep_alive
            and head.block.headers.keys().isdisjoint(_NOT_CACHED)
        ):
            start = data.index(b"\r\n") - len(_VERSION)
            self.block, self._end = head.block, data[start:]

    def target_in(self, data: bytes) -> bytes | None:
        """Return the target if the bytes are one GET request with the stored header block."""
        end = self._end
        if not end or not data.endswith(end) or not data.startswith(_METHOD):
            return None
        target = data[len(_METHOD) : -len(end)]
        # This is what REQUEST_LINE allows, in half the time.
        if not target.startswith(b"/") or target.translate(None, _TARGET_BYTES):
            return None
        return target if len(target) <= _MAX_CACHED_BYTES else None


# --- the body -----------------------------------------------------------------------------------

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
            elif _HEADER_LINE.fullmatch(data, position, line_end) is None:
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


# --- the parser ---------------------------------------------------------------------------------

_HEAD_END = b"\r\n\r\n"
# Ends a head whose lines do not end in CRLF. It is malformed, so it is not waited for.
_ANY_HEAD_END = re.compile(rb"\n\r?\n")
_EMPTY_LINES = re.compile(rb"\A(?:\r\n)++")
_MAX_EMPTY_LINES = 10  # before one request
_METHOD_START = re.compile(rb"[A-Z][A-Z_-]{0,31}(?: |\Z)|\r\Z")


class RequestParser:
    """Finds one request at a time. The bytes after it stay unparsed until the next call."""

    def __init__(self, transport: Transport, max_head_bytes: int) -> None:
        self._transport = transport
        self._max_head_bytes = max_head_bytes
        self._cache = HeaderCache()
        self.unparsed = b""
        """Bytes that have arrived and were not parsed yet."""
        self._searched = 0  # unparsed bytes that do not contain the end of a head
        self._empty_lines = 0  # before the next request
        self._body: LengthDecoder | ChunkedDecoder | None = None
        self.parsed_heads = 0
        """Requests whose heads were complete."""

    @property
    def is_in_head(self) -> bool:
        """True if a part of a head has arrived."""
        return bool(self.unparsed) and self._body is None

    def add(self, data: bytes) -> None:
        self.unparsed = self.unparsed + data if self.unparsed else data

    def clear(self) -> None:
        """Drop everything that was not parsed."""
        self.unparsed, self._searched, self._body = b"", 0, None

    def next_request(self) -> HttpRequest | None:
        """Return the next request, without its body, if its head has arrived.

        Raise ``HttpError``, after which nothing more can be parsed.
        """
        data = self.unparsed
        target = self._cache.target_in(data)
        if target is not None:
            self.unparsed, self._searched, self._empty_lines = b"", 0, 0
            return self._repeated_request(target)
        data = self._find_head()
        if not data:
            return None
        self.unparsed, self._searched, self._empty_lines = self.unparsed[len(data) :], 0, 0
        target = self._cache.target_in(data)
        return self._parsed_request(data) if target is None else self._repeated_request(target)

    def _repeated_request(self, target: bytes) -> HttpRequest:
        self.parsed_heads += 1
        path, _, query = target.partition(b"?")
        return HttpRequest(self._transport, "GET", path, query, self._cache.block, True, True)

    def _parsed_request(self, data: bytes) -> HttpRequest:
        head = parse_head(data)
        self.parsed_heads += 1
        self._cache.store(data, head)
        self._body = self._decoder(head)
        return HttpRequest(
            self._transport,
            head.method,
            head.path,
            head.query,
            head.block,
            head.keep_alive,
            self._body is None,
            head.expects_continue,
            head.is_1_1,
        )

    def _decoder(self, head: RequestHead) -> LengthDecoder | ChunkedDecoder | None:
        if head.body_length is None:
            return ChunkedDecoder(self._max_head_bytes)
        return LengthDecoder(head.body_length) if head.body_length else None

    def _find_head(self) -> bytes:
        """Return the bytes of the next head; nothing if it is not complete."""
        if self.unparsed.startswith(b"\r\n"):  # some clients send an empty line after a body
            self._skip_empty_lines()
        data = self.unparsed
        end = data.find(_HEAD_END, self._searched) + len(_HEAD_END)
        if end < len(_HEAD_END):
            self._check_incomplete_head(data)
            self._searched = max(0, len(data) - len(_HEAD_END) + 1)
            return b""
        if end > self._max_head_bytes:
            raise HeadTooLarge(self._max_head_bytes)
        return data[:end]

    def _skip_empty_lines(self) -> None:
        rest = _EMPTY_LINES.sub(b"", self.unparsed, count=1)
        self._empty_lines += (len(self.unparsed) - len(rest)) // len(b"\r\n")
        if self._empty_lines > _MAX_EMPTY_LINES:
            raise BadRequest("there are too many empty lines before the request line")
        self.unparsed = rest

    def _check_incomplete_head(self, data: bytes) -> None:
        """Raise an error as early as possible, so that the client need not wait for it."""
        if not data:
            return
        if len(data) > self._max_head_bytes:
            raise HeadTooLarge(self._max_head_bytes)
        # The request line is checked once: a long one takes longer than a packet of one byte.
        has_new_line = data.find(b"\n") >= self._searched
        if _METHOD_START.match(data) is None or (has_new_line and not REQUEST_LINE.match(data)):
            raise BadRequest("the request line is malformed")
        if _ANY_HEAD_END.search(data, self._searched):
            raise BadRequest("the lines of a head must end with CR LF")

    def read_body(self, request: HttpRequest) -> bool:
        """Give a request the part of its body that has arrived. Return True if that is enough.

        Raise ``HttpError``, after which nothing more can be parsed.
        """
        assert self._body is not None
        pieces, self.unparsed = self._body.decode(self.unparsed)
        is_enough = request.add_body(pieces)
        if self._body.is_complete:
            self._body = None
            request.complete()
        return is_enough
