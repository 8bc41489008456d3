"""The runs to which the outputs of a batch belong, and how often each change occurs in them.

A run counts each output once, with its strongest change: created, else updated, else unchanged.
The row of an output knows the run that has sent it last, and what it counts as in that run. If the
row cannot know it, the table ``run_sightings`` does: the output was deleted since then, or another
run of the same job has sent it. So an output that comes again is not counted a second time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol, Self

from gleanery.service.foundation.errors import NotFound, RunConflict
from gleanery.service.resources.fields import ended_runs
from gleanery.service.resources.run_records import comparison, rows
from gleanery.service.resources.run_records.comparison import Comparable
from gleanery.service.resources.run_records.rows import Run
from gleanery.service.storage.group_lock import LockedGroup

UNCHANGED, UPDATED, CREATED = range(3)
"""What an output counts as in a run; a larger number is stronger."""
_KEEP = """
INSERT INTO run_sightings
    (organization_id, group_id, job_id, run_id, identity, run_change, fields, generation)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
ON CONFLICT (organization_id, group_id, job_id, run_id, identity)
DO UPDATE SET run_change = excluded.run_change, fields = excluded.fields,
    generation = excluded.generation
"""
_TAKE = """
DELETE FROM run_sightings
WHERE organization_id = $1 AND group_id = $2 AND job_id = $3 AND run_id = $4 AND identity = $5
RETURNING job_id, identity, run_change, fields, generation
"""
_MAX_ENDED_JOBS = 2
"""Jobs whose implicit runs one batch ends, under the lock of the group.

