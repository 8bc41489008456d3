"""Ranges of a field: extreme values and a rough distribution, of numbers and of lengths.

A range covers all values that were stored, also those that were replaced or deleted later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from gleanery.storage.statistics.shapes import MAX_PATHS, Column, Names, to_double

_VALUE_HASH_BYTES = 4
_SAMPLED = 50  # numbers of a batch
_EXACT_INTEGERS = 2**53  # a double represents every integer below this


class Source(NamedTuple):
    """The output and the value that a measure is from."""

    identity: bytes
    content_hash: bytes

    def encode(self) -> str:
        return (self.identity + self.content_hash[:_VALUE_HASH_BYTES]).hex()


def decode_source(text: str) -> Source:
    """Returns a source. Its content hash is only the beginning of one."""
    whole = bytes.fromhex(text)
    return Source(whole[:-_VALUE_HASH_BYTES], whole[-_VALUE_HASH_BYTES:])


class Range:
    """Smallest and largest measure, and how many measures have how many binary digits."""

    __slots__ = ("digits", "max", "max_source", "min", "min_source")

    def __init__(
        self, minimum: float, min_source: str, maximum: float, max_source: str, digits: Any = ()
    ) -> None:
        self.min, self.min_source = minimum, min_source
        self.max, self.max_source = maximum, max_source
        self.digits: Counter[int] = Counter(dict(digits))

    @property
    def encoded(self) -> list[Any]:
        digits = sorted(self.digits.items())
        return [self.min, self.min_source, self.max, self.max_source, digits]

    @property
    def count(self) -> int:
        return self.digits.total()

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
        """Adds the measures of another range."""
        if other.min < self.min:
            self.min, self.min_source = other.min, other.min_source
        if other.max > self.max:
            self.max, self.max_source = other.max, other.max_source
        self.digits.update(other.digits)


SourceAt = Callable[[int], Source]
"""Returns the source of the measures at an index."""


def measure(column: Sequence[float], source_at: SourceAt, is_length: bool) -> Range:
    """Returns the range of some measures, of which there is at least one.

    Lengths repeat, so it is faster to count them first. The digits of numbers are those of a
    sample, because they only show the order of magnitude.
    """
    counts = Counter(column if is_length else ())
    smallest, largest = min(counts or column), max(counts or column)
    return Range(
        to_double(smallest),
        source_at(column.index(smallest)).encode(),
        to_double(largest),
        source_at(column.index(largest)).encode(),
        _digits(counts) if is_length else Counter(map(_digits_of, column[:_SAMPLED])),
    )


def _digits(lengths: Mapping[float, int]) -> Counter[int]:
    digits = Counter[int]()
    for length, count in lengths.items():
        digits[_digits_of(length)] += count
    return digits


def _digits_of(measure: float) -> int:
    return int(measure).bit_length()


Ranges = dict[Column, Range]


def add_measures(
    ranges: Ranges, column: Column, measures: Sequence[float], source_at: SourceAt
) -> None:
    """Adds the measures of one field, of which there is at least one."""
    found = ranges.get(column)
    if found is not None:
        found.merge(measure(measures, source_at, column.is_length))
    elif len(ranges) < 2 * MAX_PATHS:
        ranges[column] = measure(measures, source_at, column.is_length)


def encode_ranges(ranges: Ranges) -> list[Any]:
    return [[*column.names, column.is_length, range_.encoded] for column, range_ in ranges.items()]


def decode_ranges(rows: list[Any]) -> Ranges:
    return {
        Column(_names(names), is_length): Range(*encoded) for *names, is_length, encoded in rows
    }


def _names(names: Sequence[str]) -> Names:
    return (*names,)


def readable(measure: float) -> int | float:
    """Returns a measure as it is shown: a number without a fraction is an integer."""
    return int(measure) if measure == int(measure) and abs(measure) < _EXACT_INTEGERS else measure
