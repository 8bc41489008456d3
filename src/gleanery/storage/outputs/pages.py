"""A page of outputs: stored texts in the change order, found by seeks and joined as they are."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from gleanery.models.requests import OutputQuery
from gleanery.storage import group_lock
from gleanery.storage.database import Database, Page, PageRead
from gleanery.storage.outputs.preparation import url_key
from gleanery.values import countries

_GROUP = "(SELECT id FROM groups WHERE organization_id = $1 AND name = $2)"
_OF_GROUP = f"outputs.organization_id = $1 AND outputs.group_id = {_GROUP}"
_WANTED = {
    "job_id": f"""(SELECT id FROM jobs
        WHERE organization_id = $1 AND group_id = {_GROUP} AND name = ${{}})""",
    "url": "${}",
    "country": "${}",
    "region": "${}",
}


@lru_cache(maxsize=64)
def _search(filters: tuple[str, ...]) -> str:
    """The statement that finds a page: each filter is a seek in an index of its own."""
    conditions = [
        f"{name} = {_WANTED[name].format(number)}" for number, name in enumerate(filters, 4)
    ]
    if len(conditions) > 1:
        return intersect_indexes(conditions)
    of_group = " AND ".join((_OF_GROUP, *conditions))
    return f"SELECT seq, item FROM outputs WHERE {of_group} AND seq > $3 ORDER BY seq"


def intersect_indexes(conditions: Sequence[str]) -> str:
    """Finds what meets several conditions, by leaps: from a place of the first to the next of the
    second at or behind it, and so on; where all agree, there is one. However common one of them
    is, this takes no more leaps than the rarest has places. The items are in the order in which
    they are found: there is no join that a planner could turn around.
    """
    first = _next(conditions[0], ">", "{}")
    last = first
    for condition in conditions[1:]:
        last = _next(condition, ">=", last)
    reached = "CASE WHEN head = tail THEN head ELSE tail - 1 END"
    return f"""
WITH RECURSIVE leaps (head, tail) AS (
    SELECT {first.format("$3")}, {last.format("$3")}
    UNION ALL
    SELECT {first.format(reached)}, {last.format(reached)} FROM leaps WHERE tail IS NOT NULL)
SELECT head AS seq, (SELECT item FROM outputs WHERE {_OF_GROUP} AND seq = head) AS item
FROM leaps WHERE head = tail
"""


def _next(condition: str, compared: str, place: str) -> str:
    return f"""(SELECT seq FROM outputs WHERE {_OF_GROUP} AND {condition}
        AND seq {compared} {place} ORDER BY seq LIMIT 1)"""


async def read_page(
    database: Database, organization_id: int, group: str, query: OutputQuery, cursor: int
) -> Page:
    """The outputs after the cursor, oldest change first. One statement, so one snapshot."""
    read = page_read(organization_id, group, query, cursor)
    page = await database.read_page(read.search, read.limit, read.values)
    if not page.items:
        await group_lock.must_exist(database, group)
    return page


def page_read(organization_id: int, group: str, query: OutputQuery, cursor: int) -> PageRead:
    """Returns the read of the outputs after the cursor. The group may not exist."""
    search, values = _filtered(query.job_id, query.url, query.country, query.region)
    after = cursor
    if query.created_after is not None:  # a moment is a place in the change order
        after = max(after, query.created_after - 1)
    return PageRead(organization_id, search, query.limit, (organization_id, group, after, *values))


@lru_cache(maxsize=64)  # of values of any length
def _filtered(
    job_id: str | None, url: str | None, country: str | None, region: str | None
) -> tuple[str, tuple[str | bytes, ...]]:
    """The search for these filters, and what they look for."""
    filters = {
        "job_id": job_id,
        "url": None if url is None else url_key(url),
        "country": None if country is None else countries.country_key(country) or "",
        "region": region,
    }
    asked = {name: value for name, value in filters.items() if value is not None}
    return _search(tuple(asked)), tuple(asked.values())
