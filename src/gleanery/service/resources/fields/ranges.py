"""Ranges of a field: extreme values and a rough distribution, of numbers and of lengths.

A range covers all values that were stored, even those that were replaced or deleted later.
"""

from __future__ import annotations

import sys
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from math import inf
from typing import NamedTuple

import msgspec

from gleanery.service.resources.fields.shapes import Column, Names

_VALUE_HASH_BYTES = 4
_EXACT_INTEGERS = 2**53  # a double represents every integer below this
_MAX_MEASURE = int(sys.float_info.max)
"""A number beyond the range of a double counts as the largest one, so that a range stays short."""


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
