"""Reads the stored statistics of jobs without a lock, sums them, and finds drift.

Drift is a field that the newest run of a job fills more or less often than earlier ones.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from math import sqrt
from operator import itemgetter
from statistics import median
from typing import NamedTuple

from gleanery.service.resources.fields import ended_runs
from gleanery.service.resources.fields.ended_runs import KEPT_FIELDS, RunFields, RunFieldsRow
from gleanery.service.resources.fields.job_fields import JobFields
from gleanery.service.resources.fields.job_statistics import JobStatistics, StatisticsRow
from gleanery.service.resources.fields.shapes import UNFILLED_KINDS, UNLISTED, Names
from gleanery.service.storage.database import Database

_JOBS = """
SELECT jobs.id, jobs.name, jobs.output_count, field_counts, ranges
FROM jobs LEFT JOIN job_statistics AS found ON found.organization_id = jobs.organization_id
    AND found.group_id = jobs.group_id AND found.job_id = jobs.id
WHERE jobs.organization_id = $1 AND jobs.group_id = $2 AND jobs.id > 0
    AND jobs.id > $3 AND jobs.id <= $4
ORDER BY jobs.id LIMIT $5
"""
_RUNS = f"""
SELECT run_id, is_implicit, status, started_at, seen_at, ends_at,
    created_count + updated_count + unchanged_count, slot_counts, field_counts
FROM runs WHERE organization_id = $1 AND group_id = $2 AND job_id = $3
ORDER BY id DESC LIMIT {KEPT_FIELDS}
"""
_JOBS_PER_READ = 10  # each can have some megabytes of statistics
_EVERY_JOB = 2**63 - 1
_MAX_PATHS = 256  # fields that are shown
# Data with ids as names of members can have millions of fields.
_MAX_NAMES = 10_000
_MIN_OUTPUTS = 50
"""Runs with fewer outputs are not compared: their rates vary too much by chance."""
_EARLIER_RUNS = 10
NOT_COMPARED = ("failed", "abandoned")
"""Status of runs that are not compared: what they sent is a part by chance."""
_MIN_DIFFERENCE = 0.05
_DEVIATIONS = 3


class StoredJob(NamedTuple):
    """A job with its statistics."""

    name: str
    output_count: int
    statistics: JobStatistics
    runs: list[RunFields]
    """Newest first."""


class StoredRows(NamedTuple):
    """Rows of one job, which take time to decode."""

    job_id: int
    name: str
    output_count: int
    statistics: StatisticsRow | None
    runs: Sequence[RunFieldsRow]
    """Newest first."""
    now: int

    def decode(self) -> StoredJob:
        statistics = JobStatistics(self.job_id, self.statistics)
        runs = [ended_runs.decode(row, statistics, self.now) for row in self.runs]
        return StoredJob(self.name, self.output_count, statistics, runs)


async def read_jobs(
    database: Database, group_id: int, now: int, job_id: int | None = None
) -> AsyncIterator[StoredRows]:
    """Yield the statistics of a job, or of all jobs of a group; read a few jobs at a time."""
    after, until = (0, _EVERY_JOB) if job_id is None else (job_id - 1, job_id)
    key = (database.organization_id, group_id)
    while rows := await database.read_large(_JOBS, *key, after, until, _JOBS_PER_READ):
        last = rows[-1][0]
        for found_id, name, output_count, *columns in rows:
            statistics = None if columns[0] is None else StatisticsRow(*columns)
            found = await database.read_large(_RUNS, *key, found_id)
            runs = [RunFieldsRow(*row) for row in found]
            yield StoredRows(found_id, name, output_count, statistics, runs, now)
        after = last


# --- sums over jobs -----------------------------------------------------------------------------


class FieldCounts(NamedTuple):
    """A field, and the number of outputs in which it has each kind."""

    names: Names
    kinds: Counter[str]

    @property
    def filled(self) -> int:
        return sum(count for kind, count in self.kinds.items() if kind not in UNFILLED_KINDS)


class Summary:
    """The fields of outputs, of one job or of several."""

    def __init__(self) -> None:
        self.outputs = 0
        """All outputs, including those that are not counted."""
        self.counted = 0
        """Outputs whose fields are known. The rates refer to them."""
        self.kinds = defaultdict[Names, Counter[str]](Counter)
        self.has_unknown_fields = False
        """True if there are outputs with fields about which nothing is known."""

    def add_job(self, fields: JobFields) -> None:
        """Add the outputs of a job."""
        counts = (
            (field.names, {name: kind.output_count for name, kind in field.kinds.items()})
            for field in fields.listed
        )
        self._add(fields.counted, counts)

    def add_run(self, run: RunFields) -> None:
        """Add the outputs that a run has sent."""
        self._add(run.counted, run.fields)
        self.add_unknown(run.outputs - run.counted)

    def _add(self, outputs: int, fields: Iterable[tuple[Names, Mapping[str, int]]]) -> None:
        """Add outputs by field, the most frequent fields first."""
        self.outputs += outputs
        self.counted += outputs
        for names, kinds in sorted(fields, key=lambda field: -sum(field[1].values())):
            filled = {kind: count for kind, count in kinds.items() if count > 0}
            if names == UNLISTED.names:
                self.has_unknown_fields = self.has_unknown_fields or bool(filled)
            elif filled and (names in self.kinds or len(self.kinds) < _MAX_NAMES):
                self.kinds[names].update(filled)

    def add_unknown(self, count: int) -> None:
        """Add outputs that are not counted: an older program has stored them."""
        self.outputs += count
        self.has_unknown_fields = self.has_unknown_fields or count > 0

    def fields(self) -> list[FieldCounts]:
        """Return the fields by name; if they are too many, those that most outputs have."""
        most = sorted(self.kinds.items(), key=lambda item: (-item[1].total(), item[0]))
        return [FieldCounts(*item) for item in sorted(most[:_MAX_PATHS], key=itemgetter(0))]

    def rate(self, filled: int) -> float:
        return round(filled / self.counted, 4) if self.counted else 0.0

    def fill_rates(self) -> dict[Names, float]:
        """Return the rate of every field, including those that are not shown."""
        fields = (FieldCounts(*item) for item in self.kinds.items())
        return {field.names: self.rate(field.filled) for field in fields}


# --- drift --------------------------------------------------------------------------------------


class FieldDrift(NamedTuple):
    """A field with its usual rate and its rate in the newest run."""

    names: Names
    before: float
    now: float


def find_drift(runs: Sequence[Summary]) -> list[FieldDrift]:
    """Compare the newest run with the median of earlier ones, which follow it."""
    compared = [run for run in runs if run.counted >= _MIN_OUTPUTS]
    if not compared or compared[0] is not runs[0] or len(compared) < 2:
        return []
    newest, *earlier = compared[: 1 + _EARLIER_RUNS]
    now = newest.fill_rates()
    rates = [run.fill_rates() for run in earlier]
    names = sorted(now.keys() | {name for each in rates for name in each})
    before = {name: round(median(each.get(name, 0.0) for each in rates), 4) for name in names}
    return [
        FieldDrift(name, before[name], now.get(name, 0.0))
        for name in names
        if _departs(before[name], now.get(name, 0.0), newest.counted)
    ]


def _departs(before: float, now: float, outputs: int) -> bool:
    """Return True if chance is not a likely reason for the difference."""
    deviation = sqrt(before * (1 - before) / outputs)
    return abs(now - before) > max(_MIN_DIFFERENCE, _DEVIATIONS * deviation)
