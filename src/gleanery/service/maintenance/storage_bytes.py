"""The bytes that organizations occupy: added up in small steps.

A pass measures all organizations in the order of their ids. A round of the sweep continues it by a
bounded number of steps. The database holds how far the pass is, and when the next round may begin.
So one process at a time measures, any process continues, and a crash loses one round.

Rows can change between two steps. An output that changes moves to the end of its group. So the
measurement of a group ends at the last position that the group had at its start: it always
ends, and it misses the outputs that changed during it.
"""

from __future__ import annotations

import asyncio
import json
import time
from functools import partial
from typing import NamedTuple

from gleanery.service.foundation.values import timestamps
from gleanery.service.storage import metadata, usage
from gleanery.service.storage.database import Database, Engine, Transaction

_NEXT_ORGANIZATION = "SELECT id FROM organizations WHERE id > $1 ORDER BY id LIMIT 1"
_NEXT_GROUP = """
SELECT id, last_seq FROM groups WHERE organization_id = $1 AND id > $2 ORDER BY id LIMIT 1
"""
# Each statement returns the key of a row and its bytes. A step seeks behind the last key.
_GROUP_TABLES = tuple(
    f"SELECT {key}, {size} FROM {table} WHERE organization_id = $1 AND group_id = $2 "
    f"AND {key} <= $3 AND {key} > $4 ORDER BY {key} LIMIT $5"
    for table, key, size in (
        ("outputs", "seq", "octet_length(item)"),
        ("output_history", "first_replaced_seq", "octet_length(versions)"),
        ("approved_versions", "seq", "octet_length(item)"),
    )
)
_SESSION_TABLES = tuple(
    f"SELECT id, octet_length(encrypted_value) FROM {table} WHERE organization_id = $1 "
    "AND id > $2 ORDER BY id LIMIT $3"
    for table in ("cookies", "local_storage")
)
# Files with the same bytes share a blob, so each counts as a part of it.
_FILES = """
SELECT files.id, CAST(size AS DOUBLE PRECISION) / COALESCE(NULLIF(file_count, 0), 1) FROM files
JOIN blobs ON blobs.organization_id = files.organization_id AND blobs.checksum = files.checksum
WHERE files.organization_id = $1 AND files.id > $2 ORDER BY files.id LIMIT $3
"""
_ORGANIZATION_TABLES = (*_SESSION_TABLES, _FILES)
_STEP_ROWS = 1000
_ROUND_STEPS = 200
_ROUND_SECONDS = 10.0  # a round ends before another process may begin the next one
_PAUSE_SECONDS = 0.01  # between two steps, for the requests
_MINUTE = 60 * timestamps.SECOND
_HOUR = 60 * _MINUTE
_REST = 24  # a pass begins when this many times the duration of the last one has passed


class _State(NamedTuple):
    """How far a pass is."""

    next_round_at: int = 0
    """Until then one process has the round, or the pass has ended."""
    started_at: int = 0
    """Start of the pass; 0 before it."""
    organization_id: int = 0
    """The organization that is measured; 0 before the first one."""
    group_id: int = 0
    """The group that is measured; 0 for the tables without groups."""
    last_seq: int = 0
    """Last position of the group at the start of its measurement."""
    table: int = 0
    key: int | str | None = None
    """Key of the last row that was counted, bytes as hexadecimal digits; None before the first."""
    database_bytes: int = 0
    file_bytes: float = 0.0

    def is_due(self, now: int) -> bool:
        """Return True if a round may begin. A date far ahead comes from a wrong clock."""
        return not now < self.next_round_at <= now + usage.DAY

    def after_pass(self, now: int) -> _State:
        """Return the state at the end of a pass: when the next one may begin."""
        if not self.organization_id:
            return _State(self.next_round_at)  # the first organization can come at any time
        rest = min(max(_REST * (now - self.started_at), _HOUR), usage.DAY)
        return _State(self.started_at + rest)


