"""Record batches and data frames of outputs, in memory, with the column types of Parquet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gleanery.client.exports import arrow
from gleanery.client.exports.errors import require
from gleanery.client.exports.fields import read_fields
from gleanery.client.exports.pages import Item
from gleanery.client.exports.table import Table

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow as pa
else:
    pa = require("pyarrow", "parquet")


class BatchReader:
    """Turns pages of outputs into record batches.

    A batch has all columns so far. A later batch can have more columns, and wider types.
    """

    def __init__(self, data: str = "columns", fields: Sequence[str] | None = None) -> None:
        chosen = None if fields is None else read_fields(fields)
        self._table = Table(chosen, data_is_json=data == "json")

    @property
    def schema(self) -> pa.Schema:
        """Schema that fits all batches so far."""
        return arrow.schema(self._table.ordered_columns)

    def read(self, items: Sequence[Item]) -> pa.RecordBatch:
        """Return a page as a batch."""
        rows = self._table.decode(items)
        values = self._table.read(rows)
        read = arrow.batch(self._table.columns, values, len(rows))
        return arrow.widen(read, self.schema)  # only the order of the columns differs


class FrameBuilder:
    """Collects pages of outputs for one table or data frame."""

    def __init__(self, data: str = "columns", fields: Sequence[str] | None = None) -> None:
        self._reader = BatchReader(data, fields)
        self._batches: list[pa.RecordBatch] = []

    def add(self, items: Sequence[Item]) -> None:
        self._batches.append(self._reader.read(items))

    def to_arrow(self) -> pa.Table:
        """Return a table whose types fit all values."""
        schema = self._reader.schema
        wide = [arrow.widen(batch, schema) for batch in self._batches]
        return pa.Table.from_batches(wide, schema)

    def to_polars(self) -> polars.DataFrame:
        frame = require("polars", "polars").from_arrow(self.to_arrow())
        return frame  # type: ignore[no-any-return]

    def to_pandas(self) -> pandas.DataFrame:
        """Return a data frame with Arrow's types, in which an integer column can have nulls."""
        types = require("pandas", "pandas").ArrowDtype
        return self.to_arrow().to_pandas(types_mapper=types)
