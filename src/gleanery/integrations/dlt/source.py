"""The source and its resources: tables of outputs, logs of changes, and the position in each.

See ``docs/explanation/dlt.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from copy import deepcopy
from typing import Any, NamedTuple

import dlt
from dlt.common import logger
from dlt.common.configuration.container import Container
from dlt.common.destination import DestinationCapabilitiesContext
from dlt.common.destination.utils import resolve_merge_strategy
from dlt.common.schema.typing import TColumnSchema, TTableSchema
from dlt.extract import DltResource
from msgspec import Raw

from gleanery.client import Client, CursorExpired, Group, NotFound
from gleanery.client.requests import View
from gleanery.integrations.dlt.rows import (
    MemberNames,
    Paths,
    Row,
    change_row,
    output_row,
    paths_of_doubles,
    restart_row,
    run_row,
)

_PAGE_SIZE = 1000
_EXPIRED = (
    "The position in the group {!r} has expired: the service no longer knows all deletions after "
    "it, or was restored."
)
_ADVICE = 'Use another pipeline, or replace its tables: pipeline.run(…, refresh="drop_resources")'

_Columns = dict[str, TColumnSchema]

_DATES: _Columns = {
    name: {"data_type": "timestamp"} for name in ("create_date", "update_date", "last_scraped_date")
}
# Of the rows with the same key in a run, dlt keeps the one with the last position.
_CURSOR: TColumnSchema = {"data_type": "bigint", "dedup_sort": "desc"}
_OUTPUT_COLUMNS: _Columns = {
    **_DATES,
    "cursor": _CURSOR,
    "deleted": {"data_type": "bool", "hard_delete": True},
}
_CHANGE_COLUMNS: _Columns = {
    **_DATES,
    "cursor": _CURSOR,
    "change_date": {"data_type": "timestamp"},
    "reason": {"data_type": "text"},
}
_RUN_COLUMNS: _Columns = {
    "start_date": {"data_type": "timestamp"},
    "finish_date": {"data_type": "timestamp"},
    "message": {"data_type": "text"},
    "labels": {"data_type": "json"},
    "comparison": {"data_type": "text"},
    "removal": {"data_type": "text"},
}


class Feed(NamedTuple):
    """Change feed of one group, and the resource that loads it."""

    resource: str
    base_url: str
    token: str
    group: str
    view: View
    page_size: int


@dlt.source(name="gleanery", section="gleanery")
def gleanery_source(
    groups: list[str] = dlt.config.value,
    base_url: str = dlt.config.value,
    token: str = dlt.secrets.value,
    view: View = "full",
    changes: bool = False,
    page_size: int = _PAGE_SIZE,
    runs: bool = False,
) -> Iterator[DltResource]:
    """Load the outputs of groups, and afterwards only their changes and deletions.

    Args:
        groups: The ``group_id`` of each group. Each has a resource and a table,
            ``outputs_<group_id>``, with one row for each output.
        base_url: Address of the service, such as ``https://gleanery.example.com``.
        token: Token with the scope ``outputs:read``.
        view: ``"approved"`` loads each output in its last approved version.
        changes: Adds a resource ``changes_<group_id>`` for each group: a log of its changes, to
            which each run adds.
        page_size: Number of changes in one request, at most 1000.
        runs: Adds a resource ``runs_<group_id>`` for each group: the runs of its jobs.

    Yields:
        The resources.
    """
    names = [groups] if isinstance(groups, str) else list(groups)
    _require_distinct(names)
    for group in names:
        options = (base_url, token, group, view, page_size)
        yield _outputs_resource(Feed(f"outputs_{group}", *options))
        if changes:
            yield _changes_resource(Feed(f"changes_{group}", *options))
        if runs:
            yield _runs_resource(Feed(f"runs_{group}", *options))


def _outputs_resource(feed: Feed) -> DltResource:
    resource: DltResource = dlt.resource(
        _load_outputs,
        name=feed.resource,
        write_disposition="merge",
        primary_key="output_id",
        columns=_OUTPUT_COLUMNS,
    )(feed)
    return resource


def _changes_resource(feed: Feed) -> DltResource:
    resource: DltResource = dlt.resource(
        _load_changes,
        name=feed.resource,
        write_disposition="merge",
        # a cursor is not a key: that of an old change depends on the day of the run
        primary_key=("output_id", "change", "change_date"),
        columns=_CHANGE_COLUMNS,
    )(feed)
    return resource


def _runs_resource(feed: Feed) -> DltResource:
    resource: DltResource = dlt.resource(
        _load_runs,
        name=feed.resource,
        write_disposition="merge",
        primary_key="run_id",
        columns=_RUN_COLUMNS,
    )(feed)
    return resource


def _load_runs(feed: Feed) -> Iterator[list[Row]]:
    """Yield all runs that the service has: even one that has ended can change later."""
    with Client(feed.base_url, feed.token) as client, suppress(NotFound):  # the group is deleted
        for page in client.runs(feed.group, page_size=feed.page_size).raw_pages():
            yield [run_row(run) for run in page]


def _load_outputs(feed: Feed) -> Iterator[list[Row]]:
    _require_exact_merge()
    with Client(feed.base_url, feed.token) as client:
        position = _open_position(feed, client)
        if _has_expired(feed, client, position.cursor):
            logger.warning(f"{_EXPIRED.format(feed.group)} All rows of its table are replaced.")
            _truncate(feed.resource)
            position.cursor = 0
        yield from _load(feed, client, position, output_row)


def _load_changes(feed: Feed) -> Iterator[list[Row]]:
    with Client(feed.base_url, feed.token) as client:
        position = _open_position(feed, client)
        if _has_expired(feed, client, position.cursor):
            logger.warning(f"{_EXPIRED.format(feed.group)} The log has a row 'restart'.")
            gap = restart_row(feed.group, position.cursor)
            position.cursor = 0
            yield [gap]
        yield from _load(feed, client, position, change_row)


def _open_position(feed: Feed, client: Client) -> _Position:
    return _Position(dlt.current.resource_state(), feed.resource, client.base_url, feed.view)


def _has_expired(feed: Feed, client: Client, cursor: int) -> bool:
    """Return True if the service does not know all deletions after the cursor."""
    if cursor == 0:
        return False
    try:
        next(iter(client.changes(feed.group, cursor=cursor, view=feed.view, limit=1)), None)
    except CursorExpired:
        return True
    return False


def _load(
    feed: Feed, client: Client, position: _Position, to_row: Callable[[Raw, Paths], Row]
) -> Iterator[list[Row]]:
    """Yield the rows of each page. The position is moved first, because dlt may stop after one."""
    with suppress(NotFound):  # the group is deleted, and its feed says which rows to remove
        position.require_same_group(feed.resource, client.group(feed.group))
    pager = client.changes(
        feed.group, cursor=position.cursor, view=feed.view, page_size=feed.page_size
    )
    doubles: Paths | None = None
    names = MemberNames(feed.group)
    for page in pager.raw_pages():
        if doubles is None:
            doubles = _read_paths_of_doubles(client, feed.group)
        rows = [to_row(change, doubles) for change in page]
        position.cursor = rows[-1]["cursor"]
        yield names.separate(rows)
    position.cursor = pager.cursor


def _read_paths_of_doubles(client: Client, group: str) -> Paths:
    try:
        return paths_of_doubles(client.fields(group))
    except NotFound:  # the group is deleted: its changes are deletions, which have no data
        return []


# --- position in the change feed, in the state of the pipeline ----------------------------------


class _Position:
    """Cursor after the last change that was loaded.

    dlt stores the state in the same load package as the rows. A run that fails while it reads
    discards both. A run that fails while it loads keeps the package, and the next run loads it.
    """

    def __init__(self, state: dict[str, Any], resource: str, url: str, view: View) -> None:
        self._state = state
        source = {"url": url, "view": view}
        stored = {name: state.setdefault(name, value) for name, value in source.items()}
        if stored != source:
            raise ValueError(
                f"The resource {resource!r} was loaded from {_describe(stored)}, not from "
                f"{_describe(source)}. {_ADVICE}"
            )

    def require_same_group(self, resource: str, group: Group) -> None:
        """Raise ValueError if the rows come from another group with the same name.

        Each organization and each database has its own groups. A deleted group keeps its number.
        """
        number = self._state.setdefault("group_number", group.id)
        if number != group.id:
            reason = f"it had the number {number}, and has the number {group.id} now"
        elif self.cursor > group.cursor:
            reason = "it has no changes at the position of the last run"
        else:
            return
        raise ValueError(
            f"The group {group.group_id!r} is not the one from which {resource!r} was loaded: "
            f"{reason}. The token belongs to another organization, or the service has a new "
            f"database. {_ADVICE}"
        )

    @property
    def cursor(self) -> int:
        cursor: int = self._state.get("cursor", 0)
        return cursor

    @cursor.setter
    def cursor(self, cursor: int) -> None:
        self._state["cursor"] = cursor


def _describe(source: dict[str, Any]) -> str:
    return f"{source['url']} (view={source['view']})"


# --- tables in dlt's schema ---------------------------------------------------------------------


def _require_distinct(groups: Sequence[str]) -> None:
    """Raise ValueError if two groups would have the same table."""
    naming = dlt.current.source_schema().naming
    group_of: dict[str, str] = {}
    for group in groups:
        table = naming.normalize_table_identifier(f"outputs_{group}")
        if table in group_of:
            raise ValueError(
                f"The groups {group_of[table]!r} and {group!r} have the same table {table!r}: "
                "load them with two pipelines, each with a dataset_name of its own"
            )
        group_of[table] = group


def _require_exact_merge() -> None:
    """Raise ValueError if the table of the current resource would keep old or deleted rows.

    dlt falls back to append where a destination has no merge. Its other strategies do not use the
    order of two rows of an output, and store the row of a deletion.
    """
    if DestinationCapabilitiesContext not in Container():
        return  # the rows are extracted without a destination
    table = dlt.current.resource().compute_table_schema()
    name = table["name"] or ""
    if resolve_merge_strategy({name: table}, table) != "delete-insert":
        raise ValueError(
            f"The table {name!r} would keep old and deleted rows, because it is not loaded with "
            "the merge strategy 'delete-insert'. Load into a destination that supports it, such "
            "as a database, without another write_disposition. Or load only the log of changes: "
            "gleanery_source(…, changes=True).with_resources('changes_…')"
        )


def _truncate(resource: str) -> None:
    """Let dlt empty the tables of a resource before it loads the rows of this run."""
    package = dlt.current.load_package_state()["state"]
    package.setdefault("truncated_tables", []).extend(deepcopy(_loaded_tables(resource)))


def _loaded_tables(resource: str) -> list[TTableSchema]:
    """Return the table of a resource and those nested in it, as far as they have had rows."""
    found: dict[str | None, TTableSchema] = {}
    for table in dlt.current.source_schema().data_tables(seen_data_only=True):
        if table.get("resource") == resource or table.get("parent") in found:
            found[table["name"]] = table
    return list(found.values())
