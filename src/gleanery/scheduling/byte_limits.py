"""Limits on the bytes of request bodies that each tenant holds in memory."""

from __future__ import annotations

from gleanery.errors import Overloaded

_UNCOUNTED_BYTES = 64 * 1024  # smaller bodies are limited by the number of requests
_TOO_MANY_BYTES = "Request bodies in progress use your share of memory; try again"


class ByteLimit:
    """The bytes that each tenant may hold, in one worker."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._held: dict[int, int] = {}  # by tenant

    def resize(self, organization_id: int, before: int, after: int) -> None:
        """Changes the size of one of the tenant's bodies. Raises ``Overloaded``.

        The only body of a tenant may have any size.
        """
        others = self._held.get(organization_id, 0) - before
        if after > before and others and others + after > self._max_bytes:
            raise Overloaded(_TOO_MANY_BYTES)
        if others + after:
            self._held[organization_id] = others + after
        else:
            self._held.pop(organization_id, None)


class ByteReservation:
    """The bytes that one request holds.

    A request never waits for bytes, so no two requests can wait for each other.
    """

    __slots__ = ("_limit", "_organization_id", "_reserved")

    def __init__(self, limit: ByteLimit, organization_id: int) -> None:
        self._limit = limit
        self._organization_id = organization_id
        self._reserved = 0

    def resize(self, size: int) -> None:
        """Holds so many bytes. Raises ``Overloaded``; the request then holds what it held."""
        counted = size if size > _UNCOUNTED_BYTES else 0
        if counted != self._reserved:
            self._limit.resize(self._organization_id, self._reserved, counted)
            self._reserved = counted

    def release(self) -> None:
        self.resize(0)
