"""A page of outputs: reads stored items in the change order, and joins them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from gleanery.service.resources.outputs.models import OutputQuery
from gleanery.service.resources.outputs.search import max_steps, position_before, search_for
from gleanery.service.storage import group_lock, paging
from gleanery.service.storage.database import (
    ITEM_SEPARATOR,
    Database,
    Page,
    PageRead,
    PageTooLarge,
    Row,
)
from gleanery.service.storage.paging import Hold, hold_nothing


async def read_page(
    database: Database,
    group: str,
    query: OutputQuery,
    cursor: int,
    max_bytes: int,
    hold: Hold = hold_nothing,
) -> Page:
    """Read the outputs after the cursor, oldest change first, with at most this many bytes.

    A page has at least one item if there is one. But a search with several filters does bounded
    work, so its page may be empty and still have a next cursor.
    """
    read = page_read(database.organization_id, group, query, cursor, max_bytes)
    try:
        page = await database.read_page(read)
    except PageTooLarge:
        page = await _read_large_page(database, read, max_bytes, hold)
    if not page.parts and page.next_cursor is None:
        await group_lock.require_group(database, group)
    return page


def page_read(
    organization_id: int, group: str, query: OutputQuery, cursor: int, max_bytes: int
) -> PageRead:
    """Describe the read of the outputs after the cursor. The group may not exist."""
    search, values = search_for(query)
    after = max(cursor, position_before(query))
    limit, max_bytes = query.limit, max_bytes // paging.LINK_GROWTH
    if search.has_steps:
        values = (*values, max_steps(limit))
    max_item_bytes = paging.max_item_bytes(max_bytes, limit)
    return PageRead(
        organization_id,
        search.items,
        limit,
        (organization_id, group, after, *values, max_item_bytes),
        max_bytes,
        search.sizes,
    )


# --- large pages --------------------------------------------------------------------------------


async def _read_large_page(database: Database, read: PageRead, max_bytes: int, hold: Hold) -> Page:
    """Read the sizes of the items, and then as many items as fit, in parts.

    Other requests run between two parts. An output that changes meanwhile gets a new sequence
    number after this page, so it is left out here and is on a later page. Therefore a page from
    which an output is missing is never the last one.
    """
    *values, _ = read.values
    sql = read.sizes.within("", f" LIMIT ${len(values) + 1}")
    rows = await database.read(sql, *values, read.limit + 1)
    sizes = [size for _, size in rows[: read.limit] if size]  # 0: the search stopped there
    count = paging.count_fitting(sizes, max_bytes)
    parts: list[bytes] = []
    after, missing = read.values[2], count
    page_bytes = sum(sizes[:count])
    for part in paging.split(rows[:count]):
        hold(page_bytes)
        items = await _read_items(database, read, after, part)
        after, missing = part[-1][0], missing - len(items)
        if items:
            parts.append((ITEM_SEPARATOR if parts else b"") + ITEM_SEPARATOR.join(items))
        await asyncio.sleep(0)
    if count < len(rows):
        return Page(tuple(parts), rows[count][0] - 1)
    return Page(tuple(parts), after if missing else None)


async def _read_items(
    database: Database, read: PageRead, after: int, part: Sequence[Row]
) -> list[bytes]:
    organization_id, group, _, *values, _ = read.values
    number = len(read.values) + 1
    sql = read.search.within(
        "SELECT item FROM (", f" LIMIT ${number}) AS part WHERE seq <= ${number + 1}"
    )
    bounds = (paging.UNLIMITED, len(part), part[-1][0])
    rows = await database.read_large(sql, organization_id, group, after, *values, *bounds)
    return [row[0] for row in rows if row[0]]
