"""Reports from the statistics of jobs.

The report of a group or job has rates, kinds, ranges, runs, drift and a suggested schema. The
console shows a short one: how well a group is filled.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

from gleanery.service.foundation.errors import NotFound
from gleanery.service.foundation.scheduling.fair_shares import FairThread
from gleanery.service.foundation.values import json_text, timestamps
from gleanery.service.resources.fields import reading
from gleanery.service.resources.fields.ended_runs import RunFields
from gleanery.service.resources.fields.models import (
    CountedField,
    Drift,
    FieldOut,
    FieldsOut,
    RunFieldsOut,
)
from gleanery.service.resources.fields.reading import (
    NOT_COMPARED,
    FieldCounts,
    StoredJob,
    StoredRows,
    Summary,
    find_drift,
)
from gleanery.service.resources.fields.shapes import Column, Names, Ranges, readable
from gleanery.service.storage import group_lock
from gleanery.service.storage.database import Database

_FIND_JOB = "SELECT id FROM jobs WHERE organization_id = $1 AND group_id = $2 AND name = $3"
_SHOWN_RUNS = 10
_SHOWN_DRIFT = 100
_MAX_SUMMED_FIELDS = 20_000_000  # some seconds
_MAX_JOBS = 10  # of a group, for its rate
_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_EMPTY = "empty_"

Schema = dict[str, Any]


# --- all fields of a group or job ---------------------------------------------------------------


async def read_fields(
    database: Database, computations: FairThread, group: str, job: str | None, now: int
) -> bytes:
    """Return the statistics of a job, or of all jobs of the group, as JSON text. Raise NotFound.

    Other requests compute between two jobs.
    """
    group_id = await group_lock.require_group(database, group)
    job_id = None if job is None else await _find_job(database, group_id, job)
    collected = _Collected()
    async for rows in reading.read_jobs(database, group_id, now, job_id):
        if collected.summed_fields < _MAX_SUMMED_FIELDS:
            await computations.run(database.organization_id, collected.add, rows)
        else:
            collected.add_uncounted(rows)
    return await computations.run(database.organization_id, collected.render, group, job)


async def _find_job(database: Database, group_id: int, name: str) -> int:
    rows = await database.read(_FIND_JOB, database.organization_id, group_id, name)
    if not rows:
        raise NotFound(("query", "job_id"), "This group has no job with this job_id")
    return int(rows[0][0])


class _RunOfJob(NamedTuple):
    """A run with the name of its job, and its counts."""

    job: str
    run: RunFields
    summary: Summary


class _Collected:
    """The statistics of some jobs, summed."""

    def __init__(self) -> None:
        self._summary = Summary()
        self._ranges: Ranges = {}
        self._runs: list[_RunOfJob] = []
        self._drift: list[Drift] = []
        self.summed_fields = 0
        """Fields of jobs and runs that were added, which take the time."""

    def add_uncounted(self, rows: StoredRows) -> None:
        """Add a job of whose outputs only the number is told."""
        self._summary.add_unknown(rows.output_count)

    def add(self, rows: StoredRows) -> None:
        job = rows.decode()
        self._summary.add_job(job.statistics.fields)
        self._summary.add_unknown(job.output_count - job.statistics.fields.counted)
        for column, range_ in job.statistics.ranges.items():
            if column in self._ranges:
                self._ranges[column].merge(range_)
            else:
                self._ranges[column] = range_
        runs = [_RunOfJob(job.name, run, _sum(run)) for run in job.runs]
        newest = sorted([*self._runs, *runs], key=lambda one: -one.run.started_at)
        self._runs = newest[:_SHOWN_RUNS]
        compared = [one.summary for one in runs if one.run.status not in NOT_COMPARED]
        self._drift += _drift(job.name, compared)
        self.summed_fields += _count_fields(job)

    def render(self, group: str, job: str | None) -> bytes:
        drift = sorted(self._drift, key=lambda one: -abs(one["now"] - one["before"]))
        found = FieldsOut(
            group_id=group,
            job_id=job,
            outputs=self._summary.outputs,
            counted_outputs=self._summary.counted,
            fields=[self._field(field) for field in self._summary.fields()],
            runs=[_run(one) for one in self._runs],
            drift=drift[:_SHOWN_DRIFT],
            schema=suggest_schema(self._summary),
        )
        return json_text.encode(found)

    def _field(self, field: FieldCounts) -> FieldOut:
        numbers = self._ranges.get(Column(field.names, False))
        lengths = self._ranges.get(Column(field.names, True))
        return FieldOut(
            **_counted_field(self._summary, field),
            range=None
            if numbers is None
            else {"min": readable(numbers.min), "max": readable(numbers.max)},
            length=None
            if lengths is None
            else {
                "min": int(lengths.min),
                "median": round(lengths.median),
                "max": int(lengths.max),
            },
        )


def _count_fields(job: StoredJob) -> int:
    return len(job.statistics.fields.listed) + sum(len(run.fields) for run in job.runs)


def _sum(run: RunFields) -> Summary:
    summary = Summary()
    summary.add_run(run)
    return summary


def _drift(job: str, runs: Sequence[Summary]) -> list[Drift]:
    return [
        Drift(job_id=job, path=json_text.path_of_names(names), before=before, now=now)
        for names, before, now in find_drift(runs)
    ]


def _run(one: _RunOfJob) -> RunFieldsOut:
    return RunFieldsOut(
        run_id=one.run.run_id,
        job_id=one.job,
        status=one.run.status,
        start_date=timestamps.render_microseconds(one.run.started_at),
        last_date=timestamps.render_microseconds(one.run.seen_at),
        outputs=one.summary.outputs,
        fields=[_counted_field(one.summary, field) for field in one.summary.fields()],
    )


def _counted_field(summary: Summary, field: FieldCounts) -> CountedField:
    return CountedField(
        path=json_text.path_of_names(field.names),
        filled=field.filled,
        fill_rate=summary.rate(field.filled),
        kinds=dict(sorted(field.kinds.items())),
    )


# --- the fill rate of a group -------------------------------------------------------------------


class FillRate(NamedTuple):
    """The mean fill rate of the fields of a group, and its least filled field."""

    mean: float
    lowest: float
    lowest_path: tuple[str, ...]


async def read_fill_rate(
    database: Database, computations: FairThread, group_id: int, now: int
) -> FillRate | None:
    """Sum the first jobs of a group; None if nothing is known about their fields."""
    summary, count = Summary(), 0
    async for rows in reading.read_jobs(database, group_id, now):
        await computations.run(database.organization_id, _add, summary, rows)
        count += 1
        if count == _MAX_JOBS:
            break
    rates = summary.fill_rates()
    if not rates:
        return None
    lowest = min(rates, key=lambda names: (rates[names], names))
    return FillRate(sum(rates.values()) / len(rates), rates[lowest], lowest)


def _add(summary: Summary, rows: StoredRows) -> None:
    summary.add_job(rows.decode().statistics.fields)


# --- the suggested schema -----------------------------------------------------------------------


def suggest_schema(summary: Summary) -> Schema:
    """Return a JSON Schema that every stored value meets, as a start for the schema of a group.

    It requires what all outputs have, and allows further members.
    """
    schema: Schema = {"$schema": _DIALECT, "type": "object"}
    if summary.has_unknown_fields or not summary.counted:
        return schema
    kinds = {field.names: {*field.kinds} for field in summary.fields()}
    members = defaultdict[Names, list[Names]](list)
    for names in kinds:
        members[names[:-1]].append(names)
    return schema | _members(summary, kinds, members, ())


def _members(
    summary: Summary, kinds: dict[Names, set[str]], members: dict[Names, list[Names]], outer: Names
) -> Schema:
    if not members[outer]:
        return {}
    schema: Schema = {"properties": {}}
    for names in members[outer]:
        schema["properties"][names[-1]] = {
            **_value(kinds[names]),
            **_members(summary, kinds, members, names),
        }
    required = [names[-1] for names in members[outer] if _is_required(summary, names)]
    return schema | ({"required": required} if required else {})


def _is_required(summary: Summary, names: Names) -> bool:
    """Return True if every object that could have the member has it."""
    if summary.counted < summary.outputs:  # nothing is known of some outputs
        return False
    outer = names[:-1]
    objects = summary.counted
    if outer:
        of_outer = summary.kinds[outer]
        objects = of_outer["object"] + of_outer["empty_object"]
    return summary.kinds[names].total() == objects


def _value(kinds: set[str]) -> Schema:
    types = {kind.removeprefix(_EMPTY) for kind in kinds}
    if "number" in types:
        types.discard("integer")
    schema: Schema = {"type": sorted(types) if len(types) > 1 else next(iter(types))}
    if "string" in types and f"{_EMPTY}string" not in kinds:
        schema["minLength"] = 1
    if "array" in types and f"{_EMPTY}array" not in kinds:
        schema["minItems"] = 1
    return schema
