"""Exports: a whole group in a file, its pages, and links that work without a token.

The pages have the outputs in the order of their changes, while others write.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Unpack

from gleanery.client._async.concurrency import run_in_thread
from gleanery.client._async.outputs import MAX_PAGE_SIZE
from gleanery.client._async.requester import AsyncRequester
from gleanery.client.errors import InvalidResponse
from gleanery.client.pages import ChangePages, OutputPages
from gleanery.client.requests import OutputFilters, Parameter, Request, describe_filters, path
from gleanery.client.responses import Response

if TYPE_CHECKING:
    from msgspec import Raw

    from gleanery.client.models import ExportLink
    from gleanery.tables import ExportReport, ExportWriter

_CHANGES_PER_PAGE = 1000


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
        from msgspec.json import Decoder

        from gleanery.client.models import ChangedOutput, IdentifiedOutput

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
        self._changes = Decoder(ChangedOutput)
        self._outputs = Decoder(IdentifiedOutput)

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


class AsyncExports:
    """Methods of the client for exports."""

    _requester: AsyncRequester

    async def export(
        self,
        group: str,
        destination: str | PathLike[str],
        *,
        format: Literal["jsonl", "csv", "parquet"] | None = None,  # noqa: A002
        data: Literal["columns", "json"] = "columns",
        fields: Sequence[str] | None = None,
        escape_formulas: bool = True,
        overwrite: bool = False,
        limit: int | None = None,
        on_progress: Callable[[ExportWriter], None] | None = None,
        **filters: Unpack[OutputFilters],
    ) -> ExportReport:
        """Write the outputs of a group to a path, ``-`` (standard output) or ``s3://bucket/key``.

        Each output is there once, even while others write. The destination gets the whole
        file at the end, or nothing. Without ``format``, the ending of its name says the format.
        ``data`` says whether a table has one column for each key of ``data``, or one with JSON
        text. ``fields`` are members of an output and keys of ``data``. The filters are those of
        ``outputs``.

        The report's ``cursor`` is where ``changes`` continues: it has every later change.
        """
        from gleanery.tables import format_of, open_export

        target = fspath(destination)
        writer = await run_in_thread(
            open_export,
            target,
            format or format_of(target),
            data=data,
            fields=fields,
            escape_formulas=escape_formulas,
            overwrite=overwrite,
        )
        with writer:
            size = MAX_PAGE_SIZE if limit is None else max(1, min(limit, MAX_PAGE_SIZE))
            pages = await self.export_pages(group, page_size=size, **filters)
            is_complete = await _write_pages(writer, pages, limit, on_progress)
            cursor = pages.start if is_complete else None
            writer.metadata = {
                "group": group,
                "filters": describe_filters(filters),
                "cursor": cursor,
            }
            return (await run_in_thread(writer.finish)).with_cursor(cursor)

    async def export_pages(
        self,
        group: str,
        *,
        start: int | None = None,
        cursor: int = 0,
        page_size: int = MAX_PAGE_SIZE,
        **filters: Unpack[OutputFilters],
    ) -> AsyncExportPages:
        """Return the pages of an export, for programs that write it themselves.

        ``start`` and ``cursor`` of the pages, given again, continue an export.
        """
        pass

        start = await self._read_position(group) if start is None else start
        return AsyncExportPages(
            self._requester, group, describe_filters(filters), start, cursor, page_size
        )

    async def _read_position(self, group: str) -> int:
        """Return the position of the last change, before the first page is read.

        A later change is after this position. So the changes from there have it, whether a page has
        had the output before the change or after it.
        """
        response = await self._requester.send(Request("HEAD", path("exports", group)))
        cursor = response.headers.get("gleanery-cursor", "")
        if not cursor.isdecimal():
            raise InvalidResponse("The response does not say where the changes continue")
        return int(cursor)

    async def export_link(
        self,
        group: str,
        *,
        format: Literal["jsonl", "csv", "parquet"] = "jsonl",  # noqa: A002
        valid_seconds: int = 3600,
        **filters: Unpack[OutputFilters],
    ) -> ExportLink:
        """Create a link to an export. Whoever has it can read the outputs.

        The service converts a table each time the link is used; Parquet needs the extra ``parquet``
        there. The filters are those of ``outputs``.
        """
        from gleanery.client.models import ExportLink

        parameters = {"format": format, "valid_seconds": valid_seconds, **describe_filters(filters)}
        request = Request("POST", path("exports", group, "links"), parameters)
        return await self._requester.fetch(request, ExportLink)


async def _write_pages(
    writer: ExportWriter,
    pages: AsyncExportPages,
    limit: int | None,
    on_progress: Callable[[ExportWriter], None] | None,
) -> bool:
    """Write the outputs. Return False if the limit was reached."""
    async for page in pages.decoded(writer.row_type):
        items = page.items if limit is None else page.items[: limit - writer.rows]
        if page.are_rows:
            await run_in_thread(writer.write_rows, items, page.size)
        else:
            await run_in_thread(writer.write, items, page.are_new)
        del page, items  # they are free before the next ones are decoded
        if on_progress is not None:
            on_progress(writer)
        if limit is not None and writer.rows >= limit:
            return False
    return True
