"""Columns of ``data``: one for each key, or one with JSON text.

Each class says what a decoder makes of ``data`` (``decoded_type``), and which chosen keys no output
has had so far (``missing``). Its method ``read`` returns the texts of each column.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any

import msgspec
from msgspec import Raw

from gleanery.client.exports.column_types import ColumnType
from gleanery.client.exports.columns import NULL, Column, Texts
from gleanery.client.exports.fields import Field

MAX_KEYS = 1000
"""Keys of ``data`` that get a column. A column takes memory for every row, also without values."""

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
