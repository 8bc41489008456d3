"""The change feed: creations, updates and deletions of a group, in the order of commit.

Tombstones are purged after some time. A cursor from before the last purge could hide a deletion, so
it is rejected. So is a cursor from before a restore, because its client may have seen data that was
lost. A client that starts at 0 also passes such sequence numbers while it catches up with the old
outputs. Its cursors say that it is catching up, and on which day it started.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from gleanery.errors import CursorExpired, no_group
from gleanery.storage import metadata, page_sizes
from gleanery.storage.database import Database, Engine, Row, Transaction
from gleanery.values import json_text, timestamps

_GROUP = f"""
SELECT id, purged_seq, last_seq, {metadata.RESTORE_TIME} FROM groups
WHERE organization_id = $1 AND name = $2
"""
_CHANGES = """
SELECT seq, created_seq, item, id, identity, job_name FROM (
    SELECT * FROM (
        SELECT seq, created_seq, CASE WHEN octet_length(item) <= $6 THEN item END AS item,
            id, identity, NULL AS job_name
        FROM outputs
        WHERE organization_id = $1 AND group_id = $2 AND seq > $3 AND seq <= $4
        ORDER BY seq LIMIT $5) AS stored
    UNION ALL
    SELECT * FROM (
        SELECT seq, 0 AS created_seq, CAST(NULL AS BYTEA) AS item, id, identity, job_name
        FROM tombstones
        WHERE organization_id = $1 AND group_id = $2 AND seq > $3 AND seq <= $4
        ORDER BY seq LIMIT $5) AS deleted
) AS changes ORDER BY seq LIMIT $5
"""
_SIZES = f"""
SELECT seq, size FROM (
    SELECT * FROM (
        SELECT seq, {page_sizes.ITEM_SIZE} AS size FROM outputs
        WHERE organization_id = $1 AND group_id = $2 AND seq > $3 AND seq <= $4
        ORDER BY seq LIMIT $5) AS stored
    UNION ALL
    SELECT * FROM (
        SELECT seq, octet_length(job_name) AS size FROM tombstones
        WHERE organization_id = $1 AND group_id = $2 AND seq > $3 AND seq <= $4
        ORDER BY seq LIMIT $5) AS deleted
) AS changes ORDER BY seq LIMIT $5
"""
_GROUPS_WITH_EXPIRED_TOMBSTONES = """
SELECT organization_id, name, id FROM groups
WHERE EXISTS (SELECT 1 FROM tombstones WHERE tombstones.organization_id = groups.organization_id
              AND tombstones.group_id = groups.id AND seq <= $1)
"""
_PURGE = """
DELETE FROM tombstones WHERE organization_id = $1 AND group_id = $2 AND seq <= $3 AND seq IN (
    SELECT seq FROM tombstones WHERE organization_id = $1 AND group_id = $2 AND seq <= $3
    ORDER BY seq LIMIT $4)
RETURNING seq
"""
_SET_PURGED = """
UPDATE groups SET purged_seq = $3 WHERE organization_id = $1 AND id = $2 AND purged_seq < $3
"""
_FRAME_BYTES = 150  # of a change, beside its output
_NO_LIMIT = 2**62
_MAX_SEQ = 2**63 - 1
_CHUNK = 1000


# --- cursors ------------------------------------------------------------------------------------

_CATCHING_UP = 2**52  # the smallest cursor of a client that catches up; a timestamp until 2112
_START_DAYS = 2**11  # the start day is stored modulo this: 5.6 years
_MILLISECONDS = 2**41
_DAY = 86_400 * timestamps.SECOND
_EPOCH = 1_577_836_800 * timestamps.SECOND  # 2020-01-01


@dataclass(frozen=True, slots=True)
class Position:
    """A position in the change order; while a client catches up, also the time it started."""

    seq: int
    started: int | None = None

    @classmethod
    def from_cursor(cls, cursor: int, now: int) -> Position:
        """Decodes a cursor. A start day is decoded wrongly if the client paused for 5.6 years."""
        if cursor < _CATCHING_UP:
            return cls(cursor)
        day, milliseconds = divmod(cursor - _CATCHING_UP, _MILLISECONDS)
        today = (now - _EPOCH) // _DAY
        started = today - (today - day) % _START_DAYS
        return cls(_EPOCH + milliseconds * 1000 + 999, _EPOCH + started * _DAY)

    @property
    def cursor(self) -> int:
        """The position as a number that a double represents exactly."""
        if self.started is None:
            return self.seq
        day = (self.started - _EPOCH) // _DAY % _START_DAYS
        milliseconds = max(self.seq - _EPOCH, 0) // 1000
        return _CATCHING_UP + day * _MILLISECONDS + milliseconds


# --- reading ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Feed:
    """Changes as JSON text, and the next cursor.

    The parts together are the elements of an array. Only a large feed has several parts.
    """

    parts: list[bytes]
    cursor: int
    is_beyond_end: bool = False
    """True if the cursor is greater than any issued one, so there is nothing to wait for."""


async def read_feed(
    database: Database, group: str, cursor: int, limit: int, max_bytes: int, now: int
) -> Feed:
    """Reads the changes after the cursor, oldest first. An output appears once, as it is now."""
    group_id, purged, clock, restored = await _read_group(database, group)
    position = _check(Position.from_cursor(cursor, now), purged, restored, now)
    part = _Part(database, group_id, position.seq, _MAX_SEQ, limit)
    parts, last_seq = await _read_changes(part, max_bytes)
    # A purge may have run since the first check, so the position is checked again after the read.
    _, purged, _, restored = await _read_group(database, group)
    _check(position, purged, restored, now)
    if last_seq is None:
        return Feed([], cursor, is_beyond_end=position.seq > clock)
    end = Position(last_seq)
    if position.started is not None and end.seq < purged:
        # Such a cursor has a resolution of a millisecond: the page ends with a whole millisecond.
        end = Position(end.seq, position.started)
        until = Position.from_cursor(end.cursor, now).seq
        rest = part._replace(after=last_seq, until=until, limit=_CHUNK)
        parts += (await _read_large_feed(rest, _NO_LIMIT))[0]
    return Feed(_separated(parts), end.cursor)


class _Part(NamedTuple):
    """A part of a group's change order."""

    database: Database
    group_id: int
    after: int
    until: int
    limit: int

    async def read(self, sql: str, *values: int) -> Sequence[Row]:
        database = self.database
        return await database.read(sql, database.organization_id, *self[1:], *values)

    async def read_large(self, sql: str, *values: int) -> Sequence[Row]:
        database = self.database
        return await database.read_large(sql, database.organization_id, *self[1:], *values)