async def measure(database: Database, today: int) -> usage.Storage:
    """Add up the bytes of the handle's organization."""
    state: _State | usage.Storage = _State()
    while isinstance(state, _State):
        state = await _step(database, state, today)
    return state


async def run_round(engine: Engine, now: int) -> None:
    """Continue the pass over all organizations, unless another process has done so recently."""
    stored = await metadata.storage_pass(engine)
    if stored is not None and not _decode(stored).is_due(now):
        return  # almost always, and without a transaction
    claimed = await engine.write(partial(_claim, now))
    if claimed is None:
        return
    following = await _run_steps(engine, _decode(claimed), now)
    await engine.write(partial(_save, claimed, json.dumps(following._asdict())))


def _decode(stored: str) -> _State:
    return _State(**json.loads(stored))


async def _claim(now: int, transaction: Transaction) -> str | None:
    """Return the state, and keep the others away from it; None if another one has claimed it."""
    stored = await metadata.lock_storage_pass(transaction)
    state = _State() if stored is None else _decode(stored)
    if not state.is_due(now):
        return None
    claimed = state._replace(next_round_at=now + _MINUTE, started_at=state.started_at or now)
    text = json.dumps(claimed._asdict())
    await metadata.set_storage_pass(transaction, text)
    return text


async def _save(claimed: str, following: str, transaction: Transaction) -> None:
    """Store the new state, unless another process has claimed the old one after this one."""
    if await metadata.lock_storage_pass(transaction) == claimed:
        await metadata.set_storage_pass(transaction, following)


async def _run_steps(engine: Engine, state: _State, now: int) -> _State:
    ends_at = time.monotonic() + _ROUND_SECONDS
    for _ in range(_ROUND_STEPS):
        following = await _advance(engine, state, now // usage.DAY)
        if following is None:
            return state.after_pass(now)
        state = following
        if time.monotonic() >= ends_at:
            break
        await asyncio.sleep(_PAUSE_SECONDS)
    return state


async def _advance(engine: Engine, state: _State, today: int) -> _State | None:
    """Run one step. Return None at the end of the pass."""
    if state.organization_id:
        database = engine.for_tenant(state.organization_id)
        following = await _step(database, state, today)
        if isinstance(following, _State):
            return following
        await usage.set_storage(database, following)
    rows = await engine.read(_NEXT_ORGANIZATION, state.organization_id)
    if not rows:
        return None
    return _State(state.next_round_at, state.started_at, rows[0][0])


async def _step(database: Database, state: _State, today: int) -> _State | usage.Storage:
    """Add up some rows of the handle's organization. Return its bytes at the end."""
    organization_id = database.organization_id
    tables = _GROUP_TABLES if state.group_id else _ORGANIZATION_TABLES
    if state.table == len(tables):
        groups = await database.read(_NEXT_GROUP, organization_id, state.group_id)
        if not groups:
            return usage.Storage(state.database_bytes, round(state.file_bytes), today)
        [[group_id, last_seq]] = groups
        return state._replace(group_id=group_id, last_seq=last_seq, table=0)
    sql = tables[state.table]
    of_group = (state.group_id, state.last_seq) if state.group_id else ()
    after = _key_after(sql, state.key)
    rows = await database.read_large(sql, organization_id, *of_group, after, _STEP_ROWS)
    total = sum(row[1] for row in rows)
    if sql is _FILES:
        state = state._replace(file_bytes=state.file_bytes + total)
    else:
        state = state._replace(database_bytes=state.database_bytes + total)
    if len(rows) < _STEP_ROWS:
        return state._replace(table=state.table + 1, key=None)
    last = rows[-1][0]
    return state._replace(key=last.hex() if sql is _FILES else last)


def _key_after(sql: str, key: int | str | None) -> int | bytes:
    """Return the key behind which a step begins."""
    if sql is _FILES:
        return bytes.fromhex(str(key or ""))
    return -1 if key is None else int(key)
