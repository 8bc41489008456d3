"""Counts the outputs that a batch stores, and subtracts those that are replaced or deleted.

Theory of operation
===================

Everything here runs under the group's lock, in the transaction that changes the outputs. So the
statistics and the outputs always agree. See ``docs/explanation/field-statistics.md``.

A slot is a number that stands for one kind of value of one field of a job. A bitmap of slots says
which fields an output has, and with which kinds. Outputs with the same fields and kinds have the
same shape.

States of an output:

- not counted: ``outputs.fields`` is NULL. A version without field statistics has stored it.
- counted: ``outputs.fields`` is a bitmap of slots. The row of its job counts it in each slot.
- seen by a run: it is counted, and the run has sent it. The counts of that run contain it as well.
  Its row says so, or a row of ``run_sightings`` does; see ``batch_runs``. It stays in these counts
  if it is deleted.

States of a slot: free, then used by one kind of one field, then free again. Only
``JobStatistics.forget_unused`` frees it, when no output is counted in it. A running run that has
counted it keeps it, unless the job is full.

Invariants:

- The count of a slot is the number of outputs of the job whose bitmap has the slot.
- In the counts of a running run, it is the number of outputs that the run has sent, including
  those that were deleted since.
- A value is parsed once, when it is stored. Subtracting an output needs only its bitmap.
- The result does not depend on how the outputs are divided into batches.
- A job has a limited number of slots. Fields beyond the limit share the slot of ``UNLISTED``.

Call tree::

    record                            a batch
        _count_unchanged              adds bitmaps to the runs that have not seen them
        job_statistics.load           one row per job with changed outputs
        _JobChanges.steps             for each job with changed outputs, with pauses
            _count                    moves each output from its old bitmap to its new one
                _add_shape            finds the slots of a shape; makes room once per batch
                change_example        keeps a few outputs per field as examples
            _collect_measures         gathers numbers and lengths by field
            _flush                    adds the moves to the counts of the job and of its run
            _add_measures             widens the ranges
        job_statistics.save
    subtract                          deleted outputs
        job_statistics.load, keep_sightings, save
    forget_sightings                  jobs that will be deleted
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial, reduce
from operator import or_
from time import monotonic
from typing import NamedTuple, Protocol

from gleanery.service.resources.fields import job_statistics
from gleanery.service.resources.fields.batch_runs import (
    BatchRuns,
    SeenOutput,
    Sighting,
    by_id,
    keep_sightings,
)
from gleanery.service.resources.fields.job_fields import SlotCounts
from gleanery.service.resources.fields.job_statistics import JobStatistics
from gleanery.service.resources.fields.shapes import (
    UNLISTED,
    Column,
    FieldTable,
    Range,
    Source,
    ValueFields,
    add_measures,
)
from gleanery.service.resources.run_records import rows
from gleanery.service.resources.run_records.rows import Run
from gleanery.service.storage.group_lock import LockedGroup

_SIGHTINGS = """
SELECT job_id, run_id, identity, run_change, fields, generation FROM run_sightings
WHERE organization_id = $1 AND group_id = $2 AND job_id = $3 LIMIT $4
"""
_DELETE_SIGHTING = """
DELETE FROM run_sightings
WHERE organization_id = $1 AND group_id = $2 AND job_id = $3 AND run_id = $4 AND identity = $5
"""
_OUTPUTS_PER_STEP = 100
_BITMAPS_PER_STEP = 500
_OUTPUTS_PER_SHAPE = 4  # with fewer, tables of outputs of the same shape are not faster
_SECONDS_PER_PAUSE = 0.01


class ChangedOutput(Protocol):
    """The row of an output to count; ``fields`` is the stored bitmap until it is recorded.

    It is None if the output is new, or if an older program has stored it.
    """

    identity: bytes
    content_hash: bytes
    job_id: int
    fields: bytes | None
    run_id: int
    """The run that has sent the stored value."""


class DeletedOutput(NamedTuple):
    """The columns of a deleted output that its statistics need."""

    identity: bytes
    job_id: int
    fields: bytes | None
    run_id: int
    run_change: int


Change = tuple[ChangedOutput, ValueFields]
"""An output with the fields of its new value."""


async def record(
    locked: LockedGroup,
    runs: BatchRuns,
    sightings: Mapping[bytes, Sighting],
    changes: Iterable[Change],
    unchanged: Collection[SeenOutput],
    table: FieldTable,
) -> None:
    """Count the outputs of a batch, and give each changed one its bitmap."""
    by_job = defaultdict[int, list[Change]](list)
    for change in changes:
        by_job[change[0].job_id].append(change)
    _count_unchanged(runs.current, unchanged, sightings)
    jobs = await job_statistics.load(locked, by_job.keys())
    for job_id, of_job in by_job.items():
        recorded = _JobChanges(jobs[job_id], runs, table, sightings)
        paused_at = 0.0
        for _ in recorded.steps(of_job):
            if monotonic() - paused_at > _SECONDS_PER_PAUSE:
                await locked.transaction.pause()
                paused_at = monotonic()
    await job_statistics.save(locked, jobs.values())


def _count_unchanged(
    runs: Mapping[int, Run], outputs: Iterable[SeenOutput], sightings: Mapping[bytes, Sighting]
) -> None:
    """Count the unchanged outputs that the runs of their jobs have not seen yet.

    A run that has seen an output with another value counts the present one instead.
    """
    ids = {job_id: run.id for job_id, run in runs.items()}
    unseen = [output for output in outputs if output.run_id != ids[output.job_id]]
    replaced = list[tuple[int, bytes]]()
    if sightings:
        returned = [output for output in unseen if output.identity in sightings]
        known = {one.identity: sightings[one.identity].fields for one in returned}
        replaced = [
            (one.job_id, fields) for one in returned if (fields := known[one.identity]) is not None
        ]
        unseen = [one for one in unseen if known.get(one.identity, b"") is not None]
    counts = Counter([(output.job_id, output.fields) for output in unseen])
    counts.subtract(replaced)
    by_job = defaultdict[int, dict[bytes, int]](dict)
    for (job_id, bitmap), count in counts.items():
        if bitmap is not None:
            by_job[job_id][bitmap] = count
    for job_id, bitmaps in by_job.items():
        runs[job_id].seen.change(*SlotCounts.of(bitmaps))


class _Measures(NamedTuple):
    """The measures of a field, and the position of each in the batch."""

    values: list[int | float]
    positions: list[int]


class _MeasuresByNumber(dict[int, _Measures]):
    """The measures by the number of a field. Integers and other numbers have one range."""

    def __init__(self, table: FieldTable) -> None:
        self._table = table
        self.by_column: dict[Column, _Measures] = {}

    def __missing__(self, number: int) -> _Measures:
        column = self._table[number].column
        measures = self[number] = self.by_column.setdefault(column, _Measures([], []))
        return measures


class _JobChanges:
    """What the changed outputs of a batch change in the statistics of their job."""

    def __init__(
        self,
        job: JobStatistics,
        runs: BatchRuns,
        table: FieldTable,
        sightings: Mapping[bytes, Sighting],
    ) -> None:
        self._job, self._table = job, table
        self._run = runs.current[job.job_id]
        self._running = runs.running(job.job_id)
        self._sightings = sightings
        """What the run knows of outputs whose rows do not say it."""
        self._bitmaps: dict[int, bytes] = {}
        """The bitmap of each shape."""
        self._slots: dict[int, int] = {}
        """The slot of each field, as a bitmap."""
        self._is_full = False
        self._changes = defaultdict[bytes, int](int)  # a Counter is slow for new keys
        self._seen = defaultdict[bytes, int](int)
        self._measures = _MeasuresByNumber(table)

    def steps(self, changes: Sequence[Change]) -> Iterator[None]:
        """Record the outputs in short steps."""
        for start in range(0, len(changes), _OUTPUTS_PER_STEP):
            some = changes[start : start + _OUTPUTS_PER_STEP]
            self._count(some)
            self._collect_measures(some, start)
            if len(self._changes) + len(self._seen) > _BITMAPS_PER_STEP:
                self._flush()
            yield
        self._flush()
        yield
        yield from self._add_measures(changes)

    def _count(self, changes: Sequence[Change]) -> None:
        """Move outputs from their old bitmap to the new one, of the job and of its run."""
        bitmaps, counts, seen = self._bitmaps, self._changes, self._seen
        run_id, job_fields, sightings = self._run.id, self._job.fields, self._sightings
        for output, fields in changes:
            new = bitmaps.get(fields.shape)
            if new is None:
                new = self._add_shape(fields)
            old = output.fields
            was_seen = old if output.run_id == run_id else None
            if sightings and output.identity in sightings:
                kept = self._sightings[output.identity].fields  # making room changes it
                was_seen = new if kept is None else kept
            if was_seen != new:
                seen[new] += 1
                if was_seen is not None:
                    seen[was_seen] -= 1
            if old != new:
                counts[new] += 1
                if old is not None:
                    counts[old] -= 1
                job_fields.change_example(output.identity, old, new)
                output.fields = new

    def _add_shape(self, fields: ValueFields) -> bytes:
        """Return the bitmap of a shape that the batch has for the first time."""
        try:
            bits = reduce(or_, map(self._slots.__getitem__, fields.numbers), 0)
        except KeyError:
            self._find_slots(fields.numbers)
            return self._add_shape(fields)
        bitmap = bits.to_bytes((bits.bit_length() + 7) // 8, "little")
        self._bitmaps[fields.shape] = bitmap
        return bitmap

    def _find_slots(self, numbers: Iterable[int]) -> None:
        """Find the slots of fields; those that find no room have one slot together."""
        for number in numbers:
            slot = self._job.fields.find_slot(self._table[number])
            if slot is None and not self._is_full:
                self._make_room()
                return
            if slot is None:
                slot = self._job.fields.find_slot(UNLISTED)
                assert slot is not None
            self._slots[number] = 1 << slot

    def _make_room(self) -> None:
        """Forgets fields that no output has any more, once per batch."""
        self._flush()
        self._is_full = True
        self._sightings = {
            identity: sighting._replace(fields=None)
            for identity, sighting in self._sightings.items()
        }
        self._job.make_room(self._running)
        self._bitmaps.clear()
        self._slots.clear()

    def _collect_measures(self, changes: Sequence[Change], start: int) -> None:
        """Collect the measures by field: outputs of many shapes are then measured together."""
        if len({fields.shape for _, fields in changes}) > len(changes) // _OUTPUTS_PER_SHAPE:
            by_number = self._measures
            for position, (_, (_, numbers, measures)) in enumerate(changes, start):
                for number, measure in zip(numbers, measures, strict=False):
                    values, positions = by_number[number]
                    values.append(measure)
                    positions.append(position)
            return
        # Outputs with the same measured fields in the same order are rows of a table. Columns are
        # faster. The other fields do not matter: an unlisted one has the same number, empty or not.
        tables = defaultdict[tuple[int, ...], tuple[list[int], list[Sequence[int | float]]]](
            lambda: ([], [])
        )
        for position, (_, (_, numbers, measures)) in enumerate(changes, start):
            positions, rows = tables[(*numbers[: len(measures)],)]
            positions.append(position)
            rows.append(measures)
        for of_table, (positions, rows) in tables.items():
            for number, column in zip(of_table, zip(*rows, strict=True), strict=True):
                collected = self._measures[number]
                collected.values.extend(column)
                collected.positions.extend(positions)

    def _add_measures(self, changes: Sequence[Change]) -> Iterator[None]:
        """Change the ranges of the job, field by field."""
        job = self._job
        source_at = partial(_source_at, changes)
        for column, (values, positions) in self._measures.by_column.items():
            if column.names and column.names in job.fields.by_names:
                range_ = job.ranges.setdefault(column, Range())
                add_measures(range_, values, positions, source_at)
                yield

    def _flush(self) -> None:
        """Change the counts by the outputs so far."""
        changes = SlotCounts.of(self._changes)
        seen = changes if self._seen == self._changes else SlotCounts.of(self._seen)
        self._job.fields.change_counts(changes)
        self._run.seen.change(*seen)
        self._changes.clear()
        self._seen.clear()


def _source_at(changes: Sequence[Change], position: int) -> Source:
    output = changes[position][0]
    return Source(output.identity, output.content_hash)


async def subtract(
    locked: LockedGroup,
    deleted: Iterable[DeletedOutput],
    open_runs: Mapping[int, Sequence[Run]],
    *,
    is_bulk: bool = False,
) -> None:
    """Subtracts deleted outputs. A running run keeps them, unless many are deleted at once.

    If such an output returns, the run does not count it a second time.
    """
    by_job = defaultdict[int, list[DeletedOutput]](list)
    for output in deleted:
        by_job[output.job_id].append(output)
    jobs = await job_statistics.load(locked, by_job)
    running = by_id(open_runs.values(), locked.now)
    for job_id, outputs in by_job.items():
        job = jobs[job_id]
        job.fields.change_counts(_negative(outputs))
        job.fields.remove_examples(output.identity for output in outputs)
        if not is_bulk:
            await keep_sightings(locked, running, outputs)
            continue
        by_run = defaultdict[int, list[DeletedOutput]](list)
        for output in outputs:
            by_run[output.run_id].append(output)
        for run_id, of_run in by_run.items():
            if run_id in running:
                _subtract_from_run(running[run_id], of_run)
    await job_statistics.save(locked, jobs.values())
    await rows.save(locked, [*running.values()])


async def forget_sightings(locked: LockedGroup, jobs: Collection[int], limit: int) -> set[int]:
    """Delete at most ``limit`` sightings of jobs. Return the jobs that have none any more.

    A run that still goes on does not count these outputs any more. So it counts those that return
    before the job is deleted.
    """
    if not jobs:
        return set()
    key = (locked.organization_id, locked.group_id)
    per_job = max(1, limit // len(jobs))
    found = await locked.transaction.fetch_many(
        _SIGHTINGS, [(*key, job_id, per_job) for job_id in jobs]
    )
    if found:
        open_runs = await rows.fetch_open(locked, {row[0] for row in found})
        runs = {run.id: run for of_job in open_runs.values() for run in of_job if run.is_running}
        by_run = defaultdict[int, list[DeletedOutput]](list)
        for job_id, run_id, identity, *columns in found:
            if run_id in runs:
                change, fields = Sighting.stored(runs[run_id], *columns)
                output = DeletedOutput(identity, job_id, fields, run_id, change)
                by_run[run_id].append(output)
        for run_id, outputs in by_run.items():
            runs[run_id].sightings -= len(outputs)
            _subtract_from_run(runs[run_id], outputs)
        await locked.transaction.execute_many(_DELETE_SIGHTING, [(*key, *row[:3]) for row in found])
        await rows.save(locked, [*runs.values()])
    counts = Counter(row[0] for row in found)
    return {job_id for job_id in jobs if counts[job_id] < per_job}


def _subtract_from_run(run: Run, outputs: Collection[DeletedOutput]) -> None:
    run.seen.change(*_negative(outputs))
    for output in outputs:
        run.counts[output.run_change] -= 1
    run.has_changed = True


def _negative(outputs: Iterable[DeletedOutput]) -> SlotCounts:
    counts = Counter(output.fields for output in outputs if output.fields is not None)
    return SlotCounts.of({bitmap: -count for bitmap, count in counts.items()})
