"""Ranges of a field: extreme values and a rough distribution, of numbers and of lengths.

A range covers all values that were stored, even those that were replaced or deleted later.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import NamedTuple

import msgspec

from gleanery.storage.statistics.shapes import Column, Names

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
    """Returns a source. Its content hash is only the beginning of one."""
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
        """Adds the measures of another range."""
        if other.min < self.min:
            self.min, self.min_source = other.min, other.min_source
        if other.max > self.max:
            self.max, self.max_source = other.max, other.max_source
        self.add_digits(other.digits)

    def add_digits(self, counts: Mapping[int, int]) -> None:
        """Adds numbers of measures by their number of binary digits."""
        for digits, count in counts.items():
            self.digits[digits] = self.digits.get(digits, 0) + count


SourceAt = Callable[[int], Source]
"""Returns the source of the measures at an index."""


Ranges = dict[Column, Range]


def add_measures(range_: Range, measures: Sequence[int | float], source_at: SourceAt) -> None:
    """Add the measures of one field, of which there is at least one.

    The digits of each measure are counted, so the result does not depend on the size of the batch.
    """
    smallest, largest = min(measures), max(measures)
    if smallest < -_MAX_MEASURE or largest > _MAX_MEASURE:
        measures = [max(-_MAX_MEASURE, min(_MAX_MEASURE, measure)) for measure in measures]
        smallest, largest = min(measures), max(measures)
    if smallest < range_.min:
        range_.min, range_.min_source = smallest, source_at(measures.index(smallest)).encode()
    if largest > range_.max:
        range_.max, range_.max_source = largest, source_at(measures.index(largest)).encode()
    range_.add_digits(Counter(map(int.bit_length, map(int, measures))))


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
    """Returns a measure as it is shown: a number without a fraction is an integer."""
    return int(measure) if measure == int(measure) and abs(measure) < _EXACT_INTEGERS else measure
