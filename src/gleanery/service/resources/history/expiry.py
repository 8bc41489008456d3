"""Deletes earlier versions: by their age, with a tombstone, or with the whole group."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from gleanery.service.foundation.values import timestamps
from gleanery.service.resources.history import entries
from gleanery.service.storage import group_lock, paging
from gleanery.service.storage.database import Database, Engine, Row, Transaction
from gleanery.service.storage.group_lock import DEFAULT_KEEP_DAYS, Clock, LockedGroup

_DAY = 86_400 * timestamps.SECOND
_EVERYTHING = 2**62  # greater than every sequence number
_GROUPS = f"""
SELECT organization_id, name FROM groups WHERE NOT deleted AND EXISTS (
    SELECT 1 FROM output_history
    WHERE output_history.organization_id = groups.organization_id
        AND output_history.group_id = groups.id AND first_replaced_seq < CASE
            WHEN keep_versions = 0 THEN {_EVERYTHING}
            ELSE $1 - coalesce(keep_days, {DEFAULT_KEEP_DAYS}) * {_DAY} END)
"""
_EXPIRED = """
SELECT identity, seq, octet_length(versions) FROM output_history
WHERE organization_id = $1 AND group_id = $2 AND first_replaced_seq < $3
ORDER BY first_replaced_seq LIMIT $4
"""
_VERSIONS = """
SELECT versions FROM output_history WHERE organization_id = $1 AND identity = $2 AND seq = $3
"""
_SHORTEN = """
UPDATE output_history SET first_replaced_seq = $4, version_count = $5, versions = $6
WHERE organization_id = $1 AND identity = $2 AND seq = $3
"""
_DELETE_SEGMENT = """
DELETE FROM output_history WHERE organization_id = $1 AND identity = $2 AND seq = $3
"""
_DELETE_BEFORE = """
DELETE FROM output_history WHERE organization_id = $1 AND identity = $2 AND seq < $3
"""
_TOMBSTONES = """
SELECT group_id, seq, identity FROM tombstones
WHERE organization_id = $1 AND (group_id, seq) > ($2, $3) ORDER BY group_id, seq LIMIT $4
"""
_BATCH_SIZE = 1000
_BATCH_BYTES = 16 * 1024 * 1024


# --- by age -------------------------------------------------------------------------------------


async def pending_expirations(
    engine: Engine, clock: Clock, now: int | None
) -> list[Callable[[], Awaitable[None]]]:
    """Return a task for each group with versions that it keeps no longer.

    Versions expire at the end of a day (UTC). So a segment is written at most once a day. If the
    clock is not reliable (None), only groups that keep no versions at all have a task.
    """
    today = 0 if now is None else now - now % _DAY
    found = await engine.for_all_tenants().read(_GROUPS, today)
    return [
        partial(_expire, engine.for_tenant(organization_id), name, clock, today)
        for organization_id, name in found
    ]


async def _expire(database: Database, group: str, clock: Clock, today: int) -> None:
    async def expire_some(transaction: Transaction) -> bool:
        locked = await group_lock.lock(transaction, group, clock)
        before = today - locked.keep_days * _DAY if locked.keep_versions else _EVERYTHING
        return await _expire_some(locked, before)

    while await database.write(expire_some, queue_key=group):
        pass


async def _expire_some(locked: LockedGroup, before: int) -> bool:
    """Delete some versions that were replaced before this number. Return False if none is left.

    The lock on the group excludes writers of the same segments.
    """
    organization_id, transaction = locked.organization_id, locked.transaction
    key = (organization_id, locked.group_id, before, _BATCH_SIZE)
    rows = await transaction.fetch(_EXPIRED, *key)
    count = paging.count_fitting([row[-1] for row in rows], _BATCH_BYTES)
    shortened, deleted = [], []
    for identity, seq, _ in rows[:count]:
        [[versions]] = await transaction.fetch(_VERSIONS, organization_id, identity, seq)
        kept = [entry for entry in entries.decode(versions) if entry.version.replaced_seq >= before]
        if kept:
            values = (kept[-1].version.replaced_seq, len(kept), b"".join(map(entries.encode, kept)))
            shortened.append((organization_id, identity, seq, *values))
        else:
            deleted.append((organization_id, identity, seq))
    await transaction.execute_many(_SHORTEN, shortened)
    await transaction.execute_many(_DELETE_SEGMENT, deleted)
    return bool(rows)


# --- with a tombstone ---------------------------------------------------------------------------


async def delete_with_tombstones(transaction: Transaction, tombstones: Sequence[Row]) -> None:
    """Delete the versions of deleted outputs, given the number of each deletion and the identity.

    If such an output was stored again, its later versions stay.
    """
    organization_id = transaction.organization_id
    keys = [(organization_id, identity, seq) for seq, identity in tombstones]
    await transaction.execute_many(_DELETE_BEFORE, keys)


async def delete_of_all_deleted(database: Database) -> None:
    """Delete the versions of all deleted outputs of an organization."""

    async def delete(rows: Sequence[Row], transaction: Transaction) -> None:
        await delete_with_tombstones(transaction, [row[1:] for row in rows])

    place: Sequence[int] = (0, 0)
    while rows := await database.read(_TOMBSTONES, database.organization_id, *place, _BATCH_SIZE):
        await database.write(partial(delete, rows))
        place = rows[-1][:2]


# --- with the group -----------------------------------------------------------------------------


async def delete_with_group(locked: LockedGroup, until_seq: int, limit: int) -> bool:
    """Delete versions that were replaced up to this number. Return True if none is left."""
    key = (locked.organization_id, locked.group_id, until_seq + 1, limit)
    rows = await locked.transaction.fetch(_EXPIRED, *key)
    await locked.transaction.execute_many(
        _DELETE_SEGMENT, [(locked.organization_id, identity, seq) for identity, seq, _ in rows]
    )
    return len(rows) < limit
