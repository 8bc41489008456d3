"""A page of outputs around a position, newest first, for a grid that shows them to a person.

Both directions are seeks in the same indexes. A page is bounded in items, in bytes and in the steps
of a search with several filters, so it may have few items or none and still have a next position.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from gleanery.service.resources.outputs.models import OutputFilters
from gleanery.service.resources.outputs.search import (
    NEWEST_FIRST,
    OLDEST_FIRST,
    Direction,
    Search,
    max_steps,
    position_before,
    search_for,
)
from gleanery.service.storage import group_lock, paging
from gleanery.service.storage.database import Database, Row, Sql

END = 2**63 - 1
"""A position after all outputs."""


class Version(NamedTuple):
    """The present version of an output, or its last approved one in the approved view."""

    seq: int
    created_seq: int
    version_seq: int
    identity: bytes
    item: bytes

    @property
    def is_update(self) -> bool:
        """True if the output had another value before this version."""
        return self.version_seq != self.created_seq


Visit = Callable[[Sequence[Version]], Awaitable[None]]
"""Gets the versions of a page in parts of about a megabyte, in the order of the search."""


class GridRange(NamedTuple):
    """What a page covers, as positions."""

    newer: int | None
    """Position after which the outputs above the page are; None if there are no more."""
    older: int | None
    """Position before which the outputs below the page are; None if there are no more."""


class Extent(NamedTuple):
    """The first and the last output of a group, or of a job in it; None if there is none."""

    newest: int | None
    oldest: int | None


async def read_extent(database: Database, group: str, filters: OutputFilters) -> Extent:
    """Read the positions between which the outputs are. Only the filter of the job counts."""
    wide = OutputFilters(job_id=filters.job_id, view=filters.view)
    newest = await _first(database, group, wide, NEWEST_FIRST, END)
    oldest = await _first(database, group, wide, OLDEST_FIRST, position_before(filters))
    if newest is None:
        await group_lock.require_group(database, group)
    return Extent(newest, oldest)


async def _first(
    database: Database, group: str, filters: OutputFilters, direction: Direction, position: int
) -> int | None:
    search, values = search_for(filters, direction)
    key = (database.organization_id, group, position, *values)
    rows = await database.read(search.sizes.within("", f" LIMIT ${len(key) + 1}"), *key, 1)
    return rows[0][0] if rows else None


async def read_older(
    database: Database,
    group: str,
    filters: OutputFilters,
    before: int,
    limit: int,
    max_bytes: int,
    visit: Visit,
) -> GridRange:
    """Read the outputs before a position, newest first."""
    bound = position_before(filters)
    page = _Page(database, group, filters, NEWEST_FIRST, limit, max_bytes)
    found = await page.read(before, lambda seq: seq > bound, visit)
    if before == END:
        return GridRange(None, found.next)
    return GridRange(before - 1 if found.first is None else found.first, found.next)


async def read_newer(
    database: Database,
    group: str,
    filters: OutputFilters,
    after: int,
    limit: int,
    max_bytes: int,
    visit: Visit,
) -> GridRange:
    """Read the outputs after a position, oldest first."""
    start = max(after, position_before(filters))
    page = _Page(database, group, filters, OLDEST_FIRST, limit, max_bytes)
    found = await page.read(start, lambda _: True, visit)
    return GridRange(found.next, after + 1 if found.first is None else found.first)


class _Found(NamedTuple):
    first: int | None
    """Position of the first output."""
    next: int | None
    """Position after which the search continues; None if it has ended."""


class _Page(NamedTuple):
    """The search for one page."""

    database: Database
    group: str
    filters: OutputFilters
    direction: Direction
    limit: int
    max_bytes: int

    async def read(self, position: int, is_wanted: Callable[[int], bool], visit: Visit) -> _Found:
        """Read the sizes of the items, and then as many items as fit, in parts."""
        search, values = search_for(self.filters, self.direction)
        if search.has_steps:
            values = (*values, max_steps(self.limit))
        found = await self._read(search.sizes, position, values, self.limit + 1)
        rows = [row for row in found if is_wanted(row[0])]
        sizes = [size for _, size in rows[: self.limit] if size]  # 0: the search stopped there
        count = paging.count_fitting(sizes, self.max_bytes)
        after = position
        for part in paging.split(rows[:count]):
            await visit(await self._read_part(search, after, values, part))
            after = part[-1][0]
        next_ = rows[count][0] + self.direction.previous if count < len(rows) else None
        return _Found(rows[0][0] if count else None, next_)

    async def _read_part(
        self, search: Search, position: int, values: Sequence[object], part: Sequence[Row]
    ) -> list[Version]:
        """Read the versions of a part. One that has changed since is left out."""
        seqs = {seq for seq, _ in part}
        key = (self.database.organization_id, self.group, position, *values, len(part), part[-1][0])
        # Rows that change between both reads leave their place. Then others, which may be large,
        # would take it, so nothing beyond the last row of the part is read.
        bound = "<=" if self.direction is OLDEST_FIRST else ">="
        statement = search.versions.within(
            "SELECT * FROM (", f" LIMIT ${len(key) - 1}) AS part WHERE seq {bound} ${len(key)}"
        )
        rows = await self.database.read_large(statement, *key)
        return [Version(*row) for row in rows if row[0] in seqs and row[-1]]

    async def _read(
        self,
        statement: Sql,
        position: int,
        values: Sequence[object],
        limit: int,
        is_large: bool = False,
    ) -> Sequence[Row]:
        key = (self.database.organization_id, self.group, position, *values)
        read = self.database.read_large if is_large else self.database.read
        return await read(statement.within("", f" LIMIT ${len(key) + 1}"), *key, limit)
