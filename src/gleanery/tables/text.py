"""Formats of text: JSON lines and CSV.

JSON lines have the bytes of each output as the service gave them, or its chosen fields. CSV follows
RFC 4180, with all columns that any output has. It keeps the outputs in a temporary file first,
because the last one can still add a column or widen a type.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import compress
from typing import IO, Any

import msgspec
from msgspec import Raw

from gleanery.tables.columns import Column, ColumnType, Texts, Values
from gleanery.tables.destinations import Destination
from gleanery.tables.export import (
    ExportReport,
    Field,
    Item,
    SeenIds,
    blocks,
    join_lines,
    read_items,
)
from gleanery.tables.table import Table


class _Identified(msgspec.Struct, gc=False):
    id: int


class JsonLines:
    """Writer of JSON lines."""

    row_type = None  # it writes the JSON text

    def __init__(self, destination: Destination, fields: Sequence[Field] | None) -> None:
        self._destination = destination
        self._selection = Selection(fields) if fields else None
        self._seen = SeenIds()
        self._seen_bytes = 0  # of the file; the ids of the lines after them are not known yet
        self._ids = msgspec.json.Decoder(_Identified)
        self._can_read_back = destination.is_readable and not fields

    def write(self, items: Sequence[Item], are_new: bool) -> int:
        """Write the outputs that were not written before, and return their number."""
        is_unread = are_new and self._can_read_back
        if not is_unread:
            items = self._select_new(items)
        for block in blocks(items):
            self._destination.write(
                self._selection.apply(block) if self._selection else join_lines(block)
            )
        if not is_unread:
            self._seen_bytes = self._destination.bytes
        return len(items)

    def _select_new(self, items: Sequence[Item]) -> Sequence[Item]:
        self._read_back()
        new = self._seen.add([item.id for item in read_items(self._ids, items)])
        return items if new is None else [*compress(items, new)]

    def _read_back(self) -> None:
        """Read the ids of the lines that were written without a look at them."""
        if self._seen_bytes < self._destination.bytes:
            for lines in self._destination.read_back(self._seen_bytes):
                items = lines.removesuffix(b"\n").split(b"\n")
                self._seen.add([item.id for item in read_items(self._ids, items)])

    def write_rows(self, rows: list[Any]) -> None:
        raise NotImplementedError

    def finish(self, metadata: dict[str, Any], on_rows: Callable[[int], None]) -> ExportReport:
        missing = self._selection.missing() if self._selection else ()
        return ExportReport(missing_fields=missing)

    def close(self) -> None:
        pass


class Selection:
    """The chosen fields of each line, in the order of the choice, with their exact text."""

    def __init__(self, fields: Sequence[Field]) -> None:
        self._members = [*dict.fromkeys(field.member for field in fields)]
        whole_data = Field("data") in fields
        self._keys = {field.key for field in fields if field.key is not None and not whole_data}
        self._missing = {field for field in fields if field.key is not None}
        self._decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
        self._encoder = msgspec.json.Encoder()

    def apply(self, items: Sequence[Item]) -> bytes:
        """Return the lines of the outputs."""
        chosen = [self._select(item) for item in read_items(self._decoder, items)]
        return self._encoder.encode_lines(chosen)

    def _select(self, item: dict[str, msgspec.Raw]) -> dict[str, Any]:
        chosen: dict[str, Any] = {name: item[name] for name in self._members if name in item}
        if self._missing or self._keys:
            data = self._decoder.decode(item.get("data", b"{}"))
            self._missing = {field for field in self._missing if field.key not in data}
            if self._keys:
                chosen["data"] = {key: text for key, text in data.items() if key in self._keys}
        return chosen

    def missing(self) -> tuple[str, ...]:
        """Return the keys that no output has had so far."""
        return tuple(sorted(field.given for field in self._missing))


_BLOCK_BYTES = 1024 * 1024
_LINE_END = "\r\n"
# What a spreadsheet takes for a formula, also in full width and after a line feed. Apostrophes
# before it are included, so that the one that is added can be recognised and removed.
_FORMULA = re.compile("'*[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")
_NEEDS_QUOTES = re.compile('[",\r\n]|^ | $|^$')

Cells = list[str] | None
"""Cells of a column; None: all of them are empty."""


class Csv:
    """Writer of CSV.

    Text and JSON text are in quotes, so that an empty text differs from null, which is an empty
    cell. Numbers, ``true`` and ``false`` are as in the output.
    """

    row_type = None  # it writes the JSON text

    def __init__(
        self,
        destination: Destination,
        fields: Sequence[Field] | None,
        data_is_json: bool,
        escape_formulas: bool,
    ) -> None:
        self._destination = destination
        self._escape_formulas = escape_formulas
        # Programs read a NUL in a CSV file differently, so such a column has JSON text.
        self._table = Table(fields, data_is_json, nul_is_text=False)
        self._seen = SeenIds()
        self._path = destination.create_temporary_file()
        self._lines: IO[bytes] = self._path.open("wb", buffering=_BLOCK_BYTES)

    def write(self, items: Sequence[Item], are_new: bool) -> int:
        """Keep the outputs that were not written before, and return their number."""
        rows = self._table.decode(items)
        ids = [row.id for row in rows]
        if are_new:
            self._seen.add_new(ids)
        elif (new := self._seen.add(ids)) is not None:
            rows, items = [*compress(rows, new)], [*compress(items, new)]
        if rows:
            self._table.read(rows)
            for block in blocks(items):
                self._lines.write(join_lines(block))
        return len(rows)

    def write_rows(self, rows: list[Any]) -> None:
        raise NotImplementedError

    def finish(self, metadata: dict[str, Any], on_rows: Callable[[int], None]) -> ExportReport:
        self._lines.close()
        names = [_quote_name(column.name) for column in self._table.ordered_columns]
        self._destination.write((",".join(names) + _LINE_END).encode())
        with self._path.open("rb") as stream:
            while lines := stream.readlines(_BLOCK_BYTES):
                self._destination.write(self._render(self._table.decode(lines)))
                on_rows(len(lines))
        self._destination.delete_temporary_file(self._path)
        return self._table.report()

    def close(self) -> None:
        self._lines.close()

    def _render(self, rows: list[Any]) -> bytes:
        cells = {
            **self._member_cells(self._table.read_members(rows)),
            **self._data_cells(self._table.read_texts(rows)),
        }
        empty = [""] * len(rows)
        columns = [cells[column.name] or empty for column in self._table.ordered_columns]
        lines = map(",".join, zip(*columns, strict=True))
        return "".join([line + _LINE_END for line in lines]).encode()

    def _member_cells(self, members: Iterable[Values]) -> dict[str, Cells]:
        return {
            column.name: self._value_cells(column.type, values or [])
            for column, values in zip(self._table.members, members, strict=True)
        }

    def _data_cells(self, texts: Iterable[Texts]) -> dict[str, Cells]:
        columns = self._table.data_columns
        return {
            column.name: self._text_cells(column, found) if found else None
            for column, found in zip(columns, texts, strict=True)
        }

    def _value_cells(self, type_: ColumnType, values: list[Any]) -> list[str]:
        if type_ is ColumnType.JSON:
            return [_quote(text) for text in _json_texts(values)]
        if type_ is ColumnType.BOOL:
            return [_BOOLS[value] for value in values]
        if type_ is ColumnType.INT64:
            return [*map(str, values)]
        return [self._quote_text(value) for value in values]

    def _text_cells(self, column: Column, texts: list[Raw]) -> list[str]:
        """Return cells from JSON text. A number keeps its digits."""
        if column.type is ColumnType.STRING:
            return [self._quote_text(value) for value in column.decode(texts) or ()]
        values = _json_texts(texts)
        if column.type is ColumnType.JSON:
            return [_quote(value) for value in values]
        return [value or "" for value in values]

    def _quote_text(self, value: str | None) -> str:
        if value and self._escape_formulas and _FORMULA.match(value):
            return _quote("'" + value)
        return _quote(value)


_BOOLS = {None: "", False: "false", True: "true"}


def _quote(value: str | None) -> str:
    if value is None:
        return ""
    return f'"{value}"' if '"' not in value else '"' + value.replace('"', '""') + '"'


def _quote_name(name: str) -> str:
    return _quote(name) if _NEEDS_QUOTES.search(name) else name


def _json_texts(texts: list[Raw]) -> list[str | None]:
    """Return the texts as they are, with None for null."""
    # One decoding of all texts is faster than one of each.
    lines = b"\n".join(texts).decode().split("\n")
    if len(lines) != len(texts):  # the service has sent line breaks between tokens
        lines = [bytes(text).decode() for text in texts]
    return [None if line == "null" else line for line in lines]
