"""JSON as text: read strictly and without losing digits, written compactly, hashed canonically."""

from __future__ import annotations

import hashlib
import json
import math
import re
from decimal import Decimal
from typing import Any

import orjson

DEEPEST = 100
"""How many arrays and objects may stand inside each other."""

_EXACT_INTEGERS = 2**53  # below this every integer is a double
_MANY_DIGITS = re.compile(rb"[0-9]{16}")  # as many as the first integer that is not a double has
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")


class BadJson(ValueError):
    """The text is not JSON that can be kept and given back; says why in one sentence."""


def decode(text: bytes) -> Any:
    """The value of a UTF-8 JSON text. Integers of any spelling keep every digit."""
    try:
        characters = text.decode("utf-8")
        value = json.loads(characters, parse_float=_number, parse_constant=_refuse_constant)
    except UnicodeDecodeError:
        raise BadJson("not valid UTF-8") from None
    except json.JSONDecodeError as error:
        raise BadJson(f"not valid JSON at character {error.pos}") from None
    except RecursionError:
        raise BadJson(f"nested deeper than {DEEPEST} levels") from None
    except BadJson:
        raise
    except ValueError:  # the interpreter's limit on the digits of an integer
        raise BadJson("a number with too many digits") from None
    if isinstance(value, dict | list) and text.count(b"[") + text.count(b"{") > DEEPEST:
        _refuse_deep_nesting(value)
    if _SURROGATE_ESCAPE.search(characters):
        _refuse_lone_surrogates(value)
    return value


def _refuse_deep_nesting(value: Any) -> None:
    """Walks level by level, so that it can't itself go too deep."""
    level = [value]
    for _ in range(DEEPEST):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return
    raise BadJson(f"nested deeper than {DEEPEST} levels")


def _number(spelled: str) -> int | float:
    """A double, or the exact integer where the double would be another integer."""
    double = float(spelled)
    if math.isinf(double):
        raise BadJson("a number beyond the range of a double")
    if abs(double) < _EXACT_INTEGERS:
        return double
    exact = Decimal(spelled)
    if Decimal(repr(double)) == exact:
        return double
    return int(exact) if exact == exact.to_integral_value() else double


def _refuse_constant(name: str) -> Any:
    raise BadJson("NaN and Infinity are not JSON")


def _refuse_lone_surrogates(value: Any) -> None:
    try:
        encode(value)
    except UnicodeEncodeError:
        raise BadJson("a lone surrogate, which no UTF-8 text can hold") from None


def encode(value: Any) -> bytes:
    """Compact UTF-8 JSON, members in the order they came in."""
    try:
        return orjson.dumps(value)
    except TypeError:  # an integer beyond 64 bits, or a lone surrogate, which this refuses too
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8")


def canonical(value: Any) -> bytes:
    """The one text of all JSON texts that mean the same.

    Members sorted by code point; no white space; strings with the fewest escapes. A number below
    2^53 of integral value as its digits, any other that a double holds as the shortest decimal of
    that double, and an integer that no double holds as its digits.
    """
    try:
        text = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        return _sorted(_plain_numbers(value))
    # Only a text that looks like it can hold a number with another spelling.
    if b".0" in text or _MANY_DIGITS.search(text):
        return _sorted(_plain_numbers(value))
    return text


def _sorted(value: Any) -> bytes:
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode(
            "utf-8"
        )


def _plain_numbers(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain_numbers(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_plain_numbers(element) for element in value]
    if isinstance(value, float) and value.is_integer() and abs(value) < _EXACT_INTEGERS:
        return int(value)
    if isinstance(value, int) and abs(value) >= _EXACT_INTEGERS:
        return _double_of(value)
    return value


def _double_of(integer: int) -> int | float:
    """The double whose shortest decimal is this integer, or the integer if there is none."""
    try:
        double = float(integer)
    except OverflowError:
        return integer
    return double if Decimal(repr(double)) == integer else integer


def canonical_hash(value: Any) -> str:
    """SHA-256 of the canonical text, in hexadecimal."""
    return hashlib.sha256(canonical(value)).hexdigest()
