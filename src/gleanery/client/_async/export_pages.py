"""Pages of an export: outputs in the order of their changes, while others write."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, NamedTuple

from msgspec import Raw, Struct
from msgspec.json import Decoder

from gleanery.client._async.requester import AsyncRequester
from gleanery.client.pages import ChangePages, OutputPages
from gleanery.client.requests import Parameter, Request, path
from gleanery.client.responses import Response

_CHANGES_PER_PAGE = 1000


class _Identified(Struct, gc=False):
    output_id: str


class _Change(Struct, gc=False):
    change: str
    output_id: str


class ExportPage(NamedTuple):
    """Outputs of one page."""

    items: list[Raw]
    are_new: bool
    """True if it is certain that no page before had one of them."""
    cursor: int | None
    """Position after the page; None if it is the last one."""


class DecodedPage(NamedTuple):
    """Outputs as JSON texts or as rows; whether none came before; the bytes of the page."""

    items: list[Any]
    are_new: bool
    cursor: int | None
    are_rows: bool
    size: int


class AsyncExportPages:
    """Iterates over the pages. An output that changes comes again, with the same id.

    Each change moves an output behind the start. So outputs before the start come once.

    An output that is deleted and stored again has another id. If this happens after the start of
    the export, the new one is left out: the changes after the start have it. In the approved view,
    the same is true of an output that leaves the view and enters it again.
    """

    def __init__(
        self,
        requester: AsyncRequester,
        group: str,
        filters: Mapping[str, Parameter],
        start: int,
        cursor: int,
        page_size: int,
    ) -> None:
        self._requester = requester
        self._group = group
        self._filters = filters
        self.start = start
        """Position of the group at the start of the export: later changes are after it."""
        self.cursor = cursor
        """Position after the last page that was consumed, except the last page: continue there."""
        self._page_size = page_size
        self._position = start
        """Position until which deletions are known."""
        self._has_changes = False
        self._deleted: set[str] = set()
        self._changes = Decoder(_Change)
        self._outputs = Decoder(_Identified)

    async def __aiter__(self) -> AsyncIterator[ExportPage]:
        async for page in self.decoded(None):
            yield ExportPage(page.items, page.are_new, page.cursor)
            del page

    async def decoded(self, row_type: type[Any] | None) -> AsyncIterator[DecodedPage]:
        """Iterate over the pages, and decode those before the start to rows of a type."""
        is_complete = False
        while not is_complete:
            parameters = {**self._filters, "cursor": self.cursor, "limit": self._page_size}
            request = Request("GET", path("outputs", self._group), parameters)
            page = await self._read(await self._requester.send(request), row_type)
            cursor = page.cursor
            if page.items:
                yield page
            del page  # its memory is free before the next one is decoded
            self.cursor = self.cursor if cursor is None else cursor
            is_complete = cursor is None

    async def _read(self, response: Response, row_type: type[Any] | None) -> DecodedPage:
        if row_type is not None:
            rows, cursor, _ = OutputPages().read_as(response, row_type)
            if cursor is not None and cursor <= self.start:
                return DecodedPage(rows, True, cursor, True, len(response.body))
        items, cursor, _ = OutputPages().read_raw(response)
        if items and (cursor is None or cursor > self.start):  # it may have new outputs
            items = await self._without_deleted(items)
        return DecodedPage(items, not self._has_changes, cursor, False, len(response.body))

    async def _without_deleted(self, items: list[Raw]) -> list[Raw]:
        """Leave out what was deleted since the start, which is read after the items."""
        await self._read_deletions()
        if not self._deleted:
            return items
        decode = self._outputs.decode
        return [item for item in items if decode(item).output_id not in self._deleted]

    async def _read_deletions(self) -> None:
        has_more = True
        while has_more:
            parameters: dict[str, Parameter] = {
                "cursor": self._position,
                "limit": _CHANGES_PER_PAGE,
                "view": self._filters.get("view"),
            }
            request = Request("GET", path("changes", self._group), parameters)
            changes, following, end = ChangePages().read_raw(await self._requester.send(request))
            self._has_changes = self._has_changes or bool(changes)
            for change in map(self._changes.decode, changes):
                if change.change == "delete":
                    self._deleted.add(change.output_id)
            self._position = self._position if end is None else end
            has_more = following is not None
