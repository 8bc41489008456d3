"""The rows of the grid of outputs: a page around a position, with cells and changed cells.

Without chosen columns, the rows of the page say which columns fit. The statistics of the group
would say it for all outputs. But they take seconds for many sparse fields, and rows come first.

A page goes up or down from its position. Both directions are seeks in the same indexes. A page is
bounded in items, in bytes and in the steps of a search with several filters. So it may have few
items or none, and still have a next position.

See ``docs/explanation/console.md``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from heapq import nlargest
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, Field
from typing_extensions import TypedDict

from gleanery.service.api.context import RequestContext
from gleanery.service.api.response import Response
from gleanery.service.console.values import CELL, Node, Number, names_in_item, parse, truncate
from gleanery.service.foundation.errors import ErrorDetail, InvalidRequest
from gleanery.service.foundation.field_types import (
    MAX_INT64,
    Text,
    WholeNumber,
    as_validation_error,
)
from gleanery.service.foundation.values import countries, json_text
from gleanery.service.foundation.values.json_text import decode, encode
from gleanery.service.resources.files.references import escape_markers
from gleanery.service.resources.history.field_changes import FieldReader, Update
from gleanery.service.resources.outputs.models import OutputFilters
from gleanery.service.resources.outputs.search import max_steps, position_before, search_for
from gleanery.service.resources.outputs.search_statements import (
    NEWEST_FIRST,
    OLDEST_FIRST,
    Direction,
    Search,
)
from gleanery.service.storage import group_lock, paging
from gleanery.service.storage.database import Database, Row, Sql

_MAX_COLUMNS = 30
_MAX_BYTES = 8 * 1024 * 1024  # of stored items; a browser gets much less
_MAX_URL = 300
_USUAL_COLUMNS = 5
_MAX_USUAL_PATH = 256  # characters; the columns are in the URL of the next page
_LONG_TEXT = 60
_KINDS = {str: "string", Number: "number", bool: "boolean", list: "array", dict: "object"}
_BONUS = {"number": 0.2, "string": 0.1, "boolean": 0.05, "array": -0.3}
_NAME = re.compile("title|name|label|headline|.*_(title|name|label|headline)", re.IGNORECASE)
_APPROVAL = "$.is_approved"


def _columns(text: str) -> str:
    """Check that a text is a JSON array of field paths."""
    paths = decode(text.encode())
    if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
        raise ValueError("must be a JSON array of field paths")
    if len(paths) > _MAX_COLUMNS:
        raise ValueError(f"must have at most {_MAX_COLUMNS} field paths")
    for path in paths:
        names_in_item(path)
    return text


class RowQuery(OutputFilters):
    """Filters of outputs, a position, and what to show."""

    before: WholeNumber | None = Field(default=None, ge=0, le=MAX_INT64)
    after: WholeNumber | None = Field(default=None, ge=0, le=MAX_INT64)
    limit: WholeNumber = Field(default=100, ge=1, le=200)
    columns: Annotated[Text, AfterValidator(as_validation_error("columns", _columns))] | None = None
    changes: Literal["true", "false"] = "false"


class GridRow(TypedDict):
    """An output in a row of the grid."""

    output_id: str
    cursor: int
    value_cursor: int
    """Position at which the value was stored. Another ``cursor`` is of its approval."""
    job_id: str
    source_url: Node
    approved: bool
    update_date: str
    cells: list[Node | None]
    """The value of each column; null if the output does not have the field."""
    changed: dict[str, Node | None]
    """The earlier value of each column that the newest version changed; null if it had none."""
    changed_inside: list[str]
    """Columns with a member or an element that the newest version changed."""
    changes: int | None
    """Number of fields that the newest version changed, without approval; null if not known."""


class GridColumn(TypedDict):
    """A column that fits the rows of a page."""

    path: str
    kind: str


class GridRows(TypedDict):
    """A page of the grid, newest first."""

    rows: list[GridRow]
    columns: list[GridColumn] | None
    """Columns that fit the rows; null if the query has columns."""
    newer: int | None
    """``after`` of the page above; null if there was none."""
    older: int | None
    """``before`` of the page below; null if there was none."""
    newest: int | None
    """Position of the newest output of the group, or of the job."""
    oldest: int | None


async def get_rows(context: RequestContext[RowQuery, None]) -> Response:
    query, group = context.query, context.path["group_id"]
    page = _Page(context)
    limits = (query.limit, min(_MAX_BYTES, context.services.settings.max_page_bytes))
    extent = await read_extent(context.database, group, query)
    if query.after is not None:
        range_ = await read_newer(context.database, group, query, query.after, *limits, page.add)
        page.rows.reverse()
    else:
        before = END if query.before is None else query.before
        range_ = await read_older(context.database, group, query, before, *limits, page.add)
    if not page.rows and range_.newer is None and range_.older is None:
        _check_country(query.country)
    found = GridRows(
        rows=page.rows,
        columns=page.usual_columns,
        newer=range_.newer,
        older=range_.older,
        newest=extent.newest,
        oldest=extent.oldest,
    )
    return Response(encode(found))


def _check_country(name: str | None) -> None:
    """Rejects an unknown country that no output has."""
    if name is None or countries.is_known(name):
        return
    similar = countries.closest_country(name)
    question = f". Do you mean {similar}?" if similar else ""
    msg = f"Unknown country: give its English name, or its code, such as DE{question}"
    raise InvalidRequest(ErrorDetail(("query", "country"), msg, "unknown_country"))


class _Page:
    """Collects the rows of a page, in the order in which they are read."""

    def __init__(self, context: RequestContext[RowQuery, None]) -> None:
        self.rows: list[GridRow] = []
        self.usual_columns: list[GridColumn] | None = None
        self._context = context
        self._reader: FieldReader | None = None
        query = context.query
        if query.columns is None:
            self.usual_columns, self._columns = [], None
        else:
            paths: list[str] = decode(query.columns.encode())
            self._columns = {path: names_in_item(path) for path in paths}
        # The earlier states of the approved view are not kept.
        self._has_changes = query.changes == "true" and query.view == "full"

    async def add(self, versions: Sequence[GridVersion]) -> None:
        changes = await self._read_changes(versions) if self._has_changes else {}
        render = partial(self._render, versions, changes)
        services, organization_id = self._context.services, self._context.organization_id
        self.rows += await services.computations.run(organization_id, render)

    def _render(
        self, versions: Sequence[GridVersion], changes: Mapping[int, bytes]
    ) -> list[GridRow]:
        items: Iterable[Any] = (parse(escape_markers(version.item)) for version in versions)
        if self._columns is None:  # the first rows say which columns fit
            items = list(items)
            self.usual_columns = _find_usual([item["data"] for item in items])
            self._columns = {one["path"]: names_in_item(one["path"]) for one in self.usual_columns}
        return [
            _row(version, item, changes.get(version.seq), self._columns)
            for version, item in zip(versions, items, strict=True)
        ]

    async def _read_changes(self, versions: Sequence[GridVersion]) -> Mapping[int, bytes]:
        reader = self._reader or await self._open_reader()
        updates = [
            Update(version.seq, version.created_seq, version.item, version.identity)
            for version in versions
            if version.is_update
        ]
        return await reader.read_newest(updates) if updates else {}

    async def _open_reader(self) -> FieldReader:
        database, services = self._context.database, self._context.services
        group = self._context.path["group_id"]
        group_id = await group_lock.require_group(database, group)
        bounds = (0, _MAX_BYTES, services.clock())
        self._reader = FieldReader(database, services.computations, group, group_id, *bounds)
        return self._reader


def _find_usual(data: Sequence[dict[str, Any]]) -> list[GridColumn]:
    """Return the columns that most people want first: names, numbers, short texts."""
    values: dict[tuple[str, ...], list[Any]] = {}
    for one in data:
        for names, value in _fields(one):
            values.setdefault(names, []).append(value)
    kinds = {names: _most_frequent_kind(found) for names, found in values.items()}
    ranks = {
        names: _rank(names, kinds[names], found, len(data))
        for names, found in values.items()
        if kinds[names] in _BONUS and sum(map(len, names)) <= _MAX_USUAL_PATH
    }
    best = nlargest(_USUAL_COLUMNS, ranks, lambda names: ranks[names])
    return [GridColumn(path=json_text.path_of_names(names), kind=kinds[names]) for names in best]


def _fields(data: dict[str, Any]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the members, and the members of objects in it, as the statistics count them."""
    for name, value in data.items():
        yield (name,), value
        if isinstance(value, dict):
            for inner, one in value.items():
                yield (name, inner), one


