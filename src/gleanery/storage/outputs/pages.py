"""A page of outputs: finds stored items by index seeks, in the change order, and joins them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from gleanery.models.requests import OutputQuery
from gleanery.storage import group_lock, page_sizes
from gleanery.storage.database import ITEM_SEPARATOR, Database, Page, PageRead, PageTooLarge, Row
from gleanery.storage.outputs.hashes import url_hash
from gleanery.values import countries

_GROUP_ID = "(SELECT id FROM groups WHERE organization_id = $1 AND name = $2)"
_IN_GROUP = f"outputs.organization_id = $1 AND outputs.group_id = {_GROUP_ID}"
_INDEXES = {
    "job_id": "outputs_by_job",
    "url_hash": "outputs_by_url",
    "country": "outputs_by_country",
    "region": "outputs_by_region",
    "approved": "outputs_by_approval",
}
_FILTER_VALUES = {
    "job_id": f"""(SELECT id FROM jobs
        WHERE organization_id = $1 AND group_id = {_GROUP_ID} AND name = ${{}})""",
    "url_hash": "${}",
    "country": "${}",
    "region": "${}",
    "approved": "${}",
}
# The text of an item. If it is longer than a parameter, PostgreSQL returns null, and SQLite raises
# TooBigError at once, because no value can have that many bytes.
_ITEM = "CASE WHEN octet_length(item) <= {} THEN item /* ELSE zeroblob(1000000000000) */ END"
_MAX_EXTRA_STEPS = 1000  # of a search with several filters, beside one step for each item


async def read_page(
    database: Database, group: str, query: OutputQuery, cursor: int, max_bytes: int
) -> Page:
    """Reads the outputs after the cursor, oldest change first, with at most this many bytes.

    A page has at least one item if there is one. But a search with several filters does bounded
    work, so its page may be empty and still have a next cursor.
    """
    read = page_read(database.organization_id, group, query, cursor, max_bytes)
    try:
        page = await database.read_page(read)
    except PageTooLarge:
        page = await _read_large_page(database, read, max_bytes)
    if not page.parts and page.next_cursor is None:
        await group_lock.require_group(database, group)
    return page


def page_read(
    organization_id: int, group: str, query: OutputQuery, cursor: int, max_bytes: int
) -> PageRead:
    """Describes the read of the outputs after the cursor. The group may not exist."""
    search, values = _search(query.job_id, query.url, query.country, query.region, query.approved)
    after = cursor
    if query.created_after is not None:  # a sequence number is a timestamp in microseconds
        after = max(after, query.created_after - 1)
    limit, max_bytes = query.limit, max_bytes // page_sizes.LINK_GROWTH
    if search.has_steps:
        values = (*values, limit + _MAX_EXTRA_STEPS)
    max_item_bytes = page_sizes.max_item_bytes(max_bytes, limit)
    return PageRead(
        organization_id,
        search.items,
        limit,
        (organization_id, group, after, *values, max_item_bytes),
        max_bytes,
        search.sizes,
    )


# --- large pages --------------------------------------------------------------------------------


async def _read_large_page(database: Database, read: PageRead, max_bytes: int) -> Page:
    """Reads the sizes of the items, and then as many items as fit, in parts.

    Other requests run between two parts. An output that changes meanwhile gets a new sequence
    number after this page, so it is left out here and is on a later page. Therefore a page from
    which an output is missing is never the last one.
    """
    *values, _ = read.values
    rows = await database.read(f"{read.sizes} LIMIT ${len(values) + 1}", *values, read.limit + 1)
    sizes = [size for _, size in rows[: read.limit] if size]  # 0: the search stopped there
    count = page_sizes.count_fitting(sizes, max_bytes)
    parts: list[bytes] = []
    after, missing = read.values[2], count
    for part in page_sizes.split(rows[:count]):
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
    sql = f"SELECT item FROM ({read.search} LIMIT ${number}) AS part WHERE seq <= ${number + 1}"
    bounds = (page_sizes.UNLIMITED, len(part), part[-1][0])
    rows = await database.read_large(sql, organization_id, group, after, *values, *bounds)
    return [row[0] for row in rows if row[0]]


# --- the search ---------------------------------------------------------------------------------


class _Search(NamedTuple):
    """The statements that find a page, for one set of filters."""

    items: str
    """Finds seq and item. Its last parameter is the maximum length of an item."""
    sizes: str
    """Finds seq and the size of the item."""
    has_steps: bool
    """True if the parameter after the filters is the maximum number of steps."""


@lru_cache(maxsize=64)  # small, because the values can be long
def _search(
    job_id: str | None,
    url: str | None,
    country: str | None,
    region: str | None,
    approved: str | None,
) -> tuple[_Search, tuple[str | bytes | int, ...]]:
    """Returns the search for these filters, and the values of its filter parameters."""
    filters = {
        "job_id": job_id,
        "url_hash": None if url is None else url_hash(url),
        "country": None if country is None else countries.country_key(country) or "",
        "region": region,
        "approved": None if approved is None else approved == "true",
    }
    given = {column: value for column, value in filters.items() if value is not None}
    return statements(tuple(given)), tuple(given.values())


@lru_cache(maxsize=64)
def statements(columns: tuple[str, ...]) -> _Search:
    """Returns the search with filters of these columns. Each filter uses the column's index."""
    has_steps = len(columns) > 1
    max_item_bytes = f"${4 + len(columns) + has_steps}"
    item = _ITEM.format(max_item_bytes)
    return _Search(
        _statement(columns, item, "item", "CAST('' AS BYTEA)"),
        _statement(columns, page_sizes.ITEM_SIZE, "size", "0"),
        has_steps,
    )