async def _read_changes(part: _Part, max_bytes: int) -> tuple[list[bytes], int | None]:
    """Reads changes as JSON text, and the sequence number of the last one."""
    max_small_bytes = max_bytes // page_sizes.LINK_GROWTH
    max_item_bytes = page_sizes.max_item_bytes(max_small_bytes, part.limit)
    rows = await part.read(_CHANGES, max_item_bytes)
    if not rows:
        return [], None
    if _is_small(rows, max_small_bytes):
        return [_render_all(rows)], rows[-1][0]
    return await _read_large_feed(part, max_bytes)


def _is_small(rows: Sequence[Row], max_bytes: int) -> bool:
    """Returns False if an item was left out because of its length, or if all are too long."""
    size = len(rows) * _FRAME_BYTES
    for _, _, item, _, _, job in rows:
        if item is None and job is None:
            return False
        size += len(item or job)
    return size <= max_bytes


async def _read_large_feed(part: _Part, max_bytes: int) -> tuple[list[bytes], int]:
    """Reads the sizes of the changes, and then as many changes as fit, in parts.

    Other requests run between two parts. An output that changes meanwhile is in the next feed.
    """
    sizes = [(seq, size + _FRAME_BYTES) for seq, size in await part.read(_SIZES)]
    count = page_sizes.count_fitting([size for _, size in sizes], max_bytes)
    texts = []
    for chosen in page_sizes.split(sizes[:count]):
        part = part._replace(until=chosen[-1][0], limit=len(chosen))
        if rows := await part.read_large(_CHANGES, page_sizes.UNLIMITED):
            texts.append(_render_all(rows))
        part = part._replace(after=part.until)
        await asyncio.sleep(0)
    return texts, part.until


def _separated(parts: list[bytes]) -> list[bytes]:
    """Returns the parts with a comma before each part but the first."""
    return [*parts[:1], *(b"," + part for part in parts[1:])]


async def _read_group(database: Database, group: str) -> Row:
    rows = await database.read(_GROUP, database.organization_id, group)
    if not rows:
        raise no_group()
    return rows[0]


def _check(position: Position, purged: int, restored: str | None, now: int) -> Position:
    """Returns the position. Raises CursorExpired if its client could miss a deletion."""
    if restored is not None and 0 < position.seq < int(restored):
        raise CursorExpired
    if position.started is None and position.seq == 0 and purged > 0:
        return Position(0, now - now % _DAY)
    if 0 < (position.seq if position.started is None else position.started) < purged:
        raise CursorExpired
    return position


def _render_all(rows: Sequence[Row]) -> bytes:
    return b",".join([_render(row) for row in rows])


def _render(row: Row) -> bytes:
    seq, created_seq, item, id_, identity, job = row
    if item is None:
        return b'{"change":"delete","output":{"id":%d,"output_id":"%s","root_job_id":%s}}' % (
            id_,
            identity.hex().encode(),
            json_text.encode(job),
        )
    change = b"create" if seq == created_seq else b"update"
    return b'{"change":"%s","output":%s}' % (change, item)


# --- purging ------------------------------------------------------------------------------------


async def pending_purges(engine: Engine, before: int) -> list[Callable[[], Awaitable[None]]]:
    """Returns one task per group that has tombstones from before this time: it deletes them."""
    found = await engine.for_all_tenants().read(_GROUPS_WITH_EXPIRED_TOMBSTONES, before)
    return [
        partial(_purge, engine.for_tenant(organization_id), name, group_id, before)
        for organization_id, name, group_id in found
    ]


async def _purge(database: Database, group: str, group_id: int, before: int) -> None:
    """Deletes tombstones; from then on, cursors from before them are rejected."""

    async def purge_some(transaction: Transaction) -> int:
        group_key = (transaction.organization_id, group_id)
        purged = await transaction.fetch(_PURGE, *group_key, before, _CHUNK)
        if purged:
            await transaction.fetch(_SET_PURGED, *group_key, max(row[0] for row in purged))
        return len(purged)

    while await database.write(purge_some, queue_key=group) == _CHUNK:
        pass
