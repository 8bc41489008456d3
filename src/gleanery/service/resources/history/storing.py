"""Writing the history: stores versions that new ones replace, and deletes those that expire.

An entry goes to the front of the output's open segment. A full segment stays as it is, and the next
entry opens another one. So the work per version does not grow with the number of versions.

Versions are deleted by their number while a batch is stored, by their age in the background, with
the tombstone of their output, and with the whole group. See ``reading`` for the theory of
operation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import NamedTuple, Protocol

from gleanery.service.foundation.values import timestamps
from gleanery.service.resources.history import entries
from gleanery.service.resources.history.entries import Entry, Version
from gleanery.service.storage import group_lock, paging
from gleanery.service.storage.database import Database, Engine, Row, Transaction
from gleanery.service.storage.group_lock import DEFAULT_KEEP_DAYS, Clock, LockedGroup

_MAX_ITEM_BYTES = 64 * 1024  # larger items are read one by one
_MAX_SMALL_BYTES = 2 * _MAX_ITEM_BYTES  # of two items that are compressed at once
_MAX_EARLY_BYTES = 4096  # of an item that a batch reads with the row
# A segment with as many versions or bytes is full. Each append writes the whole segment again.
_SEGMENT_VERSIONS = 10
_SEGMENT_BYTES = 4096
_MAX_BYTES = 8 * 1024 * 1024  # of entries in memory

_ITEM_COLUMN = "CASE WHEN octet_length(outputs.item) <= {} THEN outputs.item END"
EARLY_COLUMNS = f"""
    outputs.version_seq, {_ITEM_COLUMN.format(_MAX_EARLY_BYTES)},
    output_history.version_count, octet_length(output_history.versions)
"""
"""The columns of ``ReplacedOutput`` that only the history needs. A large item is left out."""
WITH_SEGMENT = """
outputs LEFT JOIN output_history
    ON output_history.organization_id = outputs.organization_id
    AND output_history.identity = outputs.identity AND output_history.seq = outputs.history_seq
WHERE outputs.organization_id = $1 AND outputs.identity = $2
"""
_PRESENT = f"SELECT outputs.identity, {EARLY_COLUMNS} FROM {WITH_SEGMENT.lstrip()}"
_ITEMS = f"""
SELECT identity, {_ITEM_COLUMN.format(_MAX_ITEM_BYTES)} FROM outputs
WHERE organization_id = $1 AND identity = $2
"""
_LAST_VERSIONS = f"""
SELECT outputs.identity, outputs.history_seq, output_history.version_count,
    octet_length(output_history.versions), outputs.version_seq, outputs.seq,
    outputs.last_scraped_at, outputs.approved, {_ITEM_COLUMN.format(_MAX_ITEM_BYTES)}
FROM {WITH_SEGMENT.lstrip()}"""
_LARGE_ITEM = "SELECT item FROM outputs WHERE organization_id = $1 AND identity = $2"
_OPEN_SEGMENT = """
INSERT INTO output_history
    (organization_id, identity, seq, group_id, first_replaced_seq, version_count, versions)
