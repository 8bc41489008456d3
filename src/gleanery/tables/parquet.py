"""Parquet: row groups of bounded size, in parts of one schema that are merged at the end."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gleanery.tables import arrow
from gleanery.tables.destinations import Destination
from gleanery.tables.export import ExportReport, Field, Item, SeenIds, require
from gleanery.tables.table import Table

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq
else:
    pa = require("pyarrow", "parquet")
    pq = require("pyarrow.parquet", "parquet")

_GROUP_BYTES = 16 * 1024 * 1024  # of a row group in memory
_READ_ROWS = 2000
_METADATA_KEY = "gleanery"
# A dictionary of values that are all different only costs time.
_DISTINCT = ("source_url", "id", "output_id", "key_hash", "value_hash", "data")


class Parquet:
    """Writer of Parquet.

    A file has one schema. When a type widens or a key is new, the next row group begins a new
    temporary file. If there are several at the end, they are copied into one.
    """

    def __init__(
        self, destination: Destination, fields: Sequence[Field] | None, data_is_json: bool
    ) -> None:
        self._destination = destination
        self._table = Table(fields, data_is_json)
        self._seen = SeenIds()
        self._parts: list[_Part] = []
        self._pending = _Pending()

    def write(self, items: Sequence[Item], are_new: bool) -> int:
        """Write the outputs that were not written before, and return their number."""
        rows = self._table.decode(items)
        if not are_new:
            rows = self._select_new(rows)
            self._add(rows)
        else:
            self.write_rows(rows)
        return len(rows)

    @property
    def row_type(self) -> type[Any]:
        return self._table.row_type

    def write_rows(self, rows: list[Any]) -> None:
        """Write decoded outputs that were not written before."""
        self._seen.add_new([row.id for row in rows])
        self._add(rows)

    def _select_new(self, rows: list[Any]) -> list[Any]:
        are_new = self._seen.add([row.id for row in rows])
        return rows if are_new is None else [*compress(rows, are_new)]

    def _add(self, rows: list[Any]) -> None:
        if rows:
            values = self._table.read(rows)
            self._pending.add(arrow.to_batch(self._table.columns, values, len(rows)))
        if self._pending.is_full:
            self._write_group()

    def _write_group(self) -> None:
        schema = arrow.schema_of(self._table.ordered_columns)
        # Only the metadata of a field tells JSON text from a string.
        if not self._parts or not self._parts[-1].schema.equals(schema, check_metadata=True):
            if self._parts:
                self._parts[-1].close()
            self._parts.append(_Part(self._destination.create_temporary_file(), schema))
        self._parts[-1].write(self._pending.take())

    def finish(self, metadata: dict[str, Any], on_rows: Callable[[int], None]) -> ExportReport:
        if self._pending.batches or not self._parts:
            self._write_group()
        report = self._table.report()
        result = self._parts[-1] if len(self._parts) == 1 else self._merge(on_rows)
        result.close(_file_metadata(metadata, report))
        self._destination.adopt(result.path)
        return report

    def _merge(self, on_rows: Callable[[int], None]) -> _Part:
        """Copy all parts into one, row group by row group, and delete each part after that."""
        self._parts[-1].close()
        merged = _Part(self._destination.create_temporary_file(), self._parts[-1].schema)
        self._parts, parts = [merged], self._parts
        for part in parts:
            for batch in part.read():
                self._pending.add(batch)
                on_rows(batch.num_rows)
                if self._pending.is_full:
                    merged.write(self._pending.take())
            self._destination.delete_temporary_file(part.path)
        merged.write(self._pending.take())
        return merged

    def close(self) -> None:
        """Close the files, so that they can be deleted."""
        for part in self._parts:
            part.close()


class _Pending:
    """Batches of the next row group."""

    def __init__(self) -> None:
        self.batches: list[pa.RecordBatch] = []
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        return self._bytes >= _GROUP_BYTES

    def add(self, batch: pa.RecordBatch) -> None:
        self.batches.append(batch)
        self._bytes += batch.nbytes

    def take(self) -> list[pa.RecordBatch]:
        taken, self.batches, self._bytes = self.batches, [], 0
        return taken


class _Part:
    """A temporary Parquet file."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.path = path
        self.schema = schema
        self._writer = pq.ParquetWriter(
            path,
            schema,
            compression="zstd",
            use_dictionary=[name for name in schema.names if name not in _DISTINCT],
            # Statistics hold several copies of the longest text.
            write_statistics=[field.name for field in schema if field.type != pa.string()],
        )

    def write(self, batches: list[pa.RecordBatch]) -> None:
        """Write one row group. The batches may have narrower types."""
        if batches:
            wide = [arrow.widen(batch, self.schema) for batch in batches]
            table = pa.Table.from_batches(wide, self.schema)
            self._writer.write_table(table, row_group_size=table.num_rows)

    def read(self) -> Iterator[pa.RecordBatch]:
        with pq.ParquetFile(self.path, pre_buffer=False) as file:
            for group in range(file.num_row_groups):
                yield from file.iter_batches(_READ_ROWS, row_groups=[group], use_threads=False)

    def close(self, metadata: dict[str, str] | None = None) -> None:
        if self._writer.is_open:
            if metadata:
                self._writer.add_key_value_metadata(metadata)
            self._writer.close()


def _file_metadata(metadata: dict[str, Any], report: ExportReport) -> dict[str, str]:
    """Return what the file says about itself."""
    facts = {
        **metadata,
        "columns": dict(report.columns),
        "widenings": [asdict(widening) for widening in report.widenings],
    }
    return {_METADATA_KEY: json.dumps(facts)}
