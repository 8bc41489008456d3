"""The head of a request: what it says, and whether the next one says the same from another cursor.

A client that pages sends the same bytes again and again but for the cursor, one that waits for news
just the same. What was read, checked and bound of them once is not read, checked and bound again.
"""

from __future__ import annotations

import re
from typing import Any

import httptools

from gleanery.errors import BadRequest

_LONGEST_KEPT = 4096
# A cursor that is surely valid: 18 digits are below the largest. A query begins at the first
# question mark: behind another there is a part of some value, which may well look like a cursor.
_CURSOR = re.compile(rb"GET [^\s?#]*\?(?:[^\s#]*&)?cursor=([1-9][0-9]{0,17})(?=[& ])")
_MOST_DIGITS = 18
_OF_BODY = {b"content-length", b"transfer-encoding", b"expect"}


class Head:
    """Method, path, query and headers; names of headers in small letters."""

    __slots__ = (
        "_after",
        "_before",
        "_data",
        "asked",
        "caller",
        "headers",
        "match",
        "method",
        "path",
        "query",
    )

    def __init__(self, method: str, url: bytes, headers: dict[bytes, bytes]) -> None:
        self.method = method
        self.path, self.query = _split(url)
        self.headers = headers
        """One that came twice has both values."""
        self.caller = b""
        """What the doorkeeper knows the client by."""
        self.match: Any = None
        """Where it leads to, once that is found."""
        self.asked: Any = None
        """The path and the query as they are bound, once they are found to be well."""
        self._data = self._before = self._after = b""

    def was(self, data: bytes) -> None:
        """Notes that these bytes were the whole of its request."""
        if len(data) > _LONGEST_KEPT or not self.headers.keys().isdisjoint(_OF_BODY):
            return
        self._data = data
        cursor = _CURSOR.match(data)
        if cursor is not None:
            self._before, self._after = data[: cursor.start(1)], data[cursor.end(1) :]

    def cursor_in(self, data: bytes) -> int | None:
        """The cursor in the bytes of a request that is the same otherwise, if this is one."""
        if self.asked is None:
            return None
        if data == self._data:
            return int(self.asked.cursor)
        before, after = self._before, self._after
        if not (before and data.startswith(before) and data.endswith(after)):
            return None
        digits = data[len(before) : -len(after)]
        if not digits.isdigit() or digits[:1] == b"0" or len(digits) > _MOST_DIGITS:
            return None
        return int(digits)


def _split(url: bytes) -> tuple[bytes, bytes]:
    """Path and query as they were sent."""
    if url[:1] != b"/" or b"#" in url:
        try:
            parsed = httptools.parse_url(url)
        except httptools.HttpParserInvalidURLError:
            raise BadRequest from None
        return parsed.path or b"/", parsed.query or b""
    path, _, query = url.partition(b"?")
    return path, query
