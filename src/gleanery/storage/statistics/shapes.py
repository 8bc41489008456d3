"""The shape of a value: its fields with their kinds, and the measures that its ranges need.

A field is a member of the value, or a member of an object in it. Arrays are not entered. Values
with the same fields of the same kinds have the same shape, whatever the order of their members is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from hashlib import sha256
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec

from gleanery.values import json_text

Names = tuple[str, ...]
"""The members on the way to a field: one name, or two for a member of an object."""
Measures = tuple[int | float, ...]

MAX_PATHS = 256
OTHER = 0
"""The number of the shape that stands for all shapes without a number of their own."""
_MAX_FIELDS_BYTES = 8 * 1024
# Limits of the memory for layouts: each has some shapes, and a shape has long names at worst.
_CACHED_LAYOUTS = 512
_CACHED_BYTES = 32 * 1024
_MAX_DOUBLE = 1.7976931348623157e308
_KINDS: dict[type, str] = {
    type(None): "null",
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}
_NUMBERS = (int, float)
_SIZED = (str, list, dict)
UNFILLED_KINDS = frozenset(("null", "empty_string", "empty_array", "empty_object"))
_NUMBER_KINDS = ("integer", "number")
_UNMEASURED_KINDS = ("null", "boolean", "object", "empty_object", "empty_string", "empty_array")


class Field(NamedTuple):
    """A field of a shape."""

    names: Names
    kind: str


class Column(NamedTuple):
    """What a measure at one place of ``Measures`` means."""

    names: Names
    is_length: bool


class Shape(msgspec.Struct, dict=True):
    """A shape with its number, a hash that is the same in every process."""

    number: int
    fields_json: str | None
    """Arrays of the names and the kind of each field; None if the fields are too many."""

    @cached_property
    def columns(self) -> list[Column | None]:
        """The meaning of each measure of this shape; None for a measure that has none."""
        fields = decode_fields(self.fields_json) or []
        numbers = [Column(names, False) for names, kind in fields if kind in _NUMBER_KINDS]
        lengths = [
            None if kind in _UNMEASURED_KINDS else Column(names, True)
            for names, kind in fields
            if kind not in ("null", "boolean", *_NUMBER_KINDS)
        ]
        return [*numbers, *lengths]


_TOO_LARGE = Shape(OTHER, None)


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


def classify(data: dict[str, Any]) -> tuple[Shape, Measures]:
    """Returns the shape of a value, and its measures: numbers, then lengths, by name.

    The layout is the part of the work that many values have in common.
    """
    names: tuple[str | None, ...] = (*data,)
    values = [*data.values()]
    length = len("".join(data))
    if len(values) > MAX_PATHS or length > _MAX_FIELDS_BYTES:
        return _TOO_LARGE, ()
    layout = _layout(names, (*map(type, values),))
    if layout.objects:
        for index in layout.objects:
            inner = values[index]
            length += len("".join(inner))
            names += (None, *inner)
            values += inner.values()
            if len(values) > MAX_PATHS or length > _MAX_FIELDS_BYTES:
                return _TOO_LARGE, ()
        layout = _layout(names, (*map(type, values),))
    lengths = (*map(len, layout.sized(values)),)
    shape = layout.shape if all(lengths) else layout.with_empty(lengths)
    if shape is _TOO_LARGE:
        return _TOO_LARGE, ()
    return shape, (*layout.numbers(values), *lengths)


def to_double(number: float) -> float:
    """Returns the number as a double, so that it can be stored; the largest one if it is larger."""
    return float(max(-_MAX_DOUBLE, min(_MAX_DOUBLE, number)))


class _Layout:
    """The names and types of the members of many values, in one order."""

    def __init__(self, fields: Sequence[tuple[Names, type]]) -> None:
        ordered = sorted(range(len(fields)), key=lambda index: fields[index][0])
        self._fields = [fields[index] for index in ordered]
        self.numbers = _getter([index for index in ordered if fields[index][1] in _NUMBERS])
        self.sized = _getter([index for index in ordered if fields[index][1] in _SIZED])
        self.objects = [index for index in range(len(fields)) if fields[index][1] is dict]
        self.shape = self._shape(())
        self._with_empty: dict[tuple[bool, ...], Shape] = {}

    def with_empty(self, lengths: Sequence[int]) -> Shape:
        """Returns the shape of a value in which strings, arrays or objects are empty."""
        filled = (*map(bool, lengths),)
        shape = self._with_empty.get(filled)
        if shape is None:
            shape = self._shape(filled)
            text = shape.fields_json
            if text is not None and len(self._with_empty) * len(text) < _CACHED_BYTES:
                self._with_empty[filled] = shape
        return shape

    def _shape(self, filled: Sequence[bool]) -> Shape:
        is_filled = iter(filled)
        fields = []
        for names, type_ in self._fields:
            is_empty = type_ in _SIZED and not next(is_filled, True)
            fields.append(Field(names, ("empty_" if is_empty else "") + _KINDS[type_]))
        text = encode_fields(fields)
        if text is None:
            return _TOO_LARGE
        return Shape(int.from_bytes(sha256(text.encode()).digest()[:8]) >> 1 or 1, text)


@lru_cache(maxsize=_CACHED_LAYOUTS)
def _layout(names: tuple[str | None, ...], types: tuple[type, ...]) -> _Layout:
    """Names the members. None in ``names`` begins the members of the next object."""
    fields: list[tuple[Names, type]] = []
    remaining = iter(types)
    objects = iter([name for name, type_ in zip(names, types, strict=False) if type_ is dict])
    outer: Names = ()
    for name in names:
        if name is None:
            outer = (str(next(objects)),)
        else:
            fields.append(((*outer, name), next(remaining)))
    return _Layout(fields)


def _getter(indexes: list[int]) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """Returns a function that takes the values at these indexes."""
    if len(indexes) > 1:
        return itemgetter(*indexes)
    return lambda values: [values[index] for index in indexes]
