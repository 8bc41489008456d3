"""Healthy jobs with natural variation: when they run, and what their runs are like.

The outputs of a run vary by 15 %, the share of outputs with a field by five points. Jobs run every
day, on working days only, several times a day, or every hour of the working day. Some have fewer
outputs at weekends. Some runs begin late.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from tests.support.monitors_model import DAY, HOUR, Facts

DAYS = 30


class HealthyRun(NamedTuple):
    """A complete run: when it starts, in seconds since a Monday, and what it sends."""

    start: float
    job: str
    outputs: int
    colors: int
    """Outputs in which the field ``color`` is filled."""

    @property
    def facts(self) -> Facts:
        fields = {"name": {"string": self.outputs}, "color": {"string": self.colors}}
        return Facts(outputs=self.outputs, fields=fields)


class _Rhythm(NamedTuple):
    hours: tuple[float, ...]
    """Hours of the day at which the job runs."""
    weekends: float = 1
    """The share of the outputs that it has at weekends; 0 if it does not run."""


_RHYTHMS = (
    _Rhythm((3,)),
    _Rhythm((7.5,)),
    _Rhythm((22,)),
    _Rhythm((23.5,)),
    _Rhythm((6,), weekends=0),
    _Rhythm((18,), weekends=0),
    _Rhythm((5,), weekends=0.7),
    _Rhythm((12,), weekends=0.8),
    _Rhythm((6, 12, 18)),
    _Rhythm((9, 17), weekends=0),
)
WORKING_HOURS = _Rhythm(tuple(range(8, 19)), weekends=0)


def healthy_runs(seed: int, jobs: int = 20, *, is_small: bool = False) -> list[HealthyRun]:
    """Return the runs of some healthy jobs in 30 days, in the order of their starts."""
    random = Random(seed)
    found = []
    for number in range(jobs):
        has_hours = not is_small and number == jobs - 1
        rhythm = WORKING_HOURS if has_hours else _RHYTHMS[number % len(_RHYTHMS)]
        usual = random.uniform(15, 30) if is_small else random.uniform(15, 500)
        share = random.uniform(0.2, 0.95)
        first = random.randrange(5)  # some jobs begin later, on any day of the week
        for day in range(first, DAYS):
            level = usual if day % 7 < 5 else usual * rhythm.weekends
            for hour in rhythm.hours if level else ():
                outputs = round(level * random.uniform(0.85, 1.15))
                rate = min(share + random.uniform(-0.05, 0.05), 1)
                late = random.choice((0, 0, 0.02, 0.1, random.random())) * _most_late(rhythm)
                start = day * DAY + (hour + late) * HOUR
                found.append(HealthyRun(start, f"job {number}", outputs, round(rate * outputs)))
    return sorted(found)


def _most_late(rhythm: _Rhythm) -> float:
    """Return how many hours late a run can begin."""
    return 3 if len(rhythm.hours) == 1 else 0.5
