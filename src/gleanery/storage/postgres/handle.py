"""The database handle of one tenant on PostgreSQL: its reads, its pages and its transactions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from gleanery.storage.database import (
    ITEM_SEPARATOR,
    LineRead,
    Lines,
    Page,
    PageRead,
    PageTooLarge,
    Row,
    Statement,
    Transaction,
)

T = TypeVar("T")


class TenantAccess(Protocol):
    """A server on which a tenant reads, and writes if it is no replica."""

    async def read_for(
        self, organization_id: int, sql: Statement, values: Sequence[Any]
    ) -> Sequence[Row]: ...

    async def write_for(
        self,
        organization_id: int,
        work: Callable[[Transaction], Awaitable[T]],
        queue_key: Hashable,
    ) -> T: ...


class PostgresHandle(NamedTuple):
    """A handle with the rows of one tenant, or of all."""

    server: TenantAccess
    organization_id: int

    async def read(self, sql: Statement, *values: Any) -> Sequence[Row]:
        return await self.server.read_for(self.organization_id, sql, values)

    async def read_large(self, sql: Statement, *values: Any) -> Sequence[Row]:
        return await self.read(sql, *values)

    async def read_page(self, read: PageRead) -> Page:
        """Join the items in this process, because all nodes share the database server."""
        sql = f"{read.search.postgres} LIMIT ${len(read.values) + 1}"
        values = (*read.values, read.limit + 1)
        rows = await self.server.read_for(self.organization_id, sql, values)
        items = [row[1] for row in rows]
        if None in items:  # an item is longer than the search allows
            raise PageTooLarge
        next_cursor = None
        if len(rows) > read.limit or (items and not items[-1]):
            items.pop()
            next_cursor = rows[-1][0] - 1
        joined = ITEM_SEPARATOR.join(items)
        if len(joined) > read.max_bytes:
            raise PageTooLarge
        return Page((joined,) if joined else (), next_cursor)

    async def read_lines(self, read: LineRead) -> Lines:
        sql = f"{read.search.postgres} LIMIT ${len(read.values) + 1}"
        rows = await self.server.read_for(self.organization_id, sql, (*read.values, read.limit))
        if not rows:
            return Lines((), 0, b"")
        items = [row[2] for row in rows]
        if None in items:  # an item is longer than the search allows
            raise PageTooLarge
        items.append(b"")  # ends the last line
        return Lines([row[1] for row in rows], rows[-1][0], b"\n".join(items))

    async def write(
        self, work: Callable[[Transaction], Awaitable[T]], queue_key: Hashable = None
    ) -> T:
        return await self.server.write_for(self.organization_id, work, queue_key)
