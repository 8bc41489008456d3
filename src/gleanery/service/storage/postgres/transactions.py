"""Transactions on a PostgreSQL connection, and their statements for many sets of values.

PostgreSQL takes longer to start and end a statement than for the index seek in it. So a statement
that runs once per set of values is rewritten into one statement over arrays. The rewriting is for
simple statements without a nested SELECT: a plain INSERT, an UPDATE of one table, or a SELECT of
one table, which may have one LEFT JOIN. An INSERT can also take its rows from such a SELECT.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar

from gleanery.service.foundation.errors import Unavailable
from gleanery.service.storage import migrations
from gleanery.service.storage.database import Row, Statement
from gleanery.service.storage.postgres.connecting import end
from gleanery.service.storage.postgres.listener import POSTGRES_CHANNEL

T = TypeVar("T")
_ROLLBACK_SECONDS = 2.0
_CHECK = "SELECT FROM migrations WHERE number >= {:d}"
_CHECK_NEWER = "SELECT FROM migrations WHERE coalesce(compatible_from, number) > {:d}"
_NO_ROW, _ONE_ROW = "SELECT 0", "SELECT 1"  # the server's descriptions of the result
SCRIPT_SECONDS = 24 * 3600.0  # a migration of a large table takes long
SERVER_TIME = "SELECT (date_part('epoch', clock_timestamp()) * 1000000)::bigint"
NEW_IDS = "SELECT nextval('output_ids') FROM generate_series(1, $1)"
_SKIP_IDS = """
SELECT setval(format('%I.%I', schemaname, sequencename)::regclass, coalesce(last_value, 0) + $1)
FROM pg_sequences WHERE schemaname = current_schema()
"""
INSERT = re.compile(
    r"\s*(INSERT INTO \w+\s*\([^()]+\))\s*VALUES\s*\(([$\d,\s]+)\)\s*(RETURNING\s[\w\s,]+)?"
)
INSERT_SELECT = re.compile(r"\s*(INSERT INTO \w+\s*\([^()]+\))\s*(SELECT\s.+)", re.DOTALL)
UPDATE = re.compile(r"\s*UPDATE (\w+)(\s+SET\s.+)\b(WHERE\s.+)", re.DOTALL)
_SELECT = re.compile(r"\s*(SELECT\s.+\sFROM \w+(?: LEFT JOIN \w+\s+ON\s.+)?\sWHERE\s.+)", re.DOTALL)
NOT_SIMPLE = re.compile(r"\b(RETURNING|ORDER|LIMIT|CONFLICT)\b|\w\s.*\bSELECT\b", re.DOTALL)
_PARAMETER = re.compile(r"\$(\d+)")
ARRAY_TYPES = ("int8", "int4", "int2", "bool", "bytea", "text")
"""Types whose arrays the driver knows. At the first use of another array type, it would set jit on
a connection, which can be another client's connection behind a pooler. A statement with another
type is not rewritten."""


# --- statements ----------------------------------------------------------------------------------


def to_postgres(sql: Statement) -> str:
    """Return the text of a statement for PostgreSQL."""
    return sql if isinstance(sql, str) else sql.postgres


class ArrayStatement(NamedTuple):
    """A statement over arrays, and what is known about its result."""

    sql: str
    inserts_all: bool = False
    """True if it inserts a row for each set of values, unless something is missing."""
    returns_number: bool = False
    """True if the last column is the number of the set of values that the row comes from."""


ArrayStatements = dict[tuple[str, int], ArrayStatement | None]
"""Statements over arrays, by the statement and the number of its parameters that are no arrays."""


def over_arrays(sql: str, types: Sequence[str], scalars: int = 0) -> str | None:
    """Return the statement with one array per parameter; None if the statement is not simple.

    ``types`` are the types of the parameters. All sets have the same values of the first
    ``scalars`` parameters, so these do not become arrays.

    The rewritten statement seeks each set of values separately (LATERAL with OFFSET 0). A plain
    join would let the planner choose a scan of a table that was empty when the statement was
    planned.
    """
    numbered = [*enumerate(types, 1)][scalars:]
    arrays = ", ".join(f"${number}::{name}[]" for number, name in numbered)
    if not scalars and (match := INSERT.fullmatch(sql)) and are_in_order(match[2], len(types)):
        return f"{match[1]} SELECT * FROM unnest({arrays}) {match[3] or ''}"  # in this order
    match = INSERT_SELECT.fullmatch(sql)
    insert, sql = match.groups() if match else ("", sql)
    if NOT_SIMPLE.search(sql):
        return None
    names = ", ".join(f"p{number}" for number, _ in numbered)
    whole = replace_parameters(sql, types, scalars)
    sets = f"unnest({arrays}) AS many ({names})"
    if match := UPDATE.fullmatch(whole):
        table, change, condition = match.groups()
        row = f"(SELECT ctid AS row_address FROM {table} {condition} OFFSET 0) AS found"
        return f"UPDATE {table}{change} FROM {sets}, LATERAL {row} WHERE ctid = found.row_address"
    if match := _SELECT.fullmatch(whole):
        return f"{insert} SELECT found.* FROM {sets}, LATERAL ({match[1]} OFFSET 0) AS found"
    return None


def replace_parameters(sql: str, types: Sequence[str], scalars: int) -> str:
    """Replace the parameters that become arrays by the columns of ``many``."""
    return _PARAMETER.sub(partial(_replace_parameter, types, scalars), sql)


def _replace_parameter(types: Sequence[str], scalars: int, parameter: re.Match[str]) -> str:
    number = int(parameter[1])
    return f"${number}::{types[number - 1]}" if number <= scalars else f"many.p{number}"


def are_in_order(parameters: str, count: int) -> bool:
    names = [name.strip() for name in parameters.split(",")]
    return names == [f"${number}" for number in range(1, count + 1)]


# --- transactions --------------------------------------------------------------------------------


@asynccontextmanager
async def transaction(connection: Any, begin: str, schema: int | None) -> AsyncIterator[None]:
    """Commit at the end of the context, or roll back after an error.

    ``begin`` begins the transaction, and may set its role, settings and tenant. Raise
    ``Unavailable`` if a program of this schema cannot serve the database. None does not check it.
    """
    try:
        await _begin(connection, begin, schema)
        yield
    except BaseException:
        await _roll_back(connection)
        raise
    if (done := await connection.execute("COMMIT")) != "COMMIT":
        raise RuntimeError(f"The transaction ended with {done}: a statement of it had failed")


async def _begin(connection: Any, begin: str, schema: int | None) -> None:
    """Begins, and checks the schema in the same round trip.

    The check also locks the table of migrations until the end of the transaction. A migration
    waits for that lock, so the schema stays as it is.
    """
    if schema is None:
        await connection.execute(begin)
        return
    found = await connection.execute(f"{begin}; {_CHECK.format(schema)}")
    if found == _ONE_ROW:
        return
    # Only an older program needs a second round trip, beside a newer schema.
    if found == _NO_ROW or await connection.execute(_CHECK_NEWER.format(schema)) != _NO_ROW:
        raise Unavailable(migrations.CHANGED)


async def _roll_back(connection: Any) -> None:
    """Roll back. If the server does not respond soon, end the connection instead."""
    try:
        async with asyncio.timeout(_ROLLBACK_SECONDS):
            await connection.execute("ROLLBACK")
    except Exception:
        end(connection)  # the server rolls back what is not committed
    except BaseException:
        end(connection)
        raise


class PostgresTransaction:
    """Statements on one connection, inside its transaction."""

    _min_array_length = 8
    """Number of sets of values from which a statement over arrays is faster."""

    def __init__(
        self, connection: Any, organization_id: int, array_statements: ArrayStatements
    ) -> None:
        self._connection = connection
        self.organization_id = organization_id
        self._array_statements = array_statements

    async def fetch(self, sql: Statement, *values: Any) -> Sequence[Row]:
        rows: Sequence[Row] = await self._connection.fetch(to_postgres(sql), *values)
        return rows

    async def fetch_many(self, sql: Statement, many: Iterable[Row]) -> Sequence[Row]:
        text, sets = to_postgres(sql), list(many)
        scalars = self._count_scalars(sets)
        statement = await self._over_arrays(text, len(sets), scalars)
        if statement is None:
            return await self._fetch_each(text, sets)
        return await self._fetch_arrays(statement, _columns(sets, scalars))

    async def execute_many(self, sql: Statement, many: Iterable[Row]) -> None:
        text, sets = to_postgres(sql), list(many)
        scalars = self._count_scalars(sets)
        statement = await self._over_arrays(text, len(sets), scalars)
        if statement is None:
            await self._execute_each(text, sets)
            return
        done = await self._connection.execute(statement.sql, *_columns(sets, scalars))
        if statement.inserts_all and done != f"INSERT 0 {len(sets)}":
            raise RuntimeError(f"{done} instead of {len(sets)} rows: {statement.sql}")

    async def fetch_by_keys(
        self, keys: Collection[bytes], sql: Statement, *values: Any
    ) -> Sequence[Row]:
        statement = await self._over_arrays(to_postgres(sql), len(keys), len(values))
        if statement is None:
            return await self.fetch_many(sql, [(*values, key) for key in keys])
        return await self._fetch_arrays(statement, (*values, [*keys]))

    async def _fetch_arrays(self, statement: ArrayStatement, values: Iterable[Any]) -> list[Row]:
        rows: list[Row] = await self._connection.fetch(statement.sql, *values)
        if statement.returns_number:
            return [row[:-1] for row in sorted(rows, key=itemgetter(-1))]
        return rows

    async def _fetch_each(self, sql: str, sets: Sequence[Row]) -> list[Row]:
        if not sets:  # the driver would forget the time limit of the next statement
            return []
        rows: list[Row] = await self._connection.fetchmany(sql, sets)
        return rows

    async def _execute_each(self, sql: str, sets: Sequence[Row]) -> None:
        if sets:
            await self._connection.executemany(sql, sets)

    async def _over_arrays(self, sql: str, length: int, scalars: int) -> ArrayStatement | None:
        """Return the statement over arrays of this length, if there is one and it is faster."""
        if length < self._min_array_length:
            return None
        if (sql, scalars) not in self._array_statements:
            prepared = await self._connection.prepare(sql)
            types = [type_.name for type_ in prepared.get_parameters()]
            is_known = set(types[scalars:]) <= {*ARRAY_TYPES}
            rewritten = self._rewrite(sql, types, scalars) if is_known else None
            self._array_statements[sql, scalars] = rewritten
        return self._array_statements[sql, scalars]

    def _rewrite(self, sql: str, types: Sequence[str], scalars: int) -> ArrayStatement | None:
        text = over_arrays(sql, types, scalars)
        return None if text is None else ArrayStatement(text)

    def _count_scalars(self, sets: Sequence[Row]) -> int:
        """Return how many of the first parameters must not become arrays."""
        return 0

    async def run_script(self, sql: str) -> None:
        await self._connection.execute(sql, timeout=SCRIPT_SECONDS)

    async def server_time(self) -> int:
        return int((await self.fetch(SERVER_TIME))[0][0])

    async def notify(self, channel: str) -> None:
        await self._connection.execute("SELECT pg_notify($1, $2)", POSTGRES_CHANNEL, channel)

    async def commit_unflushed(self) -> None:
        await self._connection.execute("SET LOCAL synchronous_commit = off")

    async def new_output_ids(self, count: int) -> Sequence[int]:
        return [row[0] for row in await self.fetch(NEW_IDS, count)]

    async def pause(self) -> None:
        await asyncio.sleep(0)

    async def compute(self, function: Callable[..., T], *args: Any) -> T:
        return await asyncio.to_thread(function, *args)

    async def skip_ids(self, count: int) -> None:
        """Skips ids as the owner of the sequences, because the serving role may not set them."""
        [[role]] = await self.fetch("SELECT current_setting('role')")
        await self.run_script("SET LOCAL ROLE NONE")
        await self.fetch(_SKIP_IDS, count)
        await self.fetch("SELECT set_config('role', $1, true)", role)


def _columns(sets: Sequence[Row], scalars: int) -> Sequence[Any]:
    """Return the values of each parameter: of the first ones a single value, then arrays."""
    columns = [*zip(*sets, strict=True)]
    return [*(column[0] for column in columns[:scalars]), *columns[scalars:]]
