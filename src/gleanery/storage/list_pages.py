"""Pages of a list: its records as JSON text, limited in records, in bytes and in work.

A list is read by its position, which is a number, in chunks. A chunk first reads the sizes of the
next records and then the records, so that a page with large records needs little memory. Other
requests run between two chunks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from gleanery.storage import page_sizes
from gleanery.storage.database import Database, Row, Statement
from gleanery.storage.page_sizes import Hold, hold_nothing

_CHUNK_RECORDS = 1000
_MAX_CHUNKS = 100


class PageLimits(NamedTuple):
    """The part of a list that a client requests."""

    cursor: int
    """Only the records after this position."""
    limit: int | None
    """The maximum number of records. None: as many as fit."""
    max_bytes: int
    hold: Hold = hold_nothing


class ListPage(NamedTuple):
    """Records as JSON text, and the cursor of the next page."""

    records: list[bytes]
    next_cursor: int | None


@dataclass(frozen=True, slots=True)
class ListQuery:
    """The statements of a list. Their first parameters are the organization and a position."""

    database: Database
    sizes: Statement
    """Finds position and size of the $3 records after position $2.

    The size is 0 for a record that does not belong to the list.
    """
    rows: Statement
    """Finds the records after position $2 up to position $3. The last column is the position."""
    values: tuple[Any, ...]
    """The other parameters of both statements."""
    encode: Callable[[Row], bytes]
    """Renders a record as JSON text."""

    async def read(self, sql: Statement, after: int, until_or_count: int) -> list[Row]:
        key = (self.database.organization_id, after, until_or_count)
        return list(await self.database.read(sql, *key, *self.values))


async def read_page(query: ListQuery, limits: PageLimits) -> ListPage:
    """Read a page: at least one record, if there is one within the bounded work."""
    page = _Page(query.encode, limits)
    after = limits.cursor
    for _ in range(_MAX_CHUNKS):
        sizes = await query.read(query.sizes, after, _CHUNK_RECORDS)
        wanted = page.wanted(sizes)
        page_bytes = page.expected_bytes(wanted)
        for part in page_sizes.split([row for row in wanted if row[1]]):
            limits.hold(page_bytes)
            rows = await query.read(query.rows, after, part[-1][0])
            if not page.add(rows):
                return ListPage(page.records, page.position)
            after = part[-1][0]
            await asyncio.sleep(0)
        if len(wanted) == len(sizes) < _CHUNK_RECORDS:
            return ListPage(page.records, None)
        # If wanted records were deleted meanwhile, the page has space for the records after them.
        after = wanted[-1][0]
        await asyncio.sleep(0)  # a chunk may have no part
    return ListPage(page.records, after)


class _Page:
    """Collects records until the page is full."""

    def __init__(self, encode: Callable[[Row], bytes], limits: PageLimits) -> None:
        self._encode = encode
        self._limits = limits
        self._size = 0
        self.records: list[bytes] = []
        self.position = limits.cursor
        """Position of the last record."""

    def wanted(self, sizes: Sequence[Row]) -> Sequence[Row]:
        """Return the first rows: up to one record more than the page has space for."""
        if self._limits.limit is None:
            return sizes
        listed = [number for number, row in enumerate(sizes, 1) if row[1]]
        wanted = listed[: self._limits.limit + 1 - len(self.records)]
        return sizes if len(wanted) == len(listed) else sizes[: wanted[-1]]

    def expected_bytes(self, wanted: Sequence[Row]) -> int:
        """Return the size of the page with the wanted rows, as far as they fit."""
        sizes: list[int] = [size for _, size in wanted]
        fitting = page_sizes.count_fitting(sizes, self._limits.max_bytes - self._size)
        return self._size + sum(sizes[:fitting])

    def add(self, rows: Iterable[Row]) -> bool:
        """Add the records; return False if the page was full before the last one."""
        for row in rows:
            record = self._encode(row)
            self._size += len(record) + 1
            has_space = self._size <= self._limits.max_bytes
            if self.records and not (has_space and len(self.records) != self._limits.limit):
                return False
            self.records.append(record)
            self.position = row[-1]
        return True
