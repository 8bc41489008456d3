"""The audit log: who read or wrote session values, reviewed, or changed tokens or keys, and when.

An entry is added in the transaction of what it tells of, and never changed: the database itself
refuses that, and to remove one that is younger than 30 days. It holds no value, nor the name of a
cookie or the key of an entry.

The number of an entry is its moment in microseconds, or one more than the number before it. It is
handed out under a lock, so that the order is that of commit: who follows the log misses nothing.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import NamedTuple
from weakref import WeakValueDictionary

from gleanery.models.responses import AuditAbout, AuditAction, AuditEntry, AuditPage
from gleanery.storage.database import Database, Engine, Row, Transaction
from gleanery.values import timestamps

_NUMBER = """
INSERT INTO audit_clocks (organization_id, clock) VALUES ($1, $2)
ON CONFLICT (organization_id) DO UPDATE SET clock = CASE
    WHEN audit_clocks.clock >= excluded.clock THEN audit_clocks.clock + 1 ELSE excluded.clock END
RETURNING clock
"""
_ADD = """
INSERT INTO audit (organization_id, id, token_id, request_id, action, about)
VALUES ($1, $2, $3, $4, $5, $6)
"""
_PAGE = """
SELECT id, token_id, request_id, action, about FROM audit
WHERE organization_id = $1 AND id > $2 ORDER BY id LIMIT $3
"""
_WITH_OLD = """
SELECT organization_id FROM audit_clocks
WHERE EXISTS (SELECT 1 FROM audit WHERE audit.organization_id = audit_clocks.organization_id
              AND id < $1)
"""
_FORGET = """
DELETE FROM audit WHERE organization_id = $1 AND id < $2 AND id IN (
    SELECT id FROM audit WHERE organization_id = $1 AND id < $2 ORDER BY id LIMIT $3)
RETURNING id
"""
_AT_ONCE = 1000


class Actor(NamedTuple):
    """Who acts: a token in a request, or else somebody at the command line."""

    token_id: int | None = None
    request_id: str | None = None


COMMAND_LINE = Actor()


class Entry(NamedTuple):
    """What is put on record, but for its number."""

    actor: Actor
    now: int
    action: AuditAction
    about: AuditAbout


async def note(
    transaction: Transaction, actor: Actor, now: int, action: AuditAction, about: AuditAbout
) -> None:
    """Adds an entry. The last thing in a transaction: others of the organization wait for it."""
    await _add(transaction, [Entry(actor, now, action, about)])


async def _add(transaction: Transaction, entries: Sequence[Entry]) -> None:
    organization_id = transaction.organization_id
    wanted = [(organization_id, entry.now) for entry in entries]
    numbers = [row[0] for row in await transaction.fetch_many(_NUMBER, wanted)]
    rows = [
        (organization_id, number, *entry.actor, entry.action, json.dumps(entry.about))
        for number, entry in zip(numbers, entries, strict=True)
    ]
    await transaction.execute_many(_ADD, rows)


class ReadAuditor:
    """Puts on record what changes nothing, in transactions of its own.

    An organization has one of them under way at a time; who comes meanwhile shares the next, so
    that many readers wait for two commits at most, and not for one another.
    """

    def __init__(self) -> None:
        self._gathering: dict[int, tuple[list[Entry], asyncio.Task[None]]] = {}
        self._lines: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()

    async def note(self, database: Database, entry: Entry) -> None:
        """Adds an entry; when this returns, it is durable."""
        organization_id = database.organization_id
        if organization_id not in self._gathering:
            entries: list[Entry] = []
            commit = asyncio.create_task(self._commit(database, entries))
            self._gathering[organization_id] = entries, commit
        entries, commit = self._gathering[organization_id]
        entries.append(entry)
        await asyncio.shield(commit)  # which is not only for this one

    async def _commit(self, database: Database, entries: Sequence[Entry]) -> None:
        async def work(transaction: Transaction) -> None:
            await _add(transaction, entries)

        organization_id = database.organization_id
        async with self._lines.setdefault(organization_id, asyncio.Lock()):
            del self._gathering[organization_id]  # who comes now is for the next
            await database.write(work)


async def read_log(database: Database, cursor: int, limit: int) -> AuditPage:
    """The entries after the cursor, oldest first, and the cursor to go on from."""
    rows = await database.read(_PAGE, database.organization_id, cursor, limit)
    return AuditPage(cursor=rows[-1][0] if rows else cursor, entries=[_shown(row) for row in rows])


def _shown(row: Row) -> AuditEntry:
    id_, token_id, request_id, action, about = row
    return AuditEntry(
        id=id_,
        date=timestamps.render_moment(id_),
        token_id=token_id,
        request_id=request_id,
        action=action,
        about=json.loads(about),
    )


async def forgettable(engine: Engine, before: int) -> list[Callable[[], Awaitable[None]]]:
    """The logs with entries from before a moment, each to be relieved of them on its own."""
    found = await engine.for_all_tenants().read(_WITH_OLD, before)
    return [partial(_forget, engine.for_tenant(row[0]), before) for row in found]


async def _forget(database: Database, before: int) -> None:
    async def work(transaction: Transaction) -> int:
        gone = await transaction.fetch(_FORGET, transaction.organization_id, before, _AT_ONCE)
        return len(gone)

    while await database.write(work) == _AT_ONCE:
        pass
