"""Iteration over the items of a list, page by page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Generic, Literal, TypeVar

from gleanery.client.pages import Page, PageFormat
from gleanery.client.responses import Response

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow
    from msgspec import Raw

    from gleanery.client.models import Change, Output  # noqa: F401  # the name is in quotes
    from gleanery.tables.arrow import FrameBuilder

T = TypeVar("T")
S = TypeVar("S")
DataForm = Literal["columns", "json"]


class AsyncPager(Generic[T]):
    """Iterates over all items; each page is read when it is needed.

    Only the service says where the list ends: a page can be short, or even empty, before the end.
    """

    def __init__(
        self,
        read_page: Callable[[int, int], Awaitable[Response]],
        format_: PageFormat[T],
        *,
        cursor: int,
        page_size: int,
        limit: int | None = None,
        follow: bool = False,
    ) -> None:
        self._read_page = read_page
        self._format = format_
        self._page_size = page_size
        self._limit = limit
        self._follow = follow
        self._start = cursor
        self.cursor = cursor
        """Position after the last page whose items were all consumed: continue from it.

        A list without a position of its end, such as outputs, stays before its last page. Each
        iteration begins again with the first item, and so does the cursor.
        """

    async def __aiter__(self) -> AsyncIterator[T]:
        async for page in self.pages():
            for item in page:
                yield item
            del page  # the next page can use its memory, which is a fifth faster

    def pages(self) -> AsyncIterator[list[T]]:
        """Iterate over lists of items. No list is empty."""
        return self._iterate(self._format.read)

    async def raw(self) -> AsyncIterator[bytes]:
        """Iterate over the items as the bytes that the service sent, without decoding them."""
        async for page in self.raw_pages():
            for item in page:
                yield bytes(item)
            del page

    def raw_pages(self) -> AsyncIterator[list[Raw]]:
        """Iterate over lists of items as views of the bytes that the service sent.

        ``b"\\n".join`` and the decoders of msgspec accept a view; ``bytes`` copies it.
        """
        return self._iterate(self._format.read_raw)

    async def _iterate(self, read: Callable[[Response], Page[S]]) -> AsyncIterator[list[S]]:
        self.cursor = position = self._start
        remaining = self._limit
        while remaining is None or remaining > 0:
            size = self._page_size if remaining is None else min(self._page_size, remaining)
            items, next_cursor, end = read(await self._read_page(position, size))
            if remaining is not None:
                remaining -= len(items)
            if items:
                yield items
            del items
            following = end if next_cursor is None else next_cursor
            self.cursor = position = position if following is None else following
            if next_cursor is None and not self._follow:
                return


class AsyncOutputPager(AsyncPager["Output"]):
    """Iterates over outputs, also as tables.

    The columns of a table are the members of an output, and one column for each key of ``data``,
    or one with its JSON text if ``data`` is ``"json"``. ``fields`` selects columns. An output that
    changes during the iteration is in several batches. A table or data frame has its last row.
    """

    async def to_arrow_batches(
        self, *, data: DataForm = "columns", fields: Sequence[str] | None = None
    ) -> AsyncIterator[pyarrow.RecordBatch]:
        """Iterate over record batches. A later one can have more columns, and wider types."""
        from gleanery.tables.arrow import BatchReader

        reader = BatchReader(data, fields)
        async for page in self.raw_pages():
            yield reader.read(page)

    async def to_arrow(
        self, *, data: DataForm = "columns", fields: Sequence[str] | None = None
    ) -> pyarrow.Table:
        """Return all outputs as a table of Arrow, which DuckDB can query."""
        _require_frames("parquet")
        return (await self._collect(data, fields)).to_arrow()

    async def to_polars(
        self, *, data: DataForm = "columns", fields: Sequence[str] | None = None
    ) -> polars.DataFrame:
        """Return all outputs as a data frame of Polars."""
        _require_frames("polars")
        return (await self._collect(data, fields)).to_polars()

    async def to_pandas(
        self, *, data: DataForm = "columns", fields: Sequence[str] | None = None
    ) -> pandas.DataFrame:
        """Return all outputs as a data frame of pandas."""
        _require_frames("pandas")
        return (await self._collect(data, fields)).to_pandas()

    async def _collect(self, data: DataForm, fields: Sequence[str] | None) -> FrameBuilder:
        from gleanery.tables.arrow import FrameBuilder

        frame = FrameBuilder(data, fields)
        async for page in self.raw_pages():
            frame.add(page)
        return frame


def _require_frames(extra: str) -> None:
    """Raise InvalidExport if pyarrow or the library of a data frame is missing."""
    from gleanery.tables.export import require

    require("pyarrow", extra)
    if extra != "parquet":  # the other extras have the names of their libraries
        require(extra, extra)


class AsyncChangePager(AsyncPager["Change"]):
    """Iterates over changes. Each change has its own position, so ``cursor`` is exact."""

    async def __aiter__(self) -> AsyncIterator[Change]:
        async for page in self.pages():
            for change in page:
                yield change
                self.cursor = change.cursor