def _most_frequent_kind(values: Sequence[Any]) -> str:
    counts = Counter(_KINDS[type(value)] for value in values if value is not None)
    return counts.most_common(1)[0][0] if counts else "null"


def _rank(names: Sequence[str], kind: str, values: Sequence[Any], count: int) -> float:
    """Return a larger number for a better column. An empty value is as bad as none."""
    filled = sum(value is False or bool(value) for value in values)
    lengths = sorted(len(value) for value in values if type(value) is str)
    is_long = kind == "string" and lengths[len(lengths) // 2] > _LONG_TEXT
    bonus = -0.3 if is_long else _BONUS[kind]
    return (
        2 * filled / count + 2 * bool(_NAME.fullmatch(names[-1])) + bonus - 0.2 * (len(names) - 1)
    )


_Columns = Mapping[str, Sequence[str]]
"""The names of each path."""


def render_usual(versions: Sequence[GridVersion]) -> tuple[list[GridColumn], list[GridRow]]:
    """Return rows without changes, and the columns that fit them."""
    items: list[Any] = [parse(escape_markers(version.item)) for version in versions]
    columns = _find_usual([item["data"] for item in items])
    names = {column["path"]: names_in_item(column["path"]) for column in columns}
    rows = [_row(version, item, None, names) for version, item in zip(versions, items, strict=True)]
    return columns, rows


def _row(
    version: GridVersion, item: dict[str, Any], changes: bytes | None, columns: _Columns
) -> GridRow:
    row = GridRow(
        output_id=item["output_id"],
        cursor=version.seq,
        value_cursor=version.version_seq,
        job_id=item["root_job_id"],
        source_url=truncate(item["source_url"], CELL._replace(text=_MAX_URL)),
        approved=item["is_approved"],
        update_date=item["update_date"],
        cells=[_cell(item, names) for names in columns.values()],
        changed={},
        changed_inside=[],
        changes=None if version.is_update else 0,
    )
    if changes is not None:
        _add_changes(row, parse(escape_markers(changes)), columns)
    return row


def _cell(value: Any, names: Sequence[str]) -> Node | None:
    for name in names:
        if not isinstance(value, dict) or name not in value:
            return None
        value = value[name]
    return truncate(value, CELL)


def _add_changes(row: GridRow, fields: list[dict[str, Any]] | None, columns: _Columns) -> None:
    """Add what the newest version changed; ``fields`` is None if that is not known."""
    if fields is None:
        return
    row["changes"] = sum(field["path"] != _APPROVAL for field in fields)
    inside: set[str] = set()
    for field in fields:
        path = field["path"]
        if path in columns:
            was_absent = field["kind"] == "added"
            row["changed"][path] = None if was_absent else truncate(field["before"], CELL)
        inside.update(column for column in columns if path.startswith((f"{column}.", f"{column}[")))
    row["changed_inside"] = [column for column in columns if column in inside]


# --- pages around a position --------------------------------------------------------------------

END = 2**63 - 1
"""A position after all outputs."""


class GridVersion(NamedTuple):
    """The present version of an output, or its last approved one in the approved view."""

    seq: int
    created_seq: int
    version_seq: int
    identity: bytes
    item: bytes

    @property
    def is_update(self) -> bool:
        """True if the output had another value before this version."""
        return self.version_seq != self.created_seq


Visit = Callable[[Sequence[GridVersion]], Awaitable[None]]
"""Gets the versions of a page in parts of about a megabyte, in the order of the search."""


class GridRange(NamedTuple):
    """What a page covers, as positions."""

    newer: int | None
    """Position after which the outputs above the page are; None if there are no more."""
    older: int | None
    """Position before which the outputs below the page are; None if there are no more."""


class Extent(NamedTuple):
    """The first and the last output of a group, or of a job in it; None if there is none."""

    newest: int | None
    oldest: int | None


async def read_extent(database: Database, group: str, filters: OutputFilters) -> Extent:
    """Read the positions between which the outputs are. Only the filter of the job counts."""
    wide = OutputFilters(job_id=filters.job_id, view=filters.view)
    newest = await _first(database, group, wide, NEWEST_FIRST, END)
    oldest = await _first(database, group, wide, OLDEST_FIRST, position_before(filters))
    if newest is None:
        await group_lock.require_group(database, group)
    return Extent(newest, oldest)


async def _first(
    database: Database, group: str, filters: OutputFilters, direction: Direction, position: int
) -> int | None:
    search, values = search_for(filters, direction)
    key = (database.organization_id, group, position, *values)
    rows = await database.read(search.sizes.within("", f" LIMIT ${len(key) + 1}"), *key, 1)
    return rows[0][0] if rows else None


async def read_older(
    database: Database,
    group: str,
    filters: OutputFilters,
    before: int,
    limit: int,
    max_bytes: int,
    visit: Visit,
) -> GridRange:
    """Read the outputs before a position, newest first."""
    bound = position_before(filters)
    page = _GridPage(database, group, filters, NEWEST_FIRST, limit, max_bytes)
    found = await page.read(before, lambda seq: seq > bound, visit)
    if before == END:
        return GridRange(None, found.next)
    return GridRange(before - 1 if found.first is None else found.first, found.next)


async def read_newer(
    database: Database,
    group: str,
    filters: OutputFilters,
    after: int,
    limit: int,
    max_bytes: int,
    visit: Visit,
) -> GridRange:
    """Read the outputs after a position, oldest first."""
    start = max(after, position_before(filters))
    page = _GridPage(database, group, filters, OLDEST_FIRST, limit, max_bytes)
    found = await page.read(start, lambda _: True, visit)
    return GridRange(found.next, after + 1 if found.first is None else found.first)


class _Found(NamedTuple):
    first: int | None
    """Position of the first output."""
    next: int | None
    """Position after which the search continues; None if it has ended."""


class _GridPage(NamedTuple):
    """The search for one page."""

    database: Database
    group: str
    filters: OutputFilters
    direction: Direction
    limit: int
    max_bytes: int

    async def read(self, position: int, is_wanted: Callable[[int], bool], visit: Visit) -> _Found:
        """Read the sizes of the items, and then as many items as fit, in parts."""
        search, values = search_for(self.filters, self.direction)
        if search.has_steps:
            values = (*values, max_steps(self.limit))
        found = await self._read(search.sizes, position, values, self.limit + 1)
        rows = [row for row in found if is_wanted(row[0])]
        sizes = [size for _, size in rows[: self.limit] if size]  # 0: the search stopped there
        count = paging.count_fitting(sizes, self.max_bytes)
        after = position
        for part in paging.split(rows[:count]):
            await visit(await self._read_part(search, after, values, part))
            after = part[-1][0]
        next_ = rows[count][0] + self.direction.previous if count < len(rows) else None
        return _Found(rows[0][0] if count else None, next_)

    async def _read_part(
        self, search: Search, position: int, values: Sequence[object], part: Sequence[Row]
    ) -> list[GridVersion]:
        """Read the versions of a part. One that has changed since is left out."""
        seqs = {seq for seq, _ in part}
        key = (self.database.organization_id, self.group, position, *values, len(part), part[-1][0])
        # Rows that change between both reads leave their place. Then others, which may be large,
        # would take it, so nothing beyond the last row of the part is read.
        bound = "<=" if self.direction is OLDEST_FIRST else ">="
        statement = search.versions.within(
            "SELECT * FROM (", f" LIMIT ${len(key) - 1}) AS part WHERE seq {bound} ${len(key)}"
        )
        rows = await self.database.read_large(statement, *key)
        return [GridVersion(*row) for row in rows if row[0] in seqs and row[-1]]

    async def _read(
        self,
        statement: Sql,
        position: int,
        values: Sequence[object],
        limit: int,
        is_large: bool = False,
    ) -> Sequence[Row]:
        key = (self.database.organization_id, self.group, position, *values)
        read = self.database.read_large if is_large else self.database.read
        return await read(statement.within("", f" LIMIT ${len(key) + 1}"), *key, limit)
