"""The statistics of a job as they are stored: the fields of its outputs, and their ranges.

A job has one row, which a batch with changes reads and writes once. What a single run has seen is
in the row of the run; see ``batch_runs`` and ``ended_runs``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property
from typing import NamedTuple

import msgspec

from gleanery.service.resources.fields.job_fields import JobFields
from gleanery.service.resources.fields.shapes import (
    Column,
    Names,
    Ranges,
    decode_ranges,
    encode_ranges,
)
from gleanery.service.resources.run_records.rows import IS_JUDGED_LATER, Run
from gleanery.service.storage.database import Row
from gleanery.service.storage.group_lock import LockedGroup

# The statement has no plus sign and no join: it runs once per batch for all its jobs.
_SELECT = """
SELECT job_id, field_counts, ranges
FROM job_statistics WHERE organization_id = $1 AND group_id = $2 AND job_id = $3
"""
_INSERT = """
INSERT INTO job_statistics (organization_id, group_id, job_id, field_counts, ranges)
VALUES ($1, $2, $3, $4, $5)
"""
_UPDATE = """
UPDATE job_statistics SET field_counts = $4, ranges = $5
WHERE organization_id = $1 AND group_id = $2 AND job_id = $3
"""
_DELETE_STATISTICS = [
    f"DELETE FROM {table} WHERE organization_id = $1 AND group_id = $2 AND job_id = $3"
    for table in ("runs", "job_statistics", "alerts")
]
_FORGOTTEN_PER_STEP = 1000
_FORGET_SIGHTINGS = """
DELETE FROM run_sightings
WHERE organization_id = $1 AND group_id = $2 AND job_id = $3 AND run_id = $4
    AND identity IN (SELECT identity FROM run_sightings
        WHERE organization_id = $1 AND group_id = $2 AND job_id = $3 AND run_id = $4 LIMIT $5)
RETURNING run_id
"""
_ALL_FORGOTTEN = f"""
UPDATE runs SET sighting_count = 0,
    is_open = coalesce(comparison, '') = 'pending' OR coalesce(removal, '') = 'pending'
        OR {IS_JUDGED_LATER}
WHERE organization_id = $1 AND id = $2
"""

_decode_fields = msgspec.json.Decoder(JobFields).decode


class StatisticsRow(NamedTuple):
    """The columns of a row of ``job_statistics`` after its key."""

    field_counts: str
    ranges: str


_NO_ROW = StatisticsRow("[]", "[]")


class JobStatistics:
    """The statistics of one job; decodes what is needed."""

    def __init__(self, job_id: int, row: StatisticsRow | None = None) -> None:
        self.job_id = job_id
        self.is_new = row is None
        self._row = row or _NO_ROW

    @cached_property
    def fields(self) -> JobFields:
        return _decode_fields(self._row.field_counts)

    @cached_property
    def ranges(self) -> Ranges:
        return decode_ranges(self._row.ranges)

    @property
    def columns(self) -> tuple[str, str]:
        """The columns ``field_counts`` and ``ranges``."""
        return self.fields.encode(), encode_ranges(self.ranges)

    def seen_fields(self, seen: Mapping[int, int]) -> Iterator[tuple[Names, dict[str, int]]]:
        """Yield the fields that a run has seen, by its counts of slots, with their kinds."""
        for field in self.fields.listed:
            kinds = {name: seen.get(kind.slot, 0) for name, kind in field.kinds.items()}
            if any(kinds.values()):
                yield field.names, kinds

    def forget_unused(self, running: Collection[Run], *, is_full: bool = False) -> None:
        """Forget fields that no output has and no running run has seen.

        If the job is full, forget even fields that a run has seen.
        """
        seen = {slot for run in running for slot, count in run.seen.by_slot.items() if count}
        for field in self.fields.forget_unused(seen, is_full=is_full):
            for kind in field.kinds.values():
                for run in running:
                    if run.seen.by_slot.pop(kind.slot, None) is not None:
                        run.has_changed = True
            for is_length in (True, False):
                self.ranges.pop(Column(field.names, is_length), None)

    def make_room(self, running: Collection[Run]) -> None:
        """Forget unused fields although an output that a run has seen may have had them.

        Their slots get another meaning, so the bitmaps of ``run_sightings`` become invalid.
        """
        self.forget_unused(running, is_full=True)
        for run in running:
            run.seen.generation += 1
            run.has_changed = True


async def load(locked: LockedGroup, jobs: Collection[int]) -> dict[int, JobStatistics]:
    """Read the statistics of jobs of the group; a job without any gets empty ones."""
    key = (locked.organization_id, locked.group_id)
    rows = await locked.transaction.fetch_many(_SELECT, [(*key, job_id) for job_id in jobs])
    found = {job_id: StatisticsRow(*columns) for job_id, *columns in rows}
    return {job_id: JobStatistics(job_id, found.get(job_id)) for job_id in jobs}


async def save(locked: LockedGroup, jobs: Iterable[JobStatistics]) -> None:
    """Write the statistics."""
    key = (locked.organization_id, locked.group_id)
    inserts: list[Row] = []
    updates: list[Row] = []
    for job in jobs:
        (inserts if job.is_new else updates).append((*key, job.job_id, *job.columns))
        job.is_new = False
    await locked.transaction.execute_many(_INSERT, inserts)
    await locked.transaction.execute_many(_UPDATE, updates)


async def delete_of_jobs(locked: LockedGroup, jobs: Collection[int]) -> None:
    """Delete the statistics, the runs and the alerts of jobs of the group.

    The jobs have no outputs, and their sightings are deleted; see ``recording.forget_sightings``.
    """
    key = (locked.organization_id, locked.group_id)
    for deletion in _DELETE_STATISTICS:
        await locked.transaction.execute_many(deletion, [(*key, job_id) for job_id in jobs])


async def forget_some_sightings(locked: LockedGroup, run: Run) -> None:
    """Forget what a run that has ended knew of some outputs whose rows do not say it."""
    key = (locked.organization_id, locked.group_id, run.job_id, run.id)
    forgotten = await locked.transaction.fetch(_FORGET_SIGHTINGS, *key, _FORGOTTEN_PER_STEP)
    if len(forgotten) < _FORGOTTEN_PER_STEP:
        await locked.transaction.fetch(_ALL_FORGOTTEN, locked.organization_id, run.id)
