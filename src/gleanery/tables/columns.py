"""Columns: their types, which widen as values require it, and the values of a page by type.

A column has the narrowest type that fits all its values. No value is changed: a number goes into a
column of doubles only if the double is the same number.

See ``docs/explanation/exports-and-tables.md``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Set
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from math import isinf
from typing import Any

import msgspec
from msgspec import Raw

from gleanery.tables.export import Widening


class ColumnType(StrEnum):
    """Type of a column."""

    NULL = "null"
    BOOL = "bool"
    INT64 = "int64"
    DOUBLE = "double"
    STRING = "string"
    TIMESTAMP = "timestamp"
    """Dates of an output, never of its data."""
    JSON = "json"
    """JSON text of any value."""


class Kind(StrEnum):
    """Kind of a JSON value, as far as columns distinguish them."""

    NULL = "null"
    BOOL = "bool"
    SHORT_INTEGER = "short integer"
    """An integer that is also a double: up to 2^53."""
    LONG_INTEGER = "long integer"
    """Another integer of 64 bits."""
    DOUBLE = "double"
    """A number with a fraction or exponent that is the same number as a double."""
    OTHER_NUMBER = "other number"
    """A number with more digits than int64 and double have."""
    STRING = "string"
    STRING_WITH_NUL = "string with NUL"
    NESTED = "nested"
    """An object or array."""


_EXACT_INTEGER = 2**53
_INT64 = range(-(2**63), 2**63)
_INT64_CHARACTERS = 20
SHORT_NUMBER_CHARACTERS = 15
"""A number of so few characters without exponent is exact as a double."""

_FITTING: dict[ColumnType, set[Kind]] = {
    ColumnType.NULL: set(),
    ColumnType.BOOL: {Kind.BOOL},
    ColumnType.INT64: {Kind.SHORT_INTEGER, Kind.LONG_INTEGER},
    ColumnType.DOUBLE: {Kind.SHORT_INTEGER, Kind.DOUBLE},
    ColumnType.STRING: {Kind.STRING},
    ColumnType.TIMESTAMP: {Kind.STRING},
    ColumnType.JSON: set(Kind),
}
_KINDS: dict[ColumnType, set[Kind]] = {
    ColumnType.NULL: set(),
    ColumnType.BOOL: {Kind.BOOL},
    ColumnType.INT64: {Kind.SHORT_INTEGER},
    ColumnType.DOUBLE: {Kind.DOUBLE},
    ColumnType.STRING: {Kind.STRING},
    ColumnType.TIMESTAMP: {Kind.STRING},
    ColumnType.JSON: {Kind.NESTED},
}
_NARROW_TO_WIDE = (
    ColumnType.NULL,
    ColumnType.BOOL,
    ColumnType.INT64,
    ColumnType.DOUBLE,
    ColumnType.STRING,
)
_KINDS_BY_FIRST_BYTE = {
    ord('"'): Kind.STRING,
    ord("{"): Kind.NESTED,
    ord("["): Kind.NESTED,
    ord("t"): Kind.BOOL,
    ord("f"): Kind.BOOL,
    ord("n"): Kind.NULL,
}


def fits(kind: Kind, type_: ColumnType) -> bool:
    return kind is Kind.NULL or kind in _FITTING[type_]


def narrowest_type(kinds: Set[Kind]) -> ColumnType:
    """Return the narrowest type that fits all these kinds, in whatever order the values come."""
    values = kinds - {Kind.NULL}
    return next((type_ for type_ in _NARROW_TO_WIDE if values <= _FITTING[type_]), ColumnType.JSON)


def kinds_of(type_: ColumnType) -> set[Kind]:
    """Return kinds for which this is the narrowest type."""
    return {*_KINDS[type_]}


def kind_of(text: bytes) -> Kind:
    """Return the kind of a value by its JSON text."""
    kind = _KINDS_BY_FIRST_BYTE.get(text[0])
    if kind is None:
        return _kind_of_number(text.decode())
    if kind is Kind.STRING and b"\\u0000" in text and "\0" in msgspec.json.decode(text):
        return Kind.STRING_WITH_NUL
    return kind


def _kind_of_number(text: str) -> Kind:
    if not text.lstrip("-").isdigit():
        return Kind.DOUBLE if is_exact_double(text) else Kind.OTHER_NUMBER
    if len(text) > _INT64_CHARACTERS:
        return Kind.OTHER_NUMBER
    number = int(text)
    if abs(number) <= _EXACT_INTEGER:
        return Kind.SHORT_INTEGER
    return Kind.LONG_INTEGER if number in _INT64 else Kind.OTHER_NUMBER


def is_exact_double(text: str) -> bool:
    """Return whether the shortest text of the double is the same number."""
    double = float(text)
    if isinf(double):
        return False
    try:
        return repr(double) == text or Decimal(repr(double)) == Decimal(text)
    except InvalidOperation:  # an exponent with more digits than Decimal has
        return False


Texts = list[Raw] | None
"""JSON texts of a column's values on one page; None: all of them are null."""
Values = list[Any] | None
"""Values of a column on one page; None: all of them are null. A value of JSON is its text."""

