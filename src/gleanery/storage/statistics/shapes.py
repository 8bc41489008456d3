"""The shape of a value: its fields with their kinds, and the measures that its ranges need.

A field is a member of the value, or a member of an object in it. Arrays are not entered. Values
with the same fields of the same kinds have the same shape, whatever the order of their members is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

from gleanery.values import json_text

Names = tuple[str, ...]
"""The members on the way to a field: one name, or two for a member of an object."""

MAX_PATHS = 256
OTHER = 0
"""The number of the shape that stands for all shapes without a number of their own."""
_MAX_FIELDS_BYTES = 8 * 1024
_MAX_NAMES = 1024
"""Members of one object in a batch; an object with more has names that vary without end."""
_MAX_FIELDS = 16 * 1024
"""Fields of a batch. The objects in its values have such names, too."""
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
_NUMBER_BYTES = 7  # so that the sum of 256 numbers is a number of 64 bits, without its sign


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
    """The fields of a value, as their numbers in a ``FieldTable``."""

    shape: int
    """The sum of the numbers, so it does not depend on the order of the members.

    It is ``OTHER`` if the fields are too many or too long.
    """
    numbers: Sequence[int]
    """First the fields that have a measure, then the others."""
    measures: Sequence[int | float]
    """Numbers, and lengths of strings and arrays."""


_TOO_LARGE = ValueFields(OTHER, (), ())
_Members = dict[str, dict[type | str, int]]
"""The numbers of the members of an object, by name and by type; by kind if the value is empty."""


class FieldTable:
    """The fields of the values of one batch.

    Values have few different fields, even if the sets of their fields differ. So the work for each
    field is done once, and a value costs a look-up and an addition per field. The number of a field
    is a hash, the same in every process.
    """

    def __init__(self, fields: Iterable[Field] = ()) -> None:
        self._fields: dict[int, Field] = {}
        self._texts: dict[int, str] = {}
        self._longest = 0
        self._members: _Members = {}
        self._inner_members: dict[str, _Members] = {}
        for field in fields:
            self._add(field)

    @property
    def fields(self) -> list[Field]:
        return [*self._fields.values()]

    def __getitem__(self, number: int) -> Field:
        return self._fields[number]

    def fields_json(self, value: ValueFields) -> str:
        """Writes the fields of a value as JSON."""
        return "[" + ",".join([self._texts[number] for number in value.numbers]) + "]"

    def classify(self, data: dict[str, Any]) -> ValueFields:
        """Returns the fields of a value. Those that it has first in the batch are added."""
        if len(data) > MAX_PATHS:
            return _TOO_LARGE
        try:
            found = self._find(data)
        except KeyError:  # it has a new field
            if not self._add_members(data, self._members):
                return _TOO_LARGE
            found = self._find(data)
        if len(found.numbers) * self._longest > _MAX_FIELDS_BYTES:
            is_too_long = len(self.fields_json(found).encode()) > _MAX_FIELDS_BYTES
            return _TOO_LARGE if is_too_long else found
        return found

    def _find(self, data: dict[str, Any]) -> ValueFields:
        """Returns the fields of a value. Raises KeyError if the table does not have all of them."""
        measured: list[int] = []
        measures: list[int | float] = []
        others: list[int] = []
        for name in _find_members(data, self._members, measured, measures, others):
            if len(measured) + len(others) + len(data[name]) > MAX_PATHS:
                return _TOO_LARGE
            _find_members(data[name], self._inner_members[name], measured, measures, others)
        measured += others
        return ValueFields(sum(measured) or 1, measured, measures)

    def _add_members(self, data: dict[str, Any], members: _Members, outer: Names = ()) -> bool:
        """Adds the members of an object; returns False if there is no room for all of them."""
        for name, value in data.items():
            numbers = members.get(name)
            if numbers is None:
                if len(members) == _MAX_NAMES or len(self._fields) >= _MAX_FIELDS:
                    return False
                numbers = members[name] = {}
            type_ = type(value)
            key = _EMPTY.get(type_, type_) if not value else type_
            if key not in numbers:
                numbers[key] = self._add(Field((*outer, name), _KINDS.get(key) or str(key)))
            if type_ is dict and not outer:
                inner = self._inner_members.setdefault(name, {})
                if len(value) > MAX_PATHS or not self._add_members(value, inner, (name,)):
                    return False
        return True

    def _add(self, field: Field) -> int:
        text = json_text.encode([*field.names, field.kind])
        number = int.from_bytes(blake2b(text, digest_size=_NUMBER_BYTES).digest()) >> 1
        self._fields[number] = field
        self._texts[number] = text.decode()
        if len(text) >= self._longest:
            self._longest = len(text) + len(b"[,]")
        return number


def _find_members(
    data: dict[str, Any],
    members: _Members,
    measured: list[int],
    measures: list[int | float],
    others: list[int],
) -> list[str]:
    """Finds the members of an object; returns the names of those that are objects with members.

    This runs for each member of each value, so it calls no function of its own.
    """
    objects: list[str] = []
    for name, value in data.items():
        type_ = type(value)
        if type_ is str or type_ is list:
            if value:
                measured.append(members[name][type_])
                measures.append(len(value))
            else:
                others.append(members[name][_EMPTY[type_]])
        elif type_ is float or type_ is int:
            measured.append(members[name][type_])
            measures.append(value)
        elif type_ is not dict:
            others.append(members[name][type_])
        elif value:
            others.append(members[name][type_])
            objects.append(name)
        else:
            others.append(members[name][_EMPTY[type_]])
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
