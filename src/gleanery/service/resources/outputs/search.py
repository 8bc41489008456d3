"""Reading outputs: pages of a search in the change order, and one output by its ``output_id``.

Theory of operation
    A search covers all outputs of a group, or its approved view, with any filters. It has a
    position and a direction, and it finds the outputs after the position in the change order.

    - A page ends at the limit of items, at the limit of bytes, or at the limit of steps. A step is
      a row that a search with several filters inspects. Therefore a page with a next cursor can be
      short, and with several filters even empty.
    - A page without a next cursor is the end. A cursor is a sequence number: the page after it
      begins with the next greater one.
    - An output that changes gets a greater sequence number. So it can disappear from
      a page that the client has not read yet, but then it is on a later page. No output is missed.
    - The limits bound the work of a request: each statement seeks in an index, and reads no row
      that its page does not need.

    A small page is one statement. If it has too many bytes, the statement fails at once, and the
    page is read in two stages: the sizes of the items, then as many items as fit, in parts.

    ::

        handlers, read batches
          └─ read_page                  reads a page
              ├─ page_read              describes the read; its statement runs in the storage
              ├─ search_for             chooses statements for the filters, and their values
              │   └─ search_statements  writes the SQL once per set of filters
              └─ _read_large_page       sizes, then items in parts
        console_rows, exports.snapshots use search_for with other columns or the other direction

See ``docs/explanation/reading-outputs.md`` and ``docs/explanation/approved-view.md``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import lru_cache

from gleanery.service.foundation.errors import no_output
from gleanery.service.foundation.values import countries
from gleanery.service.resources.outputs.elements import SITE_PREFIX, parse_output_id, url_hash
from gleanery.service.resources.outputs.models import OutputFilters, OutputQuery
from gleanery.service.resources.outputs.search_statements import (
    OLDEST_FIRST,
    Direction,
    Search,
    statements,
)
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

_MAX_EXTRA_STEPS = 1000  # of a search with several filters, in addition to one step for each item
# The plus sign prevents planners from scanning the whole group to find one identity in it.
_SELECT_FROM = """
SELECT CASE WHEN octet_length(item) <= $4 THEN item END FROM {}
WHERE organization_id = $1 AND identity = $2 AND +group_id = (
    SELECT id FROM groups WHERE organization_id = $1 AND name = $3)
"""
_SELECT_OUTPUT = _SELECT_FROM.format("outputs")
_SELECT_APPROVED = _SELECT_FROM.format("approved_versions")
_SELECT_VALUE_SEQ = "SELECT version_seq FROM outputs WHERE organization_id = $1 AND identity = $2"
_SMALL_ITEM_BYTES = 64 * 1024


# --- the search for a query ---------------------------------------------------------------------


def search_for(
    filters: OutputFilters, direction: Direction = OLDEST_FIRST
) -> tuple[Search, tuple[str | bytes | int, ...]]:
    """Return the search for these filters, and the values of its filter parameters."""
    return _search(
        filters.job_id,
        filters.url,
        filters.country,
        filters.region,
        filters.approved,
        filters.view == "approved",
        filters.missing is not None,
        direction,
    )


def position_before(filters: OutputFilters) -> int:
    """Return the position after which the outputs of ``created_after`` are."""
    # A sequence number is a timestamp in microseconds.
    return 0 if filters.created_after is None else filters.created_after - 1


def max_steps(limit: int) -> int:
    """Return the maximum number of steps of a search with several filters."""
    return limit + _MAX_EXTRA_STEPS


@lru_cache(maxsize=64)  # small, because the values can be long
def _search(
    job_id: str | None,
    url: str | None,
    country: str | None,
    region: str | None,
    approved: str | None,
    in_view: bool,
    missing: bool,
    direction: Direction,
) -> tuple[Search, tuple[str | bytes | int, ...]]:
    filters = {
        "job_id": job_id,
        "url_hash": None if url is None else _url_hashes(url),
        "country": None if country is None else countries.country_key(country) or "",
        "region": region,
        "approved": None if approved is None else approved == "true",
        "missing_since": 0 if missing else None,
    }
    given = {column: value for column, value in filters.items() if value is not None}
    values = tuple(given.values())
    if in_view and job_id is None:
        values = (True, *values)
    return statements(tuple(given), in_view, direction), values


def _url_hashes(url: str) -> bytes:
    """Return both hashes of the URL; the statement chooses the one that the group has."""
    return url_hash(url, SITE_PREFIX - 1) + url_hash(url, SITE_PREFIX)


# --- pages --------------------------------------------------------------------------------------


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

    Other requests run between two parts. An output that changes in between gets a new sequence
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


# --- one output ---------------------------------------------------------------------------------


async def read_output(database: Database, group: str, output_id: str) -> bytes:
    """Return the item, as on a page. Raise NotFound if the group has no such output."""
    item = await _read_item(database, _SELECT_OUTPUT, group, output_id)
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
    return await _read_item(database, _SELECT_APPROVED, group, output_id)


async def _read_item(database: Database, select: str, group: str, output_id: str) -> bytes | None:
    key = (database.organization_id, parse_output_id(output_id), group)
    rows = await database.read(select, *key, _SMALL_ITEM_BYTES)
    if rows and rows[0][0] is None:
        rows = await database.read_large(select, *key, paging.UNLIMITED)
    return rows[0][0] if rows else None
