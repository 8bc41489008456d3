"""A cache of the last request with the same headers, so that a repetition is not parsed again.

A client that pages sends the same request many times, except for the cursor. A client that
polls sends exactly the same one. The HTTP server recognises the headers; this module recognises
the target. The cache is stored in the header block's memo, so it ends with the connection.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from gleanery.api.binding import BoundQuery
from gleanery.api.operation import Operation
from gleanery.http import HeaderBlock
from gleanery.values.compression import Codec

# 18 digits are always below the maximum, so such a cursor is valid.
_CURSOR = re.compile(rb"(?:.*&)?cursor=([1-9][0-9]{0,17})(?:&.*)?")
_MAX_DIGITS = 18


class BoundRequest(NamedTuple):
    """The operation of a request, and its arguments except for the body."""

    operation: Operation
    path: dict[str, str]
    query: BoundQuery


class RequestMemo:
    """Cached results for requests with the same headers."""

    __slots__ = (
        "_around_cursor",
        "_path",
        "_query",
        "bound",
        "caller",
        "codec",
        "is_codec_known",
    )

    def __init__(self) -> None:
        self.caller = b""
        """Digest of the Authorization header; empty until the authenticator computes it."""
        self.bound: BoundRequest | None = None
        """The last request that was bound."""
        self.codec: Codec | None = None
        """Codec that the client accepts; valid if ``is_codec_known``."""
        self.is_codec_known = False
        self._path = self._query = b""
        self._around_cursor: tuple[bytes, bytes] | None = None

    def store(self, path: bytes, query: bytes, bound: BoundRequest) -> None:
        self.bound, self._path, self._query = bound, path, query
        self._around_cursor = None

    def find_cursor(self, path: bytes, query: bytes) -> int | None:
        """Return the cursor if the request differs from the stored one only in its cursor."""
        if self.bound is None or path != self._path:
            return None
        if query == self._query:
            return self.bound.query.cursor
        if self._around_cursor is None:  # computed late: most headers are never sent again
            self._around_cursor = _around_cursor(self._query)
        before, after = self._around_cursor
        if not (before and query.startswith(before) and query.endswith(after)):
            return None
        digits = query[len(before) : len(query) - len(after)]
        if not digits.isdigit() or digits[:1] == b"0" or len(digits) > _MAX_DIGITS:
            return None
        return int(digits)


def _around_cursor(query: bytes) -> tuple[bytes, bytes]:
    """Return the query before and after the cursor; empty if it has no cursor."""
    found = _CURSOR.fullmatch(query)
    if found is None:
        return b"", b""
    return query[: found.start(1)], query[found.end(1) :]


def memo_of(block: HeaderBlock) -> RequestMemo:
    """Return the memo of a header block; create it at the first request."""
    memo: RequestMemo | None = block.memo
    if memo is None:
        memo = block.memo = RequestMemo()
    return memo
