"""The rows of the grid of outputs: a page around a position, with cells and changed cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field
from typing_extensions import TypedDict

from gleanery.api.console.values import CELL, Node, names_in_item, parse, truncate
from gleanery.api.context import RequestContext, Response
from gleanery.errors import ErrorDetail, InvalidRequest
from gleanery.models.fields import MAX_INT64, Text, WholeNumber, as_validation_error
from gleanery.models.requests import OutputFilters
from gleanery.storage import group_lock
from gleanery.storage.files.references import escape_markers
from gleanery.storage.history.update_fields import FieldReader, Update
from gleanery.storage.outputs import grid_pages
from gleanery.storage.outputs.grid_pages import END, Version
from gleanery.values import countries
from gleanery.values.json_text import decode, encode

_MAX_COLUMNS = 30
_MAX_BYTES = 8 * 1024 * 1024  # of stored items; a browser gets much less
_MAX_URL = 300
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
    columns: Annotated[Text, AfterValidator(as_validation_error("columns", _columns))] = "[]"
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


class GridRows(TypedDict):
    """A page of the grid, newest first."""

    rows: list[GridRow]
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
        self._context = context
        self._reader: FieldReader | None = None
        query = context.query
        paths: list[str] = decode(query.columns.encode())
        self._columns = {path: names_in_item(path) for path in paths}
        # The earlier states of the approved view are not kept.
        self._has_changes = query.changes == "true" and query.view == "full"

    async def add(self, versions: Sequence[Version]) -> None:
        changes = await self._read_changes(versions) if self._has_changes else {}
        render = partial(_render, versions, changes, self._columns)
        services, organization_id = self._context.services, self._context.organization_id
        self.rows += await services.computations.run(organization_id, render)

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


_Columns = Mapping[str, Sequence[str]]
"""The names of each path."""


def _render(
    versions: Sequence[Version], changes: Mapping[int, bytes], columns: _Columns
) -> list[GridRow]:
    return [_row(version, changes.get(version.seq), columns) for version in versions]


def _row(version: Version, changes: bytes | None, columns: _Columns) -> GridRow:
    item = parse(escape_markers(version.item))
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
    """Adds what the newest version changed; ``fields`` is None if that is not known."""
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
