"""Counts the outputs that a batch stores, and subtracts those that are replaced or deleted.

Both run under the group's lock, in the transaction that changes the outputs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from gleanery.storage.group_lock import LockedGroup
from gleanery.storage.statistics import definitions, documents, scrapes
from gleanery.storage.statistics.documents import JobStatistics
from gleanery.storage.statistics.ranges import Source, add_measures
from gleanery.storage.statistics.shapes import OTHER, Column, Measures, Shape

_OUTPUTS_PER_PAUSE = 500


class Value(Protocol):
    """A value that a batch stores."""

    @property
    def shape(self) -> int: ...
    @property
    def measures(self) -> Measures: ...


class ScrapedOutput(Protocol):
    """The row of an output in a batch; ``shape`` is the stored one until it is recorded."""

    identity: bytes
    content_hash: bytes
    job_id: int
    shape: int | None
    last_scraped_at: int

    @property
    def new_value(self) -> Value | None: ...


_Changed = tuple[ScrapedOutput, Value]
_Collected = defaultdict[Column, tuple[list[float], list[ScrapedOutput]]]
"""The measures of each field of a job, and the output of each measure."""


class _Change(NamedTuple):
    """What some changed outputs have in common."""

    job_id: int
    old_shape: int | None
    new_shape: int
    was_seen: bool
    """True if they are already counted in the current scrape."""


async def record(
    locked: LockedGroup, outputs: Collection[ScrapedOutput], shapes: Mapping[int, Shape]
) -> None:
    """Counts the outputs of a batch, and gives each changed one the number of its shape."""
    jobs = await documents.load(locked, {output.job_id for output in outputs})
    await scrapes.begin(locked, jobs.values())
    for job_id, of_job in _by_job(outputs, jobs).items():
        _count_unchanged(jobs[job_id], of_job)
    await _record_changes(locked, outputs, shapes, jobs)
    await documents.save(locked, jobs.values())


def _by_job(
    outputs: Collection[ScrapedOutput], jobs: Collection[int]
) -> Mapping[int, Collection[ScrapedOutput]]:
    if len(jobs) == 1:  # as in most batches
        return dict.fromkeys(jobs, outputs)
    by_job = defaultdict[int, list[ScrapedOutput]](list)
    for output in outputs:
        by_job[output.job_id].append(output)
    return by_job


def _count_unchanged(job: JobStatistics, outputs: Iterable[ScrapedOutput]) -> None:
    """Counts the unchanged outputs that the current scrape has not seen yet."""
    start = job.started_at
    seen = Counter(
        [
            output.shape
            for output in outputs
            if output.last_scraped_at < start and output.new_value is None
        ]
    )
    for shape, count in seen.items():
        if shape is not None:
            job.seen[shape] += count


async def _record_changes(
    locked: LockedGroup,
    outputs: Iterable[ScrapedOutput],
    shapes: Mapping[int, Shape],
    jobs: Mapping[int, JobStatistics],
) -> None:
    changed = [(output, value) for output in outputs if (value := output.new_value) is not None]
    by_change = defaultdict[tuple[int, int | None, int, bool], list[_Changed]](list)
    for output, value in changed:
        was_seen = output.last_scraped_at >= jobs[output.job_id].started_at
        by_change[output.job_id, output.shape, value.shape, was_seen].append((output, value))
    changes = {_Change(*key): members for key, members in by_change.items()}
    await _define_shapes(locked, changes, shapes, jobs)
    measures = defaultdict[int, _Collected](lambda: defaultdict(lambda: ([], [])))
    for change, members in changes.items():
        _count(jobs[change.job_id], change, [output for output, _ in members])
        for start in range(0, len(members), _OUTPUTS_PER_PAUSE):
            await locked.transaction.pause()
            some = members[start : start + _OUTPUTS_PER_PAUSE]
            _collect(measures[change.job_id], shapes[change.new_shape], some)
    for job_id, of_job in measures.items():
        await locked.transaction.pause()
        _measure(jobs[job_id], of_job)


async def _define_shapes(
    locked: LockedGroup,
    changes: Iterable[_Change],
    shapes: Mapping[int, Shape],
    jobs: Mapping[int, JobStatistics],
) -> None:
    """Stores the fields of the shapes that are new to their jobs."""
    new, other = [], defaultdict[int, list[Shape]](list)
    for change in changes:
        shape, job = shapes[change.new_shape], jobs[change.job_id]
        is_known = shape.number in job.shapes
        if job.number_of(shape.number) == OTHER:
            other[job.job_id].append(shape)
        elif not is_known:
            new.append((job.job_id, shape))
    await definitions.add(locked, new)
    for job_id, uncounted in other.items():
        await definitions.add_to_other(locked, job_id, uncounted)


def _count(job: JobStatistics, change: _Change, outputs: Sequence[ScrapedOutput]) -> None:
    """Moves outputs from their old shape to the new one, of the job and of its scrape."""
    old, new = change.old_shape, job.number_of(change.new_shape)
    job.values_changed = True
    job.seen[new] += len(outputs)
    if change.was_seen and old is not None:
        job.seen[old] -= len(outputs)
    if old == new:
        return
    identities = [output.identity for output in outputs]
    job.add(new, identities)
    if old is not None:
        job.subtract(old, identities)
    for output in outputs:
        output.shape = new


def _collect(collected: _Collected, shape: Shape, changed: Sequence[_Changed]) -> None:
    """Collects the measures by field: outputs of many shapes are then measured together."""
    outputs = [output for output, _ in changed]
    columns = zip(*(value.measures for _, value in changed), strict=True)
    for column, measures in zip(shape.columns, columns, strict=True):
        if column is not None:
            values, sources = collected[column]
            values += measures
            sources += outputs


def _measure(job: JobStatistics, collected: _Collected) -> None:
    for column, (values, outputs) in collected.items():
        add_measures(job.ranges, column, values, partial(_source_at, outputs))


def _source_at(outputs: Sequence[ScrapedOutput], index: int) -> Source:
    return Source(outputs[index].identity, outputs[index].content_hash)


async def subtract(locked: LockedGroup, deleted: Iterable[tuple[bytes, int, int | None]]) -> None:
    """Subtracts deleted outputs: the identity, job and shape of each. Scrapes keep them."""
    by_job = defaultdict[int, dict[int, list[bytes]]](lambda: defaultdict(list))
    for identity, job_id, shape in deleted:
        if shape is not None:
            by_job[job_id][shape].append(identity)
    jobs = await documents.load(locked, by_job)
    for job_id, by_shape in by_job.items():
        for shape, identities in by_shape.items():
            jobs[job_id].subtract(shape, identities)
        jobs[job_id].values_changed = True
    await documents.save(locked, jobs.values())
