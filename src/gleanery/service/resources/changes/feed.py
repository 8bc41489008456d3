"""The change feed: creations, updates and deletions of a group, in the order of commit.

Theory of operation
    There is a feed of all outputs and one of the approved view. Both take their sequence
    numbers from one order. An output is in a feed once, at its last change and as it is now. A
    deletion is in it as a tombstone. Each change has a cursor, and a client that continues from it
    misses nothing.

    The position of a client is in one of two states (``outputs.positions``):

    - It follows: the cursor is the sequence number of the last change that it has.
    - It catches up: it started at 0 after tombstones were purged. Its cursors hold the day on which
      it started, and a position with the resolution of a millisecond. It follows as soon as it
      passes the start of that day.

    Invariants:

    - Sequence numbers grow with the order of commit, because writers hold the lock of the group. So
      no change is ever inserted before a cursor that a client has.
    - Tombstones are purged after some time. A client that follows, and whose cursor is older than
      the last purge, could miss a deletion. So its cursor is rejected (``CursorExpired``). The same
      applies to a restore, because such a client may have seen data that was lost.
    - A client that catches up has seen no output that was deleted before it started. So it may pass
      purged numbers. Its cursor is rejected if a purge reaches the day on which it started.
    - A purge can run during the read, so the position is checked before and after it.
    - The cursors of a client that catches up have the resolution of a millisecond. So its feed
      ends with a whole millisecond. A client that stops inside one gets some changes twice.
    - One statement reads all tables of a feed, because an output can move between them.

    ::

        handlers
          └─ read_feed
              ├─ _read_group, _check           is the cursor still valid?
              ├─ _read_changes                 a small feed: one statement
              │   └─ _read_large_feed          sizes, then changes in chunks of about a megabyte
              ├─ _with_whole_millisecond, _without_returned    for a client that catches up
              ├─ _with_fields                  what each update has changed, if it is wanted
              └─ _render_chunks
        maintenance
          └─ pending_purges                    deletes tombstones, and moves the oldest valid cursor

See ``docs/explanation/change-feed.md``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from gleanery.service.foundation.errors import CursorExpired, no_group
from gleanery.service.foundation.scheduling.fair_shares import FairThread
from gleanery.service.foundation.values import json_text, timestamps
from gleanery.service.resources.changes.models import ChangeQuery
from gleanery.service.resources.history import storing
from gleanery.service.resources.history.field_changes import FieldReader, Update
from gleanery.service.resources.outputs.models import View
from gleanery.service.resources.outputs.positions import Position
from gleanery.service.storage import metadata, paging
from gleanery.service.storage.database import Database, Engine, Row, Sql, Transaction, indexed
from gleanery.service.storage.paging import Hold, hold_nothing

_DELETED_OUTPUT = b'{"id":%d,"output_id":"%s","root_job_id":%s}'
_FRAME_BYTES = 300  # of a change, in addition to its output, the group's name and the job's name
_NO_LIMIT = 2**62
_MAX_SEQ = 2**63 - 1
_CHUNK = 1000
_DAY = 86_400 * timestamps.SECOND


# --- reading ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Feed:
    """Changes as JSON text, and the next cursor.

    The parts together are the elements of an array. Only a large feed has several parts.
    """

    parts: list[bytes]
    cursor: int
    has_more: bool
    """False if there were no further changes."""
    first_seq: int | None = None
    """Sequence number of the oldest change, which is its time; None without changes."""
    is_beyond_end: bool = False
    """True if the cursor is greater than any issued one, so there is nothing to wait for."""


async def read_feed(
    database: Database,
    computations: FairThread,
    group: str,
    query: ChangeQuery,
    cursor: int,
    max_bytes: int,
    now: int,
    hold: Hold = hold_nothing,
) -> Feed:
    """Read the changes after the cursor, oldest first. An output appears once, as it is now."""
    source = BY_VIEW[query.view]
    state = await _read_group(database, source, group)
    known = Position.from_cursor(cursor, now)
    start = _not_before(known, query.changed_after)
    parameter = "cursor" if start == known else "changed_after"
    position = _check(start, state, now, parameter)
    if query.diff == "true":
        max_bytes //= 2  # the other half is for the changed fields
    part = _Part(database, source, state.group_id, position.seq, _MAX_SEQ, query.limit)
    found = await _read_changes(part, max_bytes, _frame_bytes(group), hold)
    found = await _with_whole_millisecond(part, position, found, hold)
    if position.started is not None:
        found = _without_returned(found)
    # A purge may have run since the first check, so the position is checked again after the read.
    _check(position, await _read_group(database, source, group), now, parameter)
    if found.has_more:
        end = position.at(found.last_seq)
    else:  # the client has everything up to this number, which was read before the changes
        end = Position(max(found.last_seq if found.chunks else known.seq, state.last_seq))
    if query.diff == "true":
        reader = FieldReader(
            database, computations, group, state.group_id, position.seq, max_bytes, now
        )
        found = await _with_fields(found, reader)
    parts = await _render_chunks(found, position, end, group)
    first_seq = found.chunks[0][0][0] if found.chunks else None
    is_beyond_end = known.seq > state.last_seq
    return Feed(parts, end.cursor, found.has_more, first_seq, is_beyond_end)


class _Found(NamedTuple):
    """Rows of changes, in chunks of about a megabyte."""

    chunks: list[Sequence[Row]]
    last_seq: int
    has_more: bool
    size: int = 0
    """Bytes of a large feed, about."""


class _Part(NamedTuple):
    """A part of a group's change order."""

    database: Database
    source: FeedSource
    group_id: int
    after: int
    until: int
    limit: int

    async def read(self, sql: Sql, *values: int) -> Sequence[Row]:
        return await self.database.read(sql, *self._values, *values)

    async def read_large(self, sql: Sql, *values: int) -> Sequence[Row]:
        return await self.database.read_large(sql, *self._values, *values)

    @property
    def _values(self) -> Sequence[int]:
        return (self.database.organization_id, *self[2:], *self.source.values)


