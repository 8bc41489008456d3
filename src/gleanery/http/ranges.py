"""Which part of a file a client wants, and whether it has the file already (RFC 9110)."""

from __future__ import annotations

import re
from typing import NamedTuple

from gleanery.errors import RangeNotSatisfiable

_RANGE = re.compile(rb"bytes=([0-9]{0,18})-([0-9]{0,18})")


class Part(NamedTuple):
    """The bytes from start up to stop, of so many; asked for as a part, or just all of them."""

    start: int
    stop: int
    size: int
    is_asked_for: bool = True

    @property
    def content_range(self) -> bytes:
        return b"bytes %d-%d/%d" % (self.start, self.stop - 1, self.size)


def is_held(headers: dict[bytes, bytes], etag: bytes) -> bool:
    """Whether If-None-Match names this very content."""
    named = [tag.strip().removeprefix(b"W/") for tag in _get(headers, b"if-none-match").split(b",")]
    return etag in named or b"*" in named


def wanted(headers: dict[bytes, bytes], etag: bytes, size: int) -> Part:
    """The part that Range asks for; all, where it asks for several or for what we don't know."""
    whole = Part(0, size, size, is_asked_for=False)
    if _get(headers, b"if-range") not in (b"", etag):
        return whole
    found = _RANGE.fullmatch(_get(headers, b"range").replace(b" ", b""))
    if found is None or found.group(1, 2) == (b"", b""):
        return whole
    first, last = found.groups()
    if first:
        if last and int(last) < int(first):
            return whole
        start, stop = int(first), min(int(last) + 1, size) if last else size
    else:
        start, stop = max(size - int(last), 0), size
        if size == 0 and int(last) > 0:
            return whole  # the last bytes of nothing
    if start >= stop:
        raise RangeNotSatisfiable(size)
    return Part(start, stop, size)


def _get(headers: dict[bytes, bytes], name: bytes) -> bytes:
    return headers.get(name, b"").strip()
