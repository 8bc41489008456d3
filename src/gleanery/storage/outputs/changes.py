"""The change feed: creations, updates and deletions of a group, in the order of commit.

Deletions are forgotten after a while. A cursor from before the oldest one that is still known
could hide a gap, so it is refused; so is one from before a restore, whose holder may have seen
what is lost. A client that starts from nothing must pass through such
places too, with all the old outputs; its cursors say so, and on which day it started.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from gleanery.errors import CursorExpired, NotFound
from gleanery.storage import metadata
from gleanery.storage.database import Database, Engine, Row, Transaction
from gleanery.values import json_text, timestamps

_GROUP = f"""
SELECT id, purged, clock, {metadata.RESTORED} FROM groups WHERE organization_id = $1 AND name = $2
"""
_FEED = """
SELECT seq, created, item, id, identity, job FROM (
    SELECT * FROM (
        SELECT seq, created, item, id, identity, NULL AS job FROM outputs
        WHERE organization_id = $1 AND group_id = $2 AND seq > $3 AND seq <= $4
        ORDER BY seq LIMIT $5) AS living
    UNION ALL
    SELECT * FROM (
        SELECT seq, 0 AS created, CAST(NULL AS BYTEA) AS item, id, identity, job
        FROM tombstones
        WHERE organization_id = $1 AND group_id = $2 AND seq > $3 AND seq <= $4
        ORDER BY seq LIMIT $5) AS dead
) AS feed ORDER BY seq LIMIT $5
"""
_GROUPS_WITH_TOMBSTONES = """
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
_NOTE_PURGE = """
UPDATE groups SET purged = $3 WHERE organization_id = $1 AND id = $2 AND purged < $3
"""
_LAST = 2**63 - 1
_AT_ONCE = 1000


# --- cursors ------------------------------------------------------------------------------------

_CATCHING_UP = 2**52  # and above; plain positions stay below until the year 2112
_START_DAYS = 2**11  # the day is kept modulo this: a client that rests for 5.6 years fools it
_MILLISECONDS = 2**41
_DAY = 86_400 * timestamps.SECOND
_EPOCH = 1_577_836_800 * timestamps.SECOND  # 2020-01-01


@dataclass(frozen=True, slots=True)
class Position:
    """A place in the change order; while catching up, also when the client started."""

    seq: int
    started: int | None = None

    @classmethod
    def of(cls, cursor: int, now: int) -> Position:
        if cursor < _CATCHING_UP:
            return cls(cursor)
        day, milliseconds = divmod(cursor - _CATCHING_UP, _MILLISECONDS)
        today = (now - _EPOCH) // _DAY
        started = today - (today - day) % _START_DAYS
        return cls(_EPOCH + milliseconds * 1000 + 999, _EPOCH + started * _DAY)

    @property
    def cursor(self) -> int:
        """The number that stands for this place; it fits a double exactly."""
        if self.started is None:
            return self.seq
        day = (self.started - _EPOCH) // _DAY % _START_DAYS
        milliseconds = max(self.seq - _EPOCH, 0) // 1000
        return _CATCHING_UP + day * _MILLISECONDS + milliseconds


# --- reading ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Feed:
    """Changes as JSON text, joined by commas, and the cursor to go on from."""

    changes: bytes
    cursor: int
    is_ahead: bool = False
    """The cursor was never given out, so that there is nothing to wait for."""


async def read_feed(
    database: Database,
    organization_id: int,
    group: str,
    cursor: int,
    limit: int,
    now: int,
) -> Feed:
    """The changes after the cursor, oldest first. An output created and changed comes once."""
    group_id, purged, clock, restored = await _group(database, organization_id, group)
    position = _admitted(Position.of(cursor, now), purged, restored, now)
    of_group = (organization_id, group_id)
    found = list(await database.read(_FEED, *of_group, position.seq, _LAST, limit))
    # Deletions may have been forgotten since: what is known must be asked for after the reading.
    _, purged, _, restored = await _group(database, organization_id, group)
    _admitted(position, purged, restored, now)
    if not found:
        return Feed(b"", cursor, is_ahead=position.seq > clock)
    reached = Position(found[-1][0])
    if position.started is not None and reached.seq < purged:
        # Such a cursor is exact to the millisecond, so a page ends with the last of one.
        reached = Position(reached.seq, position.started)
        end = Position.of(reached.cursor, now).seq
        found += await database.read(_FEED, *of_group, found[-1][0], end, _AT_ONCE)
    return Feed(b",".join([_rendered(row) for row in found]), reached.cursor)


async def _group(database: Database, organization_id: int, group: str) -> Row:
    rows = await database.read(_GROUP, organization_id, group)
    if not rows:
        raise NotFound
    return rows[0]


def _admitted(position: Position, purged: int, restored: str | None, now: int) -> Position:
    """The position, if every deletion that its holder must still hear of is known."""
    if restored is not None and 0 < position.seq < int(restored):
        raise CursorExpired
    if position.started is None and position.seq == 0 and purged > 0:
        return Position(0, now - now % _DAY)
    if 0 < (position.seq if position.started is None else position.started) < purged:
        raise CursorExpired
    return position


def _rendered(row: Row) -> bytes:
    seq, created, item, id_, identity, job = row
    if item is None:
        return b'{"change":"delete","output":{"id":%d,"output_id":"%s","root_job_id":%s}}' % (
            id_,
            identity.hex().encode(),
            json_text.encode(job),
        )
    change = b"create" if seq == created else b"update"
    return b'{"change":"%s","output":%s}' % (change, item)


# --- forgetting ---------------------------------------------------------------------------------


async def forgettable(engine: Engine, before: int) -> list[Callable[[], Awaitable[None]]]:
    """The groups with deletions from before a moment, each to be purged of them on its own."""
    found = await engine.for_all_tenants().read(_GROUPS_WITH_TOMBSTONES, before)
    return [
        partial(_purge, engine.for_tenant(organization_id), organization_id, name, group_id, before)
        for organization_id, name, group_id in found
    ]


async def _purge(
    database: Database, organization_id: int, name: str, group_id: int, before: int
) -> None:
    """Forgets deletions; cursors from before them are refused from then on."""

    async def work(transaction: Transaction) -> int:
        of_group = (organization_id, group_id)
        gone = await transaction.fetch(_PURGE, *of_group, before, _AT_ONCE)
        if gone:
            await transaction.fetch(_NOTE_PURGE, *of_group, max(row[0] for row in gone))
        return len(gone)

    while await database.write(work, queue_key=name) == _AT_ONCE:
        pass
