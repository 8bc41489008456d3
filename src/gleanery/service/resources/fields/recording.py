"""Counts the outputs that a batch stores, and subtracts those that are replaced or deleted.

Theory of operation
===================

Everything here runs under the group's lock, in the transaction that changes the outputs. So the
statistics and the outputs always agree. The reasons are in
``docs/decisions/0154-field-statistics-are-counts-of-fields.md`` and in the records 0155 and 0156.

A slot is a number that stands for one kind of value of one field of a job. A bitmap of slots says
which fields an output has, and with which kinds. Outputs with the same fields and kinds have the
same shape.

States of an output:

- not counted: ``outputs.fields`` is NULL. A version without field statistics has stored it.
- counted: ``outputs.fields`` is a bitmap of slots. The row of its job counts it in each slot.
- seen: it is counted, and its last scrape is not before the start of the current scrape. The
  counts of the current scrape contain it as well.
- deleted in the scrape: it was seen and then deleted. ``deleted_in_scrape`` keeps its bitmap, and
  the counts of the current scrape still contain it.

States of a scrape: it begins with the first batch after a pause, it is current while batches
follow, and it has ended after a pause of ``IDLE``. No code runs when a scrape ends. The next batch
of the job stores it in ``job_scrapes`` and begins a new one.

States of a slot: free, then used by one kind of one field, then free again. Only
``JobStatistics.forget_unused`` frees it, when no output is counted in it.

Invariants:

- The count of a slot is the number of outputs of the job whose bitmap has the slot.
- In the counts of the current scrape, it is the number of seen outputs, including those that were
  deleted since.
- A value is parsed once, when it is stored. Subtracting an output needs only its bitmap.
- The result does not depend on how the outputs are divided into batches.
- A job has a limited number of slots. Fields beyond the limit share the slot of ``UNLISTED``.

Call tree::

    record                            a batch
        job_statistics.load           one row per job; short columns if nothing has changed
        job_statistics.begin_scrapes  ends the last scrape if there was a pause
        _count_unchanged              adds bitmaps to the scrapes that have not seen them
        _JobChanges.steps             for each job with changed outputs, with pauses
            _count                    moves each output from its old bitmap to its new one
                _add_shape            finds the slots of a shape; makes room once per batch
                change_example        keeps a few outputs per field as examples
            _collect_measures         gathers numbers and lengths by field
            _flush                    adds the moves to the counts of the job and of its scrape
            _add_measures             widens the ranges
        job_statistics.save
    subtract                          deleted outputs
        job_statistics.load, keep_deleted, save
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial, reduce
from operator import or_
from time import monotonic
from typing import NamedTuple, Protocol

from gleanery.service.resources.fields import job_statistics
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
from gleanery.service.storage.group_lock import LockedGroup

_OUTPUTS_PER_STEP = 100
_BITMAPS_PER_STEP = 500
_OUTPUTS_PER_SHAPE = 4  # with fewer, tables of outputs of the same shape are not faster
_SECONDS_PER_PAUSE = 0.01


class UnchangedOutput(Protocol):
    """An output of a batch that is stored with the same value."""

    @property
    def job_id(self) -> int: ...

    @property
    def fields(self) -> bytes | None: ...

    @property
    def last_scraped_at(self) -> int: ...


class ChangedOutput(Protocol):
    """The row of an output to count; ``fields`` is the stored bitmap until it is recorded.

    It is None if the output is new, or if an older program has stored it.
    """

    identity: bytes
    content_hash: bytes
    job_id: int
    fields: bytes | None
    last_scraped_at: int


class DeletedOutput(NamedTuple):
    """The columns of a deleted output that its statistics need."""

    identity: bytes
    job_id: int
    fields: bytes | None
    last_scraped_at: int


Change = tuple[ChangedOutput, ValueFields]
"""An output with the fields of its new value."""


async def record(
    locked: LockedGroup,
    changes: Iterable[Change],
    unchanged: Collection[UnchangedOutput],
    table: FieldTable,
) -> None:
    """Count the outputs of a batch, and give each changed one its bitmap."""
    by_job = defaultdict[int, list[Change]](list)
    for change in changes:
        by_job[change[0].job_id].append(change)
    others = {output.job_id for output in unchanged} - by_job.keys()
    jobs = await job_statistics.load(locked, by_job.keys(), others)
    await job_statistics.begin_scrapes(locked, jobs.values())
    _count_unchanged(jobs, unchanged)
    for job_id, of_job in by_job.items():
        await _record_changes(locked, jobs[job_id], of_job, table)
    await job_statistics.forget_deleted(
        locked, [job for job in jobs.values() if job.forgets_deleted]
    )
    await job_statistics.save(locked, jobs.values())


def _count_unchanged(jobs: Mapping[int, JobStatistics], outputs: Iterable[UnchangedOutput]) -> None:
    """Count the unchanged outputs that the current scrapes of their jobs have not seen yet."""
    starts = {job_id: job.started_at for job_id, job in jobs.items()}
    seen = Counter(
        [
            (output.job_id, output.fields)
            for output in outputs
            if output.last_scraped_at < starts[output.job_id]
        ]
    )
    by_job = defaultdict[int, dict[bytes, int]](dict)
    for (job_id, bitmap), count in seen.items():
        if bitmap is not None:
            by_job[job_id][bitmap] = count
    for job_id, bitmaps in by_job.items():
        jobs[job_id].seen.change(SlotCounts.of(bitmaps))


async def _record_changes(
    locked: LockedGroup, job: JobStatistics, changes: Sequence[Change], table: FieldTable
) -> None:
    new = [output.identity for output, _ in changes if output.fields is None]
    recorded = _JobChanges(job, table, await job_statistics.take_deleted(locked, job, new))
    paused_at = 0.0
    for _ in recorded.steps(changes):
        if monotonic() - paused_at > _SECONDS_PER_PAUSE:
            await locked.transaction.pause()
            paused_at = monotonic()


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
        self, job: JobStatistics, table: FieldTable, deleted: Mapping[bytes, bytes]
    ) -> None:
        self._job, self._table = job, table
        self._deleted = deleted
        """Bitmaps of outputs that the scrape has seen, and that were deleted since then."""
        self._bitmaps: dict[int, bytes] = {}
        """The bitmap of each shape."""
        self._slots: dict[int, int] = {}
        """The slot of each field, as a bitmap."""
        self._is_full = False
        self._changes = Counter[bytes]()
        self._seen = Counter[bytes]()
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
        """Move outputs from their old bitmap to the new one, of the job and of its scrape."""
        bitmaps, counts, seen = self._bitmaps, self._changes, self._seen
        start, job_fields = self._job.started_at, self._job.fields
        for output, fields in changes:
            new = bitmaps.get(fields.shape)
            if new is None:
                new = self._add_shape(fields)
            old = output.fields
            was_seen = old if output.last_scraped_at >= start else None
            if old is None and self._deleted:
                was_seen = self._deleted.get(output.identity)
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
        self._deleted = {}
        self._job.make_room()
        self._bitmaps.clear()
        self._slots.clear()

    def _collect_measures(self, changes: Sequence[Change], start: int) -> None:
        """Collect the measures by field: outputs of many shapes are then measured together."""
        if len({fields.shape for _, fields in changes}) > len(changes) // _OUTPUTS_PER_SHAPE:
            for position, (_, (_, numbers, measures)) in enumerate(changes, start):
                for number, measure in zip(numbers, measures, strict=False):
                    values, positions = self._measures[number]
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
        job.values_changed = True
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
        self._job.seen.change(seen)
        self._changes.clear()
        self._seen.clear()


def _source_at(changes: Sequence[Change], position: int) -> Source:
    output = changes[position][0]
    return Source(output.identity, output.content_hash)


async def subtract(
    locked: LockedGroup, deleted: Iterable[DeletedOutput], *, is_bulk: bool = False
) -> None:
    """Subtracts deleted outputs. The current scrape keeps them, unless many are deleted at once.

    If such an output returns, the scrape does not count it a second time. A scrape that has ended
    keeps its counts, and needs nothing else.
    """
    by_job = defaultdict[int, list[DeletedOutput]](list)
    for output in deleted:
        if output.fields is not None:
            by_job[output.job_id].append(output)
    jobs = await job_statistics.load(locked, by_job)
    for job_id, outputs in by_job.items():
        job = jobs[job_id]
        job.values_changed = True
        job.fields.change_counts(_negative(outputs))
        job.fields.remove_examples(output.identity for output in outputs)
        if job_statistics.scrape_has_ended(locked, job):
            continue
        seen = [output for output in outputs if output.last_scraped_at >= job.started_at]
        if is_bulk:
            job.seen.change(_negative(seen))
        else:
            await job_statistics.keep_deleted(locked, job, seen)
    await job_statistics.save(locked, jobs.values())


def _negative(outputs: Iterable[DeletedOutput]) -> SlotCounts:
    counts = Counter(output.fields for output in outputs if output.fields is not None)
    return SlotCounts.of({bitmap: -count for bitmap, count in counts.items()})
