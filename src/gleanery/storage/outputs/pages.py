"""A page of outputs: finds stored items by index seeks, in the change order, and joins them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from gleanery.models.requests import OutputFilters, OutputQuery
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
# The id and the text of an output for an export: 0 and empty if it was created after the export
# began, -1 and empty where a search with several filters stopped.
_LINE_ID = "CASE WHEN created_seq <= {} THEN id ELSE 0 END"
_LINE = "CASE WHEN created_seq > {} THEN CAST('' AS BYTEA) ELSE {} END"
_EMPTY = "CAST('' AS BYTEA)"
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
    search, values = search_for(query)
    after = max(cursor, position_before(query))
    limit, max_bytes = query.limit, max_bytes // page_sizes.LINK_GROWTH
    if search.has_steps:
        values = (*values, max_steps(limit))
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


class Search(NamedTuple):
    """The statements that find outputs in the change order, for one set of filters.

    Their parameters are the organization, the group, the position after which they search, the
    values of the filters, and the maximum number of steps if there are several filters.
    """

    items: str
    """Finds seq and item. Its last parameter is the maximum length of an item."""
    sizes: str
    """Finds seq and the size of the item."""
    lines: str
    """Finds seq, id and item for an export.

    Its last parameters are the position where the export began, and the maximum length of an item.
    """
    has_steps: bool
    """True if the parameter after the filters is the maximum number of steps."""


def search_for(filters: OutputFilters) -> tuple[Search, tuple[str | bytes | int, ...]]:
    """Returns the search for these filters, and the values of its filter parameters."""
    return _search(filters.job_id, filters.url, filters.country, filters.region, filters.approved)


def position_before(filters: OutputFilters) -> int:
    """Returns the position after which the outputs of ``created_after`` are."""
    # A sequence number is a timestamp in microseconds.
    return 0 if filters.created_after is None else filters.created_after - 1


def max_steps(limit: int) -> int:
    """Returns the maximum number of steps of a search with several filters."""
    return limit + _MAX_EXTRA_STEPS


@lru_cache(maxsize=64)  # small, because the values can be long
def _search(
    job_id: str | None,
    url: str | None,
    country: str | None,
    region: str | None,
    approved: str | None,
) -> tuple[Search, tuple[str | bytes | int, ...]]:
    filters = {
        "job_id": job_id,
        "url_hash": None if url is None else url_hash(url),
        "country": None if country is None else countries.country_key(country) or "",
        "region": region,
        "approved": None if approved is None else approved == "true",
    }
    given = {column: value for column, value in filters.items() if value is not None}
    return statements(tuple(given)), tuple(given.values())


class _Column(NamedTuple):
    """A value that a search finds beside seq."""

    value: str
    name: str
    stop_value: str
    """Value of the row where a search with several filters stopped."""


@lru_cache(maxsize=64)
def statements(columns: tuple[str, ...]) -> Search:
    """Returns the search with filters of these columns. Each filter uses the column's index."""
    has_steps = len(columns) > 1
    first, second = (f"${number + len(columns) + has_steps}" for number in (4, 5))
    line = _LINE.format(first, _ITEM.format(second))
    return Search(
        _statement(columns, _Column(_ITEM.format(first), "item", _EMPTY)),
        _statement(columns, _Column(page_sizes.ITEM_SIZE, "size", "0")),
        _statement(
            columns,
            _Column(_LINE_ID.format(first), "id", "-1"),
            _Column(line, "item", _EMPTY),
        ),
        has_steps,
    )


def _statement(columns: tuple[str, ...], *selected: _Column) -> str:
    """Returns the statement that finds seq and the selected values of each output."""
    rows = [
        f"{_indexed(_INDEXES[column])} AND {column} = {_FILTER_VALUES[column].format(number)}"
        for number, column in enumerate(columns, 4)
    ]
    if len(rows) > 1:
        return intersect_indexes(rows, selected, f"${4 + len(rows)}")
    [found] = rows or [_indexed("outputs_in_order")]
    values = ", ".join(f"{value} AS {name}" for value, name, _ in selected)
    return f"SELECT seq, {values} FROM {found} AND seq > $3 ORDER BY seq"


def _indexed(index: str) -> str:
    """Returns the rows of the group. SQLite must use the index; PostgreSQL ignores the comment."""
    return f"outputs /* INDEXED BY {index} */ WHERE {_IN_GROUP}"


def intersect_indexes(rows: Sequence[str], selected: Sequence[_Column], max_steps: str) -> str:
    """Returns a skip-scan join: it finds the rows that meet several conditions, each by its index.

    A step takes the next sequence number of the first index (``low``). From there it seeks the next
    number of the second index, and so on (``high``). If both are equal, the row meets every
    condition. If not, the next step skips to ``high``. There are at most as many steps as the
    rarest condition has rows. A value is a subquery, because a planner could reverse a join.

    If the number of steps reaches the maximum, the last row is the place where the search stopped.
    It has stop values instead of values, and its row may meet every condition or not.
    """
    low = _seek(rows[0], ">", "{}")
    high = low
    for more in rows[1:]:
        high = _seek(more, ">=", high)
    after = "CASE WHEN low = high THEN low ELSE high - 1 END"
    values = ", ".join(
        f"""CASE WHEN steps < {max_steps}
    THEN (SELECT {value} FROM {_indexed("outputs_in_order")} AND seq = high)
    ELSE {stop_value} END AS {name}"""
        for value, name, stop_value in selected
    )
    return f"""
WITH RECURSIVE skip_scan (low, high, steps) AS (
    SELECT {low.format("$3")}, {high.format("$3")}, 1
    UNION ALL
    SELECT {low.format(after)}, {high.format(after)}, steps + 1 FROM skip_scan
    WHERE high IS NOT NULL AND steps < {max_steps})
SELECT high AS seq, {values}
FROM skip_scan WHERE low = high OR high IS NOT NULL AND steps >= {max_steps}
"""


def _seek(rows: str, comparison: str, seq: str) -> str:
    """Returns the subquery for the next sequence number of an index."""
    return f"(SELECT seq FROM {rows} AND seq {comparison} {seq} ORDER BY seq LIMIT 1)"
