"""Requests that carry an Idempotency-Key: done once, answered alike when they are repeated."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from gleanery.errors import Conflict
from gleanery.models.responses import IngestAnswer
from gleanery.storage.database import Engine, Row, Transaction

_KNOWN = "SELECT content, answer FROM requests WHERE organization_id = $1 AND identity = $2"
_NOTE = """
INSERT INTO requests (organization_id, identity, content, answer, created)
VALUES ($1, $2, $3, $4, $5)
"""
_FORGET = """
DELETE FROM requests WHERE (organization_id, identity) IN (
    SELECT organization_id, identity FROM requests WHERE created < $1 ORDER BY created LIMIT $2)
RETURNING organization_id
"""
_SOME = "SELECT 1 FROM requests WHERE created < $1 LIMIT 1"
_AT_ONCE = 1000

Fetch = Callable[..., Awaitable[Sequence[Row]]]


class Request(NamedTuple):
    """A request that may be repeated: whose it is, what it is known by, what it holds."""

    organization_id: int
    identity: bytes
    content: bytes

    async def earlier_answer(self, fetch: Fetch) -> IngestAnswer | None:
        """What this request was answered when it was here before."""
        known = await fetch(_KNOWN, self.organization_id, self.identity)
        if not known:
            return None
        if known[0][0] != self.content:
            raise Conflict
        repeated: IngestAnswer = json.loads(known[0][1])
        return repeated

    async def note(self, transaction: Transaction, answer: IngestAnswer, now: int) -> None:
        """Keeps the answer, in the transaction that did the work."""
        await transaction.fetch(_NOTE, *self, json.dumps(answer), now)


async def forget(engine: Engine, before: int) -> None:
    """Forgets the requests of long ago."""
    database = engine.for_all_tenants()

    async def work(transaction: Transaction) -> int:
        return len(await transaction.fetch(_FORGET, before, _AT_ONCE))

    if await database.read(_SOME, before):
        while await database.write(work) == _AT_ONCE:
            pass
