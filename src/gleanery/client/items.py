"""Items of a push: their JSON text, or the reason why they have none."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Final
from uuid import UUID

import msgspec

FLUSH: Final = object()
"""A source yields it in the place of an item, so that the items before it are sent now."""


class InvalidItem(ValueError):
    """The item cannot be sent; the message says why, without its values."""

    loc: tuple[str, ...] = ()
    """Path to the value that is the reason, if it is known."""


def encode_item(item: Any) -> bytes:
    """Return an item as one line of JSON, without the line break.

    Text and bytes are JSON already: they are not parsed. A blank line is returned as ``b""``. A
    source can yield an InvalidItem in the place of an item that it cannot read.
    """
    if type(item) is not dict:
        if isinstance(item, InvalidItem):  # the source has found a problem itself
            raise item
        if isinstance(item, str):
            item = _to_utf_8(item)
        if isinstance(item, bytes | bytearray | memoryview | msgspec.Raw):
            return _check_line(bytes(item))
    lines = encode_plain([item])
    if lines is not None:
        return lines[:-1]
    try:
        return _encode_any(item)
    except InvalidItem as error:
        raise _find_problem(error, item) from None


def encode_plain(items: list[Any]) -> bytes | None:
    """Return the lines of dicts with plain values, each with its line break. Else return None.

    It takes a third of the time of ``encode_item``. msgspec alone would change some values: it
    writes NaN as null, and bytes as Base64. The conversion rejects them. It makes lists of sets
    and tuples, so the result is then not equal.
    """
    try:
        plain = msgspec.convert((items,), _PlainItems).value
        return _encode_lines(plain) if plain == items else None
    except (ValueError, TypeError, OverflowError, RecursionError):  # the other encoder explains it
        return None


def _encode_any(item: Any) -> bytes:
    try:
        return _to_utf_8(_encode(item))
    except InvalidItem:
        raise
    except RecursionError:
        raise InvalidItem("nested too deep") from None
    except TypeError:  # the encoder's own message would be the only one that names types of keys
        raise InvalidItem("a key of an object is not a string") from None
    except ValueError:
        raise InvalidItem(
            "NaN, Infinity, or a reference to itself: JSON has none of them"
        ) from None


_NO_PROBLEM = (None, None, None)


def _find_problem(error: InvalidItem, value: Any) -> InvalidItem:
    """Return the error of the first value at fault, with its path. It ends early in a deep item."""
    path: list[str] = []
    for _ in range(_MAX_PLAIN_DEPTH):  # a reference to itself has no end
        problems = ((name, each, _problem_of(each)) for name, each in _members(value))
        name, value, problem = next((found for found in problems if found[2]), _NO_PROBLEM)
        if problem is None or not isinstance(name, str | int) or _problem_of(name):
            break
        path.append(str(name))
        error = problem
    error.loc = tuple(path)
    return error


def _members(value: Any) -> Iterable[tuple[Any, Any]]:
    """Return the members that the JSON form of a value has, with their names or positions."""
    if not isinstance(value, dict | list | tuple):
        try:
            value = _to_json(value)
        except (ValueError, TypeError, RecursionError):
            return ()
    if isinstance(value, dict):
        return value.items()
    return enumerate(value) if isinstance(value, list | tuple) else ()


def _problem_of(value: Any) -> InvalidItem | None:
    try:
        _encode_any(value)
    except InvalidItem as error:
        return error
    return None


def _check_line(text: bytes) -> bytes:
    line = text.strip()
    if b"\n" in line:
        raise InvalidItem("has a line break: as text or bytes, an item is one line of JSON Lines")
    return line


def _to_utf_8(text: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidItem("a lone surrogate, which UTF-8 cannot encode") from None


def _to_json(value: Any) -> Any:
    """Return a JSON value for an object of another type. It never changes what the value means."""
    match value:
        case datetime() | date() | time():
            return value.isoformat()
        case Decimal():
            return _to_number(value)
        case UUID():
            return str(value)
        case Enum():
            return value.value
        case Mapping():
            return dict(value)
        case set() | frozenset():
            return _sorted(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    if hasattr(type(value), "__struct_fields__"):
        return _struct_members(value)
    raise InvalidItem(f"{type(value).__name__} has no JSON form: convert it first")


_MAX_PLAIN_DEPTH = 6
_MAX_DOUBLE = sys.float_info.max
_Scalar = (
    str | int | Annotated[float, msgspec.Meta(ge=-_MAX_DOUBLE, le=_MAX_DOUBLE)] | bool | None
)  # the limits reject NaN and Infinity


def _plain_type(depth: int) -> Any:
    """Return the type of values with so many levels. msgspec has no recursive types for them."""
    if depth == 0:
        return _Scalar
    inner = _plain_type(depth - 1)
    return dict[str, inner] | list[inner] | _Scalar  # type: ignore[valid-type]


class _PlainItems(msgspec.Struct, array_like=True, gc=False):
    """An array of one list. msgspec prepares the type of a struct only once."""

    value: list[dict[str, _plain_type(_MAX_PLAIN_DEPTH)]]  # type: ignore[valid-type]


_encode_lines = msgspec.json.Encoder().encode_lines
_encode = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_to_json
).encode


def _to_number(value: Decimal) -> int | float:
    """Return the number that the service keeps with every digit."""
    if value.is_finite():
        double = float(value)
        if math.isfinite(double) and Decimal(repr(double)) == value:
            return double
        if value == value.to_integral_value():
            return int(value)
    raise InvalidItem("a Decimal with more digits than a number keeps: send it as a string")


def _sorted(values: set[Any] | frozenset[Any]) -> list[Any]:
    """Return the elements in one order, so that the same set is always the same value."""
    try:
        return sorted(values)
    except TypeError:
        raise InvalidItem("a set of values without an order: send a list") from None


def _struct_members(struct: Any) -> Any:
    """Return the members of a msgspec Struct, under the names that it has in JSON."""
    kept = (bytes, bytearray, memoryview, datetime, date, time, Decimal, UUID)
    return msgspec.to_builtins(struct, builtin_types=kept, order="deterministic")
