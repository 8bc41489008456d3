"""Rewrites an INSERT that runs once per set of values into one with several rows, for Citus.

It serves the INSERT that ``shard_statements`` cannot rewrite: with ON CONFLICT, or with an id that
the coordinator generates.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache, partial
from itertools import chain
from typing import Any, NamedTuple

from gleanery.storage.database import Row

# Few lengths, because each of them is a prepared statement of its own.
_LENGTHS = (64, 16, 4)
_MAX_PARAMETERS = 32_767  # of the protocol
_INSERT = re.compile(r"\s*(INSERT INTO \w+\s*\(([^()]+)\)\s*VALUES)\s*\(([^()]+)\)(.*)", re.DOTALL)
_TARGET = re.compile(r"\bON CONFLICT \(([^()]+)\)\s+DO UPDATE\b")
_PARAMETER = re.compile(r"\$(\d+)")


class RowsInsert(NamedTuple):
    """An INSERT of several rows, and its values."""

    sql: str
    values: Sequence[Any]


class Insert(NamedTuple):
    """The parts of an INSERT of one row."""

    start: str
    row: str
    end: str
    key: tuple[int, ...] | None
    """Positions of the values that no two rows of a statement may share; None: all may."""


def split(sql: str, sets: Sequence[Row]) -> tuple[Sequence[RowsInsert], Sequence[Row]]:
    """Return statements for several sets each, and the sets that are left for ``sql`` itself."""
    insert = parse(sql)
    if insert is None or not _can_share(insert, sets):
        return (), sets
    inserts, start = [], 0
    for length in _LENGTHS:
        while length <= len(sets) - start:
            part = sets[start : start + length]
            others = chain.from_iterable(values[1:] for values in part)
            inserts.append(RowsInsert(with_rows(sql, length, len(part[0])), [part[0][0], *others]))
            start += length
    return inserts, sets[start:]


@lru_cache(maxsize=256)
def parse(sql: str) -> Insert | None:
    """Return the parts; None if the organization is not the first value."""
    match = _INSERT.fullmatch(sql)
    if match is None or _PARAMETER.search(match[4]):
        return None
    columns, values = _names(match[2]), _names(match[3])
    if (columns[0], values[0]) != ("organization_id", "$1"):
        return None
    target = _TARGET.search(match[4])
    if target is None:
        return Insert(match[1], match[3], match[4], None)
    of_columns = dict(zip(columns, values, strict=True))
    parameters = [_PARAMETER.fullmatch(of_columns.get(name, "")) for name in _names(target[1])]
    key = tuple(int(found[1]) - 1 for found in parameters if found is not None)
    return Insert(match[1], match[3], match[4], key)


def _names(listed: str) -> list[str]:
    return [name.strip() for name in listed.split(",")]


def _can_share(insert: Insert, sets: Sequence[Row]) -> bool:
    """Return True if one statement can insert these sets of values of one organization.

    PostgreSQL refuses a statement that would insert a row and update it too.
    """
    if len({values[0] for values in sets}) != 1:
        return False
    if insert.key is None:
        return True
    keys = {tuple(values[position] for position in insert.key) for values in sets}
    return len(keys) == len(sets)


@lru_cache(maxsize=256)
def with_rows(sql: str, length: int, count: int) -> str:
    """Return the INSERT of this many rows, each with ``count`` values. $1 is the same in all."""
    insert = parse(sql)
    assert insert is not None
    assert length * count <= _MAX_PARAMETERS
    rows = [
        _PARAMETER.sub(partial(_shifted, number * (count - 1)), insert.row)
        for number in range(length)
    ]
    return f"{insert.start} {', '.join(f'({row})' for row in rows)}{insert.end}"


def _shifted(first: int, parameter: re.Match[str]) -> str:
    number = int(parameter[1])
    return "$1" if number == 1 else f"${number + first}"
