"""Outputs that a reviewer should see: those of rare shapes, and those with extreme values."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import zip_longest
from operator import itemgetter
from typing import Literal, NamedTuple

from gleanery.scheduling.fair_thread import FairThread
from gleanery.storage.database import Database
from gleanery.storage.statistics import reading
from gleanery.storage.statistics.ranges import Range, decode_source, readable
from gleanery.storage.statistics.reading import StoredJob, StoredRows
from gleanery.storage.statistics.shapes import OTHER, Column, Field, Names
from gleanery.values import field_paths

_CURRENT = """
SELECT shape, content_hash FROM outputs
WHERE organization_id = $1 AND identity = $2 AND +job_id = $3
"""
_RARE_SHARE = 0.05
_MAX_DIFFERENCES = 3
_MIN_MEASURES = 20
_MIN_DISTANCE = 2  # binary digits between an extreme value and the next: at least twice as large
_SAME_KIND = {"integer": "number"}
_Kinds = frozenset[tuple[Names, str]]


class UnusualOutput(NamedTuple):
    """An output that differs from the others of its job."""

    identity: bytes
    reason: Literal["rare_shape", "outlier"]
    detail: str


class _Candidate(NamedTuple):
    """An output that was unusual when the statistics were written."""

    identity: bytes
    reason: Literal["rare_shape", "outlier"]
    describe: Callable[[], str]
    shape: int | None = None
    content_hash: bytes = b""
    """The beginning of the hash of the content with the extreme value."""


async def unusual_outputs(
    database: Database, computations: FairThread, group_id: int, job_id: int, limit: int
) -> list[UnusualOutput]:
    """Returns outputs of the job, each once: first those of the rarest shapes, then outliers."""
    organization_id = database.organization_id
    found: dict[bytes, _Candidate] = {}
    async for rows in reading.read_jobs(database, group_id, job_id):
        for candidate in await computations.run(organization_id, _candidates, rows):
            if len(found) == limit:
                break
            identity = candidate.identity
            if identity not in found and await _is_current(database, job_id, candidate):
                found[identity] = candidate
    return await computations.run(organization_id, _describe, [*found.values()])


def _describe(candidates: Iterable[_Candidate]) -> list[UnusualOutput]:
    return [UnusualOutput(one.identity, one.reason, one.describe()) for one in candidates]


async def _is_current(database: Database, job_id: int, candidate: _Candidate) -> bool:
    """Returns True if the output still has the shape, or the value, that is unusual."""
    await asyncio.sleep(0)  # other requests run between two statements
    key = (database.organization_id, candidate.identity, job_id)
    rows = await database.read(_CURRENT, *key)
    return any(
        shape == candidate.shape
        if candidate.shape is not None
        else content_hash.startswith(candidate.content_hash)
        for shape, content_hash in rows
    )


def _candidates(rows: StoredRows) -> list[_Candidate]:
    job = rows.decode()
    return [*_rare_shapes(job), *_outliers(job)]


def _rare_shapes(job: StoredJob) -> Iterator[_Candidate]:
    """Yields examples of rare shapes: one of each shape, the rarest first, then the next ones."""
    counts = {shape: counted.output_count for shape, counted in job.statistics.shapes.items()}
    kinds = {shape: _kinds(job.fields.get(shape)) for shape in counts}
    alike = Counter[_Kinds]()
    for shape, count in counts.items():
        alike[kinds[shape]] += count
    total = alike.total()
    common, _ = max(alike.items(), key=itemgetter(1), default=(frozenset(), 0))
    rare = sorted(
        (
            shape
            for shape in counts
            if counts[shape] and shape != OTHER and alike[kinds[shape]] <= _RARE_SHARE * total
        ),
        key=lambda shape: alike[kinds[shape]],
    )
    for round_ in zip_longest(*(job.statistics.shapes[shape].examples for shape in rare)):
        for shape, identity in zip(rare, round_, strict=True):
            if identity is not None:
                of_shape = kinds[shape]
                describe = partial(_describe_shape, of_shape, common, alike[of_shape], total)
                yield _Candidate(identity, "rare_shape", describe, shape)


def _kinds(fields: list[Field] | None) -> _Kinds:
    """Returns the kinds of fields. An integer is a number like others, such as 12 beside 12.5."""
    return frozenset((names, _SAME_KIND.get(kind, kind)) for names, kind in fields or ())


def _describe_shape(rare: _Kinds, common: _Kinds, count: int, total: int) -> str:
    return f"{_difference(rare, common)} ({count} of {total} outputs)"


def _difference(rare: _Kinds, common: _Kinds) -> str:
    """Says in which fields a rare shape differs from the most common one."""
    kinds = dict[Names, str](rare)
    common_kinds = dict[Names, str](common)
    differences = [
        f"{field_paths.of_names(names)} is {_in_words(kinds.get(names))}"
        for names in sorted(kinds.keys() | common_kinds.keys())
        if kinds.get(names) != common_kinds.get(names)
    ]
    more = len(differences) - _MAX_DIFFERENCES
    if more > 0:
        differences[_MAX_DIFFERENCES:] = [f"{more} more"]
    return ", ".join(differences) or "a rare shape"


def _in_words(kind: str | None) -> str:
    """Writes a kind with its article; None is a field that is missing."""
    if kind in (None, "null"):
        return kind or "missing"
    words = str(kind).replace("_", " ")
    return f"an {words}" if words[0] in "aeio" else f"a {words}"


def _outliers(job: StoredJob) -> Iterator[_Candidate]:
    """Yields the outputs with extreme values, the most extreme first."""
    extremes = [
        (distance, column, range_, is_largest)
        for column, range_ in job.statistics.ranges.items()
        if range_.count >= _MIN_MEASURES
        for is_largest in (True, False)
        if (distance := _distance(range_, is_largest)) >= _MIN_DISTANCE
    ]
    extremes.sort(key=lambda extreme: -extreme[0])
    for _, column, range_, is_largest in extremes:
        source = decode_source(range_.max_source if is_largest else range_.min_source)
        describe = partial(_describe_extreme, column, range_, is_largest)
        yield _Candidate(source.identity, "outlier", describe, None, source.content_hash)


def _distance(range_: Range, is_largest: bool) -> int:
    """Returns the binary digits between an extreme value and the next ones; 0 if it is not rare.

    A stock between 0 and 50 has values of every number of digits, so that 0 is not unusual. A
    price of 999 is, if no other has more than six digits.
    """
    extreme = int(range_.max if is_largest else range_.min).bit_length()
    # A range that an older program has stored may lack the digits of its extremes.
    if range_.digits.get(extreme, 0) > _RARE_SHARE * range_.count:
        return 0
    towards_median = (
        abs(extreme - digits)
        for digits in range_.digits
        if digits != extreme and (digits < extreme) == is_largest
    )
    return min(towards_median, default=0)


def _describe_extreme(column: Column, range_: Range, is_largest: bool) -> str:
    path = field_paths.of_names(column.names)
    extreme = readable(range_.max if is_largest else range_.min)
    if column.is_length:
        adjective = "long" if is_largest else "short"
        return f"{path} is unusually {adjective}: {extreme}"
    return f"{path} is unusually {'large' if is_largest else 'small'}: {extreme}"