VALUES ($1, $2, $3, $4, $5, $6, $7)
"""
_APPEND = """
UPDATE output_history
SET version_count = version_count + 1, versions = CAST($4 || versions AS BYTEA)
WHERE organization_id = $1 AND identity = $2 AND seq = $3
"""
_SEGMENTS = """
SELECT identity, seq, version_count FROM output_history
WHERE organization_id = $1 AND identity = $2
"""
_DELETE_SEGMENT = """
DELETE FROM output_history WHERE organization_id = $1 AND identity = $2 AND seq = $3
"""
_DELETE_ALL = "DELETE FROM output_history WHERE organization_id = $1 AND identity = $2"


class Segment(NamedTuple):
    """The open segment of an output."""

    seq: int
    version_count: int | None
    """None if the segment does not exist."""
    size: int


class PresentVersion(NamedTuple):
    """The columns of an output that only the history needs."""

    identity: bytes
    version_seq: int
    item: bytes | None
    """None if it is large."""
    segment_count: int | None
    segment_size: int


class ReplacedOutput(Protocol):
    """The row of an output that gets a new version. ``approved`` is that of the new version."""

    identity: bytes
    seq: int
    approved: bool
    last_scraped_at: int
    history_seq: int
    version_seq: int | None
    item: bytes | None
    segment_count: int | None
    segment_size: int
    new_seq: int
    replaces_approved: bool


class LastVersion(NamedTuple):
    """The version with which an output ends. It is stored after the deletion has its number."""

    identity: bytes
    segment: Segment
    entry: Entry


async def read_present(
    locked: LockedGroup, identities: Collection[bytes]
) -> Sequence[PresentVersion]:
    """Read the present versions of outputs."""
    rows = await locked.transaction.fetch_by_keys(identities, _PRESENT, locked.organization_id)
    return [PresentVersion(*row) for row in rows]


async def replaced_entries(
    locked: LockedGroup, replacements: Sequence[tuple[ReplacedOutput, bytes]]
) -> NewEntries:
    """Return the present versions of outputs as entries, directly before new items replace them.

    If they are large, it has written some of them.
    """
    large = [output.identity for output, _ in replacements if output.item is None]
    items = await _read_items(locked, large)
    replaced = NewEntries(locked)
    for output, new_item in replacements:
        item = output.item or items[output.identity] or await _large_item(locked, output.identity)
        version = _replaced_version(output)
        # Most items are small, so nothing is awaited for them.
        entry = (
            entries.create(version, item, new_item, output.approved)
            if len(item) + len(new_item) <= _MAX_SMALL_BYTES
            else await _create_entry(locked, version, item, new_item, output.approved)
        )
        segment = Segment(output.history_seq, output.segment_count, output.segment_size)
        replaced.add(output.identity, segment, entry)
        if replaced.size > _MAX_BYTES:
            await replaced.write()
    return replaced


def _replaced_version(output: ReplacedOutput) -> Version:
    assert output.version_seq is not None
    approved = bool(output.approved) or output.replaces_approved
    return Version(output.version_seq, output.seq, output.new_seq, output.last_scraped_at, approved)


async def _read_items(
    locked: LockedGroup, identities: Collection[bytes]
) -> dict[bytes, bytes | None]:
    """Read items; None stands for a large one."""
    rows = await locked.transaction.fetch_by_keys(identities, _ITEMS, locked.organization_id)
    return {row[0]: row[1] for row in rows}


async def read_last_versions(
    locked: LockedGroup, identities: Collection[bytes]
) -> Sequence[LastVersion]:
    """Read the versions of outputs that are about to be deleted."""
    if not locked.keep_versions:
        await forget(locked, identities)
        return ()
    rows = await locked.transaction.fetch_by_keys(
        identities, _LAST_VERSIONS, locked.organization_id
    )
    versions = []
    for identity, *segment, version_seq, seq, last_scraped_at, approved, small_item in rows:
        item = small_item or await _large_item(locked, identity)
        version = Version(version_seq, seq, 0, last_scraped_at, bool(approved), is_deleted=True)
        entry = await _create_entry(locked, version, item, None, False)
        versions.append(LastVersion(identity, Segment(*segment), entry))
    return versions


async def store_last_versions(
    locked: LockedGroup, versions: Sequence[LastVersion], deletions: Mapping[bytes, int]
) -> None:
    """Store the versions of deleted outputs. ``deletions`` has the number of each deletion."""
    ended = NewEntries(locked)
    for identity, segment, entry in versions:
        if identity in deletions:  # else the output is of another group
            version = entry.version._replace(replaced_seq=deletions[identity])
            ended.add(identity, segment, entry._replace(version=version))
    await ended.write()


async def forget(locked: LockedGroup, identities: Collection[bytes]) -> None:
    """Delete the history of outputs whose next version is not stored in it."""
    many = [(locked.organization_id, identity) for identity in identities]
    await locked.transaction.execute_many(_DELETE_ALL, many)


async def _large_item(locked: LockedGroup, identity: bytes) -> bytes:
    key = (locked.organization_id, identity)
    [[item]] = await locked.transaction.fetch(_LARGE_ITEM, *key)
    return bytes(item)


async def _create_entry(
    locked: LockedGroup, version: Version, item: bytes, newer_item: bytes | None, approved: bool
) -> Entry:
    """Compresses a version. That takes 0.1 seconds for 20 megabytes."""
    if len(item) + len(newer_item or b"") <= _MAX_SMALL_BYTES:
        return entries.create(version, item, newer_item, approved)
    return await locked.transaction.compute(entries.create, version, item, newer_item, approved)


class NewEntries:
    """Entries to add to the history of outputs, one for each output; ``write`` stores them."""

    def __init__(self, locked: LockedGroup) -> None:
        self._locked = locked
        self._max_count = min(locked.keep_versions, _SEGMENT_VERSIONS)
        self._opened: list[Row] = []
        self._appended: list[Row] = []
        self._crowded: list[bytes] = []
        self.size = 0
        """Bytes of the entries that are not written yet."""
        self.segments: dict[bytes, int] = {}
        """The open segment of each output."""

    def add(self, identity: bytes, segment: Segment, entry: Entry) -> None:
        """Add an entry to the open segment, or to a new one if that is full or missing."""
        count = segment.version_count
        version, key = entry.version, self._locked.organization_id
        encoded = entries.encode(entry)
        self.size += len(encoded)
        if count is not None and count < self._max_count and segment.size < _SEGMENT_BYTES:
            self._appended.append((key, identity, segment.seq, encoded))
            self.segments[identity] = segment.seq
            return
        place = (version.seq, self._locked.group_id, version.replaced_seq)
        self._opened.append((key, identity, *place, 1, encoded))
        self.segments[identity] = version.seq
        if count is not None or version.is_deleted:
            self._crowded.append(identity)

    async def write(self) -> None:
        transaction = self._locked.transaction
        await transaction.execute_many(_APPEND, self._appended)
        await transaction.execute_many(_OPEN_SEGMENT, self._opened)
        await _delete_old_segments(self._locked, self._crowded)
        for written in (self._appended, self._opened, self._crowded):
            written.clear()
        self.size = 0


async def _delete_old_segments(locked: LockedGroup, identities: Collection[bytes]) -> None:
    """Delete the segments that have only versions beyond the number that the group keeps."""
    organization_id = locked.organization_id
    rows = await locked.transaction.fetch_by_keys(identities, _SEGMENTS, organization_id)
    newer = Counter[bytes]()
    old = []
    for identity, seq, version_count in sorted(rows, key=itemgetter(1), reverse=True):
        if newer[identity] >= locked.keep_versions:
            old.append((organization_id, identity, seq))
        newer[identity] += version_count
    await locked.transaction.execute_many(_DELETE_SEGMENT, old)


# --- expiry by age ------------------------------------------------------------------------------

_DAY = 86_400 * timestamps.SECOND
_EVERYTHING = 2**62  # greater than every sequence number
_GROUPS_WITH_EXPIRED = f"""
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
_DELETE_BEFORE = """
DELETE FROM output_history WHERE organization_id = $1 AND identity = $2 AND seq < $3
"""
_TOMBSTONES = """
SELECT group_id, seq, identity FROM tombstones
WHERE organization_id = $1 AND (group_id, seq) > ($2, $3) ORDER BY group_id, seq LIMIT $4
"""
_EXPIRED_CHUNK = 1000
_EXPIRED_BYTES = 16 * 1024 * 1024


