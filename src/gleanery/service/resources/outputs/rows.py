"""The rows of a group's outputs: writes the table outputs, the approved view and file references.

The approved view has each output in its last approved version. An approved output is in the view as
it is. When a new value replaces an approved one, a copy of the approved version stays in the view,
in the table approved_versions. A copy holds the references to its files. Each removal from the view
leaves a tombstone of the view.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from gleanery.service.foundation.errors import MAX_DETAILS, ErrorDetail, ReferenceNotFound
from gleanery.service.foundation.values import timestamps
from gleanery.service.resources.files.references import (
    FileRenderer,
    change_reference_counts,
    split_ids,
)
from gleanery.service.resources.history import storing
from gleanery.service.resources.history.storing import NewEntries
from gleanery.service.resources.outputs.elements import PreparedOutput
from gleanery.service.storage import paging
from gleanery.service.storage.database import Row
from gleanery.service.storage.group_lock import LockedGroup

_CHUNK = 250  # rows that are rendered and written together
_UNCHANGED_CHUNK = 1000  # outputs whose date is written by one statement
_ITEM = 5  # the position of the item in the values of an update

_INSERT = """
INSERT INTO outputs
    (organization_id, identity, seq, approved, last_scraped_at, item,
     sent_hash, content_hash, url_hash, country, region, file_ids,
     fields, run_id, run_change, id, group_id, job_id, created_seq, version_seq)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20)
"""
_UPDATE = """
UPDATE outputs SET
    seq = $3, approved = $4, last_scraped_at = $5, item = $6, sent_hash = $7,
    content_hash = $8, url_hash = $9, country = $10, region = $11, file_ids = $12, fields = $13,
    run_id = $14, run_change = $15, version_seq = $3, history_seq = $16
WHERE organization_id = $1 AND identity = $2
"""
_UPDATE_FIELDS = "UPDATE outputs SET fields = $3 WHERE organization_id = $1 AND identity = $2"
_UPDATE_SENT_HASH = "UPDATE outputs SET sent_hash = $3 WHERE organization_id = $1 AND identity = $2"
UPDATE_SEQ = f"""
UPDATE outputs SET seq = $3, approved = $4, last_scraped_at = $5, view_seq = $7, item = CAST(
    substr(item, 1, length(item) - {paging.length_from(b',"update_date"')}) || $6 AS BYTEA)
WHERE organization_id = $1 AND identity = $2
"""
# It sets no indexed column, not even to the same value, so that no index is written.
UPDATE_LAST_SCRAPED = f"""
UPDATE outputs SET last_scraped_at = $2, item = CAST(
    substr(item, 1, length(item) - {paging.length_from(b',"last_scraped_date"')}) || $3
    || substr(item, 1 + length(item) - {paging.length_from(b',"is_approved"')}) AS BYTEA),
    run_change = CASE WHEN run_id = $4 THEN run_change ELSE 0 END, run_id = $4