async def _read_changes(part: _Part, max_bytes: int, frame_bytes: int, hold: Hold) -> _Found:
    """Read changes. One row more than the limit shows if there are further changes."""
    limit = part.limit
    max_small_bytes = max_bytes // paging.LINK_GROWTH
    max_item_bytes = paging.max_item_bytes(max_small_bytes, limit)
    rows = await part._replace(limit=limit + 1).read(part.source.changes, max_item_bytes)
    if not rows:
        return _Found([], part.after, False)
    if _is_small(rows, max_small_bytes, frame_bytes):
        has_more, rows = len(rows) > limit, rows[:limit]
        return _Found([rows], rows[-1][0], has_more)
    return await _read_large_feed(part, max_bytes, frame_bytes, hold)


def _is_small(rows: Sequence[Row], max_bytes: int, frame_bytes: int) -> bool:
    """Return False if an item was left out because of its length, or if all are too long."""
    size = len(rows) * frame_bytes
    for _, _, item, _, _, job, _ in rows:
        if item is None and job is None:
            return False
        size += len(item or job)
    return size <= max_bytes


async def _read_large_feed(
    part: _Part, max_bytes: int, frame_bytes: int, hold: Hold, earlier_bytes: int = 0
) -> _Found:
    """Read the sizes of the changes, and then as many changes as fit, in chunks.

    Other requests run between two chunks. An output that changes in between is in the next feed.
    Therefore there is a next feed if a change is missing.
    """
    rows = await part._replace(limit=part.limit + 1).read(part.source.sizes)
    sizes = [(seq, size + frame_bytes) for seq, size in rows[: part.limit]]
    count = paging.count_fitting([size for _, size in sizes], max_bytes)
    feed_bytes = earlier_bytes + sum(size for _, size in sizes[:count])
    chunks = []
    for chosen in paging.split(sizes[:count]):
        hold(feed_bytes)
        part = part._replace(until=chosen[-1][0], limit=len(chosen))
        chunks.append(await part.read_large(part.source.changes, paging.UNLIMITED))
        part = part._replace(after=part.until)
        await asyncio.sleep(0)
    has_more = sum(map(len, chunks)) < len(rows)
    return _Found([chunk for chunk in chunks if chunk], part.after, has_more, feed_bytes)


async def _with_whole_millisecond(
    part: _Part, position: Position, found: _Found, hold: Hold
) -> _Found:
    """Add the rest of the last millisecond if the client catches up.

    A cursor of such a client has a resolution of a millisecond.
    """
    end = position.at(found.last_seq)
    if end.started is None or not found.has_more:
        return found
    rest = part._replace(after=found.last_seq, until=end.seq, limit=_CHUNK)
    more = await _read_large_feed(rest, _NO_LIMIT, 0, hold, found.size)
    next_change = part._replace(after=end.seq, limit=1)
    has_more = more.has_more or bool(await next_change.read(part.source.sizes))
    return _Found(found.chunks + more.chunks, more.last_seq, has_more)


def _without_returned(found: _Found) -> _Found:
    """Leaves out the deletion of each output that came back later in the same feed.

    If a client catches up, both changes could have the same cursor, which is the position of their
    millisecond. Warehouses keep the record with the greatest cursor of each output.
    """
    present = {row[4] for rows in found.chunks for row in rows if row[5] is None}
    chunks = [
        [row for row in rows if row[5] is None or row[4] not in present] for rows in found.chunks
    ]
    return found._replace(chunks=[chunk for chunk in chunks if chunk])


