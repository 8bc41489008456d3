"""The statements of a search for outputs: index seeks in the change order, in SQL of both engines.

A search covers all outputs of a group, or its approved view. The approved view consists of two
tables: the approved outputs, and the last approved version of each output that has a newer value.
An output is in one of them. It moves between them without a new sequence number, so one statement
reads both. A sequence number is unique in the group, so it finds one row of the view.

A statement without a filter, or with one, reads an index in order. With several filters it is a
skip-scan join over one index per filter; see ``intersect_indexes``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import NamedTuple

from gleanery.service.resources.outputs.elements import HASH_BYTES, SITE_PREFIX
from gleanery.service.storage import paging
from gleanery.service.storage.database import Sql

_OUTPUTS, _APPROVED_VERSIONS = "outputs", "approved_versions"
_GROUP_ID = "(SELECT id FROM groups WHERE organization_id = $1 AND name = $2)"
_IN_ORDER = "in_order"
# The job of an approved output; it has an index. For SQLite, only a CAST has the type of a column.
_APPROVED_JOB = "CAST(CASE WHEN approved THEN job_id END AS BIGINT)"
_INDEXES = {
    "job_id": "by_job",
    "url_hash": "by_url",
    "country": "by_country",
    "region": "by_region",
    "approved": "by_approval",
    "missing_since": "by_missing",
}
_FILTER_VALUES = {
    "job_id": f"""(SELECT id FROM jobs
        WHERE organization_id = $1 AND group_id = {_GROUP_ID} AND name = ${{}})""",
    # The parameter is two hashes: for a group without bytes of the site in its hashes, and with.
    "url_hash": f"""(SELECT CASE WHEN identity_format < {SITE_PREFIX}
            THEN substr(CAST(${{0}} AS BYTEA), 1, {HASH_BYTES})
            ELSE substr(CAST(${{0}} AS BYTEA), {1 + HASH_BYTES}) END
        FROM groups WHERE organization_id = $1 AND name = $2)""",
    "country": "${}",
    "region": "${}",
    "approved": "${}",
    "missing_since": "${}",
}
# An output that is missing has the number of a run. The constant chooses the index of such outputs.
_COMPARISONS = {"missing_since": "missing_since > 0 AND missing_since > {}"}
# The id and the text of an output for an export: 0 and empty if it was created after the export
# began, or entered the view after that; -1 and empty where a search with several filters stopped.
_LINE_ID = "CASE WHEN {} <= {} THEN id ELSE 0 END"
_LINE = "CASE WHEN {} > {} THEN CAST('' AS BYTEA) ELSE {} END"
_EMPTY = "CAST('' AS BYTEA)"


class _Dialect(NamedTuple):
    """The parts of a search that differ between the engines."""

    item: str
    """The text of an item, unless it is longer than a parameter."""
    table: str
    """A table, of which an index is used."""
    separate: str
    """Keeps a subquery separate from the statement around it."""
    part: str
    """One of several searches, with its order and the parameter of its limit."""
    merged: str
    """All of them."""


# If an item is too long, SQLite raises TooBigError at once, because no value can have that many
# bytes.
_SQLITE = _Dialect(
    item="CASE WHEN octet_length(item) <= {} THEN item ELSE zeroblob(1000000000000) END",
    table="{table} INDEXED BY {table}_{index}",
    separate="",
    part="{search}",
    merged="{union}",
)
# If an item is too long, PostgreSQL returns null.
_POSTGRES = _Dialect(
    item="CASE WHEN octet_length(item) <= {} THEN item END",
    table="{table}",
    separate=" OFFSET 0",
    part="SELECT * FROM ({search} ORDER BY {order} LIMIT ${limit}) AS part",
    merged="SELECT * FROM (\n{union}\n) AS view",
)


class Direction(NamedTuple):
    """The order in which a search finds outputs: SQL that differs between the two."""

    comparison: str
    """Compares a sequence number with the position after which a search begins."""
    order: str
    first: str
    """Aggregate function: the first of several sequence numbers."""
    previous: int
    """Added to a sequence number, the position from which a search finds that number first."""


OLDEST_FIRST = Direction(">", "seq", "min", -1)
NEWEST_FIRST = Direction("<", "seq DESC", "max", 1)


class Search(NamedTuple):
    """The statements that find outputs in the change order, for one set of filters.

    Their parameters are the organization, the group, the position after which they search, the
    values of the filters, and the maximum number of steps if there are several filters. The caller
    adds a LIMIT, whose parameter follows the others. If a search finds the newest output first,
    the position after which it searches is above what it finds.
    """

    items: Sql
    """Finds seq and item. Its last parameter is the maximum length of an item."""
    sizes: Sql
    """Finds seq and the size of the item."""
    lines: Sql
    """Finds seq, id and item for an export.

    Its last parameters are the position where the export began, and the maximum length of an item.
    """
    versions: Sql
    """Finds seq, created_seq, version_seq, identity and item, of any length."""
    has_steps: bool
    """True if the parameter after the filters is the maximum number of steps."""


class _Column(NamedTuple):
    """A value that a search finds in addition to seq."""

    value: str
    name: str
    stop_value: str
    """Value of the row where a search with several filters stopped."""


_Rows = tuple[str, ...]
"""The rows that meet a condition: one FROM and WHERE clause for each table."""


@lru_cache(maxsize=128)
def statements(
    columns: tuple[str, ...], in_view: bool = False, direction: Direction = OLDEST_FIRST
) -> Search:
    """Return the search with filters of these columns. Each filter uses the column's index.

    If there is a filter of the job, it comes first. In the view, the first filter is the job, or
    else the approval, whose value is TRUE.
    """
    if in_view and "job_id" not in columns:
        columns = ("approved", *columns)
    sqlite, postgres = (
        _texts(dialect, columns, in_view, direction) for dialect in (_SQLITE, _POSTGRES)
    )
    items, sizes, lines, versions = map(Sql, sqlite, postgres)
    return Search(items, sizes, lines, versions, has_steps=len(columns) > 1)


def _texts(
    dialect: _Dialect, columns: tuple[str, ...], in_view: bool, direction: Direction
) -> tuple[str, str, str, str]:
    """Return the statements of a search for one engine."""
    conditions = _conditions(dialect, columns, in_view)
    has_steps = len(conditions) > 1
    number = 4 + len(columns)
    steps = f"${number}" if has_steps else None
    first, second, third = (number + has_steps + offset for offset in range(3))
    entered = "view_seq" if in_view else "created_seq"
    line = _LINE.format(entered, f"${first}", dialect.item.format(f"${second}"))
    item = _Column(dialect.item.format(f"${first}"), "item", _EMPTY)
    size = _Column(paging.ITEM_SIZE, "size", "0")
    id_ = _Column(_LINE_ID.format(entered, f"${first}"), "id", "-1")
    version = (
        _Column(entered, "created_seq", "0"),
        _Column("version_seq", "version_seq", "0"),
        _Column("identity", "identity", _EMPTY),
        _Column("item", "item", _EMPTY),
    )
    return (
        _statement(dialect, direction, conditions, steps, second, item),
        _statement(dialect, direction, conditions, steps, first, size),
        _statement(
            dialect, direction, conditions, steps, third, id_, _Column(line, "item", _EMPTY)
        ),
        _statement(dialect, direction, conditions, steps, first, *version),
    )


def _conditions(dialect: _Dialect, columns: tuple[str, ...], in_view: bool) -> Sequence[_Rows]:
    """Return the rows of each condition. Without a condition, these are all rows."""
    filtered = partial(_filtered, dialect)
    if not in_view:
        found = [(filtered(_OUTPUTS, column, n),) for n, column in enumerate(columns, 4)]
        return found or [(_rows(dialect, _OUTPUTS, _IN_ORDER),)]
    both = [
        (filtered(_OUTPUTS, column, n), filtered(_APPROVED_VERSIONS, column, n))
        for n, column in enumerate(columns[1:], 5)
    ]
    return [_rows_of_view(dialect, columns[0]), *both]


def _rows_of_view(dialect: _Dialect, column: str) -> _Rows:
    """Return the rows of the view, of one job or of all."""
    if column == "job_id":
        job = _FILTER_VALUES["job_id"].format(4)
        approved = f"{_rows(dialect, _OUTPUTS, 'approved_by_job')} AND {_APPROVED_JOB} = {job}"
        return approved, _filtered(dialect, _APPROVED_VERSIONS, "job_id", 4)
    # With TRUE instead of a parameter, PostgreSQL could test the approval of each row.
    approved = _filtered(dialect, _OUTPUTS, "approved", 4)
    return approved, _rows(dialect, _APPROVED_VERSIONS, _IN_ORDER)


def _filtered(dialect: _Dialect, table: str, column: str, number: int) -> str:
    """Return the rows of the group with the value of this parameter in the column."""
    rows = _rows(dialect, table, _INDEXES[column])
    value = _FILTER_VALUES[column].format(number)
    return f"{rows} AND {_COMPARISONS.get(column, column + ' = {}').format(value)}"


def _rows(dialect: _Dialect, table: str, index: str) -> str:
    """Return the rows of the group. SQLite must use the index."""
    return (
        f"{dialect.table.format(table=table, index=index)} "
        f"WHERE {table}.organization_id = $1 AND {table}.group_id = {_GROUP_ID}"
    )


def _statement(
    dialect: _Dialect,
    direction: Direction,
    conditions: Sequence[_Rows],
    max_steps: str | None,
    limit: int,
    *selected: _Column,
) -> str:
    """Return the statement that finds seq and the selected values of each output."""
    if max_steps is not None:
        return intersect_indexes(dialect, conditions, selected, max_steps, direction)
    [rows] = conditions
    values = ", ".join(f"{value} AS {name}" for value, name, _ in selected)
    comparison, order = direction.comparison, direction.order
    found = [f"SELECT seq, {values} FROM {one} AND seq {comparison} $3" for one in rows]
    merged = _merge(dialect, found, limit, order) if len(found) > 1 else found[0]
    return f"{merged} ORDER BY {order}"


def _merge(dialect: _Dialect, searches: Sequence[str], limit: int, order: str) -> str:
    """Return the rows of several searches, for an ORDER BY seq.

    Both engines read the searches together, in order, and stop at the LIMIT. If PostgreSQL sorts
    them instead, it reads at most the number of rows in this parameter from each.
    """
    parts = [dialect.part.format(search=one, order=order, limit=limit) for one in searches]
    return dialect.merged.format(union="\nUNION ALL\n".join(parts))


def intersect_indexes(
    dialect: _Dialect,
    conditions: Sequence[_Rows],
    selected: Sequence[_Column],
    max_steps: str,
    direction: Direction,
) -> str:
    """Return a skip-scan join: it finds the rows that meet several conditions, each by its index.

    A step takes the next sequence number of the first index (``low``). From there it seeks the next
    number of the second index, and so on (``high``). If both are equal, the row meets every
    condition. If not, the next step skips to ``high``. There are at most as many steps as the
    rarest condition has rows. A value is a subquery, because a planner could reverse a join.

    If the number of steps reaches the maximum, the last row is the place where the search stopped.
    It has stop values instead of values, and its row may meet every condition or not.

    The other direction is the same with the order reversed: there ``high`` is below ``low``.
    """
    low = _seek(dialect, conditions[0], direction, "", "{}")
    high = low
    for more in conditions[1:]:
        high = _seek(dialect, more, direction, "=", high)
    # A subquery, because the sum is not leakproof: with row-level security, PostgreSQL 15 would
    # test it in each row of the group. OFFSET 0 keeps the subquery separate.
    after = (
        f"(SELECT CASE WHEN low = high THEN low ELSE high + {direction.previous} END"
        f"{dialect.separate})"
    )
    tables = (_OUTPUTS, _APPROVED_VERSIONS)[: len(conditions[0])]
    values = ", ".join(
        f"""CASE WHEN steps < {max_steps}
    THEN {_value_at_high(dialect, value, tables)}
    ELSE {stop_value} END AS {name}"""
        for value, name, stop_value in selected
    )
    return f"""
