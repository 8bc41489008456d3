"""The fields of a group or job: rates, kinds, ranges, scrapes, drift and a suggested schema."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gleanery.service.foundation.errors import NotFound
from gleanery.service.foundation.scheduling.fair_shares import FairThread
from gleanery.service.foundation.values import field_paths, json_text, timestamps
from gleanery.service.resources.fields import reading
from gleanery.service.resources.fields.drift import find_drift
from gleanery.service.resources.fields.models import (
    Drift,
    FieldOut,
    FieldsOut,
    ScrapedField,
    ScrapeOut,
)
from gleanery.service.resources.fields.ranges import Ranges, readable
from gleanery.service.resources.fields.reading import StoredJob, StoredRows
from gleanery.service.resources.fields.scrapes import Scrape
from gleanery.service.resources.fields.shapes import Column
from gleanery.service.resources.fields.suggestion import suggest_schema
from gleanery.service.resources.fields.summary import FieldCounts, Summary
from gleanery.service.storage import group_lock
from gleanery.service.storage.database import Database

_FIND_JOB = "SELECT id FROM jobs WHERE organization_id = $1 AND group_id = $2 AND name = $3"
_SHOWN_SCRAPES = 10
_SHOWN_DRIFT = 100
_MAX_SUMMED_FIELDS = 20_000_000  # some seconds


async def read_fields(
    database: Database, computations: FairThread, group: str, job: str | None
) -> bytes:
    """Return the statistics of a job, or of all jobs of the group, as JSON text. Raise NotFound.

    Other requests compute between two jobs.
    """
    group_id = await group_lock.require_group(database, group)
    job_id = None if job is None else await _find_job(database, group_id, job)
    collected = _Collected()
    async for rows in reading.read_jobs(database, group_id, job_id):
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


class _ScrapeOfJob(NamedTuple):
    """A scrape with the name of its job, and its counts."""

    job: str
    scrape: Scrape
    summary: Summary


class _Collected:
    """The statistics of some jobs, summed."""

    def __init__(self) -> None:
        self._summary = Summary()
        self._ranges: Ranges = {}
        self._scrapes: list[_ScrapeOfJob] = []
        self._drift: list[Drift] = []
        self.summed_fields = 0
        """Fields of jobs and scrapes that were added, which take the time."""

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
        scrapes = [_ScrapeOfJob(job.name, scrape, _sum(scrape)) for scrape in job.scrapes]
        newest = sorted([*self._scrapes, *scrapes], key=lambda one: -one.scrape.started_at)
        self._scrapes = newest[:_SHOWN_SCRAPES]
        self._drift += _drift(job.name, [one.summary for one in scrapes])
        self.summed_fields += _count_fields(job)

    def render(self, group: str, job: str | None) -> bytes:
        drift = sorted(self._drift, key=lambda one: -abs(one["now"] - one["before"]))
        found = FieldsOut(
            group_id=group,
            job_id=job,
            outputs=self._summary.outputs,
            counted_outputs=self._summary.counted,
            fields=[self._field(field) for field in self._summary.fields()],
            scrapes=[_scrape(one) for one in self._scrapes],
            drift=drift[:_SHOWN_DRIFT],
            schema=suggest_schema(self._summary),
        )
        return json_text.encode(found)

    def _field(self, field: FieldCounts) -> FieldOut:
        numbers = self._ranges.get(Column(field.names, False))
        lengths = self._ranges.get(Column(field.names, True))
        return FieldOut(
            **_scraped_field(self._summary, field),
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
    return len(job.statistics.fields.listed) + sum(len(scrape.fields) for scrape in job.scrapes)


def _sum(scrape: Scrape) -> Summary:
    summary = Summary()
    summary.add_scrape(scrape)
    return summary


def _drift(job: str, scrapes: Sequence[Summary]) -> list[Drift]:
    return [
        Drift(job_id=job, path=field_paths.of_names(names), before=before, now=now)
        for names, before, now in find_drift(scrapes)
    ]


def _scrape(one: _ScrapeOfJob) -> ScrapeOut:
    return ScrapeOut(
        job_id=one.job,
        started=timestamps.render_microseconds(one.scrape.started_at),
        last_seen=timestamps.render_microseconds(one.scrape.seen_at),
        outputs=one.summary.outputs,
        fields=[_scraped_field(one.summary, field) for field in one.summary.fields()],
    )


def _scraped_field(summary: Summary, field: FieldCounts) -> ScrapedField:
    return ScrapedField(
        path=field_paths.of_names(field.names),
        filled=field.filled,
        fill_rate=summary.rate(field.filled),
        kinds=dict(sorted(field.kinds.items())),
    )
