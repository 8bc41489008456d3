"""Items and pages: the end of an item, the limits of a page, and pages of lists.

An item is the JSON text of an output. It is rendered once, when its value is stored. An approval or
another scrape only replaces its suffix. A page is a list of items, joined.

A list is read by its position, which is a number, in chunks. A chunk first reads the sizes of the
next records and then the records, so that a page with large records needs little memory. Other
requests run between two chunks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Any, NamedTuple, TypeVar

from gleanery.service.foundation.values import timestamps
from gleanery.service.storage.database import Database, Engine, Row, Statement

T = TypeVar("T")
LINK_GROWTH = 4
"""Links to files make the text of a page at most this many times longer."""
ITEM_SIZE = "octet_length(item) + 64 * octet_length(file_ids)"
"""SQL expression: the bytes of an item with links. ``file_ids`` has 16 bytes for each file."""
UNLIMITED = 2**31 - 1
"""A maximum that no item reaches."""
Hold = Callable[[int], None]
"""Holds memory for so many bytes of a response. Called before each part of a large one is read.

Raises if there is no memory now, or if nobody would read the response.
"""
_SMALL_ITEM_BYTES = 16 * 1024
_PART_BYTES = 1024 * 1024
_CHUNK_RECORDS = 1000
_MAX_CHUNKS = 100


# --- the suffix of an item -----------------------------------------------------------------------


def mutable_suffix(seq: int, last_scraped_at: int, approved: bool) -> bytes:
    """Render the end of an item: the members that change without a new value."""
    return _suffix(seq // timestamps.SECOND, last_scraped_at // timestamps.SECOND, approved)


@lru_cache(maxsize=1024)  # most outputs of a batch have the same suffix
def _suffix(update_second: int, scrape_second: int, approved: bool) -> bytes:
    return b'%b%b,"is_approved":%b}' % (
        _update_member(update_second),
        last_scraped_member(scrape_second),
        b"true" if approved else b"false",
    )


def update_member(seq: int) -> bytes:
    return _update_member(seq // timestamps.SECOND)


def _update_member(second: int) -> bytes:
    return b',"update_date":"%b"' % timestamps.render(second).encode()


def last_scraped_member(second: int) -> bytes:
    return b',"last_scraped_date":"%b"' % timestamps.render(second).encode()


def length_from(member: bytes) -> str:
    """Return the number of bytes from this member to the end of an item, as an SQL expression."""
    suffixes = (mutable_suffix(0, 0, approved) for approved in (True, False))
    return "CASE WHEN approved THEN {} ELSE {} END".format(
        *(len(suffix) - suffix.index(member) for suffix in suffixes)
    )


SUFFIX_LENGTHS = {approved: len(mutable_suffix(0, 0, approved)) for approved in (True, False)}


# --- limits in bytes -----------------------------------------------------------------------------


def hold_nothing(size: int) -> None:
    """Hold no memory: a ``Hold`` for reads whose caller counts the bytes afterwards."""


def max_item_bytes(max_bytes: int, limit: int) -> int:
    """Return the maximum length of an item on a page that is read at once."""
    return max(max_bytes // limit, _SMALL_ITEM_BYTES)


def count_fitting(sizes: Sequence[int], max_bytes: int) -> int:
    """Return how many of the first items fit into the page: at least one, if there is one."""
    fitting = sum(total <= max_bytes for total in accumulate(sizes))
    return max(fitting, min(len(sizes), 1))


def split(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    """Split rows of sequence number and size into parts of about a megabyte.

    A larger item is a part of its own.
    """
    start = size = 0
    for number, (_, item_size) in enumerate(rows):
        if size and size + item_size > _PART_BYTES:
            yield rows[start:number]
            start, size = number, 0
        size += item_size
    if rows:
        yield rows[start:]


# --- pages of lists ------------------------------------------------------------------------------


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
        for part in split([row for row in wanted if row[1]]):
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
        fitting = count_fitting(sizes, self._limits.max_bytes - self._size)
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


# --- replicas ------------------------------------------------------------------------------------


async def read_from_replica(
    engine: Engine,
    organization_id: int,
    read_from: Callable[[Database], Awaitable[T]],
    has_more: Callable[[T], bool],
) -> T:
    """Read from a replica, or from the primary if the replica fails or has no further page.

    A replica has the changes in the same order, but it lacks the newest ones. A client that
    continues after a full page meets these later. The end of the order, an error and an unknown
    group are known to the primary only. One request uses one connection to one replica.
    """
    replica = engine.for_replica(organization_id)
    if replica is not None:
        with suppress(Exception):  # the replica has logged it, and the primary answers
            async with replica as database:
                found = await read_from(database)
            if has_more(found):
                return found
    return await read_from(engine.for_tenant(organization_id))
