"""Arrow: schemas and batches of columns, and casts between their types that change no value.

Record batches and data frames of outputs have the column types of Parquet.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import accumulate, compress
from operator import mul
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from gleanery.tables.columns import NULL, Column, ColumnType, Values
from gleanery.tables.export import ExportFailed, Item, read_fields, require
from gleanery.tables.table import Table

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow as pa
else:
    pa = require("pyarrow", "parquet")

_JSON_MARK = {b"gleanery.type": b"json"}  # tells a column with JSON text from one with strings
_DATE = pa.timestamp("us", "UTC")
_ARROW_TYPES = {
    ColumnType.NULL: pa.null(),
    ColumnType.BOOL: pa.bool_(),
    ColumnType.INT64: pa.int64(),
    ColumnType.DOUBLE: pa.float64(),
    ColumnType.STRING: pa.string(),
    ColumnType.TIMESTAMP: _DATE,
    ColumnType.JSON: pa.string(),
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_encoder = msgspec.json.Encoder()


def schema_of(columns: Sequence[Column]) -> pa.Schema:
    """Return the schema for the present types of the columns."""
    return _schema(tuple((column.name, column.type) for column in columns))


@lru_cache(maxsize=4)  # most pages of an export have the schema of the page before
def _schema(columns: tuple[tuple[str, ColumnType], ...]) -> pa.Schema:
    return pa.schema([_field(name, type_) for name, type_ in columns])


def _field(name: str, type_: ColumnType) -> pa.Field:
    return pa.field(
        name, _ARROW_TYPES[type_], metadata=_JSON_MARK if type_ is ColumnType.JSON else None
    )


def to_batch(columns: Sequence[Column], values: Sequence[Values], rows: int) -> pa.RecordBatch:
    """Return the values of a page."""
    nulls = _Nulls(rows)
    fields = schema_of(columns)
    arrays = [
        nulls.of(field.type) if found is None else _array(found, column.type)
        for field, column, found in zip(fields, columns, values, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=fields)


def _array(values: list[Any], type_: ColumnType) -> pa.Array:
    if type_ is ColumnType.JSON:
        return _texts(values)
    return (
        _dates(values) if type_ is ColumnType.TIMESTAMP else pa.array(values, _ARROW_TYPES[type_])
    )


def _texts(texts: list[Raw]) -> pa.Array:
    """Return JSON texts, with null for null. Their bytes are copied once."""
    lengths, validity, count = [*map(len, texts)], None, len(texts)
    if len(NULL) in lengths:
        are_valid = [
            length != len(NULL) or bytes(text) != b"null"
            for text, length in zip(texts, lengths, strict=True)
        ]
        validity = pa.array(are_valid, pa.bool_()).buffers()[1]  # the bits of the booleans
        texts = [*compress(texts, are_valid)]
        lengths = [*map(mul, lengths, are_valid)]
    joined = b"".join(texts)
    if not joined.isascii():
        joined.decode()  # checks that it is UTF-8; the next function does not
    offsets = struct.pack(f"{count + 1}i", *accumulate(lengths, initial=0))
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(joined), validity)


def _dates(values: list[str | None]) -> pa.Array:
    """Return timestamps. Many outputs of a page have the same date, so each is read once."""
    try:
        numbers = {value: _microseconds(value) for value in {*values}}
    except ValueError:
        raise ExportFailed(
            "The service has sent an output whose date is not in ISO 8601. Check its version"
        ) from None
    if None in numbers:
        return pa.array([numbers[value] for value in values], pa.int64()).view(_DATE)
    packed = {value: struct.pack("q", number) for value, number in numbers.items()}
    joined = b"".join(map(packed.__getitem__, values))
    return pa.Array.from_buffers(_DATE, len(values), [None, pa.py_buffer(joined)])


def _microseconds(date: str | None) -> int | None:
    if date is None:
        return None
    return (datetime.fromisoformat(date) - _EPOCH) // timedelta(microseconds=1)


class _Nulls:
    """Arrays of nulls, one for each type, which all empty columns of a batch share."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._arrays: dict[pa.DataType, pa.Array] = {}

    def of(self, type_: pa.DataType) -> pa.Array:
        if type_ not in self._arrays:
            self._arrays[type_] = pa.nulls(self._rows, type_)
        return self._arrays[type_]


def widen(rows: pa.RecordBatch, wider: pa.Schema) -> pa.RecordBatch:
    """Cast a batch to a schema that has the same columns with the same or wider types, or more."""
    if rows.schema.equals(wider, check_metadata=True):
        return rows
    nulls = _Nulls(rows.num_rows)
    positions = {name: at for at, name in enumerate(rows.schema.names)}
    arrays = [
        _widen_column(rows, positions[field.name], field)
        if field.name in positions
        else nulls.of(field.type)
        for field in wider
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=wider)


def _widen_column(rows: pa.RecordBatch, at: int, wider: pa.Field) -> pa.Array:
    """Cast a column. Arrow's own casts import pandas, if it is installed, which takes 50 MB."""
    array, field = rows.column(at), rows.schema.field(at)
    if _is_json(wider) and not _is_json(field):
        return pa.array([_as_json(value) for value in array.to_pylist()], pa.string())
    return array if array.type == wider.type else pa.array(array.to_pylist(), wider.type)


def _is_json(field: pa.Field) -> bool:
    return bool(field.metadata and field.metadata.get(b"gleanery.type") == b"json")


def _as_json(value: Any) -> str | None:
    return None if value is None else _encoder.encode(value).decode()


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
        return schema_of(self._table.ordered_columns)

    def read(self, items: Sequence[Item]) -> pa.RecordBatch:
        """Return a page as a batch."""
        return self.read_rows(self.decode(items))

    def decode(self, items: Sequence[Item]) -> list[Any]:
        """Decode a page to rows. Each row has an ``id``."""
        return self._table.decode(items)

    def read_rows(self, rows: list[Any]) -> pa.RecordBatch:
        """Return rows as a batch."""
        values = self._table.read(rows)
        read = to_batch(self._table.columns, values, len(rows))
        return widen(read, self.schema)  # only the order of the columns differs


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
        wide = [widen(batch, schema) for batch in self._batches]
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
