"""The rows of the table outputs: writes the changes of a batch."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from gleanery.service.foundation.values import timestamps
from gleanery.service.resources.history import storing
from gleanery.service.resources.history.storing import NewEntries
from gleanery.service.resources.outputs import approved_view
from gleanery.service.resources.outputs.preparation import PreparedOutput
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
     fields, id, group_id, job_id, created_seq, version_seq)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18)
"""
_UPDATE = """
UPDATE outputs SET
    seq = $3, approved = $4, last_scraped_at = $5, item = $6, sent_hash = $7,
    content_hash = $8, url_hash = $9, country = $10, region = $11, file_ids = $12, fields = $13,
    version_seq = $3, history_seq = $14
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
    || substr(item, 1 + length(item) - {paging.length_from(b',"is_approved"')}) AS BYTEA)
WHERE organization_id = $1 AND identity = $4
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
    await approved_view.copy_approved(
        locked, [row.identity for row in rows if row.replaces_approved]
    )
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


async def write_last_scraped(locked: LockedGroup, identities: Sequence[bytes]) -> None:
    """Write the date of the last scrape of unchanged outputs."""
    now = locked.scrape_time
    values = (locked.organization_id, now, paging.last_scraped_member(now // timestamps.SECOND))
    for start in range(0, len(identities), _UNCHANGED_CHUNK):
        chunk = identities[start : start + _UNCHANGED_CHUNK]
        await locked.transaction.fetch_by_keys(chunk, UPDATE_LAST_SCRAPED, *values)


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
