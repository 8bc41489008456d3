"""The head of a request: its grammar (RFC 9112), and headers that clients repeat unchanged."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from gleanery.http.errors import (
    BadRequest,
    UnsupportedExpectation,
    UnsupportedMethod,
    UnsupportedTransferEncoding,
    UnsupportedVersion,
)

TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]++"
_VALUE = rb"[\t -~\x80-\xff]*+"
_PORT = rb"(?::[0-9]{0,5})?"
_HOST = rb"(?:\[[0-9A-Fa-f:.]++\]|(?:[A-Za-z0-9._~!$&'()*+,;=-]++|%[0-9A-Fa-f]{2})++)"

REQUEST_LINE = re.compile(rb'([A-Z][A-Z_-]{0,31}) ([!"$-~]++) HTTP/([0-9])\.([0-9])\r\n')
"""Method, target without a fragment, and the two digits of the version."""
HEADER_LINE = re.compile(TOKEN + b":" + _VALUE + rb"\r\n")
_HEADERS = re.compile(rb"(?m)^(%s):[\t ]*+(%s)\r\n" % (TOKEN, _VALUE))
_AUTHORITY = re.compile(_HOST + _PORT)
# A scheme, a host, and the part that origin-form has alone. User information is an error.
_ABSOLUTE_TARGET = re.compile(rb"[Hh][Tt][Tt][Pp][Ss]?://%s%s(?=[/?]|\Z)" % (_HOST, _PORT))
_LENGTH = re.compile(rb"[0-9]{1,18}")

_MAX_CACHED_BYTES = 4096
_METHOD = b"GET "
_VERSION = b" HTTP/1.1"
_CACHED_TARGET = re.compile(rb'/[!"$-~]{0,%d}' % _MAX_CACHED_BYTES)
_NOT_CACHED = {b"content-length", b"transfer-encoding", b"expect"}


class HeaderBlock:
    """Headers of one request, or of several in a row that sent exactly the same bytes."""

    __slots__ = ("headers", "memo")

    def __init__(self, headers: Mapping[bytes, bytes]) -> None:
        self.headers = headers
        self.memo: Any = None
        """Cache of the application for results that it derives from the headers."""


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
        return target if _CACHED_TARGET.fullmatch(target) else None
