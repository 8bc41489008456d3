"""Transactions on a database that Citus distributes: statements for many rows of one shard."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gleanery.storage.database import Row
from gleanery.storage.postgres import value_rows
from gleanery.storage.postgres.array_statements import ArrayStatement
from gleanery.storage.postgres.reserved_ids import ReservedIds
from gleanery.storage.postgres.shard_statements import in_one_shard, split_script
from gleanery.storage.postgres.transactions import (
    SCRIPT_SECONDS,
    ArrayStatements,
    PostgresTransaction,
)


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
        inserts, rest = value_rows.split(sql, sets)
        rows: list[Row] = []
        for insert in inserts:
            rows += await self._connection.fetch(insert.sql, *insert.values)
        return [*rows, *await super()._fetch_each(sql, rest)]

    async def _execute_each(self, sql: str, sets: Sequence[Row]) -> None:
        inserts, rest = value_rows.split(sql, sets)
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
