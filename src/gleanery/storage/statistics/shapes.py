"""The shape of a value: its fields with their kinds, and the measures that its ranges need.

A field is a member of the value, or a member of an object in it. Arrays are not entered. Values
with the same fields of the same kinds have the same shape, whatever the order of their members is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

from gleanery.values import json_text

Names = tuple[str, ...]
"""The members on the way to a field: one name, or two for a member of an object."""

MAX_PATHS = 256
OTHER = 0
"""The number of the shape that stands for all shapes without a number of their own."""
_MAX_FIELDS_BYTES = 8 * 1024
_MAX_DOUBLE = 1.7976931348623157e308
_KINDS: dict[type | str, str] = {
    type(None): "null",
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}
_EMPTY: dict[type, str] = {str: "empty_string", list: "empty_array", dict: "empty_object"}
UNFILLED_KINDS = frozenset(("null", *_EMPTY.values()))
_NUMBER_KINDS = ("integer", "number")
# The sum over the fields of a value has two parts: the number of the shape, and above it the bytes
# of the fields. So one addition per field computes both.
_NUMBER_MASK = (1 << 63) - 1
_SIZE_SHIFT = 72  # the sum of 256 numbers is smaller


class Field(NamedTuple):
    """A field of a shape."""

    names: Names
    kind: str

    @property
    def column(self) -> Column:
        """What the measures of this field mean."""
        return Column(self.names, self.kind not in _NUMBER_KINDS)


class Column(NamedTuple):
    """What a measure means: the number or the length that a field has."""

    names: Names
    is_length: bool


class ValueFields(NamedTuple):
    """The fields of a value, as indexes of a ``FieldTable``."""

    shape: int
    """The number of the shape, the same in every process; ``OTHER`` if the fields are too many."""
    indexes: Sequence[int]
    """First the fields that have a measure, then the others."""
    measures: Sequence[int | float]
    """Numbers, and lengths of strings and arrays."""


_TOO_LARGE = ValueFields(OTHER, (), ())


class _Indexes(dict[tuple[str, type | str], int]):
    """The indexes of the members of one object, by name and type, or by name and empty kind."""

    def __init__(self, table: FieldTable, outer: Names) -> None:
        super().__init__()
        self._table, self._outer = table, outer

    def __missing__(self, key: tuple[str, type | str]) -> int:
        name, type_ = key
        kind = _KINDS.get(type_) or str(type_)
        index = self[key] = self._table.add(Field((*self._outer, name), kind))
        return index


class FieldTable:
    """The fields of the values of one batch.

    Values have few different fields, even if the sets of their fields differ. So the work for each
    field is done once, and a value costs a look-up and an addition per field.
    """

    def __init__(self, fields: Iterable[Field] = ()) -> None:
        self.fields: list[Field] = []
        self._texts: list[bytes] = []
        self._addends: list[int] = []
        self._members = _Indexes(self, ())
        self._inner_members: dict[str, _Indexes] = {}
        for field in fields:
            self.add(field)

    def add(self, field: Field) -> int:
        """Adds a field and returns its index."""
        text = json_text.encode([*field.names, field.kind])
        number = int.from_bytes(sha256(text).digest()[:8]) >> 1
        self.fields.append(field)
        self._texts.append(text)
        self._addends.append((len(text) + 1) << _SIZE_SHIFT | number)
        return len(self._texts) - 1

    def number(self, index: int) -> int:
        """Returns the number of a field, the same in every process."""
        return self._addends[index] & _NUMBER_MASK

    def fields_json(self, value: ValueFields) -> str:
        """Writes the fields of a value as ``encode_fields`` does."""
        return b"[%b]".__mod__(b",".join([self._texts[index] for index in value.indexes])).decode()

    def classify(self, data: dict[str, Any]) -> ValueFields:
        """Returns the fields of a value. Those that it has first in the batch are added."""
        if len(data) > MAX_PATHS:
            return _TOO_LARGE
        measured: list[int] = []
        measures: list[int | float] = []
        others: list[int] = []
        for name in _add_members(data, self._members, measured, measures, others):
            if len(measured) + len(others) + len(data[name]) > MAX_PATHS:
                return _TOO_LARGE
            _add_members(data[name], self._indexes_in(name), measured, measures, others)
        measured += others
        total = sum(map(self._addends.__getitem__, measured))
        if total >> _SIZE_SHIFT >= _MAX_FIELDS_BYTES:
            return _TOO_LARGE
        return ValueFields(total & _NUMBER_MASK or 1, measured, measures)

    def _indexes_in(self, outer: str) -> _Indexes:
        indexes = self._inner_members.get(outer)
        if indexes is None:
            indexes = self._inner_members[outer] = _Indexes(self, (outer,))
        return indexes


def _add_members(
    data: dict[str, Any],
    indexes: _Indexes,
    measured: list[int],
    measures: list[int | float],
    others: list[int],
) -> list[str]:
    """Adds the members of an object; returns the names of those that are objects with members.

    This runs for each member of each value, so it calls no function.
    """
    objects: list[str] = []
    for name, value in data.items():
        type_: type | str = type(value)
        if type_ is int or type_ is float:
            measured.append(indexes[name, type_])
            measures.append(value)
        elif value and (type_ is str or type_ is list):
            measured.append(indexes[name, type_])
            measures.append(len(value))
        elif value or type_ not in _EMPTY:
            others.append(indexes[name, type_])
            if type_ is dict:
                objects.append(name)
        else:
            others.append(indexes[name, _EMPTY[type_]])
    return objects


def encode_fields(fields: Sequence[Field]) -> str | None:
    """Writes fields as JSON; None if they are too many or too long."""
    text = json_text.encode([[*names, kind] for names, kind in sorted(fields)])
    is_too_large = len(fields) > MAX_PATHS or len(text) > _MAX_FIELDS_BYTES
    return None if is_too_large else text.decode()


def decode_fields(text: str | None) -> list[Field] | None:
    """Reads what ``encode_fields`` has written."""
    if text is None:
        return None
    fields = json_text.decode(text.encode(), max_depth=len(text))  # its depth is known
    return [Field((*names,), kind) for *names, kind in fields]


def to_double(number: float) -> float:
    """Returns the number as a double, so that it can be stored; the largest one if it is larger."""
    return float(max(-_MAX_DOUBLE, min(_MAX_DOUBLE, number)))
