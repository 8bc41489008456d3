"""A page of outputs: stored texts in the change order, found by seeks and joined as they are."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from gleanery import places
from gleanery.records import OutputQuery
from gleanery.store import groups
from gleanery.store.database import PAGE_END, Database
from gleanery.store.outputs import url_key


class Page(NamedTuple):
    """The items as JSON text, joined by commas, and where the next page starts."""

    items: bytes
    next_cursor: int | None


class _Search(NamedTuple):
    """What finds a page, and what looks if there is more behind it."""

    found: str
    beyond: str


@lru_cache(maxsize=64)
def _search(filters: tuple[str, ...]) -> _Search:
    """Each filter is a seek in an index of its own."""
    of_group = """
    organization_id = $1
    AND group_id = (SELECT id FROM groups WHERE organization_id = $1 AND name = $2)"""
    wanted = {
        "job_id": f"(SELECT id FROM jobs WHERE {of_group} AND name = ${{}})",
        "url": "${}",
        "country": "${}",
        "region": "${}",
    }
    conditions = " ".join(
        f"AND {name} = {wanted[name].format(number)}" for number, name in enumerate(filters, 4)
    )
    return _Search(
        f"SELECT seq, item FROM outputs WHERE {of_group} AND seq > $3 {conditions} ORDER BY seq",
        f"SELECT 1 FROM outputs WHERE {of_group} AND seq > {PAGE_END} {conditions}",
    )


async def read_page(
    database: Database, organization_id: int, group: str, query: OutputQuery, cursor: int
) -> Page:
    """The outputs after the cursor, oldest change first. One statement, so one snapshot."""
    search, values = _filtered(query.job_id, query.url, query.country, query.region)
    after = cursor
    if query.created_after is not None:  # a moment is a place in the change order
        after = max(after, query.created_after - 1)
    joined = await database.read_joined(
        *search, query.limit, (organization_id, group, after, *values)
    )
    if not joined.items:
        await groups.must_exist(database, organization_id, group)
    return Page(joined.items, joined.last if joined.has_more else None)


@lru_cache(maxsize=1024)
def _filtered(
    job_id: str | None, url: str | None, country: str | None, region: str | None
) -> tuple[_Search, tuple[str | bytes, ...]]:
    """The search for these filters, and what they look for."""
    filters = {
        "job_id": job_id,
        "url": None if url is None else url_key(url),
        "country": None if country is None else places.country_key(country) or "",
        "region": region,
    }
    asked = {name: value for name, value in filters.items() if value is not None}
    return _search(tuple(asked)), tuple(asked.values())
