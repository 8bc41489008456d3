"""The rows of the grid of outputs: a page around a position, with cells and changed cells.

Without chosen columns, the rows of the page say which columns fit. The statistics of the group
would say it for all outputs. But they take seconds for many sparse fields, and rows come first.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from heapq import nlargest
from typing import Annotated, Any, Literal

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
from gleanery.service.resources.history.update_fields import FieldReader, Update
from gleanery.service.resources.outputs import grid_pages
from gleanery.service.resources.outputs.grid_pages import END, Version
from gleanery.service.resources.outputs.models import OutputFilters
from gleanery.service.storage import group_lock

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
    extent = await grid_pages.read_extent(context.database, group, query)
    if query.after is not None:
        range_ = await grid_pages.read_newer(
            context.database, group, query, query.after, *limits, page.add
        )
        page.rows.reverse()
    else:
        before = END if query.before is None else query.before
        range_ = await grid_pages.read_older(
            context.database, group, query, before, *limits, page.add
        )
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

    async def add(self, versions: Sequence[Version]) -> None:
        changes = await self._read_changes(versions) if self._has_changes else {}
        render = partial(self._render, versions, changes)
        services, organization_id = self._context.services, self._context.organization_id
        self.rows += await services.computations.run(organization_id, render)

    def _render(self, versions: Sequence[Version], changes: Mapping[int, bytes]) -> list[GridRow]:
        items: Iterable[Any] = (parse(escape_markers(version.item)) for version in versions)
        if self._columns is None:  # the first rows say which columns fit
            items = list(items)
            self.usual_columns = _find_usual([item["data"] for item in items])
            self._columns = {one["path"]: names_in_item(one["path"]) for one in self.usual_columns}
        return [
            _row(version, item, changes.get(version.seq), self._columns)
            for version, item in zip(versions, items, strict=True)
        ]

    async def _read_changes(self, versions: Sequence[Version]) -> Mapping[int, bytes]:
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


def _row(
    version: Version, item: dict[str, Any], changes: bytes | None, columns: _Columns
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
