"""Requests that carry an Idempotency-Key: done once, answered alike when they are repeated."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable

from gleanery.errors import Conflict
from gleanery.records import IngestAnswer
from gleanery.store import groups
from gleanery.store.database import Database, Transaction

_KNOWN = "SELECT content, answer FROM requests WHERE organization_id = $1 AND identity = $2"
_NOTE = """
INSERT INTO requests (organization_id, identity, content, answer, created)
VALUES ($1, $2, $3, $4, $5)
"""
_FORGET = "DELETE FROM requests WHERE created < $1"


async def once(
    turn: groups.Turn, identity: bytes, content: bytes, work: Callable[[], Awaitable[IngestAnswer]]
) -> IngestAnswer:
    """What the work gives, or what it gave when this request was here before."""
    of_request = (turn.organization_id, identity)
    known = await turn.transaction.fetch(_KNOWN, *of_request)
    if known:
        if known[0][0] != content:
            raise Conflict
        repeated: IngestAnswer = json.loads(known[0][1])
        return repeated
    answer = await work()
    await turn.transaction.fetch(_NOTE, *of_request, content, json.dumps(answer), turn.now)
    return answer


async def forget(database: Database, before: int) -> None:
    """Forgets the requests of long ago."""

    async def work(transaction: Transaction) -> None:
        await transaction.fetch(_FORGET, before)

    if await database.read("SELECT 1 FROM requests WHERE created < $1 LIMIT 1", before):
        await database.write(work)
