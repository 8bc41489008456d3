"""Counts the outputs that a batch stores, and subtracts those that are replaced or deleted.

Both run under the group's lock, in the transaction that changes the outputs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Protocol

from gleanery.storage.group_lock import LockedGroup
from gleanery.storage.statistics import definitions, documents, scrapes
from gleanery.storage.statistics.documents import JobStatistics
from gleanery.storage.statistics.ranges import Source, add_measures
from gleanery.storage.statistics.shapes import OTHER, FieldTable, ValueFields

_OUTPUTS_PER_PAUSE = 500


class Value(Protocol):
    """A value that a batch stores."""

    @property
    def fields(self) -> ValueFields: ...


class UnchangedOutput(Protocol):
    """An output of a batch that is stored with the same value."""

    @property
    def job_id(self) -> int: ...

    @property
    def shape(self) -> int | None: ...

    @property
    def last_scraped_at(self) -> int: ...


class ChangedOutput(Protocol):
    """The row of a new or changed output; ``shape`` is the stored one until it is recorded."""

    identity: bytes
    content_hash: bytes
    job_id: int
    shape: int | None
    last_scraped_at: int

    @property
    def new_value(self) -> Value | None: ...


_Changed = tuple[ChangedOutput, ValueFields]


async def record(
    locked: LockedGroup,
    changed: Iterable[ChangedOutput],
    unchanged: Collection[UnchangedOutput],
    table: FieldTable,
) -> None:
    """Counts the outputs of a batch, and gives each changed one the number of its shape."""
    by_job = _by_job(changed)
    others = {output.job_id for output in unchanged} - by_job.keys()
    jobs = await documents.load(locked, by_job.keys(), others)
    await scrapes.begin(locked, jobs.values())
    _count_unchanged(jobs, unchanged)
    for job_id, of_job in by_job.items():
        await _record_changed(locked, _JobChanges(jobs[job_id], table), of_job)
    await documents.save(locked, jobs.values())


def _by_job(changed: Iterable[ChangedOutput]) -> Mapping[int, Sequence[_Changed]]:
    by_job = defaultdict[int, list[_Changed]](list)
    for output in changed:
        if output.new_value is not None:
            by_job[output.job_id].append((output, output.new_value.fields))
    return by_job


def _count_unchanged(jobs: Mapping[int, JobStatistics], outputs: Iterable[UnchangedOutput]) -> None:
    """Counts the unchanged outputs that the current scrapes of their jobs have not seen yet."""
    starts = {job_id: job.started_at for job_id, job in jobs.items()}
    seen = Counter(
        [
            (output.job_id, output.shape)
            for output in outputs
            if output.last_scraped_at < starts[output.job_id]
        ]
    )
    for (job_id, shape), count in seen.items():
        if shape is not None:
            jobs[job_id].seen[shape] += count


async def _record_changed(
    locked: LockedGroup, changes: _JobChanges, changed: Sequence[_Changed]
) -> None:
    for start in range(0, len(changed), _OUTPUTS_PER_PAUSE):
        await locked.transaction.pause()
        some = changed[start : start + _OUTPUTS_PER_PAUSE]
        changes.count(some)
        changes.collect_measures(some)
    await locked.transaction.pause()
    changes.finish()
    await definitions.add(locked, changes.job.job_id, changes.new_shapes)
    await _add_to_other(locked, changes)


async def _add_to_other(locked: LockedGroup, changes: _JobChanges) -> None:
    """Adds fields to the shape ``OTHER``, if it does not have them yet."""
    job, new = changes.job, changes.other_fields
    known = job.other_fields
    if known is None or (new is not None and new <= known):
        return
    fields = None if new is None else [changes.table[number] for number in new - known]
    if await definitions.add_to_other(locked, job.job_id, fields):
        known.update(new or ())
    else:
        job.other_fields = None


class _JobChanges:
    """What the changed outputs of a batch change in the statistics of their job."""

    def __init__(self, job: JobStatistics, table: FieldTable) -> None:
        self.job, self.table = job, table
        self.new_shapes: list[tuple[int, str]] = []
        """Shapes that the job has for the first time, with their fields."""
        self.other_fields: set[int] | None = set()
        """The fields of outputs of the shape ``OTHER``; None if one has too many fields."""
        self._added = defaultdict[int, list[bytes]](list)
        self._removed = defaultdict[int, list[bytes]](list)
        self._measures = defaultdict[int, tuple[list[float], list[ChangedOutput]]](lambda: ([], []))

    def count(self, changed: Sequence[_Changed]) -> None:
        """Moves outputs from their old shape to the new one, of the job and of its scrape."""
        shapes, seen, start = self.job.shapes, self.job.seen, self.job.started_at
        for output, fields in changed:
            old, new = output.shape, fields.shape
            if new not in shapes or new == OTHER:
                new = self._define(fields)
            if old is None or output.last_scraped_at < start:
                seen[new] += 1
            elif old != new:
                seen[new] += 1
                seen[old] -= 1
            if old != new:
                self._added[new].append(output.identity)
                if old is not None:
                    self._removed[old].append(output.identity)
                output.shape = new

    def _define(self, fields: ValueFields) -> int:
        """Returns the number under which outputs of an unknown shape are counted."""
        number = self.job.number_of(fields.shape)
        if number != OTHER:
            self.new_shapes.append((number, self.table.fields_json(fields)))
        elif fields.shape == OTHER:
            self.other_fields = None
        elif self.other_fields is not None:
            self.other_fields.update(fields.numbers)
        return number

    def collect_measures(self, changed: Sequence[_Changed]) -> None:
        """Collects the measures by field: outputs of many shapes are then measured together."""
        collected = self._measures
        for output, (_, numbers, measures) in changed:
            for number, measure in zip(numbers, measures, strict=False):
                values, sources = collected[number]
                values.append(measure)
                sources.append(output)

    def finish(self) -> None:
        """Changes the counts and the ranges of the job."""
        job = self.job
        job.values_changed = True
        job.add(self._added)
        job.subtract(self._removed)
        for number, (values, outputs) in self._measures.items():
            column = self.table[number].column
            add_measures(job.ranges, column, values, partial(_source_at, outputs))


def _source_at(outputs: Sequence[ChangedOutput], index: int) -> Source:
    return Source(outputs[index].identity, outputs[index].content_hash)


async def subtract(locked: LockedGroup, deleted: Iterable[tuple[bytes, int, int | None]]) -> None:
    """Subtracts deleted outputs: the identity, job and shape of each. Scrapes keep them."""
    by_job = defaultdict[int, dict[int, list[bytes]]](lambda: defaultdict(list))
    for identity, job_id, shape in deleted:
        if shape is not None:
            by_job[job_id][shape].append(identity)
    jobs = await documents.load(locked, by_job)
    for job_id, by_shape in by_job.items():
        jobs[job_id].subtract(by_shape)
        jobs[job_id].values_changed = True
    await documents.save(locked, jobs.values())
