"""Writes of the approved view, which has each output in its last approved version.

An approved output is in the view as it is. When a new value replaces an approved one, a copy of the
approved version stays in the view, in the table approved_versions. A copy holds the references to
its files. Each removal from the view leaves a tombstone of the view.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from gleanery.service.resources.files.references import change_reference_counts, split_ids
from gleanery.service.storage import paging
from gleanery.service.storage.group_lock import LockedGroup

_COLUMNS = """
organization_id, identity, id, group_id, job_id, seq, view_seq, version_seq, url_hash, country,
region, file_ids, item
"""
_COPY = f"""
INSERT INTO approved_versions ({_COLUMNS})
SELECT {_COLUMNS} FROM outputs WHERE organization_id = $1 AND identity = $2
"""
_DELETE_COPY = """
DELETE FROM approved_versions WHERE organization_id = $1 AND identity = $2 RETURNING file_ids
"""
_SUFFIX = paging.mutable_suffix(0, 0, approved=True)
_UPDATE_DATE_START = len(_SUFFIX) - _SUFFIX.index(b',"update_date"')  # from the end of an item
_UPDATE_DATE_END = len(_SUFFIX) - _SUFFIX.index(b',"last_scraped_date"')
_RANGE = """
SELECT identity, octet_length(item) FROM approved_versions
WHERE organization_id = $1 AND group_id = $2 AND seq <= $3 ORDER BY seq LIMIT $4
"""
_UPDATE_SEQ = f"""
UPDATE approved_versions SET seq = $3, item = CAST(
    substr(item, 1, length(item) - {_UPDATE_DATE_START}) || $4
    || substr(item, 1 + length(item) - {_UPDATE_DATE_END}) AS BYTEA)
WHERE organization_id = $1 AND identity = $2
"""
_STORED_UNTIL = """
SELECT identity FROM approved_versions
WHERE organization_id = $1 AND version_seq <= $2 AND identity = $3
"""
_INSERT_TOMBSTONE = """
INSERT INTO view_tombstones (organization_id, group_id, seq, id, identity, job_name)
SELECT organization_id, $2, $3, $4, $5, name FROM jobs WHERE organization_id = $1 AND id = $6
"""
_BATCH_SIZE = 1000
_MAX_BYTES = 16 * 1024 * 1024  # of the copies that one transaction changes


class Removal(NamedTuple):
    """The removal of an output from the view, at a position in the change order."""

    seq: int
    id: int
    identity: bytes
    job_id: int


async def copy_approved(locked: LockedGroup, identities: Iterable[bytes]) -> None:
    """Copy approved outputs, before new values replace them.

    Each copy takes over the references to files.
    """
    keys = [(locked.organization_id, identity) for identity in identities]
    await locked.transaction.execute_many(_COPY, keys)


async def copies_stored_until(
    locked: LockedGroup, identities: Collection[bytes], seq: int
) -> set[bytes]:
    """Return the outputs of which the view has a copy that was stored up to this number."""
    key = (locked.organization_id, seq)
    rows = await locked.transaction.fetch_by_keys(identities, _STORED_UNTIL, *key)
    return {identity for [identity] in rows}


async def delete_copies(locked: LockedGroup, identities: Collection[bytes]) -> None:
    """Delete the copies of these outputs, and their references to files."""
    deleted = await locked.transaction.fetch_by_keys(
        identities, _DELETE_COPY, locked.organization_id
    )
    references = Counter[bytes]()
    for [file_ids] in deleted:
        references.subtract(split_ids(file_ids))
    if references:
        await change_reference_counts(locked, references)


async def resend_copies(locked: LockedGroup, until_seq: int) -> int:
    """Give the first copies up to this number new ones, so that clients read them again.

    Return the number of copies.
    """
    group_key = (locked.organization_id, locked.group_id)
    rows = await locked.transaction.fetch(_RANGE, *group_key, until_seq, _BATCH_SIZE)
    count = paging.count_fitting([size for _, size in rows], _MAX_BYTES)
    locked.refresh_time()
    updates = []
    for identity, size in rows[:count]:
        seq = locked.next_sequence_number(size)
        updates.append((locked.organization_id, identity, seq, paging.update_member(seq)))
    await locked.transaction.execute_many(_UPDATE_SEQ, updates)
    return count


async def add_tombstones(locked: LockedGroup, removals: Sequence[Removal]) -> None:
    """Record removals from the view."""
    group_key = (locked.organization_id, locked.group_id)
    await locked.transaction.execute_many(
        _INSERT_TOMBSTONE, [(*group_key, *removal) for removal in removals]
    )