def _statement(columns: tuple[str, ...], value: str, name: str, stop_value: str) -> str:
    """Returns the statement that finds seq and a value of each output."""
    rows = [
        f"{_indexed(_INDEXES[column])} AND {column} = {_FILTER_VALUES[column].format(number)}"
        for number, column in enumerate(columns, 4)
    ]
    if len(rows) > 1:
        return intersect_indexes(rows, value, name, stop_value, f"${4 + len(rows)}")
    [found] = rows or [_indexed("outputs_in_order")]
    return f"SELECT seq, {value} AS {name} FROM {found} AND seq > $3 ORDER BY seq"


def _indexed(index: str) -> str:
    """Returns the rows of the group. SQLite must use the index; PostgreSQL ignores the comment."""
    return f"outputs /* INDEXED BY {index} */ WHERE {_IN_GROUP}"


def intersect_indexes(
    rows: Sequence[str], value: str, name: str, stop_value: str, max_steps: str
) -> str:
    """Returns a skip-scan join: it finds the rows that meet several conditions, each by its index.

    A step takes the next sequence number of the first index (``low``). From there it seeks the next
    number of the second index, and so on (``high``). If both are equal, the row meets every
    condition. If not, the next step skips to ``high``. There are at most as many steps as the
    rarest condition has rows. The value is a subquery, because a planner could reverse a join.

    If the number of steps reaches the maximum, the last row is the place where the search stopped.
    It has the stop value instead of a value, and its row may meet every condition or not.
    """
    low = _seek(rows[0], ">", "{}")
    high = low
    for more in rows[1:]:
        high = _seek(more, ">=", high)
    after = "CASE WHEN low = high THEN low ELSE high - 1 END"
    return f"""
WITH RECURSIVE skip_scan (low, high, steps) AS (
    SELECT {low.format("$3")}, {high.format("$3")}, 1
    UNION ALL
    SELECT {low.format(after)}, {high.format(after)}, steps + 1 FROM skip_scan
    WHERE high IS NOT NULL AND steps < {max_steps})
SELECT high AS seq, CASE WHEN steps < {max_steps}
    THEN (SELECT {value} FROM {_indexed("outputs_in_order")} AND seq = high)
    ELSE {stop_value} END AS {name}
FROM skip_scan WHERE low = high OR high IS NOT NULL AND steps >= {max_steps}
"""


def _seek(rows: str, comparison: str, seq: str) -> str:
    """Returns the subquery for the next sequence number of an index."""
    return f"(SELECT seq FROM {rows} AND seq {comparison} {seq} ORDER BY seq LIMIT 1)"
