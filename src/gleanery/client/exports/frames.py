"""Record batches and data frames of outputs, in memory, with the column types of Parquet."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

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
        return self.read_rows(self.decode(items))

    def decode(self, items: Sequence[Item]) -> list[Any]:
        """Decode a page to rows. Each row has an ``id``."""
        return self._table.decode(items)

    def read_rows(self, rows: list[Any]) -> pa.RecordBatch:
        """Return rows as a batch."""
        values = self._table.read(rows)
        read = arrow.batch(self._table.columns, values, len(rows))
        return arrow.widen(read, self.schema)  # only the order of the columns differs


class FrameBuilder:
    """Collects pages of outputs for one table or data frame.

    An output that changes while its group is read comes again on a later page: its last row counts.
    """

    def __init__(self, data: str = "columns", fields: Sequence[str] | None = None) -> None:
        self._reader = BatchReader(data, fields)
        self._batches: list[pa.RecordBatch] = []
        self._ids = array("q")

    def add(self, items: Sequence[Item]) -> None:
        rows = self._reader.decode(items)
        self._ids.extend(row.id for row in rows)
        self._batches.append(self._reader.read_rows(rows))

    def to_arrow(self) -> pa.Table:
        """Return a table whose types fit all values, with one row for each output."""
        schema = self._reader.schema
        wide = [arrow.widen(batch, schema) for batch in self._batches]
        return self._without_repetitions(pa.Table.from_batches(wide, schema))

    def _without_repetitions(self, table: pa.Table) -> pa.Table:
        """Return the last row of each output, in the order of these rows."""
        buffer = pa.py_buffer(self._ids)
        ids = pa.Array.from_buffers(pa.int64(), len(self._ids), [None, buffer])
        if len(ids.unique()) == len(ids):
            return table
        rows = pa.table({"id": ids, "row": pa.array(range(len(ids)))})
        last = rows.group_by("id").aggregate([("row", "max")])
        return table.take(last.sort_by("row_max").column("row_max"))

    def to_polars(self) -> polars.DataFrame:
        frame = require("polars", "polars").from_arrow(self.to_arrow())
        return frame  # type: ignore[no-any-return]

    def to_pandas(self) -> pandas.DataFrame:
        """Return a data frame with Arrow's types, in which an integer column can have nulls."""
        types = require("pandas", "pandas").ArrowDtype
        return self.to_arrow().to_pandas(types_mapper=types)
