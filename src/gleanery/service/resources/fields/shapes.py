"""The shape of a value: its fields with their kinds; and the ranges of what the fields measure.

A field is a member of the value, or a member of an object in it. Arrays are not entered. Values
with the same fields of the same kinds have the same shape, whatever the order of their members is.

A range has the extreme values and a rough distribution, of numbers or of lengths. It covers all
values that were stored, even those that were replaced or deleted later.
"""

from __future__ import annotations

import sys
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from math import inf
from typing import Any, NamedTuple

import msgspec

from gleanery.service.foundation.values import json_text

Names = tuple[str, ...]
"""The members on the way to a field: one name, or two for a member of an object."""

_MAX_PATH_BYTES = 256
_MAX_NAMES = 1024
"""Members of one object in a batch; an object with more has names that vary without end."""
_MAX_FIELDS = 16 * 1024
"""Fields of a batch. The objects in its values have such names, too."""
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
_NUMBER_BYTES = 7
_MAX_SHAPE = 2**63 - 1
_VALUE_HASH_BYTES = 4
_EXACT_INTEGERS = 2**53  # a double represents every integer below this
_MAX_MEASURE = int(sys.float_info.max)
"""A number beyond the range of a double counts as the largest one, so that a range stays short."""


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

    A batch counts outputs with the same shape together.
    """
    numbers: Sequence[int]
    """First the fields that have a measure, then the others."""
    measures: Sequence[int | float]
    """Numbers, and lengths of strings and arrays."""


UNLISTED = Field((), "unlisted")
"""Stands for all fields of a value that are not listed: their names are too many or too long."""
_UNLISTED_NUMBER = 1
_UNLISTED_KINDS: dict[type | str, int] = dict.fromkeys(
    (*_KINDS, *_EMPTY.values()), _UNLISTED_NUMBER
)


class _Members(dict[str, dict[type | str, int]]):
    """The numbers of the members of an object, by name and by type; by kind if they are empty."""

    def __init__(self, *, is_full: bool = False) -> None:
        self.is_full = is_full

    def __missing__(self, name: str) -> dict[type | str, int]:
        if self.is_full:
            return _UNLISTED_KINDS
        raise KeyError(name)


_UNLISTED_MEMBERS = _Members(is_full=True)


class FieldTable:
    """The fields of the values of one batch.

    Values have few different fields, even if the sets of their fields differ. So the work for each
    field is done once, and a value costs a look-up and an addition per field. The number of a field
    is a hash, the same in every process.
    """

    def __init__(self, fields: Iterable[Field] = ()) -> None:
        self._fields: dict[int, Field] = {_UNLISTED_NUMBER: UNLISTED}
        self._members = _Members()
        self._inner_members: dict[str, _Members] = {}
        for field in fields:
            self._add(field)

    @property
    def fields(self) -> list[Field]:
        return [field for field in self._fields.values() if field is not UNLISTED]

    def __getitem__(self, number: int) -> Field:
        return self._fields[number]

    def classify(self, data: dict[str, Any]) -> ValueFields:
        """Return the fields of a value. Those that it has first in the batch are added."""
        try:
            return self._find(data)
        except KeyError:  # it has a new field
            self._add_members(data, self._members)
            return self._find(data)

    def _find(self, data: dict[str, Any]) -> ValueFields:
        """Return the fields of a value. Raise KeyError if the table does not have all of them."""
        measured: list[int] = []
        measures: list[int | float] = []
        others: list[int] = []
        for name in _find_members(data, self._members, measured, measures, others):
            inner = self._inner_members.get(name, _UNLISTED_MEMBERS)
            _find_members(data[name], inner, measured, measures, others)
        measured += others
        return ValueFields(sum(measured) & _MAX_SHAPE, measured, measures)

    def _add_members(self, data: dict[str, Any], members: _Members, outer: Names = ()) -> None:
        """Add the members of an object, if there is room for them."""
        for name, value in data.items():
            numbers = members.get(name)
            if numbers is None:
                if len(members) == _MAX_NAMES or len(self._fields) >= _MAX_FIELDS:
                    members.is_full = True
                    continue
                numbers = members[name] = {}
            type_ = type(value)
            key = _EMPTY.get(type_, type_) if not value else type_
            if key not in numbers:
                numbers[key] = self._add(Field((*outer, name), _KINDS.get(key) or str(key)))
            if type_ is dict and not outer:
                inner = self._inner_members.setdefault(name, _Members())
                self._add_members(value, inner, (name,))

    def _add(self, field: Field) -> int:
        text = json_text.encode([*field.names, field.kind])
        if len(text) - len(field.kind) > _MAX_PATH_BYTES:
            return _UNLISTED_NUMBER
        number = int.from_bytes(blake2b(text, digest_size=_NUMBER_BYTES).digest()) >> 1
        self._fields[number] = field
        return number


def _find_members(
    data: dict[str, Any],
    members: _Members,
    measured: list[int],
    measures: list[int | float],
    others: list[int],
) -> list[str]:
    """Find the members of an object; return the names of those that are objects with members.

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


