"""The second wall between organizations: whose rows there are, and whether a statement says so.

The first wall is that every statement names the organization it works for. If one forgets to,
PostgreSQL still shows it no other rows (see ``row_security``). SQLite knows no such thing: there
the statement is read before it runs for the first time, and refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

ALL_TENANTS = -1
NO_TENANT = 0
ANY_TENANT = 1  # and above: some organization's number

OWNED = (
    "audit",
    "audit_clocks",
    "blobs",
    "bulk_jobs",
    "cookies",
    "countries",
    "files",
    "groups",
    "jobs",
    "local_storage",
    "unreferenced_blobs",
    "outputs",
    "requests",
    "reviews",
    "tombstones",
)
# What says whose a request is, has to be read before that is known; the rest is nobody's.
SHARED = ("metadata", "migrations", "organizations", "tokens")
_SHARED = frozenset((*SHARED, "output_ids", "sqlite_schema", "sqlite_sequence"))

_LITERAL, _COMMENT = r"'(?:[^']|'')*'", r"--[^\n]*|/\*.*?\*/"
_TOKEN = re.compile(rf"{_LITERAL}|{_COMMENT}|[\w.$]+|[^\s\w]", re.DOTALL)
_CONDITION = {"WHERE", "ON"}
_CLAUSE = {"FROM", "JOIN", "SET", "VALUES", "ORDER", "GROUP", "LIMIT", "RETURNING", "SELECT"}
_CLAUSE |= {"HAVING"}  # which is asked of groups of rows, whosever they are
_BEFORE_TABLE = {"FROM", "JOIN", "INTO", "UPDATE"}
_OUTER = {"LEFT", "RIGHT", "FULL"}
_NO_ALIAS = _CONDITION | _CLAUSE | _OUTER | {"INNER", "CROSS", "OUTER", "DO"}
_BETWEEN = {"UNION", "EXCEPT", "INTERSECT", ";"}
_KEYWORDS = _NO_ALIAS | _BEFORE_TABLE | {"AS", "OR", "NOT", "CONFLICT"}
_COLUMN = "organization_id"
_EQUATION = re.compile(rf"((?:\w+\.)?{_COLUMN}) = (\$\d+|(?:\w+\.)?{_COLUMN})")
_RANGE = re.compile(r"\bbetween (.+?) and\b")
_BETWEEN_CONDITIONS = re.compile(r" ?\b(?:WHERE|ON|and)\b ?")

_WITH = re.compile(r"\bWITH RECURSIVE (\w+)", re.IGNORECASE)

Tree = tuple["str | Tree", ...]


class MissingTenantFilter(RuntimeError):
    """A statement that would touch rows of organizations for which it does not work."""


def check(sql: str, whose: int) -> None:
    """Raises unless the statement keeps to the rows of the one it works for.

    ``whose`` is ALL_TENANTS, NO_TENANT, or ANY_TENANT: for one organization, whichever it is.
    """
    if whose == ALL_TENANTS:
        return
    scopes = list(_scopes(_tree(sql)))
    tables = {table for scope in scopes for table in scope.tables.values()}
    bare = {table for scope in scopes for table in scope.bare()} if whose else tables
    bare -= _SHARED | _made(sql)
    if bare:
        names = ", ".join(sorted(bare))
        raise MissingTenantFilter(f"a statement does not say whose rows of {names} it means: {sql}")


def _made(sql: str) -> set[str]:
    """What the statement makes for itself, out of what it has found."""
    return {name.lower() for name in _WITH.findall(sql)} - set(OWNED)


def _tree(sql: str) -> Tree:
    """The statement's words, what is in parentheses as a tuple of its own."""
    open_lists: list[list[str | Tree]] = [[]]
    for token in _TOKEN.findall(sql):
        if token.startswith(("--", "/*")):
            continue
        if token == "(":
            open_lists.append([])
        elif token == ")":
            closed = tuple(open_lists.pop())
            open_lists[-1].append(closed)
        else:
            open_lists[-1].append("''" if token.startswith("'") else _folded(token))
    return tuple(open_lists[0])


def _folded(word: str) -> str:
    """Keywords in capitals, names in small letters; whatever ends a SELECT as UNION."""
    upper = word.upper()
    if upper in _BETWEEN:
        return "UNION"
    return upper if upper in _KEYWORDS else word.lower()


