"""Rewrites a statement that runs once per set of values into one statement over arrays, for Citus.

The organization is the first parameter and no array, so that Citus sends the statement to one
shard. Otherwise the rewriting is that of ``array_statements``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from gleanery.storage.postgres.array_statements import (
    INSERT,
    INSERT_SELECT,
    NOT_SIMPLE,
    UPDATE,
    are_in_order,
    over_arrays,
    replace_parameters,
)

_OF_ORGANIZATION = re.compile(r"\borganization_id = \$1\b")
_COLUMNS = re.compile(r"INSERT INTO (\w+)\s*\(([^()]+)\)")


def in_one_shard(sql: str, types: Sequence[str], scalars: int) -> str | None:
    """Returns the statement with arrays; None if the statement is not simple.

    ``types`` are the types of the parameters. The first ``scalars`` do not become arrays.
    """
    numbered = [*enumerate(types, 1)][scalars:]
    arrays = ", ".join(f"${number}::{name}[]" for number, name in numbered)
    names = ", ".join(f"p{number}" for number, _ in numbered)
    sets = f"unnest({arrays}) AS many ({names})"
    if match := INSERT.fullmatch(sql):
        in_order = scalars == 1 and are_in_order(match[2], len(types))
        return _insert(match[1], sets, types[0], match[3] or "") if in_order else None
    if not scalars or NOT_SIMPLE.search(sql) or not _OF_ORGANIZATION.search(sql):
        return None
    if INSERT_SELECT.fullmatch(sql):
        return None
    if match := UPDATE.fullmatch(replace_parameters(sql, types, scalars)):
        table, change, condition = match.groups()
        return f"UPDATE {table}{change} FROM {sets} {condition}"
    return over_arrays(sql, types, scalars)


def _insert(insert: str, sets: str, type_: str, returning: str) -> str | None:
    """Returns an INSERT of rows that are selected together with a row of the same shard.

    Citus sends only such an INSERT to the shard as it is. That row always exists: outputs and all
    that belongs to them are in a group, and an entry of the audit log follows its position.
    """
    match = _COLUMNS.match(insert)
    assert match is not None
    table, columns = match[1], [column.strip() for column in match[2].split(",")]
    if columns[0] != "organization_id":
        return None
    if table == "audit_log":
        existing, condition = "audit_positions", ""
    elif "group_id" in columns:
        number = columns.index("group_id") + 1
        existing, condition = "groups", f" AND existing.id = many.p{number}"
    else:
        return None
    return (
        f"{insert} SELECT existing.organization_id, many.* FROM {existing} AS existing, {sets} "
        f"WHERE existing.organization_id = $1::{type_}{condition} {returning}"
    )
