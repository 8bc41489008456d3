"""Range and conditional requests for a content of known size and ETag (RFC 9110)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from gleanery.http.errors import PreconditionFailed, RangeNotSatisfiable

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


def check_precondition(headers: Mapping[bytes, bytes], etag: bytes) -> None:
    """Raise PreconditionFailed if If-Match does not name this ETag. A weak tag never matches."""
    tags = [tag.strip() for tag in headers.get(b"if-match", etag).split(b",")]
    if etag not in tags and b"*" not in tags:
        raise PreconditionFailed


def is_not_modified(headers: Mapping[bytes, bytes], etag: bytes) -> bool:
    """Return True if If-None-Match names this ETag: the client already has the content."""
    tags = _value(headers, b"if-none-match").split(b",")
    named = [tag.strip().removeprefix(b"W/") for tag in tags]
    return etag in named or b"*" in named


def requested_range(headers: Mapping[bytes, bytes], etag: bytes, size: int) -> ContentRange:
    """Return the range that the Range header requests.

    It is the whole content if the header asks for several ranges, is not valid, or is not
    wanted for this ETag (If-Range).
    """
    whole = ContentRange(0, size, size, is_partial=False)
    if _value(headers, b"if-range") not in (b"", etag):
        return whole
    found = _RANGE.fullmatch(_value(headers, b"range").replace(b" ", b""))
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


def _value(headers: Mapping[bytes, bytes], name: bytes) -> bytes:
    return headers.get(name, b"").strip()