# --- ranges -------------------------------------------------------------------------------------


class Source(NamedTuple):
    """The output and the value that a measure is from."""

    identity: bytes
    content_hash: bytes

    def encode(self) -> str:
        return (self.identity + self.content_hash[:_VALUE_HASH_BYTES]).hex()


def decode_source(text: str) -> Source:
    """Return a source. Its content hash is only the beginning of one."""
    whole = bytes.fromhex(text)
    return Source(whole[:-_VALUE_HASH_BYTES], whole[-_VALUE_HASH_BYTES:])


class Range(msgspec.Struct, array_like=True):
    """Smallest and largest measure, and how many measures have how many binary digits."""

    min: int | float = inf
    min_source: str = ""
    max: int | float = -inf
    max_source: str = ""
    digits: dict[int, int] = {}

    @property
    def count(self) -> int:
        return sum(self.digits.values())

    @property
    def median_digits(self) -> int:
        """The number of binary digits that the median has."""
        before, half = 0, (self.count + 1) // 2
        for digits, count in sorted(self.digits.items()):
            before += count
            if before >= half:
                return digits
        return 0

    @property
    def median(self) -> float:
        """Estimates the median of measures that are not negative."""
        digits = self.median_digits
        below = sum(count for fewer, count in self.digits.items() if fewer < digits)
        rank = (self.count + 1) / 2 - below
        first: int = 2**digits // 2
        least, most = max(first, self.min), min(max(2 * first - 1, 0), self.max)
        return least + (most - least) * (rank - 0.5) / self.digits[digits]

    def merge(self, other: Range) -> None:
        """Add the measures of another range."""
        if other.min < self.min:
            self.min, self.min_source = other.min, other.min_source
        if other.max > self.max:
            self.max, self.max_source = other.max, other.max_source
        for digits, count in other.digits.items():
            self.digits[digits] = self.digits.get(digits, 0) + count


SourceAt = Callable[[int], Source]
"""Returns the source of the measures at a position of the batch."""


Ranges = dict[Column, Range]


def add_measures(
    range_: Range,
    measures: Sequence[int | float],
    positions: Sequence[int],
    source_at: SourceAt,
) -> None:
    """Add the measures of one field, of which there is at least one, and their positions.

    The digits of each measure are counted, and of equal extremes the first is the source. So the
    result does not depend on the size of the batch.
    """
    ordered = sorted(measures)
    if ordered[0] < -_MAX_MEASURE or ordered[-1] > _MAX_MEASURE:
        measures = [max(-_MAX_MEASURE, min(_MAX_MEASURE, measure)) for measure in measures]
        ordered = sorted(measures)
    smallest, largest = ordered[0], ordered[-1]
    if smallest < range_.min:
        source = source_at(_first_position(measures, positions, smallest))
        range_.min, range_.min_source = smallest, source.encode()
    if largest > range_.max:
        source = source_at(_first_position(measures, positions, largest))
        range_.max, range_.max_source = largest, source.encode()
    _add_digits(range_.digits, ordered)


def _first_position(
    measures: Sequence[int | float], positions: Sequence[int], wanted: int | float
) -> int:
    pairs = zip(measures, positions, strict=True)
    return min(position for measure, position in pairs if measure == wanted)


def _add_digits(counts: dict[int, int], ordered: Sequence[int | float]) -> None:
    """Count measures in ascending order by the binary digits of their integer part.

    A search finds the end of all those with the same number of digits.
    """
    negative, positive = bisect_right(ordered, -1), bisect_left(ordered, 1)
    if positive > negative:
        counts[0] = counts.get(0, 0) + positive - negative
    for large in ([-measure for measure in reversed(ordered[:negative])], ordered[positive:]):
        start = 0
        while start < len(large):
            digits = int(large[start]).bit_length()
            end = bisect_left(large, 1 << digits, start)
            counts[digits] = counts.get(digits, 0) + end - start
            start = end


class _StoredRange(msgspec.Struct, array_like=True):
    """A range as it is stored."""

    names: Names
    is_length: bool
    range: Range


_decode = msgspec.json.Decoder(list[_StoredRange]).decode


def encode_ranges(ranges: Ranges) -> str:
    stored = [_StoredRange(*column, range_) for column, range_ in ranges.items()]
    return msgspec.json.encode(stored).decode()


def decode_ranges(text: str) -> Ranges:
    return {Column(stored.names, stored.is_length): stored.range for stored in _decode(text)}


def readable(measure: int | float) -> int | float:
    """Return a measure as it is shown: a number without a fraction is an integer."""
    return int(measure) if measure == int(measure) and abs(measure) < _EXACT_INTEGERS else measure
