"""Transactions on a database that Citus distributes, and the ids of outputs that they take.

The statements of a transaction are for many rows of one shard. The ids are reserved from the
coordinator's sequence before they are used. A worker commits before the coordinator does. If the
coordinator crashes in between, its sequence has forgotten the ids that it issued in that
transaction, and would issue them again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from gleanery.service.storage.database import Row
from gleanery.service.storage.postgres.citus import statements
from gleanery.service.storage.postgres.citus.statements import in_one_shard, split_script
from gleanery.service.storage.postgres.transactions import (
    NEW_IDS,
    SCRIPT_SECONDS,
    ArrayStatement,
    ArrayStatements,
    PostgresTransaction,
)

# More than the 32 numbers that PostgreSQL logs ahead: so the commit always waits for the disk.
_BLOCK = 1000


class MoreIdsNeeded(Exception):
    """The transaction needs this many ids; it is to be repeated after their reservation.

    They include those that it has already taken: the repetition takes as many again.
    """

    def __init__(self, count: int) -> None:
        self.count = count


class ReservedIds:
    """Ids that no other process uses."""

    def __init__(self) -> None:
        self._ids: deque[int] = deque()

    def take(self, count: int, taken: int) -> Sequence[int]:
        """Return ascending ids. Raise MoreIdsNeeded if there are too few.

        ``taken`` is the number of ids that the transaction took before.
        """
        if count > len(self._ids):
            raise MoreIdsNeeded(taken + count)
        return sorted(self._ids.popleft() for _ in range(count))

    async def reserve(self, read: Callable[..., Awaitable[Sequence[Row]]], count: int) -> None:
        """Reserves ids in a transaction of its own, which is on the disk when this returns."""
        rows: Sequence[Any] = await read(NEW_IDS, count + _BLOCK)
        self._ids.extend(row[0] for row in rows)


class ShardTransaction(PostgresTransaction):
    """A transaction in which every statement is for one organization, and so for one shard.

    A statement for one row costs nearly as much as one for many rows: the coordinator plans it, and
    waits for the worker.
    """

    _min_array_length = 2

    def __init__(
        self,
        connection: Any,
        organization_id: int,
        array_statements: ArrayStatements,
        reserved_ids: ReservedIds,
    ) -> None:
        super().__init__(connection, organization_id, array_statements)
        self._reserved_ids = reserved_ids
        self._taken_ids = 0

    def _count_scalars(self, sets: Sequence[Row]) -> int:
        """Return 1 if the organization is the same in all sets; it chooses the shard."""
        return int(len({values[0] for values in sets}) == 1)

    def _rewrite(self, sql: str, types: Sequence[str], scalars: int) -> ArrayStatement | None:
        return in_one_shard(sql, types, scalars)

    async def _fetch_each(self, sql: str, sets: Sequence[Row]) -> list[Row]:
        inserts, rest = statements.split_into_rows(sql, sets)
        rows: list[Row] = []
        for insert in inserts:
            rows += await self._connection.fetch(insert.sql, *insert.values)
        return [*rows, *await super()._fetch_each(sql, rest)]

    async def _execute_each(self, sql: str, sets: Sequence[Row]) -> None:
        inserts, rest = statements.split_into_rows(sql, sets)
        for insert in inserts:
            await self._connection.execute(insert.sql, *insert.values)
        await super()._execute_each(sql, rest)

    async def new_output_ids(self, count: int) -> Sequence[int]:
        ids = self._reserved_ids.take(count, self._taken_ids)
        self._taken_ids += count
        return ids

    async def run_script(self, sql: str) -> None:
        # Citus sends the text of a query to the workers, so each statement is a query.
        for script in split_script(sql):
            await self._connection.execute(script, timeout=SCRIPT_SECONDS)
