"""Stores the version of an output that a new one replaces, or that ends with a deletion.

An entry goes to the front of the output's open segment. A full segment stays as it is, and the next
entry opens another one. So the work per version does not grow with the number of versions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple

from gleanery.storage.database import Row
from gleanery.storage.group_lock import LockedGroup
from gleanery.storage.history import entries
from gleanery.storage.history.entries import Entry, Version

_MAX_ITEM_BYTES = 64 * 1024  # larger items are read one by one
_MAX_EARLY_BYTES = 4096  # of an item that a batch reads with the row
# A segment with as many versions or bytes is full. Each append writes the whole segment again.
_SEGMENT_VERSIONS = 10
_SEGMENT_BYTES = 4096
_MAX_BYTES = 8 * 1024 * 1024  # of entries in memory

_COLUMNS = """
    outputs.identity, outputs.version_seq, outputs.seq, outputs.last_scraped_at, outputs.approved,
    CASE WHEN octet_length(outputs.item) <= {} THEN outputs.item END,
    output_history.seq, output_history.version_count, octet_length(output_history.versions)
"""
EARLY_COLUMNS = _COLUMNS.format(_MAX_EARLY_BYTES)
"""The columns of a row in ``Replacement.stored``, without a large item."""
WITH_SEGMENT = """
outputs LEFT JOIN output_history
    ON output_history.organization_id = outputs.organization_id
    AND output_history.identity = outputs.identity AND output_history.seq = outputs.history_seq
WHERE outputs.organization_id = $1 AND outputs.identity = $2
"""
_STORED = f"SELECT {_COLUMNS.format(_MAX_ITEM_BYTES)} FROM {WITH_SEGMENT.lstrip()}"
_STORED_EARLY = f"SELECT {EARLY_COLUMNS} FROM {WITH_SEGMENT.lstrip()}"
_ITEM = 5  # the column; its value is None if the item is large
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
    """The new version of an output, and the present one as ``read_present`` returns it."""

    seq: int
    approved: bool
    item: bytes
    stored: Row


class LastVersion(NamedTuple):
    """The version with which an output ends. It is stored after the deletion has its number."""

    stored: Row
    """A row of ``_STORED``."""
    entry: Entry


async def read_present(locked: LockedGroup, identities: Collection[bytes]) -> Sequence[Row]:
    """Reads the present versions of outputs, for ``Replacement.stored``."""
    key = locked.organization_id
    return await locked.transaction.fetch_by_keys(identities, _STORED_EARLY, key)


async def replaced_versions(
    locked: LockedGroup, replacements: Sequence[Replacement]
) -> ReplacedVersions:
    """Returns the present versions as entries, directly before their rows are updated.

    If they are large, it has written some of them.
    """
    large = [new.stored[0] for new in replacements if new.stored[_ITEM] is None]
    items = {row[0]: row[_ITEM] for row in await _read(locked, large)}
    replaced = ReplacedVersions(locked)
    for seq, approved, new_item, stored in replacements:
        item = stored[_ITEM] or items[stored[0]] or await _large_item(locked, stored)
        entry = await _create_entry(locked, _version(stored, seq), item, new_item, approved)
        replaced.add(stored, entry)
        if replaced.size > _MAX_BYTES:
            await replaced.write()
    return replaced


async def read_last_versions(
    locked: LockedGroup, identities: Collection[bytes]
) -> Sequence[LastVersion]:
    """Reads the versions of outputs that are about to be deleted."""
    if not locked.keep_versions:
        await forget(locked, identities)
        return ()
    versions = []
    for stored in await _read(locked, identities):
        item = stored[_ITEM] or await _large_item(locked, stored)
        version = _version(stored, 0)._replace(is_deleted=True)
        entry = await _create_entry(locked, version, item, None, False)
        versions.append(LastVersion(stored, entry))
    return versions


async def store_last_versions(
    locked: LockedGroup, versions: Sequence[LastVersion], deletions: Mapping[bytes, int]
) -> None:
    """Stores the versions of deleted outputs. ``deletions`` has the number of each deletion."""
    ended = ReplacedVersions(locked)
    for stored, entry in versions:
        if stored[0] in deletions:  # else the output is of another group
            version = entry.version._replace(replaced_seq=deletions[stored[0]])
            ended.add(stored, entry._replace(version=version))
    await ended.write()


async def forget(locked: LockedGroup, identities: Collection[bytes]) -> None:
    """Deletes the history of outputs whose next version is not stored in it."""
    many = [(locked.organization_id, identity) for identity in identities]
    await locked.transaction.execute_many(_DELETE_ALL, many)


async def _read(locked: LockedGroup, identities: Collection[bytes]) -> Sequence[Row]:
    return await locked.transaction.fetch_by_keys(identities, _STORED, locked.organization_id)


def _version(stored: Row, replaced_seq: int) -> Version:
    _, version_seq, seq, last_scraped_at, approved, _, _, _, _ = stored
    return Version(version_seq, seq, replaced_seq, last_scraped_at, bool(approved))


async def _large_item(locked: LockedGroup, stored: Row) -> bytes:
    key = (locked.organization_id, stored[0])
    [[item]] = await locked.transaction.fetch(_LARGE_ITEM, *key)
    return bytes(item)


async def _create_entry(
    locked: LockedGroup, version: Version, item: bytes, newer_item: bytes | None, approved: bool
) -> Entry:
    """Compresses a version. That takes 0.1 seconds for 20 megabytes."""
    if len(item) + len(newer_item or b"") <= 2 * _MAX_ITEM_BYTES:
        return entries.create(version, item, newer_item, approved)
    return await locked.transaction.compute(entries.create, version, item, newer_item, approved)


class ReplacedVersions:
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

    def add(self, stored: Row, entry: Entry) -> None:
        """Adds an entry to the open segment, or to a new one if that is full."""
        identity, _, _, _, _, _, segment, count, size = stored
        organization_id, version = self._locked.organization_id, entry.version
        encoded = entries.encode(entry)
        self.size += len(encoded)
        if segment is not None and count < self._max_count and size < _SEGMENT_BYTES:
            self._appended.append((organization_id, identity, segment, encoded))
            self.segments[identity] = segment
            return
        place = (version.seq, self._locked.group_id, version.replaced_seq)
        self._opened.append((organization_id, identity, *place, 1, encoded))
        self.segments[identity] = version.seq
        if segment is not None or version.is_deleted:
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
