"""The audit log of session values, reviews, tokens and keys.

An entry is appended in the transaction of the action that it records. The database rejects a change
of an entry, and the deletion of one that is younger than 30 days. An entry contains no value, no
cookie name and no local-storage key.

The id of an entry is its time in microseconds, or the previous id plus one if that is larger. Ids
are assigned under a lock, so that they increase in commit order and a client that follows the log
misses nothing.

See ``docs/explanation/audit-log.md``.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import NamedTuple
from weakref import WeakValueDictionary

from gleanery.service.foundation.security.tokens import Actor
from gleanery.service.foundation.values import timestamps
from gleanery.service.resources.audit.models import AuditAbout, AuditAction, AuditEntry, AuditPage
from gleanery.service.storage.database import Database, Engine, Row, Transaction

# Locks the organization's position until the transaction ends.
_NEXT_ID = """
INSERT INTO audit_positions (organization_id, last_id) VALUES ($1, $2)
ON CONFLICT (organization_id) DO UPDATE SET last_id = CASE
    WHEN audit_positions.last_id >= excluded.last_id
    THEN audit_positions.last_id + 1 ELSE excluded.last_id END
RETURNING last_id
"""
_APPEND = """
INSERT INTO audit_log (organization_id, id, token_id, request_id, action, about)
VALUES ($1, $2, $3, $4, $5, $6)
"""
_PAGE = """
SELECT id, token_id, request_id, action, about FROM audit_log
WHERE organization_id = $1 AND id > $2 ORDER BY id LIMIT $3
"""
_NEWEST = """
SELECT id, token_id, request_id, action, about FROM audit_log
WHERE organization_id = $1 AND id < $2 ORDER BY id DESC LIMIT $3
"""
_WITH_OLD_ENTRIES = """
SELECT organization_id FROM audit_positions
WHERE EXISTS (SELECT 1 FROM audit_log
              WHERE audit_log.organization_id = audit_positions.organization_id AND id < $1)
"""
_PURGE = """
DELETE FROM audit_log WHERE organization_id = $1 AND id < $2 AND id IN (
    SELECT id FROM audit_log WHERE organization_id = $1 AND id < $2 ORDER BY id LIMIT $3)
RETURNING id
"""
_TOKEN_NAME = "SELECT name FROM tokens WHERE organization_id = $1 AND id = $2"
_BATCH_SIZE = 1000
_MAX_SCANNED = 5 * _BATCH_SIZE


class Entry(NamedTuple):
    """An entry that has no id yet."""

    actor: Actor
    now: int
    action: AuditAction
    about: AuditAbout


async def append(
    transaction: Transaction, actor: Actor, now: int, action: AuditAction, about: AuditAbout
) -> None:
    """Append an entry.

    Call it last in a transaction: it locks the organization's log until the commit.
    """
    await _append_all(transaction, [Entry(actor, now, action, about)])


async def _append_all(transaction: Transaction, entries: Sequence[Entry]) -> None:
    organization_id = transaction.organization_id
    times = [(organization_id, entry.now) for entry in entries]
    ids = [row[0] for row in await transaction.fetch_many(_NEXT_ID, times)]
    rows = [
        (organization_id, id_, *entry.actor[:2], entry.action, json.dumps(_about(entry)))
        for id_, entry in zip(ids, entries, strict=True)
    ]
    await transaction.execute_many(_APPEND, rows)


def _about(entry: Entry) -> AuditAbout:
    about = entry.about.copy()
    if entry.actor.person is not None:
        about["person"] = entry.actor.person
    return about


class ReadAuditor:
    """Appends entries for reads, in separate transactions.

    An organization has one such transaction at a time. Entries that arrive meanwhile share the next
    one. So a reader waits for two commits at most, however many readers there are.
    """

    def __init__(self) -> None:
        self._pending: dict[int, tuple[list[Entry], asyncio.Task[None]]] = {}
        self._commit_locks: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()

    async def record(self, database: Database, entry: Entry) -> None:
        """Append an entry and return when it is durable."""
        organization_id = database.organization_id
        if organization_id not in self._pending:
            entries: list[Entry] = []
            commit = asyncio.create_task(self._commit(database, entries))
            self._pending[organization_id] = entries, commit
        entries, commit = self._pending[organization_id]
        entries.append(entry)
        await asyncio.shield(commit)  # others wait for it too, so this request must not cancel it

    async def _commit(self, database: Database, entries: Sequence[Entry]) -> None:
        async def work(transaction: Transaction) -> None:
            await _append_all(transaction, entries)

        organization_id = database.organization_id
        async with self._commit_locks.setdefault(organization_id, asyncio.Lock()):
            del self._pending[organization_id]  # later entries go into the next transaction
            await database.write(work)


async def read_page(database: Database, cursor: int, limit: int) -> AuditPage:
    """Return the entries after the cursor, oldest first, and the cursor to continue from."""
    rows = await database.read(_PAGE, database.organization_id, cursor, limit)
    next_cursor = rows[-1][0] if rows else cursor
    return AuditPage(cursor=next_cursor, entries=[_to_response(row) for row in rows])


class Filter(NamedTuple):
    """Which entries to return; None does not filter."""

    action: str | None = None
    token_id: int | None = None
    person: str | None = None

    def accepts(self, entry: AuditEntry) -> bool:
        return (
            self.action in (None, entry["action"])
            and self.token_id in (None, entry["token_id"], entry["about"].get("token_id"))
            and (self.person or "").casefold() in entry["about"].get("person", "").casefold()
        )


async def read_newest(
    database: Database, before: int, filter_: Filter, limit: int
) -> tuple[list[AuditEntry], int | None]:
    """Return entries before an id, newest first, and the id to continue from.

    The log has no index for a filter. So one call reads a limited number of entries, and may return
    fewer than ``limit`` before the end.
    """
    found: list[AuditEntry] = []
    for _ in range(0, _MAX_SCANNED, _BATCH_SIZE):
        size = limit + 1 if filter_ == Filter() else _BATCH_SIZE
        rows = await database.read(_NEWEST, database.organization_id, before, size)
        for row in rows:
            entry = _to_response(row)
            if filter_.accepts(entry):
                if len(found) == limit:
                    return found, before
                found.append(entry)
            before = entry["id"]
        if len(rows) < size:
            return found, None
    return found, before


def _to_response(row: Row) -> AuditEntry:
    id_, token_id, request_id, action, about = row
    return AuditEntry(
        id=id_,
        date=timestamps.render_microseconds(id_),
        token_id=token_id,
        request_id=request_id,
        action=action,
        about=json.loads(about),
    )


async def pending_purges(engine: Engine, before: int) -> list[Callable[[], Awaitable[None]]]:
    """Return a function for each organization with old entries, which deletes them."""
    rows = await engine.for_all_tenants().read(_WITH_OLD_ENTRIES, before)
    return [partial(_purge, engine.for_tenant(row[0]), before) for row in rows]


async def _purge(database: Database, before: int) -> None:
    async def work(transaction: Transaction) -> int:
        purged = await transaction.fetch(_PURGE, transaction.organization_id, before, _BATCH_SIZE)
        return len(purged)

    while await database.write(work) == _BATCH_SIZE:
        pass


async def token_name(database: Database, token_id: int) -> str | None:
    """Return the name of a token of the organization; None if it has none."""
    rows = await database.read(_TOKEN_NAME, database.organization_id, token_id)
    return rows[0][0] if rows else None
