"""JSON text: strict parsing that loses no digits, compact writing, hashes and paths of fields.

The hash of a value is over its canonical text. The hash of a record is over length-prefixed parts,
so that it is clear where each part ends. A path names a field inside a value, such as
``offer.price`` or ``images[0]``.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from functools import reduce
from hashlib import sha256
from struct import Struct
from typing import Any

import orjson

MAX_DEPTH = 100
"""The number of arrays and objects that may be nested in each other."""

_CANONICAL = orjson.OPT_SORT_KEYS | orjson.OPT_STRICT_INTEGER
_TOO_DEEP = f"nested deeper than {MAX_DEPTH} levels"
_EXACT_INTEGERS = 2**53  # a double represents every integer below this
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")
_INTEGRAL_FLOAT = re.compile(rb"\.0(?![0-9])")
_MAX_GROWTH = 2  # a stored text has at most this many times the bytes that were sent
# Every float whose digits are more than twice as long as its exponent form ends like this.
_LONG_FLOAT = b"0000.0"
_INT64 = range(-(2**63), 2**63)
# Maps every digit and the decimal point to 0, so that one substring search finds long numbers.
# A double represents every number of at most 15 digits.
_DIGITS_TO_ZEROS = bytes.maketrans(b"123456789.E", b"0" * 10 + b"e")
_LONG_NUMBER = b"0" * 16
# The end of every other number that can be too close to zero for a double. In a string, a quotation
# mark or another character follows as a rule.
_SMALL_NUMBER = re.compile(rb"0e-000+(?:[,\]}\s\0]|\Z)")
_COUNTED_BYTES = 64 * 1024  # per step; a thread lets other threads run between two steps
_NOT_ZERO = re.compile(r"[-0.]*[1-9]")
_WHITE_SPACE = b" \t\r\n"
_space = re.compile(r"[ \t\r\n]*")
_OBJECT_START = re.compile(rb"[ \t\r\n]*+\{")
_decoder = json.JSONDecoder()
_ALL_BUT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_ALL_BUT_BRACKETS_AND_NUL = _ALL_BUT_BRACKETS.replace(b"\0", b"")
_pack_length = Struct(">Q").pack
# A dollar sign at the start is for what is outside ``data``.
_PLAIN_NAME = re.compile(r'[^\s.\[\]"\\$\x00-\x1f][^\s.\[\]"\\\x00-\x1f]*')
_PATH_PART = re.compile(
    rf'(?P<dot>\.)?(?:(?P<plain>{_PLAIN_NAME.pattern})|\[(?P<quoted>"(?:[^"\\]|\\.)*")\])'
)


class InvalidJson(ValueError):
    """The text is not JSON, or not JSON that can be stored and returned; the message says why."""


# --- parsing ------------------------------------------------------------------------------------


def decode(text: bytes, max_depth: int = MAX_DEPTH) -> Any:
    """Parse UTF-8 JSON. An integer keeps every digit, however it is written."""
    value = _decode(text, may_lose_digits=_may_lose_digits(text))
    if len(text.translate(None, _ALL_BUT_BRACKETS)) > 2 * max_depth:
        _check_depth(value, max_depth)
    return value


def decode_many(texts: Sequence[bytes], max_depth: int = MAX_DEPTH) -> list[Any]:
    """Parse several texts; search them together, because one long search is faster than many."""
    joined = b"\0".join(texts)  # no JSON text contains a NUL byte
    may_lose_digits = _may_lose_digits(joined)
    values = [_decode(text, may_lose_digits) for text in texts]
    brackets = joined.translate(None, _ALL_BUT_BRACKETS_AND_NUL).split(b"\0")
    for value, brackets_of_value in zip(values, brackets, strict=bool(texts)):
        if len(brackets_of_value) > 2 * max_depth:
            _check_depth(value, max_depth)
    return values


def _may_lose_digits(text: bytes) -> bool:
    """Return True if the fast parser could change a number, such as 1e-400 to 0."""
    zeros = text.translate(_DIGITS_TO_ZEROS)
    return _LONG_NUMBER in zeros or _SMALL_NUMBER.search(zeros) is not None


def _decode(text: bytes, may_lose_digits: bool) -> Any:
    """Use the fast parser if it cannot lose a digit; the exact parser explains its errors."""
    if not may_lose_digits:
        try:
            return orjson.loads(text)
        except orjson.JSONDecodeError:
            pass
    return _decode_exactly(text)


def _decode_exactly(text: bytes) -> Any:
    try:
        characters = text.decode("utf-8")
        value = _exact_decoder.decode(characters)
    except UnicodeDecodeError:
        raise InvalidJson("not valid UTF-8") from None
    except json.JSONDecodeError as error:
        raise InvalidJson(f"not valid JSON at character {error.pos}") from None
    except RecursionError:
        raise InvalidJson(_TOO_DEEP) from None
    except InvalidJson:
        raise
    except ValueError:  # Python limits the number of digits of an integer
        raise InvalidJson("a number with too many digits") from None
    if _SURROGATE_ESCAPE.search(characters):
        _reject_lone_surrogates(value)
    return value


def _parse_number(text: str) -> int | float:
    """Return a double, or an exact integer if the double is a different integer."""
    double = float(text)
    if math.isinf(double):
        raise InvalidJson("a number beyond the range of a double")
    if not double and _NOT_ZERO.match(text):
        raise InvalidJson("a number too close to zero for a double")
    if abs(double) < _EXACT_INTEGERS:
        return double
    exact = Decimal(text)
    if Decimal(repr(double)) == exact or exact != exact.to_integral_value():
        return double
    if exact.adjusted() < _MAX_GROWTH * len(text) - 1:  # the integer is not much longer
        return int(exact)
    if Decimal(f"{double:.16e}") == exact:  # how some languages write this double
        return double
    raise InvalidJson("a number with an exponent and more digits than a double has")


def _reject_constant(name: str) -> Any:
    raise InvalidJson("NaN and Infinity are not JSON")


_exact_decoder = json.JSONDecoder(parse_float=_parse_number, parse_constant=_reject_constant)


def _reject_lone_surrogates(value: Any) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidJson("a lone surrogate, which UTF-8 cannot encode") from None
    except RecursionError:  # json.dumps uses a little more stack than json.loads
        raise InvalidJson(_TOO_DEEP) from None


def _check_depth(value: Any, max_depth: int) -> None:
    """Rejects deep nesting; called only if the text has enough brackets for it."""
    if _is_deeper([value], max_depth):
        raise InvalidJson(_TOO_DEEP)


def _is_deeper(level: list[Any], max_depth: int) -> bool:
    """Descends level by level instead of by recursion, which could exhaust the stack."""
    for _ in range(max_depth):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True


# --- splitting ----------------------------------------------------------------------------------


def is_object(text: bytes) -> bool:
    """Return True if the text begins like a JSON object."""
    return _OBJECT_START.match(text) is not None


def split_batch(text: bytes) -> list[bytes] | None:
    """Split an array into the texts of its elements. An object is one element.

    Return None if the text is neither. An element can be a text that ``decode`` rejects, with NaN
    or a lone surrogate. The other elements are readable nevertheless.
    """
    try:
        return [*_elements(text.decode("utf-8"))]
    except (ValueError, IndexError, RecursionError):  # IndexError: the text ends too early
        return None


def _elements(text: str) -> Iterator[bytes]:
    """Yield the texts of the elements. Raise ValueError or IndexError if the text is no batch."""
    if text.startswith("{", start := _after_separator(text, 0, "")):
        _, end = _decoder.raw_decode(text, start)
        if _after_separator(text, end, "") != len(text):
            raise ValueError
        yield text[start:end].encode("utf-8")
        return
    at = _after_separator(text, 0, "[")
    if text[at] != "]":
        while True:
            _, end = _decoder.raw_decode(text, at)
            yield text[at:end].encode("utf-8")
            at = _after_separator(text, end, "")
            if text[at] == "]":
                break
            at = _after_separator(text, at, ",")
    if _after_separator(text, at, "]") != len(text):
        raise ValueError


def _after_separator(text: str, at: int, separator: str) -> int:
    """Return the next position after white space, the separator and white space."""
    at = _space.match(text, at).end()  # type: ignore[union-attr]  # it also matches nothing
    if not text.startswith(separator, at):
        raise ValueError
    return _space.match(text, at + len(separator)).end()  # type: ignore[union-attr]


# --- counting -----------------------------------------------------------------------------------


def has_more_values(text: bytes, limit: int) -> bool:
    """Return True if a JSON text has more values than the limit, with little memory and no parse.

    Arrays, objects and everything in them are values. Names of members are not.
    """
    if len(text) <= limit:  # each value has at least one byte
        return False
    return count_at_most(text) > limit and _count_values(text, limit) > limit


def count_at_most(text: bytes) -> int:
    """Return an upper bound, which also counts the separators in strings."""
    starts = range(0, len(text), _COUNTED_BYTES)
    return 1 + sum(_separators(text[start : start + _COUNTED_BYTES]) for start in starts)


def _separators(text: bytes) -> int:
    """Count what can precede a value, except for the first."""
    return text.count(b",") + text.count(b"[") + text.count(b"{")


def _count_values(text: bytes, limit: int) -> int:
    """Count the values outside strings, and stop soon after the limit."""
    count, last, in_string, start = 1, b"", False, 0
    while start < len(text) and count <= limit + 1:
        end = _end_of_step(text, start)
        parts = text[start:end].replace(rb"\\", b"").replace(rb"\"", b"").split(b'"')
        # A quotation mark stands for each string, so that ["a"] does not look like [].
        outside = b'"'.join(parts[in_string::2]).translate(None, _WHITE_SPACE)
        in_string ^= len(parts) % 2 == 0
        joined = last + outside
        count += _separators(outside) - joined.count(b"[]") - joined.count(b"{}")
        last, start = b'"' if in_string else joined[-1:], end
    return count


def _end_of_step(text: bytes, start: int) -> int:
    """Return the end of the next step, which is not inside an escape sequence."""
    step = text[start : start + _COUNTED_BYTES]
    backslashes = len(step) - len(step.rstrip(b"\\"))
    return start + len(step) + backslashes % 2


# --- writing ------------------------------------------------------------------------------------


def encode(value: Any) -> bytes:
    """Write compact UTF-8 JSON; members keep their order.

    The text has at most twice the bytes of any JSON text with this value.
    """
    try:
        text = orjson.dumps(value)
    except TypeError:  # an integer beyond 64 bits
        return _encode_numbers(value)
    return _encode_numbers(value) if _LONG_FLOAT in text else text


def as_fragment(text: bytes) -> Any:
    """Return a value that ``encode`` writes as this JSON text."""
    return orjson.Fragment(text)


def _encode_numbers(value: Any) -> bytes:
    """Write the numbers that orjson cannot write, or writes with many zeros."""
    return orjson.dumps(_with_number_texts(value))


def _with_number_texts(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _with_number_texts(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_with_number_texts(element) for element in value]
    if isinstance(value, float) and _LONG_FLOAT in (text := orjson.dumps(value)):
        return orjson.Fragment(_with_exponent(text))
    if isinstance(value, int) and value not in _INT64:
        return orjson.Fragment(str(value))
    return value


def _with_exponent(text: bytes) -> bytes:
    """Write 1500000.0 as 15e5."""
    digits = text.removesuffix(b".0")
    significant = digits.rstrip(b"0")
    return b"%be%d" % (significant, len(digits) - len(significant))


def canonical(value: Any) -> bytes:
    """Write the canonical text, which is the same for all JSON texts with equal values.

    Members are sorted by code point. There is no white space, and strings have the fewest escapes.
    A number below 2^53 without a fraction is written as an integer. Any other number that is the
    shortest decimal of a double is written as this decimal, without an exponent from 0.00001 to
    below 10^16, otherwise like 1.5e-7 and 1e+16. Other integers keep their digits.
    """
    if isinstance(value, str):
        return encode(value)
    try:
        text = orjson.dumps(value, option=_CANONICAL)
    except TypeError:  # an integer of more than 53 bits
        return orjson.dumps(_normalize_numbers(value), option=orjson.OPT_SORT_KEYS)
    # A float such as 1.0, or a string that contains one. The first search is much faster.
    if b".0" in text and _INTEGRAL_FLOAT.search(text):
        return orjson.dumps(_normalize_numbers(value), option=orjson.OPT_SORT_KEYS)
    return text


def canonical_hash(value: Any) -> bytes:
    """Return the SHA-256 of the canonical text."""
    return sha256(canonical(value)).digest()


def _normalize_numbers(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _normalize_numbers(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_normalize_numbers(element) for element in value]
    if isinstance(value, float) and value.is_integer() and abs(value) < _EXACT_INTEGERS:
        return int(value)
    if isinstance(value, int) and abs(value) >= _EXACT_INTEGERS:
        return _as_double(value)
    return value


def _as_double(integer: int) -> Any:
    """Return the double whose shortest decimal is this integer; else the digits as a fragment.

    Whoever changes the text of a number changes ``value_hash``: every stored output that has such a
    number would be an update when it is sent again in other bytes.
    """
    try:
        double = float(integer)
    except OverflowError:
        return as_fragment(b"%d" % integer)
    return double if Decimal(repr(double)) == integer else as_fragment(b"%d" % integer)


# --- hashes of records --------------------------------------------------------------------------


def hash_parts(*parts: str | bytes | int) -> bytes:
    """Return the SHA-256 of the length-prefixed parts: ("ab", "c") and ("a", "bc") differ."""
    return sha256(b"".join(map(length_prefixed, parts))).digest()


def length_prefixed(part: str | bytes | int) -> bytes:
    """Encode a part after its length. Callers encode a prefix that many hashes share only once."""
    text = part if isinstance(part, bytes) else str(part).encode()
    return _pack_length(len(text)) + text


# --- paths of fields ----------------------------------------------------------------------------


def path_of_member(parent: str, name: str) -> str:
    """Return the path of a member. An unusual name is quoted: ``["a.b"]``."""
    if not _PLAIN_NAME.fullmatch(name):
        return f"{parent}[{encode(name).decode()}]"
    return f"{parent}.{name}" if parent else name


def path_of_names(names: Iterable[str]) -> str:
    """Return the path of a member of a member, and so on."""
    return reduce(path_of_member, names, "")


def path_of_element(parent: str, index: int) -> str:
    """Return the path of an element of an array."""
    return f"{parent}[{index}]"


def names_of_path(path: str) -> list[str]:
    """Return the names of a path of members. Raise ValueError if it is no such path."""
    found: list[str] = []
    at = 0
    while at < len(path):
        part = _PATH_PART.match(path, at)
        if part is None or (part["dot"] is not None) != (at > 0 and part["quoted"] is None):
            raise ValueError("must be the path of a field, such as offer.price")
        quoted = part["quoted"]
        found.append(part["plain"] if quoted is None else str(decode(quoted.encode())))
        at = part.end()
    return found
