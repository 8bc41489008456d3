"""A page of outputs: finds stored items by index seeks, in the change order, and joins them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from gleanery.models.requests import OutputQuery
from gleanery.storage import group_lock
from gleanery.storage.database import Database, Page, PageRead
from gleanery.storage.outputs.hashes import url_hash
from gleanery.values import countries

_GROUP_ID = "(SELECT id FROM groups WHERE organization_id = $1 AND name = $2)"
_IN_GROUP = f"outputs.organization_id = $1 AND outputs.group_id = {_GROUP_ID}"
_INDEXES = {
    "job_id": "outputs_by_job",
    "url_hash": "outputs_by_url",
    "country": "outputs_by_country",
    "region": "outputs_by_region",
}
_FILTER_VALUES = {
    "job_id": f"""(SELECT id FROM jobs
        WHERE organization_id = $1 AND group_id = {_GROUP_ID} AND name = ${{}})""",
    "url_hash": "${}",
    "country": "${}",
    "region": "${}",
}


async def read_page(database: Database, group: str, query: OutputQuery, cursor: int) -> Page:
    """Reads the outputs after the cursor, oldest change first, in one statement: one snapshot."""
    read = page_read(database.organization_id, group, query, cursor)
    page = await database.read_page(read.search, read.limit, read.values)
    if not page.items:
        await group_lock.require_group(database, group)
    return page


def page_read(organization_id: int, group: str, query: OutputQuery, cursor: int) -> PageRead:
    """Describes the read of the outputs after the cursor. The group may not exist."""
    statement, values = _filter(query.job_id, query.url, query.country, query.region)
    after = cursor
    if query.created_after is not None:  # a sequence number is a timestamp in microseconds
        after = max(after, query.created_after - 1)
    return PageRead(
        organization_id, statement, query.limit, (organization_id, group, after, *values)
    )


@lru_cache(maxsize=64)  # small, because the values can be long
def _filter(
    job_id: str | None, url: str | None, country: str | None, region: str | None
) -> tuple[str, tuple[str | bytes, ...]]:
    """Returns the statement for these filters, and the values of its filter parameters."""
    filters = {
        "job_id": job_id,
        "url_hash": None if url is None else url_hash(url),
        "country": None if country is None else countries.country_key(country) or "",
        "region": region,
    }
    given = {column: value for column, value in filters.items() if value is not None}
    return _statement(tuple(given)), tuple(given.values())


@lru_cache(maxsize=64)
def _statement(columns: tuple[str, ...]) -> str:
    """Returns the statement that finds a page; each filter uses the index of its column."""
    rows = [
        f"{_indexed(_INDEXES[column])} AND {column} = {_FILTER_VALUES[column].format(number)}"
        for number, column in enumerate(columns, 4)
    ]
    if len(rows) > 1:
        return intersect_indexes(rows)
    [found] = rows or [_indexed("outputs_in_order")]
    return f"SELECT seq, item FROM {found} AND seq > $3 ORDER BY seq"


def _indexed(index: str) -> str:
    """Returns the rows of the group. SQLite must use the index; PostgreSQL ignores the comment."""
    return f"outputs /* INDEXED BY {index} */ WHERE {_IN_GROUP}"


def intersect_indexes(rows: Sequence[str]) -> str:
    """Returns a skip-scan join: it finds the rows that meet several conditions, each by its index.

    A step takes the next sequence number of the first index (``low``). From there it seeks the next
    number of the second index, and so on (``high``). If both are equal, the row meets every
    condition. If not, the next step skips to ``high``. There are at most as many steps as the
    rarest condition has rows. The item is a subquery, because a planner could reverse a join.
    """
    low = _seek(rows[0], ">", "{}")
    high = low
    for more in rows[1:]:
        high = _seek(more, ">=", high)
    after = "CASE WHEN low = high THEN low ELSE high - 1 END"
    return f"""
WITH RECURSIVE skip_scan (low, high) AS (
    SELECT {low.format("$3")}, {high.format("$3")}
    UNION ALL
    SELECT {low.format(after)}, {high.format(after)} FROM skip_scan WHERE high IS NOT NULL)
SELECT low AS seq, (SELECT item FROM {_indexed("outputs_in_order")} AND seq = low) AS item
FROM skip_scan WHERE low = high
"""


def _seek(rows: str, comparison: str, seq: str) -> str:
    """Returns the subquery for the next sequence number of an index."""
    return f"(SELECT seq FROM {rows} AND seq {comparison} {seq} ORDER BY seq LIMIT 1)"
