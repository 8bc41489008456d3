"""Types of columns, and the kinds of JSON values that fit each of them.

A column has the narrowest type that fits all its values. No value is changed: a number goes into a
column of doubles only if the double is the same number.
"""

from __future__ import annotations

from collections.abc import Set
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from math import isinf

import msgspec


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
