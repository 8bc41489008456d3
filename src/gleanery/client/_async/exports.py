"""Exports: a whole group in a file, and links that work without a token."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from os import PathLike, fspath
from typing import TYPE_CHECKING, Literal, Unpack

from gleanery.client._async.concurrency import run_in_thread
from gleanery.client._async.outputs import MAX_PAGE_SIZE
from gleanery.client._async.requester import AsyncRequester
from gleanery.client.errors import InvalidResponse
from gleanery.client.filters import OutputFilters, describe
from gleanery.client.requests import Request, path

if TYPE_CHECKING:
    from gleanery.client._async.export_pages import AsyncExportPages
    from gleanery.client.exports import ExportReport, ExportWriter
    from gleanery.client.models import ExportLink


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

        Each output is there once, also if others write meanwhile. The destination gets the whole
        file at the end, or nothing. Without ``format``, the ending of its name says the format.
        ``data`` says whether a table has one column for each key of ``data``, or one with JSON
        text. ``fields`` are members of an output and keys of ``data``. The filters are those of
        ``outputs``.

        The report's ``cursor`` is where ``changes`` continues: it has every later change.
        """
        from gleanery.client.exports import format_of, open_export

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
            writer.metadata = {"group": group, "filters": describe(filters), "cursor": cursor}
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
        from gleanery.client._async.export_pages import AsyncExportPages

        start = await self._read_position(group) if start is None else start
        return AsyncExportPages(self._requester, group, describe(filters), start, cursor, page_size)

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

        parameters = {"format": format, "valid_seconds": valid_seconds, **describe(filters)}
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