WHERE organization_id = $1 AND identity = $5
"""
_UPDATE_RUN_CHANGE = """
UPDATE outputs SET run_change = $3 WHERE organization_id = $1 AND identity = $2
"""


@dataclass(slots=True)
class OutputRow:
    """The row of one output while its batch is applied: as it is stored, then as it will be."""

    identity: bytes
    sent_hash: bytes
    id: int
    content_hash: bytes
    seq: int
    approved: bool
    created_seq: int
    job_id: int
    country: str | None
    file_ids: bytes = b""
    history_seq: int = 0
    fields: bytes | None = None
    """The bitmap of its fields; see ``statistics``."""
    last_scraped_at: int = 0
    run_id: int = 0
    """The run that has sent it last."""
    run_change: int = 0
    """What it counts as in that run; see ``batch_runs``."""
    missing_since: int = 0
    version_seq: int | None = None
    """Where the stored version began, for its history; None if it was not read with the row."""
    item: bytes | None = None
    """The stored item, unless it is large."""
    segment_count: int | None = None
    """Versions in the open segment of its history; None if there is none."""
    segment_size: int = 0
    new_seq: int = 0
    """The number of the change."""
    files_json: bytes = b""
    is_new: bool = False
    replaces_approved: bool = False
    """True if a new value replaces an approved one, which stays in the approved view."""
    sent_hash_changed: bool = False
    new_value: PreparedOutput | None = None


async def write(locked: LockedGroup, rows: Collection[OutputRow]) -> None:
    """Write the new and changed rows of a batch.

    On PostgreSQL other requests run between the chunks, because rendering takes place in the event
    loop.
    """
    remaining = iter(rows)
    while chunk := [*islice(remaining, _CHUNK)]:
        await _write_chunk(locked, chunk)


async def _write_chunk(locked: LockedGroup, rows: Collection[OutputRow]) -> None:
    inserts, updates = [], []
    organization_id, now = locked.organization_id, locked.scrape_time
    for row in rows:
        assert row.new_value is not None
        values = _values(row, row.new_value, organization_id, now)
        if row.is_new:
            numbers = (row.id, locked.group_id, row.job_id, row.created_seq, row.new_seq)
            inserts.append((*values, *numbers))
        else:
            updates.append((row, values))
    execute_many = locked.transaction.execute_many
    await copy_approved(locked, [row.identity for row in rows if row.replaces_approved])
    await execute_many(_INSERT, inserts)
    replaced = await _replaced_entries(locked, updates)
    segments = replaced.segments
    await execute_many(
        _UPDATE, [(*values, segments.get(row.identity, 0)) for row, values in updates]
    )
    await replaced.write()


async def write_sent_hashes(locked: LockedGroup, rows: Iterable[OutputRow]) -> None:
    """Write the hashes of unchanged outputs that were sent in other bytes than before."""
    key = locked.organization_id
    changed = [(key, row.identity, row.sent_hash) for row in rows if row.sent_hash_changed]
    await locked.transaction.execute_many(_UPDATE_SENT_HASH, changed)


async def write_fields(locked: LockedGroup, rows: Iterable[OutputRow]) -> None:
    """Write the bitmaps of unchanged outputs that were not counted before."""
    key = locked.organization_id
    changed = [(key, row.identity, row.fields) for row in rows]
    await locked.transaction.execute_many(_UPDATE_FIELDS, changed)


async def write_last_scraped(locked: LockedGroup, identities: Sequence[bytes], run_id: int) -> None:
    """Write the date of the last scrape of unchanged outputs, and its run."""
    now = locked.scrape_time
    member = paging.last_scraped_member(now // timestamps.SECOND)
    values = (locked.organization_id, now, member, run_id)
    for start in range(0, len(identities), _UNCHANGED_CHUNK):
        chunk = identities[start : start + _UNCHANGED_CHUNK]
        await locked.transaction.fetch_by_keys(chunk, UPDATE_LAST_SCRAPED, *values)


async def write_last_scraped_of_runs(
    locked: LockedGroup, outputs: Iterable[tuple[bytes, int]]
) -> None:
    """Do the same for outputs of several runs, without a statement for each run."""
    now = locked.scrape_time
    values = (locked.organization_id, now, paging.last_scraped_member(now // timestamps.SECOND))
    await locked.transaction.execute_many(
        UPDATE_LAST_SCRAPED, [(*values, run_id, identity) for identity, run_id in outputs]
    )


async def write_run_changes(locked: LockedGroup, changes: Iterable[tuple[bytes, int]]) -> None:
    """Write what unchanged outputs count as in a run that has sent them before."""
    key = locked.organization_id
    await locked.transaction.execute_many(
        _UPDATE_RUN_CHANGE, [(key, identity, change) for identity, change in changes]
    )


async def _replaced_entries(
    locked: LockedGroup, updates: Sequence[tuple[OutputRow, Row]]
) -> NewEntries:
    """Return the versions that the updates replace, for the history."""
    replacements = []
    if locked.keep_versions:
        kept = ((row, values) for row, values in updates if row.version_seq is not None)
        replacements = [(row, values[_ITEM]) for row, values in kept]
    else:
        await storing.forget(locked, [row.identity for row, _ in updates if row.history_seq])
    return await storing.replaced_entries(locked, replacements)


def seq_update(
    locked: LockedGroup,
    identity: bytes,
    seq: int,
    approved: bool,
    last_scraped_at: int,
    view_seq: int,
) -> Row:
    """Return the values of ``UPDATE_SEQ`` for one output."""
    suffix = paging.mutable_suffix(seq, last_scraped_at, approved)
    return (locked.organization_id, identity, seq, approved, last_scraped_at, suffix, view_seq)


def _values(row: OutputRow, value: PreparedOutput, organization_id: int, now: int) -> Row:
    """Return the values that an insert and an update have in common."""
    suffix = paging.mutable_suffix(row.new_seq, now, row.approved)
    return (
        organization_id,
        row.identity,
        row.new_seq,
        row.approved,
        now,
        _render(row, value, suffix),
        row.sent_hash,
        row.content_hash,
        value.url_hash,
        row.country,
        value.region,
        row.file_ids,
        row.fields,
        row.run_id,
        row.run_change,
    )


def _render(row: OutputRow, value: PreparedOutput, suffix: bytes) -> bytes:
    """Render an item. The value's hash stands directly before the suffix; see ``history``."""
    return b'%s%d%s,"create_date":"%s","files":[%s],"value_hash":"%s"%s' % (
        value.json_before_id,
        row.id,
        value.json_after_id,
        timestamps.render_microseconds(row.created_seq).encode(),
        row.files_json,
        value.value_hash,
        suffix,
    )


# --- the approved view --------------------------------------------------------------------------