NULL = Raw(b"null")
_QUOTE = ord('"')
_nulls: msgspec.json.Decoder[None] = msgspec.json.Decoder(type(None))
_bools: msgspec.json.Decoder[bool | None] = msgspec.json.Decoder(bool | None)
_integers: msgspec.json.Decoder[int | None] = msgspec.json.Decoder(int | None)
_floats: msgspec.json.Decoder[float | None] = msgspec.json.Decoder(float | None)
_strings: msgspec.json.Decoder[str | None] = msgspec.json.Decoder(str | None)


class Column:
    """A column of a table."""

    def __init__(self, name: str, type_: ColumnType, nul_is_text: bool = True) -> None:
        self.name = name
        self.type = type_
        self._nul_is_text = nul_is_text
        self._kinds = kinds_of(type_)
        self._widenings: list[Widening] = []
        self._misfits: list[int] = []  # of each widening

    @property
    def widenings(self) -> list[Widening]:
        """Changes of the type after the first value, with the values that caused them."""
        counted = zip(self._widenings, self._misfits, strict=True)
        return [replace(widening, count=count) for widening, count in counted]

    def read(self, texts: Texts, row: int) -> Values:
        """Return the values, after widening the type if one does not fit. ``row`` is the first."""
        if texts is None:
            return None
        values = None if self._widenings else self.decode(texts)
        if values is None:
            self._classify(texts, row)
            values = self.decode(texts)
            assert values is not None, "every value fits the wider type"
        return values

    # --- the type -------------------------------------------------------------------------------

    def _classify(self, texts: list[Raw], row: int) -> None:
        """Look at each value, widen the type so that it fits, and count the misfits."""
        kinds = [self._kind_of(text) for text in texts]
        for number, kind in enumerate(kinds, row):
            if kind not in self._kinds:
                self._widen(kind, number)
        for at, widening in enumerate(self._widenings):
            old = ColumnType(widening.old_type)
            self._misfits[at] += sum(
                count for kind, count in Counter(kinds).items() if not fits(kind, old)
            )

    def _kind_of(self, text: Raw) -> Kind:
        if text is NULL:
            return Kind.NULL
        if self._nul_is_text and memoryview(text)[0] == _QUOTE:  # a long text is not copied
            return Kind.STRING
        return kind_of(bytes(text))

    def _widen(self, kind: Kind, row: int) -> None:
        self._kinds.add(kind)
        if fits(kind, self.type):
            return
        old, self.type = self.type, narrowest_type(self._kinds)
        if old is not ColumnType.NULL:
            self._widenings.append(Widening(self.name, row, 0, old.value, self.type.value))
            self._misfits.append(0)

    # --- the values -----------------------------------------------------------------------------

    def decode(self, texts: list[Raw]) -> Values:
        """Return the values, or None if one does not fit the type."""
        if self.type is ColumnType.JSON:
            return texts
        try:
            return self._decode_lines(texts, b"\n".join(texts))
        except msgspec.MsgspecError:
            return None

    def _decode_lines(self, texts: list[Raw], lines: bytes) -> Values:
        match self.type:
            case ColumnType.INT64:
                return self._integers(texts, _integers.decode_lines(lines))
            case ColumnType.DOUBLE:
                return _exact_floats(texts, lines)
            case ColumnType.BOOL:
                return _bools.decode_lines(lines)
            case ColumnType.NULL:
                return _nulls.decode_lines(lines)
        if b"\\u0000" in lines and not self._nul_is_text:
            return _without_nul(_strings.decode_lines(lines))
        return _strings.decode_lines(lines)

    def _integers(self, texts: list[Raw], values: list[int | None]) -> Values:
        """Return the values, if they have 64 bits, and note whether all are exact as doubles."""
        if max(map(len, texts)) > SHORT_NUMBER_CHARACTERS:
            numbers = [value for value in values if value is not None]
            if not all(number in _INT64 for number in (min(numbers), max(numbers))):
                return None
            if max(-min(numbers), max(numbers)) > _EXACT_INTEGER:
                self._kinds.add(Kind.LONG_INTEGER)
        return values


def _exact_floats(texts: list[Raw], lines: bytes) -> Values:
    """Return the doubles, if each is the same number as its text."""
    values = _floats.decode_lines(lines)
    has_exponent = b"e" in lines or b"E" in lines
    if has_exponent or max(map(len, texts)) > SHORT_NUMBER_CHARACTERS:
        unsure = (text for text in texts if has_exponent or len(text) > SHORT_NUMBER_CHARACTERS)
        if not all(fits(kind_of(bytes(text)), ColumnType.DOUBLE) for text in unsure):
            return None
    return values


def _without_nul(values: list[str | None]) -> Values:
    return None if any(value and "\0" in value for value in values) else values
