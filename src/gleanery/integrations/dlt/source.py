"""The source and its resources: tables of outputs, and logs of changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import NamedTuple

import dlt
from dlt.common import logger
from dlt.extract import DltResource
from msgspec import Raw

from gleanery.client import Client, CursorExpired, NotFound
from gleanery.client.requests import View
from gleanery.integrations.dlt import tables
from gleanery.integrations.dlt.member_names import MemberNames
from gleanery.integrations.dlt.position import Position
from gleanery.integrations.dlt.rows import (
    Paths,
    Row,
    change_row,
    output_row,
    paths_of_doubles,
    restart_row,
)

_PAGE_SIZE = 1000
_EXPIRED = (
    "The position in the group {!r} has expired: the service no longer knows all deletions after "
    "it, or was restored."
)


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

    Yields:
        The resources.
    """
    names = [groups] if isinstance(groups, str) else list(groups)
    tables.require_distinct(names)
    for group in names:
        options = (base_url, token, group, view, page_size)
        yield _outputs_resource(Feed(f"outputs_{group}", *options))
        if changes:
            yield _changes_resource(Feed(f"changes_{group}", *options))


def _outputs_resource(feed: Feed) -> DltResource:
    resource: DltResource = dlt.resource(
        _load_outputs,
        name=feed.resource,
        write_disposition="merge",
        primary_key="output_id",
        columns=tables.OUTPUT_COLUMNS,
    )(feed)
    return resource


def _changes_resource(feed: Feed) -> DltResource:
    resource: DltResource = dlt.resource(
        _load_changes,
        name=feed.resource,
        write_disposition="merge",
        # a cursor is not a key: that of an old change depends on the day of the run
        primary_key=("output_id", "change", "change_date"),
        columns=tables.CHANGE_COLUMNS,
    )(feed)
    return resource


def _load_outputs(feed: Feed) -> Iterator[list[Row]]:
    tables.require_exact_merge()
    with Client(feed.base_url, feed.token) as client:
        position = _open_position(feed, client)
        if _has_expired(feed, client, position.cursor):
            logger.warning(f"{_EXPIRED.format(feed.group)} All rows of its table are replaced.")
            tables.truncate(feed.resource)
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


def _open_position(feed: Feed, client: Client) -> Position:
    return Position(dlt.current.resource_state(), feed.resource, client.base_url, feed.view)


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
    feed: Feed, client: Client, position: Position, to_row: Callable[[Raw, Paths], Row]
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
