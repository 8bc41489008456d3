"""JSON as text: read strictly and without losing digits, written compactly, hashed canonically."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import orjson

DEEPEST = 100
"""How many arrays and objects may stand inside each other."""

_CANONICAL = orjson.OPT_SORT_KEYS | orjson.OPT_STRICT_INTEGER
_TOO_DEEP = f"nested deeper than {DEEPEST} levels"
_EXACT_INTEGERS = 2**53  # below this every integer is a double
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")
_INTEGRAL = re.compile(rb"\.0(?![0-9])")
# What every number looks like once its digits are zeros; below 16 a double holds all of them.
_AS_ZEROS = bytes.maketrans(b"123456789.", b"0" * 10)
_MANY_DIGITS = b"0" * 16
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_NO_BRACKETS_OR_NUL = _NO_BRACKETS.replace(b"\0", b"")


class BadJson(ValueError):
    """The text is not JSON that can be kept and given back; says why in one sentence."""


def decode(text: bytes, deepest: int = DEEPEST) -> Any:
    """The value of a UTF-8 JSON text. Integers of any spelling keep every digit."""
    value = _decoded(text, may_lose_digits=_has_long_numbers(text))
    if len(text.translate(None, _NO_BRACKETS)) > 2 * deepest:
        _refuse_deep_nesting(value, deepest)
    return value


def decode_each(texts: Sequence[bytes], deepest: int = DEEPEST) -> list[Any]:
    """The same of many texts: what each is looked through for, is looked for in all at once."""
    joined = b"\0".join(texts)  # which is no part of any JSON
    may_lose_digits = _has_long_numbers(joined)
    values = [_decoded(text, may_lose_digits) for text in texts]
    brackets = joined.translate(None, _NO_BRACKETS_OR_NUL).split(b"\0")
    for value, brackets_of_it in zip(values, brackets, strict=bool(texts)):
        if len(brackets_of_it) > 2 * deepest:
            _refuse_deep_nesting(value, deepest)
    return values


def _has_long_numbers(text: bytes) -> bool:
    return _MANY_DIGITS in text.translate(_AS_ZEROS)


def _decoded(text: bytes, may_lose_digits: bool) -> Any:
    """By the fast way, if it can't lose a digit; what that refuses, the exact way explains."""
    if not may_lose_digits:
        try:
            return orjson.loads(text)
        except orjson.JSONDecodeError:
            pass
    return _decoded_exactly(text)


def _decoded_exactly(text: bytes) -> Any:
    try:
        characters = text.decode("utf-8")
        value = json.loads(characters, parse_float=_number, parse_constant=_refuse_constant)
    except UnicodeDecodeError:
        raise BadJson("not valid UTF-8") from None
    except json.JSONDecodeError as error:
        raise BadJson(f"not valid JSON at character {error.pos}") from None
    except RecursionError:
        raise BadJson(_TOO_DEEP) from None
    except BadJson:
        raise
    except ValueError:  # the interpreter's limit on the digits of an integer
        raise BadJson("a number with too many digits") from None
    if _SURROGATE_ESCAPE.search(characters):
        _refuse_lone_surrogates(value)
    return value


def _refuse_deep_nesting(value: Any, deepest: int) -> None:
    """For what has as many brackets as could be too many."""
    if _is_deeper([value], deepest):
        raise BadJson(_TOO_DEEP)


def _is_deeper(level: list[Any], deepest: int) -> bool:
    """Goes down level by level, so that it can't itself go too deep."""
    for _ in range(deepest):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True


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
    except RecursionError:  # to write goes a little deeper than to read
        raise BadJson(_TOO_DEEP) from None


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
    if isinstance(value, str):
        return encode(value)
    try:
        text = orjson.dumps(value, option=_CANONICAL)
    except TypeError:  # an integer that a double may spell in another way
        return _sorted(_plain_numbers(value))
    if _INTEGRAL.search(text):  # or a text that looks like one
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


def canonical_hash(value: Any) -> bytes:
    """SHA-256 of the canonical text."""
    return hashlib.sha256(canonical(value)).digest()