class _Scope:
    """One SELECT, UPDATE, INSERT or DELETE: its tables, and which are held to an organization."""

    def __init__(self, words: Tree, outside: frozenset[str]) -> None:
        self.words = words
        self.outside = outside
        self.tables = dict(self._named_tables())
        self.is_insert = "INTO" in words

    def bare(self) -> Iterator[str]:
        """The tables of which rows of any organization are meant."""
        held = set() if "CONFLICT" in self.words else self._held()
        for alias, table in self.tables.items():
            if not (self._insert_names_it(table) if self.is_insert else alias in held):
                yield table

    def _named_tables(self) -> Iterator[tuple[str, str]]:
        """Each table with the name that it goes by; not what a SELECT in parentheses gives."""
        expected = in_from = False
        for place, word in enumerate(self.words):
            if word in _BEFORE_TABLE:
                expected = in_from = True
            elif word in _NO_ALIAS:
                expected = in_from = False
            elif in_from and word == ",":
                expected = True
            elif expected:
                expected = False
                if isinstance(word, str):
                    yield self._alias(place) or word, word
                elif "SELECT" not in word:
                    yield "()", "()"  # a table in parentheses, which nobody needs

    def _alias(self, place: int) -> str | None:
        for word in self.words[place + 1 :]:
            if word != "AS":
                is_name = isinstance(word, str) and word.isidentifier() and word not in _NO_ALIAS
                return str(word) if is_name else None
        return None

    def _insert_names_it(self, table: str) -> bool:
        """Whether the inserted row has an organization, and only its own can be in its way."""
        pairs = list(pairwise(self.words))
        lists: list[str | Tree] = [word for before, word in pairs if before == "CONFLICT"]
        lists += [word for before, word in pairs if before == table and isinstance(word, tuple)]
        names_it = bool(lists) and all(isinstance(w, tuple) and _COLUMN in w for w in lists)
        return names_it and "replace" not in self.words  # of whatever row is in the way

    def _held(self) -> set[str]:
        """The tables of which only rows of one organization are meant."""
        equal = list(self._equations())
        held = {left for left, right in equal if right is None} | self.outside - self.tables.keys()
        for _ in equal:  # each time round, what is equal to one that is held
            held |= {a for a, b in equal if b in held} | {b for a, b in equal if b and a in held}
        return held

    def _equations(self) -> Iterator[tuple[str, str | None]]:
        """Which table's organization is given ($1), or is that of another table."""
        # What is said ON an outer join keeps no row of the tables before it out.
        is_outer = not _OUTER.isdisjoint(self.words)
        if is_outer and len(self.tables) > 2:
            return
        for left, right in self._whole_equations(_CONDITION):
            if not right.startswith("$"):
                yield self._owner(left), self._owner(right)
        for left, right in self._whole_equations({"WHERE"} if is_outer else _CONDITION):
            if right.startswith("$"):
                yield self._owner(left), None

    def _whole_equations(self, after: set[str]) -> Iterator[tuple[str, str]]:
        """Those that must hold whatever else does: each a condition of its own, and no OR."""
        conditions = self._conditions(after)
        if " OR " in conditions:
            return
        for condition in _BETWEEN_CONDITIONS.split(_RANGE.sub(r"between \1", conditions)):
            if equation := _EQUATION.fullmatch(condition):
                yield equation[1], equation[2]

    def _conditions(self, after: set[str]) -> str:
        """The words of the conditions after these keywords, without what is in parentheses."""
        found = []
        inside = False
        for word, following in pairwise((*self.words, "")):
            if word in _CONDITION:
                inside = word in after and following != "CONFLICT"
            elif word in _CLAUSE:
                inside = False
            if inside:
                found.append(word if isinstance(word, str) else "()")
        return " ".join(found)

    def _owner(self, column: str) -> str:
        """The table of which this is the organization."""
        alias, _, _ = column.rpartition(".")
        return alias or (next(iter(self.tables)) if len(self.tables) == 1 else "")


def _scopes(words: Tree, outside: frozenset[str] = frozenset()) -> Iterator[_Scope]:
    """The statement, each branch of a UNION, and every SELECT in parentheses."""
    if "UNION" in words:
        end = words.index("UNION")
        yield from _scopes(words[:end], outside)
        yield from _scopes(words[end + 1 :], outside)
        return
    if "INTO" in words and "SELECT" in words:
        start = words.index("SELECT")
        end = words.index("CONFLICT") - 1 if "CONFLICT" in words else len(words)
        yield from _scopes(words[:start] + words[end:], outside)
        yield from _scopes(words[start:end], outside)
        return
    scope = _Scope(words, outside)
    yield scope
    for inner in words:
        if isinstance(inner, tuple):
            yield from _scopes(inner, outside | frozenset(scope.tables))