WITH RECURSIVE skip_scan (low, high, steps) AS (
    SELECT {low.format("$3")}, {high.format("$3")}, 1
    UNION ALL
    SELECT {low.format(after)}, {high.format(after)}, steps + 1 FROM skip_scan
    WHERE high IS NOT NULL AND steps < {max_steps})
SELECT high AS seq, {values}
FROM skip_scan WHERE low = high OR high IS NOT NULL AND steps >= {max_steps}
"""


def _seek(dialect: _Dialect, rows: _Rows, direction: Direction, equality: str, seq: str) -> str:
    """Return the subquery for the next sequence number of an index, or of one for each table."""
    if len(rows) == 1:
        return _seek_in(rows[0], direction, equality, seq)
    union = " UNION ALL ".join(
        f"SELECT {_seek_in(one, direction, equality, 'bound')} AS seq" for one in rows
    )
    # OFFSET 0 keeps PostgreSQL from computing the bound again for each table.
    return (
        f"(SELECT (SELECT {direction.first}(seq) FROM ({union}) AS next_numbers) "
        f"FROM (SELECT CAST({seq} AS BIGINT) AS bound{dialect.separate}) AS start)"
    )


def _seek_in(rows: str, direction: Direction, equality: str, seq: str) -> str:
    comparison = f"seq {direction.comparison}{equality} {seq}"
    return f"(SELECT seq FROM {rows} AND {comparison} ORDER BY {direction.order} LIMIT 1)"


def _value_at_high(dialect: _Dialect, value: str, tables: Sequence[str]) -> str:
    """Return the value of the row with this number, which is in one of the tables."""
    rows = [_rows(dialect, table, _IN_ORDER) for table in tables]
    found = [f"(SELECT {value} FROM {one} AND seq = high)" for one in rows]
    return f"COALESCE({', '.join(found)})" if len(found) > 1 else found[0]
