# Generated from _async by checks/sync_client.py: edit that package, and run make client.
"""Exports: a whole group in a file, and links that work without a token."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from os import PathLike, fspath
from typing import TYPE_CHECKING, Literal, Unpack

from gleanery.client._sync.concurrency import run_in_thread
from gleanery.client._sync.outputs import MAX_PAGE_SIZE, Outputs
from gleanery.client.errors import InvalidResponse
from gleanery.client.filters import OutputFilters, describe
from gleanery.client.requests import Request, path

if TYPE_CHECKING:
    from gleanery.client.exports import ExportReport, ExportWriter
    from gleanery.client.models import ExportLink


class Exports(Outputs):
    """Methods of the client for exports."""

    def export(
        self,
        group: str,
        destination: str | PathLike[str],
        *,
        format: Literal["jsonl", "csv", "parquet"] = "jsonl",  # noqa: A002
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
        file at the end, or nothing. ``data`` says whether a table has one column for each key of
        ``data``, or one with JSON text. ``fields`` are members of an output and keys of ``data``.
        The filters are those of ``outputs``.

        The report's ``cursor`` is where ``changes`` continues: it has every later change.
        """
        from gleanery.client.exports import open_export

        writer = run_in_thread(
            open_export,
            fspath(destination),
            format,
            data=data,
            fields=fields,
            escape_formulas=escape_formulas,
            overwrite=overwrite,
            checks_later=limit is None,
        )
        with writer:
            cursor = self._read_position(group)
            if not self._write_pages(writer, group, filters, limit, on_progress):
                cursor = None
            elif writer.checks_later and self._read_position(group) != cursor:
                run_in_thread(writer.remove_duplicates)
            writer.metadata = {"group": group, "filters": describe(filters), "cursor": cursor}
            return (run_in_thread(writer.finish)).with_cursor(cursor)

    def _read_position(self, group: str) -> int | None:
        """Return the position of the last change, before the first page is read.

        A later change is after this position. So the changes from there have it, whether a page has
        had the output before the change or after it.
        """
        response = self._requester.send(Request("HEAD", path("exports", group)))
        cursor = response.headers.get("gleanery-cursor", "")
        if not cursor.isdecimal():
            raise InvalidResponse("The response does not say where the changes continue")
        return int(cursor)

    def _write_pages(
        self,
        writer: ExportWriter,
        group: str,
        filters: OutputFilters,
        limit: int | None,
        on_progress: Callable[[ExportWriter], None] | None,
    ) -> bool:
        """Write the outputs. Return False if the limit was reached."""
        size = MAX_PAGE_SIZE if limit is None else max(1, min(limit, MAX_PAGE_SIZE))
        for page in self.outputs(group, page_size=size, **filters).raw_pages():
            run_in_thread(writer.write, page if limit is None else page[: limit - writer.rows])
            del page  # it is free before the next one is decoded
            if on_progress is not None:
                on_progress(writer)
            if limit is not None and writer.rows >= limit:
                return False
        return True

    def export_link(
        self, group: str, *, valid_seconds: int = 3600, **filters: Unpack[OutputFilters]
    ) -> ExportLink:
        """Create a link to an export as JSON lines. Whoever has it can read the outputs.

        The filters are those of ``outputs``.
        """
        from gleanery.client.models import ExportLink

        parameters = {"valid_seconds": valid_seconds, **describe(filters)}
        request = Request("POST", path("exports", group, "links"), parameters)
        return self._requester.fetch(request, ExportLink)
