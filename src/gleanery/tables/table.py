"""Tables: from pages of outputs to columns.

``data`` has one column for each key, or one with JSON text. Each class of its columns says what a
decoder makes of ``data`` (``decoded_type``), and which chosen keys no output has had so far
(``missing``). Its method ``read`` returns the texts of each column.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from functools import cache
from itertools import chain
from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import astuple

from gleanery.tables.columns import NULL, Column, ColumnType, Texts, Values
from gleanery.tables.export import MEMBERS, ExportReport, Field, Item, read_items

MAX_KEYS = 1000
"""Keys of ``data`` that get a column. A column takes memory for every row, even without values."""

_EMPTY = Raw(b"{}")
_encoder = msgspec.json.Encoder()


class NoData:
    """No columns, because no field of ``data`` is chosen."""

    decoded_type: Any = Raw

    def __init__(self) -> None:
        self.columns: list[Column] = []
        self.missing: set[str] = set()

    def read(self, datas: list[Any]) -> list[Texts]:
        return []


class DataText:
    """One column with JSON text of all of ``data``."""

    decoded_type: Any = Raw

    def __init__(self) -> None:
        self.columns = [Column("data", ColumnType.JSON)]
        self.missing: set[str] = set()

    def read(self, datas: list[Raw]) -> list[Texts]:
        return [datas]


class ChosenDataText:
    """One column with JSON text of the chosen keys of ``data``."""

    decoded_type: Any = dict[str, Raw]

    def __init__(self, keys: Sequence[str]) -> None:
        self.columns = [Column("data", ColumnType.JSON)]
        self._keys = {*keys}
        self.missing = {*keys}

    def read(self, datas: list[dict[str, Raw]]) -> list[Texts]:
        self.missing.difference_update(*datas)
        return [[_select(data, self._keys, _EMPTY) for data in datas]]


class KeyColumns:
    """One column for each key: for the chosen ones, or for the first ones that come.

    The values of all further keys are in the column ``data``, as JSON text of an object.
    """

    decoded_type: Any = dict[str, Raw]

    def __init__(self, keys: Sequence[str] | None, nul_is_text: bool) -> None:
        self._nul_is_text = nul_is_text
        self._are_chosen = keys is not None
        self._keys: dict[str, Column] = {}
        self._rest: Column | None = None
        self.missing = set(keys or ())
        for key in keys or ():
            self._add(key)

    @property
    def columns(self) -> list[Column]:
        return [*self._keys.values(), *([self._rest] if self._rest else [])]

    def read(self, datas: list[dict[str, Raw]]) -> list[Texts]:
        found, rest = self._collect(datas)
        self.missing -= found.keys()
        texts: list[Texts] = [found.get(key) for key in self._keys]
        if self._rest:
            texts.append([_select(data, rest, NULL) for data in datas] if rest else None)
        return texts

    def _collect(self, datas: list[dict[str, Raw]]) -> tuple[dict[str, list[Raw]], Set[str]]:
        """Return the texts of each key that has a column, and the other keys.

        The work is in proportion to the values, not to the columns.
        """
        found: dict[str, list[Raw]] = {}
        others = [NULL] * len(datas)
        for row, data in enumerate(datas):
            for key, text in data.items():
                texts = found.get(key)
                if texts is None:
                    texts = found[key] = [NULL] * len(datas) if self._has_column(key) else others
                texts[row] = text
        rest = {key for key, texts in found.items() if texts is others}
        return {key: texts for key, texts in found.items() if texts is not others}, rest

    def _has_column(self, key: str) -> bool:
        """Return whether the key has a column, after adding one if there is room."""
        if key not in self._keys and not self._are_chosen:
            if len(self._keys) < MAX_KEYS:
                self._add(key)
            else:
                self._rest = self._rest or Column("data", ColumnType.JSON)
        return key in self._keys

    def _add(self, key: str) -> None:
        self._keys[key] = Column(Field("data", key).column, ColumnType.NULL, self._nul_is_text)


def columns_of_data(
    fields: Sequence[Field], data_is_json: bool, nul_is_text: bool
) -> NoData | DataText | ChosenDataText | KeyColumns:
    """Return the columns for the chosen fields. ``data`` among them means all keys."""
    keys = [field.key for field in fields if field.key is not None]
    if Field("data") in fields:
        return DataText() if data_is_json else KeyColumns(None, nul_is_text)
    if not keys:
        return NoData()
    return ChosenDataText(keys) if data_is_json else KeyColumns(keys, nul_is_text)


def _select(data: dict[str, Raw], keys: Set[str], nothing: Raw) -> Raw:
    """Return JSON text of an object with some of the keys, or ``nothing`` if it has none."""
    chosen = {key: text for key, text in data.items() if key in keys}
    return Raw(_encoder.encode(chosen)) if chosen else nothing


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