async def _with_fields(found: _Found, reader: FieldReader) -> _Found:
    """Add the changed fields to the item of each update."""
    chunks: list[Sequence[Row]] = []
    for rows in found.chunks:
        updates = [
            Update(seq, created_seq, item, identity)
            for seq, created_seq, item, _, identity, *_ in rows
            if item is not None and seq != created_seq
        ]
        texts = await reader.read(updates)
        chunks.append([_with_text(row, texts.get(row[0])) for row in rows])
    return found._replace(chunks=chunks)


def _with_text(row: Row, fields: bytes | None) -> Row:
    seq, created_seq, item, *rest = row
    return row if fields is None else (seq, created_seq, item + b',"fields":' + fields, *rest)


class _GroupState(NamedTuple):
    """The row of a group, with what decides about cursors."""

    group_id: int
    purged_seq: int
    """Sequence number of the last tombstone that was purged."""
    last_seq: int
    restored: str | None
    """Time of the last restore of the service; None without one."""


async def _read_group(database: Database, source: FeedSource, group: str) -> _GroupState:
    rows = await database.read(source.group, database.organization_id, group)
    if not rows:
        raise no_group()
    return _GroupState(*rows[0])


def _not_before(position: Position, changed_after: int | None) -> Position:
    """Return the position, or a later one if the client wants only later changes."""
    if changed_after is None or changed_after - 1 <= position.seq:
        return position
    return Position(changed_after - 1, position.started)


def _check(position: Position, group: _GroupState, now: int, parameter: str) -> Position:
    """Return the position. Raise CursorExpired if its client could miss a deletion."""
    restore_time = int(group.restored or 0)
    if position == Position(0):  # no output is older than the restore
        return Position(0, now - now % _DAY) if group.purged_seq > restore_time else position
    if (position.started or position.seq) < max(group.purged_seq, restore_time):
        raise CursorExpired(parameter)
    return position


# --- rendering ----------------------------------------------------------------------------------


def _frame_bytes(group: str) -> int:
    return _FRAME_BYTES + len(json_text.encode(group))


async def _render_chunks(
    found: _Found, position: Position, end: Position, group: str
) -> list[bytes]:
    """Return the JSON text of each chunk, with a comma before each chunk but the first."""
    parts: list[bytes] = []
    group_text = json_text.encode(group).decode()
    for rows in found.chunks:
        if parts:
            await asyncio.sleep(0)  # other requests run between two chunks
        cursors = [row[0] for row in rows]
        if position.started is not None:
            cursors = [position.before(seq).cursor for seq in cursors]
        if rows is found.chunks[-1] and rows[-1][0] == found.last_seq:
            cursors[-1] = end.cursor
        parts.append((b"," if parts else b"") + _render(rows, cursors, group_text))
    return parts