_COPIED_COLUMNS = """
organization_id, identity, id, group_id, job_id, seq, view_seq, version_seq, url_hash, country,
region, file_ids, item
"""
_COPY = f"""
INSERT INTO approved_versions ({_COPIED_COLUMNS})
SELECT {_COPIED_COLUMNS} FROM outputs WHERE organization_id = $1 AND identity = $2
"""
_DELETE_COPY = """
DELETE FROM approved_versions WHERE organization_id = $1 AND identity = $2 RETURNING file_ids
"""
_SUFFIX = paging.mutable_suffix(0, 0, approved=True)
_UPDATE_DATE_START = len(_SUFFIX) - _SUFFIX.index(b',"update_date"')  # from the end of an item
_UPDATE_DATE_END = len(_SUFFIX) - _SUFFIX.index(b',"last_scraped_date"')
_COPIES_UNTIL = """
SELECT identity, octet_length(item) FROM approved_versions
WHERE organization_id = $1 AND group_id = $2 AND seq <= $3 ORDER BY seq LIMIT $4
"""
_UPDATE_COPY_SEQ = f"""
UPDATE approved_versions SET seq = $3, item = CAST(
    substr(item, 1, length(item) - {_UPDATE_DATE_START}) || $4
    || substr(item, 1 + length(item) - {_UPDATE_DATE_END}) AS BYTEA)
WHERE organization_id = $1 AND identity = $2
"""
_COPIES_STORED_UNTIL = """
SELECT identity FROM approved_versions
WHERE organization_id = $1 AND version_seq <= $2 AND identity = $3
"""
_INSERT_VIEW_TOMBSTONE = """
INSERT INTO view_tombstones (organization_id, group_id, seq, id, identity, job_name, reason)
SELECT organization_id, $2, $3, $4, $5, name, $7 FROM jobs WHERE organization_id = $1 AND id = $6
"""
_COPIES_CHUNK = 1000
_MAX_COPIED_BYTES = 16 * 1024 * 1024  # of the copies that one transaction changes


class Removal(NamedTuple):
    """The removal of an output from the view, at a position in the change order."""

    seq: int
    id: int
    identity: bytes
    job_id: int
    reason: str | None = None


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
    rows = await locked.transaction.fetch_by_keys(identities, _COPIES_STORED_UNTIL, *key)
    return {identity for [identity] in rows}


async def delete_copies(locked: LockedGroup, identities: Collection[bytes]) -> None:
    """Delete the copies of these outputs, and their references to files."""
    deleted = await locked.transaction.fetch_by_keys(
        identities, _DELETE_COPY, locked.organization_id
    )
    count_changes = Counter[bytes]()
    for [file_ids] in deleted:
        count_changes.subtract(split_ids(file_ids))
    if count_changes:
        await change_reference_counts(locked, count_changes)


async def resend_copies(locked: LockedGroup, until_seq: int) -> int:
    """Give the first copies up to this number new ones, so that clients read them again.

    Return the number of copies.
    """
    group_key = (locked.organization_id, locked.group_id)
    rows = await locked.transaction.fetch(_COPIES_UNTIL, *group_key, until_seq, _COPIES_CHUNK)
    count = paging.count_fitting([size for _, size in rows], _MAX_COPIED_BYTES)
    locked.refresh_time()
    updates = []
    for identity, size in rows[:count]:
        seq = locked.next_sequence_number(size)
        updates.append((locked.organization_id, identity, seq, paging.update_member(seq)))
    await locked.transaction.execute_many(_UPDATE_COPY_SEQ, updates)
    return count


async def add_view_tombstones(locked: LockedGroup, removals: Sequence[Removal]) -> None:
    """Record removals from the view."""
    group_key = (locked.organization_id, locked.group_id)
    await locked.transaction.execute_many(
        _INSERT_VIEW_TOMBSTONE, [(*group_key, *removal) for removal in removals]
    )


# --- references to files ------------------------------------------------------------------------

_FILE_NOT_FOUND = "Your organization has no file with this id"


async def reference_files(
    locked: LockedGroup, stored: Collection[OutputRow], changed: Sequence[PreparedOutput]
) -> None:
    """Render the files that the new values reference, and update the files' reference counts."""
    requested = {file.id for output in changed for file in output.files if file.id is not None}
    affected = [
        (row, row.new_value)
        for row in stored
        if row.new_value is not None and (row.new_value.files or row.file_ids)
    ]
    if not affected and not requested:
        return
    count_changes = Counter(dict.fromkeys(requested, 0))
    for row, value in affected:
        count_changes.update(file.id for file in value.files if file.id is not None)
        if not row.replaces_approved:  # else the copy in the approved view keeps the references
            count_changes.subtract(split_ids(row.file_ids))
    found = await change_reference_counts(locked, count_changes) if count_changes else {}
    _check_existence(changed, found)
    renderer = FileRenderer(found, locked.now)
    for row, value in affected:
        row.files_json, row.file_ids = renderer.render(value.files)


def _check_existence(changed: Sequence[PreparedOutput], found: Collection[bytes]) -> None:
    positions = {output.position for output in changed if any(_missing_files(output, found))}
    if positions:
        details = (detail for output in changed for detail in _missing_files(output, found))
        first = islice(details, MAX_DETAILS + 1)  # one more, so that the error can say so
        raise ReferenceNotFound(*first, positions=positions)


def _missing_files(output: PreparedOutput, found: Collection[bytes]) -> Iterator[ErrorDetail]:
    for index, file in enumerate(output.files):
        if file.id is not None and file.id not in found:
            loc = ("body", str(output.position), "files", str(index), "id")
            yield ErrorDetail(loc, _FILE_NOT_FOUND, "not_found")
