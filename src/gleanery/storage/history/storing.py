"""Stores the version of an output that a new one replaces, or that ends with a deletion.

An entry goes to the front of the output's open segment. A full segment stays as it is, and the next
entry opens another one. So the work per version does not grow with the number of versions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple

from gleanery.storage.group_lock import LockedGroup
from gleanery.storage.history import entries
from gleanery.storage.history.entries import Entry, Version

_MAX_ITEM_BYTES = 64 * 1024  # larger items are read one by one
_SEGMENT_BYTES = 4096  # a segment with as many is full

_STORED = f"""
SELECT outputs.identity, outputs.version_seq, outputs.seq, outputs.last_scraped_at,
    outputs.approved, CASE WHEN octet_length(outputs.item) <= {_MAX_ITEM_BYTES}
    THEN outputs.item END, output_history.seq, output_history.version_count,
    octet_length(output_history.versions)
FROM outputs LEFT JOIN output_history
    ON output_history.organization_id = outputs.organization_id
    AND output_history.identity = outputs.identity AND output_history.seq = outputs.history_seq
WHERE outputs.organization_id = $1 AND outputs.identity = $2
"""
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


class Replacement(NamedTuple):
    """The new version of an output."""

    identity: bytes
    seq: int
    approved: bool
    item: bytes


class _Stored(NamedTuple):
    """The present version of an output, and its open segment."""

    identity: bytes
    version_seq: int
    seq: int
    last_scraped_at: int
    approved: bool
    item: bytes | None
    """None if it is large."""
    open_segment: int | None
    version_count: int | None
    segment_size: int | None

    def has_space(self, keep_versions: int) -> bool:
        """Returns True if the open segment takes another entry."""
        count, size = self.version_count or 0, self.segment_size or 0
        return count < keep_versions and size < _SEGMENT_BYTES


class LastVersion(NamedTuple):
    """The version with which an output ends. It is stored after the deletion has its number."""

    stored: _Stored
    entry: Entry


async def store_replaced(
    locked: LockedGroup, replacements: Sequence[Replacement]
) -> Mapping[bytes, int]:
    """Stores the present versions of outputs, directly before their rows are updated.

    Returns the key of each output's open segment, for the column ``history_seq``.
    """
    new = {replacement.identity: replacement for replacement in replacements}
    additions = []
    for stored in await _read(locked, new):
        replacement = new[stored.identity]
        item = stored.item or await _large_item(locked, stored.identity)
        version = _version(stored, replacement.seq)
        entry = entries.create(version, item, replacement.item, replacement.approved)
        additions.append((stored, entry))
    return await _add(locked, additions)


async def read_last_versions(
    locked: LockedGroup, identities: Collection[bytes]
) -> Sequence[LastVersion]:
    """Reads the versions of outputs that are about to be deleted."""
    if not locked.keep_versions:
        await forget(locked, identities)
        return ()
    versions = []
    for stored in await _read(locked, identities):
        item = stored.item or await _large_item(locked, stored.identity)
        version = _version(stored, 0)._replace(is_deleted=True)
        versions.append(LastVersion(stored, entries.create(version, item, None, False)))
    return versions


async def store_last_versions(
    locked: LockedGroup, versions: Sequence[LastVersion], deletions: Mapping[bytes, int]
) -> None:
    """Stores the versions of deleted outputs. ``deletions`` has the number of each deletion."""
    additions = []
    for stored, entry in versions:
        if stored.identity in deletions:  # else the output is of another group
            version = entry.version._replace(replaced_seq=deletions[stored.identity])
            additions.append((stored, entry._replace(version=version)))
    await _add(locked, additions)


async def forget(locked: LockedGroup, identities: Collection[bytes]) -> None:
    """Deletes the history of outputs whose next version is not stored in it."""
    many = [(locked.organization_id, identity) for identity in identities]
    await locked.transaction.execute_many(_DELETE_ALL, many)


async def _read(locked: LockedGroup, identities: Collection[bytes]) -> Sequence[_Stored]:
    rows = await locked.transaction.fetch_by_keys(identities, _STORED, locked.organization_id)
    return [_Stored(*row) for row in rows]


async def _large_item(locked: LockedGroup, identity: bytes) -> bytes:
    [[item]] = await locked.transaction.fetch(_LARGE_ITEM, locked.organization_id, identity)
    return bytes(item)


def _version(stored: _Stored, replaced_seq: int) -> Version:
    _, version_seq, seq, last_scraped_at, approved, *_ = stored
    return Version(version_seq, seq, replaced_seq, last_scraped_at, bool(approved))


async def _add(
    locked: LockedGroup, additions: Sequence[tuple[_Stored, Entry]]
) -> Mapping[bytes, int]:
    """Adds an entry to the history of each output. Returns the keys of the open segments."""
    opened, appended, crowded = [], [], []
    segments: dict[bytes, int] = {}
    for stored, entry in additions:
        identity, segment, version = stored.identity, stored.open_segment, entry.version
        key = (locked.organization_id, identity)
        if segment is not None and stored.has_space(locked.keep_versions):
            appended.append((*key, segment, entries.encode(entry)))
            segments[identity] = segment
            continue
        place = (version.seq, locked.group_id, version.replaced_seq)
        opened.append((*key, *place, 1, entries.encode(entry)))
        segments[identity] = version.seq
        if segment is not None or version.is_deleted:
            crowded.append(identity)
    await locked.transaction.execute_many(_APPEND, appended)
    await locked.transaction.execute_many(_OPEN_SEGMENT, opened)
    await _delete_old_segments(locked, crowded)
    return segments


async def _delete_old_segments(locked: LockedGroup, identities: Collection[bytes]) -> None:
    """Deletes the segments that have only versions beyond the number that the group keeps."""
    organization_id = locked.organization_id
    rows = await locked.transaction.fetch_by_keys(identities, _SEGMENTS, organization_id)
    newer = Counter[bytes]()
    old = []
    for identity, seq, version_count in sorted(rows, key=itemgetter(1), reverse=True):
        if newer[identity] >= locked.keep_versions:
            old.append((organization_id, identity, seq))
        newer[identity] += version_count
    await locked.transaction.execute_many(_DELETE_SEGMENT, old)