def _render(rows: Sequence[Row], cursors: Sequence[int], group: str) -> bytes:
    """Return the changes as JSON text. Only the frame of each change is composed as text."""
    pieces: list[bytes] = []
    for (seq, created_seq, item, id_, identity, job, reason), cursor in zip(
        rows, cursors, strict=True
    ):
        output_id = identity.hex()
        change = "create" if seq == created_seq else "update"
        if item is None:
            change = "delete"
            item = _DELETED_OUTPUT % (id_, output_id.encode(), json_text.encode(job))
        date = timestamps.render(seq // timestamps.SECOND)
        frame = (
            f'{{"change":"{change}","cursor":{cursor},"change_date":"{date}",'
            f'"group_id":{group},"output_id":"{output_id}","output":'
        )
        end = b"}," if reason is None else b',"reason":%s},' % json_text.encode(reason)
        pieces += (frame.encode(), item, end)
    pieces[-1] = pieces[-1][:-1]
    return b"".join(pieces)


# --- purging ------------------------------------------------------------------------------------


async def pending_purges(engine: Engine, before: int) -> list[Callable[[], Awaitable[None]]]:
    """Return one task per feed that has tombstones from before this time: it deletes them."""
    everyone = engine.for_all_tenants()
    return [
        partial(_purge, engine.for_tenant(organization_id), source, name, group_id, before)
        for source in BY_VIEW.values()
        for organization_id, name, group_id in await everyone.read(source.expired_groups, before)
    ]


async def _purge(
    database: Database, source: FeedSource, group: str, group_id: int, before: int
) -> None:
    """Delete tombstones; from then on, cursors from before them are rejected.

    The tombstones of deleted outputs take their history with them.
    """

    async def purge_some(transaction: Transaction) -> int:
        group_key = (transaction.organization_id, group_id)
        purged = await transaction.fetch(source.purge, *group_key, before, _CHUNK)
        if purged:
            await transaction.fetch(source.set_purged, *group_key, max(row[0] for row in purged))
        if source is FULL:
            deleted = [storing.DeletedOutput(*row) for row in purged]
            await storing.delete_with_tombstones(transaction, deleted)
        return len(purged)

    while await database.write(purge_some, queue_key=group) == _CHUNK:
        pass


# --- statements ---------------------------------------------------------------------------------

_IN_GROUP = "WHERE organization_id = $1 AND group_id = $2"
_IN_RANGE = "AND seq > $3 AND seq <= $4"
_IN_ORDER = "ORDER BY seq LIMIT $5"


class FeedSource(NamedTuple):
    """The statements that read a feed, and those that purge its tombstones."""

    values: tuple[bool, ...]
    """Values of ``changes`` and ``sizes``, after the values of their range and limit."""
    group: str
    """Reads a group: its id, its last purged number, its last number and the restore time."""
    changes: Sql
    """Reads changes. A change is a deletion if it has the name of a job, and a creation if its
    number is ``created_seq``. The last value is the maximum size of an item."""
    sizes: Sql
    expired_groups: str
    purge: str
    set_purged: str


class _Rows(NamedTuple):
    """Outputs of a feed: a table with its condition, and where each output entered the feed."""

    table: Sql
    created_seq: str

    def changes(self, max_item_bytes: str) -> Sql:
        return self.table.within(
            f"""
SELECT seq, {self.created_seq} AS created_seq,
    CASE WHEN octet_length(item) <= {max_item_bytes} THEN item END AS item,
    id, identity, NULL AS job_name, NULL AS reason
FROM """,
            f" {_IN_RANGE}\n",
        )

    @property
    def sizes(self) -> Sql:
        return self.table.within(f"SELECT seq, {paging.ITEM_SIZE} AS size FROM ", f" {_IN_RANGE}")


def _source(
    purged_seq: str, tombstones: str, *outputs: _Rows, values: tuple[bool, ...] = ()
) -> FeedSource:
    deletions = f"""
SELECT seq, 0 AS created_seq, CAST(NULL AS BYTEA) AS item, id, identity, job_name, reason
FROM {tombstones} {_IN_GROUP} {_IN_RANGE}
"""
    deletion_sizes = f"""
SELECT seq, octet_length(job_name) AS size FROM {tombstones} {_IN_GROUP} {_IN_RANGE}
"""
    return FeedSource(
        values,
        group=f"""
SELECT id, {purged_seq}, last_seq, {metadata.RESTORE_TIME} FROM groups
WHERE organization_id = $1 AND name = $2
""",
        changes=_merge([rows.changes(f"${6 + len(values)}") for rows in outputs], deletions),
        sizes=_merge([rows.sizes for rows in outputs], deletion_sizes),
        expired_groups=f"""
SELECT organization_id, name, id FROM groups
WHERE EXISTS (SELECT 1 FROM {tombstones} WHERE {tombstones}.organization_id = groups.organization_id
              AND {tombstones}.group_id = groups.id AND seq <= $1)
""",
        purge=f"""
DELETE FROM {tombstones} {_IN_GROUP} AND seq <= $3 AND seq IN (
    SELECT seq FROM {tombstones} {_IN_GROUP} AND seq <= $3 ORDER BY seq LIMIT $4)
RETURNING seq, identity
""",
        set_purged=f"""
UPDATE groups SET {purged_seq} = $3 WHERE organization_id = $1 AND id = $2 AND {purged_seq} < $3
""",
    )


def _merge(outputs: Sequence[Sql], deletions: str) -> Sql:
    """Return one statement, so that no output is missed while it moves between two tables.

    Each part is in order. SQLite merges the parts. PostgreSQL sorts them, so they need limits.
    """
    sqlite = [*(part.sqlite for part in outputs), deletions]
    postgres = [f"({part} {_IN_ORDER})" for part in (*(one.postgres for one in outputs), deletions)]
    return Sql(
        f"{' UNION ALL '.join(sqlite)} {_IN_ORDER}", f"{' UNION ALL '.join(postgres)} {_IN_ORDER}"
    )


FULL = _source("purged_seq", "tombstones", _Rows(indexed(f"outputs {_IN_GROUP}"), "created_seq"))
# The approval is a parameter. With a constant, PostgreSQL would also read outputs without approval.
APPROVED = _source(
    "view_purged_seq",
    "view_tombstones",
    _Rows(
        indexed(f"{{outputs}} {_IN_GROUP} AND approved = $6", outputs="outputs_by_approval"),
        "view_seq",
    ),
    _Rows(indexed(f"approved_versions {_IN_GROUP}"), "view_seq"),
    values=(True,),
)
BY_VIEW: dict[View, FeedSource] = {"full": FULL, "approved": APPROVED}
