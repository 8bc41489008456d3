"""Bytes of export files that clients have not read to the end, per organization."""

from __future__ import annotations

import weakref
from typing import BinaryIO

_FILES = 4  # of the largest size, for all organizations together


class UnsentFiles:
    """The files of a worker that have no name any more: each takes disk space until it is closed.

    An organization gets another file while its files have less than the size of one file, and less
    than is free. So a slow client uses up the share of its organization, and not that of others.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._free = _FILES * max_bytes
        self._held: dict[int, int] = {}  # by organization

    def can_add(self, organization_id: int) -> bool:
        return self._held.get(organization_id, 0) < min(self._max_bytes, self._free)

    def add(self, organization_id: int, file: BinaryIO, size: int) -> None:
        """Count a file until it is closed, even if the response is never sent."""
        self._held[organization_id] = self._held.get(organization_id, 0) + size
        self._free -= size
        weakref.finalize(file, self._remove, organization_id, size)

    def _remove(self, organization_id: int, size: int) -> None:
        self._free += size
        rest = self._held[organization_id] - size
        if rest:
            self._held[organization_id] = rest
        else:
            del self._held[organization_id]
