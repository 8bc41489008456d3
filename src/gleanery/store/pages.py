"""A page of outputs: stored bytes in the change order, found by seeks and joined as they are."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

from gleanery import places
from gleanery.records import OutputQuery
from gleanery.store import groups
from gleanery.store.database import Database
from gleanery.store.outputs import ITEM_END, url_key

_BETWEEN = ITEM_END + b","


class Page(NamedTuple):
    """The pieces of the items' JSON text, commas included, and where the next page starts."""

    pieces: list[bytes]
    next_cursor: int | None


WithLinks = Callable[[Sequence[bytes], Sequence[bytes]], Awaitable[Sequence[bytes]]]
"""Makes text of templates of files; given with each are the ids of those that are ours."""


@lru_cache(maxsize=64)
def _page_sql(filters: tuple[str, ...]) -> str:
    """The one statement that reads a page; each filter is a seek in an index of its own."""
    of_group = """
    organization_id = $1
    AND group_id = (SELECT id FROM groups WHERE organization_id = $1 AND name = $2)"""
    wanted = {
        "job_id": f"(SELECT id FROM jobs WHERE {of_group} AND name = ${{}})",
        "url": "${}",
        "country": "${}",
        "region": "${}",
    }
    conditions = [
        f"AND {name} = {wanted[name].format(number)}" for number, name in enumerate(filters, 5)
    ]
    return f"""
SELECT seq, head, tail, files, file_ids FROM outputs
WHERE {of_group} AND seq > $3 {" ".join(conditions)}
ORDER BY seq LIMIT $4
"""


async def read_page(
    database: Database,
    organization_id: int,
    group: str,
    query: OutputQuery,
    with_links: WithLinks,
) -> Page:
    """The outputs after the cursor, oldest change first. One statement, so one snapshot."""
    filters = {
        "job_id": query.job_id,
        "url": None if query.url is None else url_key(query.url),
        "country": None if query.country is None else places.country_key(query.country) or "",
        "region": query.region,
    }
    asked = {name: value for name, value in filters.items() if value is not None}
    after = query.cursor
    if query.created_after is not None:  # a moment is a place in the change order
        after = max(after, query.created_after - 1)
    rows = await database.read(
        _page_sql(tuple(asked)), organization_id, group, after, query.limit + 1, *asked.values()
    )
    if not rows:
        await groups.must_exist(database, organization_id, group)
    page = rows[: query.limit]
    texts = await file_texts([(row[3], row[4]) for row in page], with_links)
    # One list, to be joined once: to join each item first would take four times as long.
    pieces = [_BETWEEN] * (4 * len(page))
    pieces[::4] = [row[1] for row in page]
    pieces[1::4] = [row[2] for row in page]
    pieces[2::4] = texts
    pieces[-1:] = [ITEM_END] * bool(page)
    return Page(pieces, page[-1][0] if len(rows) > query.limit else None)


async def file_texts(
    templates: Sequence[tuple[bytes, bytes]], with_links: WithLinks
) -> Sequence[bytes]:
    """The files of each output as JSON text."""
    texts = [template for template, _ in templates]
    if not any(texts):
        return texts
    return await with_links(texts, [ids for _, ids in templates])
