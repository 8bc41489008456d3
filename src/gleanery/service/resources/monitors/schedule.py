"""When a job is overdue: how long the time without a run may be, by the runs of the last weeks.

The limit is the usual time between two runs, times the threshold of the rule. Some rhythms need
more than that:

- A job that runs every hour may not run at night. So the limit is at least a day until the job has
  been seen for a day.
- The time after a Friday can be longer than after a Monday. So the limit is longer than the longest
  time that has followed a run on the same day of the week.
- Until a job has been seen on a Saturday or a Sunday, these days do not count as time without a
  run, as long as nothing is known about the same day of an earlier week.

Days are those of UTC. All times are in microseconds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from gleanery.service.foundation.values import timestamps
from gleanery.service.resources.monitors.judging import MIN_RUNS, USUAL_RUNS
from gleanery.service.resources.monitors.rules import Rule

_HOUR = 3600 * timestamps.SECOND
_DAY = 24 * _HOUR
_WINDOW = 15 * _DAY
"""Time before the last run: two weeks, and a day for runs that begin late."""
_MIN_INTERVAL = 5 * 60 * timestamps.SECOND
"""Runs at shorter intervals follow no schedule: somebody tries something."""
_MIN_LIMIT = _HOUR
_MARGIN = 1.25
_THURSDAY = 3  # the day of the week of 1970-01-01


class Expectation(NamedTuple):
    """When the next run of a job should have begun."""

    last: int
    due: int
    """The job is overdue from this time on."""
    usual: int | None
    """Usual time between two runs; None if the rule says hours."""


def newest(starts: Iterable[int]) -> list[int]:
    """Return the starts that say what is usual, oldest first.

    They are those of the weeks before the last one, however long ago that is: a job that has
    stopped stays overdue. A job that runs once a week needs more weeks.
    """
    found = sorted(starts)
    return [
        start
        for number, start in enumerate(found)
        if start > found[-1] - _WINDOW or number >= len(found) - MIN_RUNS - 1
    ]


def expect(
    starts: Sequence[int],
    latest: int | None,
    interrupted: Collection[int],
    rule: Rule,
    *,
    are_all: bool,
) -> Expectation | None:
    """Return when a job is overdue; None if nothing is known about its schedule.

    ``starts`` are the starts of its runs, oldest first; if a job runs often, only the last ones.
    ``latest`` is the last sign of the job, such as a run that goes on. ``interrupted`` are times
    at which the job was overdue: such an interval is not a model for later ones.
    """
    if rule.hours is not None:
        hours = round(rule.hours * _HOUR)
        return None if latest is None else Expectation(latest, latest + hours, None)
    if latest is None or len(starts) < MIN_RUNS:
        return None
    known = [
        (before, after - before)
        for before, after in pairwise(starts)
        if not any(before < time <= after for time in interrupted)
    ]
    if len(known) < MIN_RUNS - 1:
        return None
    usual = round(median([interval for _, interval in known[-USUAL_RUNS:]]))
    if usual < _MIN_INTERVAL:
        return None
    is_new = are_all and latest - starts[0] < _DAY
    limit = max(round(rule.threshold * usual), _DAY if is_new else _MIN_LIMIT)
    on_same_day = [
        interval for before, interval in known if _day_of_week(before) == _day_of_week(latest)
    ]
    is_known_week = bool(on_same_day) and latest - starts[0] >= 7 * _DAY
    longest = max(on_same_day if is_known_week else [interval for _, interval in known])
    due = latest + max(limit, round(_MARGIN * longest))
    if are_all and not is_known_week and not any(_is_weekend(start) for start in (*starts, latest)):
        due = _without_weekends(latest, due)
    return Expectation(latest, due, usual)


def _day_of_week(time: int) -> int:
    return (time // _DAY + _THURSDAY) % 7


def _is_weekend(time: int) -> bool:
    return _day_of_week(time) >= 5


def _without_weekends(start: int, end: int) -> int:
    """Return a later end: each Saturday and Sunday between the two times adds a day."""
    day = (start // _DAY + 1) * _DAY
    while day < end:
        if _is_weekend(day):
            end += _DAY
        day += _DAY
    return end
