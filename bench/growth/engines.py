"""Direct access to the database of a deployment, for the fill and for sizes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import apsw
import asyncpg

from bench.deployments import Deployment
from gleanery.service.storage.sqlite.connections import connect

_FILL_CACHE_KIB = 1024 * 1024

Rows = list[dict[str, Any]]


class Engine(Protocol):
    """A connection that sees the rows of all organizations."""

    def fetch(self, sql: str, *values: Any) -> Rows:
        """Run a statement, with ``$1`` for values."""

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Insert rows in one transaction."""

    def set_last_output_id(self, last_id: int) -> None:
        """Let the next output that the service stores have a larger id."""

    def close(self) -> None: ...


@contextmanager
def open_engine(deployment: Deployment) -> Iterator[Engine]:
    engine: Engine = _Postgres(deployment.database) if deployment.database else _Sqlite(deployment)
    try:
        yield engine
    finally:
        engine.close()


class _Sqlite:
    def __init__(self, deployment: Deployment) -> None:
        self._connection = connect(deployment.folder / "gleanery.sqlite")
        self._connection.pragma("synchronous", "OFF")  # an interrupted fill is not used
        self._connection.pragma("cache_size", -_FILL_CACHE_KIB)

    def fetch(self, sql: str, *values: Any) -> Rows:
        cursor = self._connection.cursor()
        cursor.row_trace = _as_dict
        return list(cursor.execute(sql.replace("$", "?"), values))

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        values = ",".join("?" * len(columns))
        statement = f"INSERT INTO {table} ({','.join(columns)}) VALUES ({values})"
        with self._connection:
            self._connection.executemany(statement, rows)

    def set_last_output_id(self, last_id: int) -> None:
        self.fetch("UPDATE output_ids SET last_id = $1", last_id)

    def close(self) -> None:
        self._connection.pragma("wal_checkpoint(TRUNCATE)")
        self._connection.close()


def _as_dict(cursor: apsw.Cursor, row: tuple[Any, ...]) -> Any:
    return {column[0]: value for column, value in zip(cursor.getdescription(), row, strict=True)}


class _Postgres:
    def __init__(self, database: str) -> None:
        self._runner = asyncio.Runner()
        self._connection = self._runner.run(asyncpg.connect(database))
        self.fetch("SET synchronous_commit = off")

    def fetch(self, sql: str, *values: Any) -> Rows:
        return [dict(row) for row in self._runner.run(self._connection.fetch(sql, *values))]

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        copy = self._connection.copy_records_to_table
        self._runner.run(copy(table, records=rows, columns=columns))

    def set_last_output_id(self, last_id: int) -> None:
        self.fetch("SELECT setval('output_ids', $1)", last_id)

    def close(self) -> None:
        self._runner.run(self._connection.close())
        self._runner.close()
