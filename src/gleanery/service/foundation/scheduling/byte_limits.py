"""Limits on the bytes of request bodies and of unsent responses that a worker holds in memory.

A body arrives piece by piece, so a request cannot reserve its size. It never waits for bytes, so no
two requests can wait for each other.

A response is reserved as a whole, before it is read where its size is known. A request that finds
no memory drops what it has read, holds nothing while it waits for its turn, and reads again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from gleanery.service.foundation.errors import Overloaded
from gleanery.service.foundation.scheduling.fair_shares import FairQueue

UNCOUNTED_BYTES = 64 * 1024
"""Bodies and responses up to this size are limited by the number of requests."""
_TOO_MANY_BYTES = "Request bodies in progress use your share of memory; try again"


class ByteLimit:
    """The bytes that each tenant may hold, in one worker."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._held: dict[int, int] = {}  # by tenant

    def resize(self, organization_id: int, before: int, after: int) -> None:
        """Change the size of one of the tenant's bodies. Raise ``Overloaded``.

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
    """The bytes that the body of one request holds."""

    __slots__ = ("_limit", "_organization_id", "_reserved")

    def __init__(self, limit: ByteLimit, organization_id: int) -> None:
        self._limit = limit
        self._organization_id = organization_id
        self._reserved = 0

    def resize(self, size: int) -> None:
        """Hold so many bytes. Raise ``Overloaded``; the request then holds what it held."""
        counted = size if size > UNCOUNTED_BYTES else 0
        if counted != self._reserved:
            self._limit.resize(self._organization_id, self._reserved, counted)
            self._reserved = counted

    def release(self) -> None:
        self.resize(0)


# --- responses ----------------------------------------------------------------------------------

_WAIT_SECONDS = 30.0
_MUCH_BYTES = 32 * 1024 * 1024  # the allocator keeps less than this for the next responses
_UNSENT = (
    "Responses that clients have not read use your share of memory: read them, ask for smaller "
    "pages, or try again"
)


class UnsentBytes:
    """The bytes of responses of one worker that clients have not read, shared by the tenants.

    A tenant may hold as much as it leaves free. So one tenant alone holds half of the bytes, and
    two hold a third each. The only response of a tenant may have any size while a byte is free.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._free = max_bytes
        self._held: dict[int, int] = {}  # by tenant
        self._waiting = FairQueue[_Waiter]()
        self._most = 0
        self.on_relief: Callable[[], object] = lambda: None
        """Called when nothing is unsent after much was: the system can have the memory back."""

    @property
    def held(self) -> int:
        """Number of bytes that are held."""
        return self._max_bytes - self._free

    def try_hold(self, organization_id: int, size: int) -> bool:
        """Hold bytes for the tenant, if its share allows it."""
        if not self._fits(organization_id, size):
            return False
        self.hold_anyway(organization_id, size)
        return True

    def hold_anyway(self, organization_id: int, size: int) -> None:
        """Hold bytes of a response that must be sent, because it reports what was stored."""
        self._held[organization_id] = self._held.get(organization_id, 0) + size
        self._free -= size
        self._most = max(self._most, self.held)

    async def hold(self, organization_id: int, size: int) -> None:
        """Wait for bytes. Raises Overloaded if that takes too long."""
        if self.try_hold(organization_id, size):
            return
        waiter = _Waiter(size, asyncio.get_running_loop().create_future())
        self._waiting.add(organization_id, waiter)
        try:
            async with asyncio.timeout(_WAIT_SECONDS):
                await waiter.granted
        except BaseException as error:
            if waiter.granted.done() and not waiter.granted.cancelled():
                self.release(organization_id, size)  # granted at the moment of the timeout
            else:
                self._waiting.remove(organization_id, waiter)
            if isinstance(error, TimeoutError):
                raise no_memory() from None
            raise

    def release(self, organization_id: int, size: int) -> None:
        """Release bytes, and pass them on to the tenants that wait."""
        self._free += size
        rest = self._held[organization_id] - size
        if rest:
            self._held[organization_id] = rest
        else:
            del self._held[organization_id]
        while (tenant := self._waiting.next_tenant(self._can_grant)) is not None:
            waiter = self._waiting.take(tenant)
            if not waiter.granted.done():
                self.hold_anyway(tenant, waiter.size)
                waiter.granted.set_result(None)
        if not self._held:
            was_much, self._most = self._most > _MUCH_BYTES, 0
            if was_much:
                self.on_relief()

    def _fits(self, organization_id: int, size: int) -> bool:
        held = self._held.get(organization_id, 0)
        return held + size <= self._free or (not held and self._free > 0)

    def _can_grant(self, organization_id: int) -> bool:
        return self._fits(organization_id, self._waiting.first(organization_id).size)


class _Waiter(NamedTuple):
    """A request that waits for bytes."""

    size: int
    granted: asyncio.Future[None]


def no_memory(needed_bytes: int = 0) -> Overloaded:
    """Return the error of a response for which there is no memory.

    A request that can be repeated waits for the needed bytes before its client gets the error.
    """
    error = Overloaded(_UNSENT)
    error.needed_bytes = needed_bytes
    return error


class UnsentResponse:
    """The bytes that the response of one request holds. A small response holds none."""

    __slots__ = ("_held", "_limit", "_organization_id")

    def __init__(self, limit: UnsentBytes, organization_id: int) -> None:
        self._limit = limit
        self._organization_id = organization_id
        self._held = 0

    @property
    def held(self) -> int:
        return self._held

    def try_grow(self, size: int) -> bool:
        """Hold at least this many bytes, if the share of the tenant allows it."""
        more = size - self._held if size > UNCOUNTED_BYTES else 0
        if more > 0:
            if not self._limit.try_hold(self._organization_id, more):
                return False
            self._held += more
        return True

    async def wait(self, size: int) -> None:
        """Hold this many bytes instead of what is held. Raises Overloaded."""
        self.release()
        if size > UNCOUNTED_BYTES:
            await self._limit.hold(self._organization_id, size)
            self._held = size

    def resize(self, size: int) -> None:
        """Hold exactly this many bytes, because they are sent now."""
        more = (size if size > UNCOUNTED_BYTES else 0) - self._held
        self._held += more
        if more > 0:
            self._limit.hold_anyway(self._organization_id, more)
        elif more < 0:
            self._limit.release(self._organization_id, -more)

    def release(self) -> None:
        self.resize(0)
