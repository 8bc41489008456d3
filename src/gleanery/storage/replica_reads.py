"""Reads from a replica where its answer is as good as the primary's: if more follows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from gleanery.storage.database import Database, Engine

T = TypeVar("T")


async def read(
    engine: Engine,
    organization_id: int,
    read_from: Callable[[Database], Awaitable[T]],
    has_more: Callable[[T], bool],
) -> T:
    """Read from a replica, or from the primary if the replica fails or has no further page.

    A replica has the changes in the same order, but it lacks the newest ones. A client that
    continues after a full page meets these later. The end of the order, an error and an unknown
    group are known to the primary only. One request uses one connection to one replica.
    """
    replica = engine.for_replica(organization_id)
    if replica is not None:
        with suppress(Exception):  # the replica has logged it, and the primary answers
            async with replica as database:
                found = await read_from(database)
            if has_more(found):
                return found
    return await read_from(engine.for_tenant(organization_id))
