"""One output by its ``output_id``: reads the stored item, and its last approved version."""

from __future__ import annotations

from gleanery.service.foundation.errors import no_output
from gleanery.service.resources.outputs.hashes import parse_output_id
from gleanery.service.storage import group_lock, paging
from gleanery.service.storage.database import Database

# The plus sign prevents planners from scanning the whole group to find one identity in it.
_SELECT_FROM = """
SELECT CASE WHEN octet_length(item) <= $4 THEN item END FROM {}
WHERE organization_id = $1 AND identity = $2 AND +group_id = (
    SELECT id FROM groups WHERE organization_id = $1 AND name = $3)
"""
_SELECT = _SELECT_FROM.format("outputs")
_SELECT_APPROVED = _SELECT_FROM.format("approved_versions")
_SELECT_VALUE_SEQ = "SELECT version_seq FROM outputs WHERE organization_id = $1 AND identity = $2"
_SMALL_ITEM_BYTES = 64 * 1024


async def read_output(database: Database, group: str, output_id: str) -> bytes:
    """Return the item, as on a page. Raise NotFound if the group has no such output."""
    item = await _read(database, _SELECT, group, output_id)
    if item is None:
        await group_lock.require_group(database, group)
        raise no_output()
    return item


async def read_value_seq(database: Database, output_id: str) -> int:
    """Return the sequence number at which the value of an output was stored; 0 without one."""
    key = (database.organization_id, parse_output_id(output_id))
    rows = await database.read(_SELECT_VALUE_SEQ, *key)
    return rows[0][0] if rows else 0


async def read_approved_version(database: Database, group: str, output_id: str) -> bytes | None:
    """Return the last approved version if the output has a newer value; else None."""
    return await _read(database, _SELECT_APPROVED, group, output_id)


async def _read(database: Database, select: str, group: str, output_id: str) -> bytes | None:
    key = (database.organization_id, parse_output_id(output_id), group)
    rows = await database.read(select, *key, _SMALL_ITEM_BYTES)
    if rows and rows[0][0] is None:
        rows = await database.read_large(select, *key, paging.UNLIMITED)
    return rows[0][0] if rows else None
