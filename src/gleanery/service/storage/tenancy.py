"""The second layer of tenant isolation: tenant tables, and a checker for SQL statements.

The first layer is that every statement filters by the organization's id. If a statement lacks the
filter, row-level security in PostgreSQL still hides the rows of other tenants; see
``postgres.row_security``. SQLite has no such feature. For SQLite, ``check`` examines each statement
before its first run and rejects a statement that lacks a filter.

The method of the checker:

1. It splits the statement into tokens. The tokens in a pair of parentheses become a nested tuple.
2. It finds the queries of the statement: each branch of a UNION, and each SELECT in parentheses.
3. For each query it lists the tables, and the equalities of ``organization_id`` in WHERE and ON. An
   equality counts only if it is joined to the other conditions by AND.
4. A table is filtered if its ``organization_id`` is equal to a parameter, or to the
   ``organization_id`` of a filtered table of the same query or of an enclosing one.
5. An INSERT must set ``organization_id``. Its ON CONFLICT clause must name ``organization_id``, so
   that it can only meet a row of the same tenant.

The checker supports the part of SQL that this project uses. It rejects any other statement.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

ALL_TENANTS = -1
NO_TENANT = 0
ANY_TENANT = 1
"""Represents every organization's id in the checker; real ids start at 1."""

TENANT_TABLES = (
    "alerts",
    "approved_versions",
    "audit_log",
    "audit_positions",
    "blobs",
    "bulk_jobs",
    "cookies",
    "country_counts",
    "files",
    "groups",
    "idempotency_keys",
    "job_statistics",
    "jobs",
    "local_storage",
    "unreferenced_blobs",
    "organization_usage",
    "output_history",
    "outputs",
    "reviews",
    "run_sightings",
    "runs",
    "session_leases",
    "session_revisions",
    "tombstones",
    "view_tombstones",
    "webhook_deliveries",
    "webhook_headers",
    "webhook_positions",
    "webhook_secrets",
    "webhooks",
)
# Organizations, tokens and the console's sessions are read before the tenant of a request is known.
# The other tables hold no rows of tenants.
SHARED_TABLES = (
    "console_sessions",
    "deleted_organizations",
    "login_links",
    "metadata",
    "migrations",
    "organizations",
    "tokens",
)
_UNCHECKED_TABLES = frozenset((*SHARED_TABLES, "output_ids", "sqlite_schema", "sqlite_sequence"))

_LITERAL, _COMMENT = r"'(?:[^']|'')*'", r"--[^\n]*|/\*.*?\*/"
_INDEX = "INDEXED BY"  # a clause of SQLite after a table, which changes no result
_TOKEN = re.compile(rf"{_LITERAL}|{_COMMENT}|\b{_INDEX} \w+|[\w.$]+|[^\s\w]", re.DOTALL)
_CONDITION = {"WHERE", "ON"}
# HAVING ends the conditions: it filters groups of rows, not rows.
_CLAUSE = {"FROM", "JOIN", "SET", "VALUES", "ORDER", "GROUP", "LIMIT", "RETURNING", "SELECT"}
_CLAUSE |= {"HAVING"}
_BEFORE_TABLE = {"FROM", "JOIN", "INTO", "UPDATE"}
_OUTER = {"LEFT", "RIGHT", "FULL"}
_NO_ALIAS = _CONDITION | _CLAUSE | _OUTER | {"INNER", "CROSS", "OUTER", "DO"}
_QUERY_SEPARATORS = {"UNION", "EXCEPT", "INTERSECT", ";"}
_KEYWORDS = _NO_ALIAS | _BEFORE_TABLE | {"AS", "OR", "NOT", "CONFLICT"}
_COLUMN = "organization_id"
_EQUALITY = re.compile(rf"((?:\w+\.)?{_COLUMN}) = (\$\d+|(?:\w+\.)?{_COLUMN})")
_RANGE = re.compile(r"\bbetween (.+?) and\b")
_CONDITION_SEPARATOR = re.compile(r" ?\b(?:WHERE|ON|and)\b ?")

_RECURSIVE_QUERY = re.compile(r"\bWITH RECURSIVE (\w+)", re.IGNORECASE)

Tokens = tuple["str | Tokens", ...]


class MissingTenantFilter(RuntimeError):
    """A statement could touch rows of other tenants."""


def check(sql: str, tenant: int) -> None:
    """Raise MissingTenantFilter unless the statement only touches rows of the tenant.

    ``tenant`` is ANY_TENANT for a handle with one tenant, NO_TENANT or ALL_TENANTS.
    """
    if tenant == ALL_TENANTS:
        return
    queries = list(_queries(_parse(sql)))
    if tenant == NO_TENANT:
        rejected = {table for query in queries for table in query.tables.values()}
    else:
        rejected = {table for query in queries for table in query.unfiltered_tables()}
    rejected -= _UNCHECKED_TABLES | _recursive_names(sql)
    if rejected:
        tables = ", ".join(sorted(rejected))
        raise MissingTenantFilter(f"no filter by {_COLUMN} for {tables} in: {sql}")


def _recursive_names(sql: str) -> set[str]:
    """Return the names that WITH RECURSIVE defines; the queries that fill them are checked."""
    return {name.lower() for name in _RECURSIVE_QUERY.findall(sql)} - set(TENANT_TABLES)


def _parse(sql: str) -> Tokens:
    """Split a statement into normalized tokens, with a nested tuple for each parenthesis."""
    open_lists: list[list[str | Tokens]] = [[]]
    for token in _TOKEN.findall(sql):
        if token.startswith(("--", "/*", _INDEX)):
            continue
        if token == "(":
            open_lists.append([])
        elif token == ")":
            closed = tuple(open_lists.pop())
            open_lists[-1].append(closed)
        else:
            open_lists[-1].append("''" if token.startswith("'") else _normalize(token))
    return tuple(open_lists[0])


