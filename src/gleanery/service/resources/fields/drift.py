"""Drift: fields that the newest scrape of a job fills more or less often than earlier ones."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from statistics import median
from typing import NamedTuple

from gleanery.service.resources.fields.shapes import Names
from gleanery.service.resources.fields.summary import Summary

_MIN_OUTPUTS = 50
"""Scrapes with fewer outputs are not compared: their rates vary too much by chance."""
_EARLIER_SCRAPES = 10
_MIN_DIFFERENCE = 0.05
_DEVIATIONS = 3


class Drift(NamedTuple):
    """A field with its usual rate and its rate in the newest scrape."""

    names: Names
    before: float
    now: float


def find_drift(scrapes: Sequence[Summary]) -> list[Drift]:
    """Compare the newest scrape with the median of earlier ones, which follow it."""
    compared = [scrape for scrape in scrapes if scrape.counted >= _MIN_OUTPUTS]
    if not compared or compared[0] is not scrapes[0] or len(compared) < 2:
        return []
    newest, *earlier = compared[: 1 + _EARLIER_SCRAPES]
    now = newest.fill_rates()
    rates = [scrape.fill_rates() for scrape in earlier]
    names = sorted(now.keys() | {name for each in rates for name in each})
    before = {name: round(median(each.get(name, 0.0) for each in rates), 4) for name in names}
    return [
        Drift(name, before[name], now.get(name, 0.0))
        for name in names
        if _departs(before[name], now.get(name, 0.0), newest.counted)
    ]


def _departs(before: float, now: float, outputs: int) -> bool:
    """Return True if chance is not a likely reason for the difference."""
    deviation = sqrt(before * (1 - before) / outputs)
    return abs(now - before) > max(_MIN_DIFFERENCE, _DEVIATIONS * deviation)