async def pending_expirations(
    engine: Engine, clock: Clock, now: int | None
) -> list[Callable[[], Awaitable[None]]]:
    """Return a task for each group with versions that it keeps no longer.

    Versions expire at the end of a day (UTC). So a segment is written at most once a day. If the
    clock is not reliable (None), only groups that keep no versions at all have a task.
    """
    today = 0 if now is None else now - now % _DAY
    found = await engine.for_all_tenants().read(_GROUPS_WITH_EXPIRED, today)
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
    key = (organization_id, locked.group_id, before, _EXPIRED_CHUNK)
    rows = await transaction.fetch(_EXPIRED, *key)
    count = paging.count_fitting([row[-1] for row in rows], _EXPIRED_BYTES)
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


# --- deletion with a tombstone ------------------------------------------------------------------


class DeletedOutput(NamedTuple):
    """The sequence number of a deletion, and the identity of the output."""

    seq: int
    identity: bytes


async def delete_with_tombstones(
    transaction: Transaction, deleted: Sequence[DeletedOutput]
) -> None:
    """Delete the versions of deleted outputs.

    If such an output was stored again, its later versions stay.
    """
    organization_id = transaction.organization_id
    keys = [(organization_id, identity, seq) for seq, identity in deleted]
    await transaction.execute_many(_DELETE_BEFORE, keys)


async def delete_of_all_deleted(database: Database) -> None:
    """Delete the versions of all deleted outputs of an organization."""

    async def delete(rows: Sequence[Row], transaction: Transaction) -> None:
        deleted = [DeletedOutput(seq, identity) for _, seq, identity in rows]
        await delete_with_tombstones(transaction, deleted)

    place: Sequence[int] = (0, 0)
    while rows := await database.read(
        _TOMBSTONES, database.organization_id, *place, _EXPIRED_CHUNK
    ):
        await database.write(partial(delete, rows))
        place = rows[-1][:2]


# --- deletion with the group --------------------------------------------------------------------


async def delete_with_group(locked: LockedGroup, until_seq: int, limit: int) -> bool:
    """Delete versions that were replaced up to this number. Return True if none is left."""
    key = (locked.organization_id, locked.group_id, until_seq + 1, limit)
    rows = await locked.transaction.fetch(_EXPIRED, *key)
    await locked.transaction.execute_many(
        _DELETE_SEGMENT,
        [(locked.organization_id, identity, seq) for identity, seq, _ in rows],
    )
    return len(rows) < limit