def _normalize(token: str) -> str:
    """Write keywords in capitals and other words in lower case; separators become UNION."""
    upper = token.upper()
    if upper in _QUERY_SEPARATORS:
        return "UNION"
    return upper if upper in _KEYWORDS else token.lower()


def _queries(tokens: Tokens, outer_tables: frozenset[str] = frozenset()) -> Iterator[_Query]:
    """Yield the query, each branch of a UNION, and each query in parentheses."""
    if "UNION" in tokens:
        end = tokens.index("UNION")
        yield from _queries(tokens[:end], outer_tables)
        yield from _queries(tokens[end + 1 :], outer_tables)
        return
    if "INTO" in tokens and "SELECT" in tokens:  # INSERT INTO … SELECT … ON CONFLICT …
        start = tokens.index("SELECT")
        end = tokens.index("CONFLICT") - 1 if "CONFLICT" in tokens else len(tokens)
        yield from _queries(tokens[:start] + tokens[end:], outer_tables)
        yield from _queries(tokens[start:end], outer_tables)
        return
    query = _Query(tokens, outer_tables)
    yield query
    for token in tokens:
        if isinstance(token, tuple):
            yield from _queries(token, outer_tables | frozenset(query.tables))


class _Query:
    """One SELECT, UPDATE, INSERT or DELETE: its tables, and which of them are filtered."""

    def __init__(self, tokens: Tokens, outer_tables: frozenset[str]) -> None:
        self.tokens = tokens
        self.outer_tables = outer_tables
        self.tables = dict(self._find_tables())
        """The tables by their alias."""
        self.is_insert = "INTO" in tokens

    def unfiltered_tables(self) -> Iterator[str]:
        filtered = set() if "CONFLICT" in self.tokens else self._filtered_aliases()
        for alias, table in self.tables.items():
            is_safe = self._insert_sets_tenant(table) if self.is_insert else alias in filtered
            if not is_safe:
                yield table

    def _find_tables(self) -> Iterator[tuple[str, str]]:
        """Yield each table with its alias, but not the result of a SELECT in parentheses."""
        is_expected = in_from = False
        for index, token in enumerate(self.tokens):
            if token in _BEFORE_TABLE:
                is_expected = in_from = True
            elif token in _NO_ALIAS:
                is_expected = in_from = False
            elif in_from and token == ",":
                is_expected = True
            elif is_expected:
                is_expected = False
                if isinstance(token, str):
                    yield self._alias(index) or token, token
                elif "SELECT" not in token:
                    yield "()", "()"  # a join in parentheses: not supported, so it is rejected

    def _alias(self, table_index: int) -> str | None:
        for token in self.tokens[table_index + 1 :]:
            if token != "AS":
                is_name = isinstance(token, str) and token.isidentifier()
                return str(token) if is_name and token not in _NO_ALIAS else None
        return None

    def _insert_sets_tenant(self, table: str) -> bool:
        """Return True if an INSERT sets the tenant and can conflict only with its rows."""
        pairs = list(pairwise(self.tokens))
        lists: list[str | Tokens] = [token for before, token in pairs if before == "CONFLICT"]
        lists += [token for before, token in pairs if before == table and isinstance(token, tuple)]
        names_column = bool(lists) and all(isinstance(t, tuple) and _COLUMN in t for t in lists)
        return names_column and "replace" not in self.tokens  # REPLACE deletes any conflicting row

    def _filtered_aliases(self) -> set[str]:
        equalities = list(self._equalities())
        filtered = {left for left, right in equalities if right is None}
        filtered |= self.outer_tables - self.tables.keys()
        for _ in equalities:  # each pass follows the equalities one step further
            filtered |= {left for left, right in equalities if right in filtered}
            filtered |= {right for left, right in equalities if right and left in filtered}
        return filtered

    def _equalities(self) -> Iterator[tuple[str, str | None]]:
        """Yield pairs of aliases with equal tenants; None stands for a parameter."""
        # The ON clause of an outer join does not filter the rows of the left table.
        is_outer_join = not _OUTER.isdisjoint(self.tokens)
        if is_outer_join and len(self.tables) > 2:
            return
        for left, right in self._certain_equalities(_CONDITION):
            if not right.startswith("$"):
                yield self._alias_of(left), self._alias_of(right)
        for left, right in self._certain_equalities({"WHERE"} if is_outer_join else _CONDITION):
            if right.startswith("$"):
                yield self._alias_of(left), None

    def _certain_equalities(self, keywords: set[str]) -> Iterator[tuple[str, str]]:
        """Yield the equalities that hold for every row: whole conditions, joined by AND only."""
        conditions = self._conditions(keywords)
        if " OR " in conditions:
            return
        for condition in _CONDITION_SEPARATOR.split(_RANGE.sub(r"between \1", conditions)):
            if equality := _EQUALITY.fullmatch(condition):
                yield equality[1], equality[2]

    def _conditions(self, keywords: set[str]) -> str:
        """Join the tokens of the conditions after these keywords; parentheses become ``()``."""
        tokens = []
        is_inside = False
        for token, next_token in pairwise((*self.tokens, "")):
            if token in _CONDITION:
                is_inside = token in keywords and next_token != "CONFLICT"
            elif token in _CLAUSE:
                is_inside = False
            if is_inside:
                tokens.append(token if isinstance(token, str) else "()")
        return " ".join(tokens)

    def _alias_of(self, column: str) -> str:
        """Return the alias of the table that the column belongs to; empty if it is unclear."""
        alias, _, _ = column.rpartition(".")
        return alias or (next(iter(self.tables)) if len(self.tables) == 1 else "")