The sweep ends the others, and those that a client has started: it knows if the clock is right.
"""
_ENDED = "This run has ended: {}. Start another one"
_OTHER_JOB = "This run is of the job {}: its batches must have that job_id"


class SeenOutput(Protocol):
    """The row of an output, as it is stored."""

    @property
    def identity(self) -> bytes: ...

    @property
    def job_id(self) -> int: ...

    @property
    def fields(self) -> bytes | None: ...

    @property
    def run_id(self) -> int: ...

    @property
    def run_change(self) -> int: ...


class Sighting(NamedTuple):
    """What an output counts as in a run, and the bitmap of its fields."""

    change: int
    fields: bytes | None
    """None if it is not known any more."""

    @classmethod
    def stored(cls, run: Run, change: int, fields: bytes | None, generation: int) -> Self:
        """Return what a row of ``run_sightings`` says of an output in its run."""
        return cls(change, fields if generation == run.seen.generation else None)


async def find_run(locked: LockedGroup, run_id: str) -> Run:
    """Return the run that a batch names. Raise NotFound, or RunConflict if it has ended."""
    run = await rows.find(locked, run_id)
    if run is None:
        raise NotFound(("query", "run_id"), "This group has no run with this run_id")
    if not run.is_running or run.is_silent(locked.now):
        raise RunConflict(("query", "run_id"), _ENDED.format(ended_runs.shown_status(run)))
    return run


class BatchRuns:
    """The runs of the jobs of a batch: the one that the batch names, or the implicit ones."""

    def __init__(self, locked: LockedGroup, named: Run | None = None) -> None:
        self._locked = locked
        self._named = named
        self.current: dict[int, Run] = {}
        """The run of each job, in which the outputs are counted."""
        self.open: dict[int, list[Run]] = {}
        """All open runs of each job."""

    async def load(self, jobs: Collection[int]) -> None:
        """Find or begin the runs of these jobs."""
        new = [job_id for job_id in jobs if job_id not in self.current]
        if not new:
            return
        self.open |= await rows.fetch_open(self._locked, new)
        self.current |= await (self._find_named(new) if self._named else self._find_implicit(new))
        for job_id in new:
            self._locked.scrape_not_before(max(map(_not_before, self.open[job_id])))
        self._extend(new)

    def _extend(self, jobs: Iterable[int]) -> None:
        for job_id in jobs:
            self.current[job_id].extend(
                self._locked.scrape_time, self._locked.now, self._locked.run_timeout_minutes
            )

    async def _find_named(self, jobs: Collection[int]) -> dict[int, Run]:
        """Return the run that the batch names. Raise RunConflict for another job."""
        assert self._named is not None
        found = {
            run.job_id: run
            for job_id in jobs
            for run in self.open[job_id]
            if run.id == self._named.id
        }
        if len(found) < len(jobs):
            name = await ended_runs.job_name(self._locked, self._named.job_id)
            raise RunConflict(("query", "run_id"), _OTHER_JOB.format(name))
        return found

    async def _find_implicit(self, jobs: Collection[int]) -> dict[int, Run]:
        """Return the implicit run of each job, which begins if there is none."""
        now = self._locked.now
        found = {
            job_id: run
            for job_id in jobs
            for run in self.open[job_id]
            if run.row.is_implicit and run.is_running and not run.is_silent(now)
        }
        new = [job_id for job_id in jobs if job_id not in found]
        silent = [
            job_id
            for job_id in new
            if any(_is_silent_implicit(run, now) for run in self.open[job_id])
        ]
        for job_id in silent[:_MAX_ENDED_JOBS]:
            runs = self.open[job_id]
            await ended_runs.end_some_silent(self._locked, runs, only_implicit=True)
            self.open[job_id] = [run for run in runs if not _is_silent_implicit(run, now)]
        open_runs = {job_id: self.open[job_id] for job_id in new}
        begun = await rows.begin(self._locked, open_runs, is_implicit=True)
        for job_id, run in begun.items():
            self.open[job_id].append(run)
        return found | begun

    async def settle(self, outputs: Collection[Comparable]) -> None:
        """Compare outputs with ended runs that are compared now, before the batch changes them."""
        if any(run.row.comparison == "pending" for runs in self.open.values() for run in runs):
            await comparison.settle(self._locked, outputs, self.open)

    def running(self, job_id: int) -> list[Run]:
        """Return the runs of a job that have not ended."""
        return [run for run in self.open[job_id] if run.is_running]

    async def sightings(self, outputs: Iterable[SeenOutput]) -> dict[bytes, Sighting]:
        """Return what the runs know of outputs whose rows do not say it.

        What the rows say of other runs is kept, because this batch will overwrite it.
        """
        current = self.current
        unseen = [one for one in outputs if one.run_id != current[one.job_id].id]
        others = by_id(self.open.values(), self._locked.now)
        await keep_sightings(self._locked, others, unseen)
        key = (self._locked.organization_id, self._locked.group_id)
        wanted = [
            (*key, one.job_id, current[one.job_id].id, one.identity)
            for one in unseen
            if current[one.job_id].sightings
        ]
        found: dict[bytes, Sighting] = {}
        for job_id, identity, *columns in await self._locked.transaction.fetch_many(_TAKE, wanted):
            run = current[job_id]
            run.sightings -= 1
            found[identity] = Sighting.stored(run, *columns)
        return found

    def count(self, output: SeenOutput, change: int, sightings: Mapping[bytes, Sighting]) -> int:
        """Count a changed output in its run. Return what it counts as now."""
        run = self.current[output.job_id]
        if output.run_id == run.id:
            before = output.run_change
        elif output.identity in sightings:
            before = sightings[output.identity].change
        else:
            run.counts[change] += 1
            return change
        if change > before:
            run.counts[before] -= 1
            run.counts[change] += 1
        return max(before, change)

    def count_unchanged(
        self, outputs: Iterable[SeenOutput], sightings: Mapping[bytes, Sighting]
    ) -> None:
        """Count outputs that were sent as they are stored."""
        ids = {job_id: run.id for job_id, run in self.current.items()}
        for output in outputs:
            if output.run_id != ids[output.job_id] and output.identity not in sightings:
                self.current[output.job_id].counts[UNCHANGED] += 1

    async def reject(self, count: int) -> None:
        """Count elements that are not valid, in the run of the batch if it has only one.

        A batch of several jobs does not say to which of them such an element belongs.
        """
        if self._named is not None:
            await self.load([self._named.job_id])
        if count and len(self.current) == 1:
            [run] = self.current.values()
            run.rejected += count

    async def save(self) -> None:
        """Store the counts of all runs, and the time of the batch as it is now.

        The outputs have this date, or an earlier one.
        """
        self._extend(self.current)
        runs = {run.id: run for runs in self.open.values() for run in runs}
        await rows.save(self._locked, [*runs.values()])


def _is_silent_implicit(run: Run, now: int) -> bool:
    return run.row.is_implicit and run.is_silent(now)


def _not_before(run: Run) -> int:
    """Return the earliest time of a batch: not before an earlier one, and after the end of a run.

    A comparison relies on it.
    """
    return run.seen_at if run.row.finished_at is None else run.row.finished_at + 1


async def keep_sightings(
    locked: LockedGroup, running: Mapping[int, Run], outputs: Iterable[SeenOutput]
) -> None:
    """Keep what the rows of outputs say of running runs, before the rows change."""
    kept = [output for output in outputs if output.run_id in running]
    key = (locked.organization_id, locked.group_id)
    for output in kept:
        run = running[output.run_id]
        run.sightings, run.has_changed = run.sightings + 1, True
    await locked.transaction.execute_many(
        _KEEP,
        [
            (
                *(*key, one.job_id, one.run_id, one.identity, one.run_change, one.fields),
                running[one.run_id].seen.generation,
            )
            for one in kept
        ],
    )


def by_id(runs: Iterable[Sequence[Run]], now: int) -> dict[int, Run]:
    """Return those of these runs that can still send outputs."""
    return {
        run.id: run
        for of_job in runs
        for run in of_job
        if run.is_running and not run.is_silent(now)
    }
