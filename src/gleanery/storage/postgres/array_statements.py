"""One PostgreSQL statement over arrays in place of one for each set of values.

The server starts and ends a statement for each set of values, which takes it longer than the seek
in between. This is for statements that leave no question how: a plain INSERT, an UPDATE or a SELECT
of one table, without a SELECT inside it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_INSERT = re.compile(r"\s*(INSERT INTO \w+\s*\([^()]+\))\s*VALUES\s*\(([$\d,\s]+)\)\s*")
_UPDATE = re.compile(r"\s*UPDATE (\w+)(\s+SET\s.+)\b(WHERE\s.+)", re.DOTALL)
_SELECT = re.compile(r"\s*(SELECT\s.+\sFROM \w+\sWHERE\s.+)", re.DOTALL)
_NOT_PLAIN = re.compile(r"\b(RETURNING|ORDER|LIMIT|CONFLICT)\b|\w\s.*\bSELECT\b", re.DOTALL)
_PARAMETER = re.compile(r"\$(\d+)")


def over_arrays(sql: str, types: Sequence[str]) -> str | None:
    """The statement for all sets of values, with an array of each type; None if it knows no way.

    Each set is looked for by itself, as the one statement would: a planner that may choose scans
    a table that was empty when it looked.
    """
    arrays = ", ".join(f"${number}::{name}[]" for number, name in enumerate(types, 1))
    if (found := _INSERT.fullmatch(sql)) and _are_in_order(found[2], len(types)):
        return f"{found[1]} SELECT * FROM unnest({arrays})"
    if _NOT_PLAIN.search(sql):
        return None
    names = ", ".join(f"p{number}" for number in range(1, len(types) + 1))
    whole = _PARAMETER.sub(r"many.p\1", sql)
    sets = f"unnest({arrays}) AS many ({names})"
    if found := _UPDATE.fullmatch(whole):
        table, change, condition = found.groups()
        place = f"(SELECT ctid AS place FROM {table} {condition} OFFSET 0) AS found"
        return f"UPDATE {table}{change} FROM {sets}, LATERAL {place} WHERE ctid = found.place"
    if found := _SELECT.fullmatch(whole):
        return f"SELECT found.* FROM {sets}, LATERAL ({found[1]} OFFSET 0) AS found"
    return None


def _are_in_order(places: str, count: int) -> bool:
    return _PARAMETER.findall(places) == [str(number) for number in range(1, count + 1)]
