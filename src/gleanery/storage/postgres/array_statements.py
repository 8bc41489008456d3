"""Rewrites a statement that runs once per set of values into one statement over arrays.

PostgreSQL takes longer to start and end a statement than for the index seek in it. The rewriting is
for simple statements without a nested SELECT: a plain INSERT, an UPDATE of one table, or a SELECT
of one table, which may have one LEFT JOIN. An INSERT can also take its rows from such a SELECT.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from gleanery.storage.database import Statement

INSERT = re.compile(
    r"\s*(INSERT INTO \w+\s*\([^()]+\))\s*VALUES\s*\(([$\d,\s]+)\)\s*(RETURNING\s[\w\s,]+)?"
)
INSERT_SELECT = re.compile(r"\s*(INSERT INTO \w+\s*\([^()]+\))\s*(SELECT\s.+)", re.DOTALL)
UPDATE = re.compile(r"\s*UPDATE (\w+)(\s+SET\s.+)\b(WHERE\s.+)", re.DOTALL)
_SELECT = re.compile(r"\s*(SELECT\s.+\sFROM \w+(?: LEFT JOIN \w+\s+ON\s.+)?\sWHERE\s.+)", re.DOTALL)
NOT_SIMPLE = re.compile(r"\b(RETURNING|ORDER|LIMIT|CONFLICT)\b|\w\s.*\bSELECT\b", re.DOTALL)
_PARAMETER = re.compile(r"\$(\d+)")


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
