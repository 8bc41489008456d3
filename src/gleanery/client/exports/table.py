"""Tables: from pages of outputs to columns."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import chain
from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import astuple

from gleanery.client.exports.column_types import ColumnType
from gleanery.client.exports.columns import Column, Texts, Values
from gleanery.client.exports.data_columns import columns_of_data
from gleanery.client.exports.fields import MEMBERS, Field
from gleanery.client.exports.pages import Item, read_items
from gleanery.client.exports.report import ExportReport

_TYPES = {
    "id": ColumnType.INT64,
    "create_date": ColumnType.TIMESTAMP,
    "update_date": ColumnType.TIMESTAMP,
    "last_scraped_date": ColumnType.TIMESTAMP,
    "is_approved": ColumnType.BOOL,
    "tags": ColumnType.JSON,
    "files": ColumnType.JSON,
}
_DECODED_TYPES: dict[ColumnType, Any] = {
    ColumnType.INT64: int,
    ColumnType.TIMESTAMP: str | None,
    ColumnType.BOOL: bool | None,
    ColumnType.JSON: Raw,
    ColumnType.STRING: str | None,
}


class Table:
    """Columns of an export: the members of an output, then those of its ``data``.

    The members have fixed types. The types of the others follow from their values.
    """

    def __init__(
        self, fields: Sequence[Field] | None, data_is_json: bool, nul_is_text: bool = True
    ) -> None:
        chosen = fields or [Field(name) for name in MEMBERS]
        names = [field.member for field in chosen if field.member != "data"]
        self._order = {field.column: at for at, field in enumerate(fields or ())}
        self._given = {field.key: field.given for field in chosen}
        self.members = [Column(name, _type(name)) for name in names]
        self._data = columns_of_data(chosen, data_is_json, nul_is_text)
        self.row_type = _row_type(tuple(names), self._data.decoded_type)
        self._decoder = msgspec.json.Decoder(self.row_type)
        self._rows = 0

    @property
    def columns(self) -> list[Column]:
        """Columns in the order of ``read``."""
        return [*self.members, *self._data.columns]

    @property
    def data_columns(self) -> list[Column]:
        return self._data.columns

    @property
    def ordered_columns(self) -> list[Column]:
        """Columns in the order of the chosen fields, or else as in ``columns``."""
        last = len(self._order)
        return sorted(self.columns, key=lambda column: self._order.get(column.name, last))

    def decode(self, items: Sequence[Item]) -> list[Any]:
        """Decode outputs to rows. Each row has an ``id``."""
        return read_items(self._decoder, items)

    def read(self, rows: list[Any]) -> list[Values]:
        """Return the values of each column, after widening its type if one does not fit."""
        first, self._rows = self._rows + 1, self._rows + len(rows)
        texts = self.read_texts(rows)
        read = [
            column.read(found, first)
            for column, found in zip(self._data.columns, texts, strict=True)
        ]
        return self.read_members(rows) + read

    def read_members(self, rows: list[Any]) -> list[Values]:
        # The members come first in a row. This is faster than to get each attribute by its name.
        values = [*chain.from_iterable(map(astuple, rows))]
        row_length = len(self.row_type.__struct_fields__)
        return [values[at::row_length] for at in range(len(self.members))]

    def read_texts(self, rows: list[Any]) -> list[Texts]:
        """Return the JSON texts of each column of ``data``, after adding columns for new keys."""
        return self._data.read([row.data for row in rows])

    def report(self) -> ExportReport:
        columns = self.ordered_columns
        widenings = [widening for column in columns for widening in column.widenings]
        return ExportReport(
            columns={column.name: column.type.value for column in columns},
            widenings=tuple(sorted(widenings, key=lambda widening: widening.row)),
            missing_fields=tuple(sorted(self._given[key] for key in self._data.missing)),
        )


def _type(member: str) -> ColumnType:
    return _TYPES.get(member, ColumnType.STRING)


@cache
def _row_type(names: tuple[str, ...], data_type: Any) -> type[Any]:
    """Return a type that decodes only what the columns need, and the id."""
    members = [(name, _DECODED_TYPES[_type(name)]) for name in dict.fromkeys((*names, "id"))]
    return msgspec.defstruct("Row", [*members, ("data", data_type)], gc=False)
