"""One output by its ``output_id``: reads the stored item."""

from __future__ import annotations

from gleanery.errors import no_output
from gleanery.storage import group_lock, page_sizes
from gleanery.storage.database import Database
from gleanery.storage.outputs.hashes import parse_output_id

# The plus sign prevents planners from scanning the whole group to find one identity in it.
_SELECT = """
SELECT CASE WHEN octet_length(item) <= $4 THEN item END FROM outputs
WHERE organization_id = $1 AND identity = $2 AND +group_id = (
    SELECT id FROM groups WHERE organization_id = $1 AND name = $3)
"""
_SMALL_ITEM_BYTES = 64 * 1024


async def read_output(database: Database, group: str, output_id: str) -> bytes:
    """Returns the item, as on a page. Raises NotFound if the group has no such output."""
    key = (database.organization_id, parse_output_id(output_id), group)
    rows = await database.read(_SELECT, *key, _SMALL_ITEM_BYTES)
    if rows and rows[0][0] is None:
        rows = await database.read_large(_SELECT, *key, page_sizes.UNLIMITED)
    if not rows:
        await group_lock.require_group(database, group)
        raise no_output()
    item: bytes = rows[0][0]
    return item
