"""Outputs that a reviewer should see: those of rare shapes, and those with extreme values."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, zip_longest
from typing import Literal, NamedTuple

from gleanery.storage.database import Database
from gleanery.storage.statistics import reading
from gleanery.storage.statistics.ranges import Range, decode_source, readable
from gleanery.storage.statistics.reading import StoredJob
from gleanery.storage.statistics.shapes import OTHER, Column, Field, Names
from gleanery.values import field_paths

_CURRENT = """
SELECT shape, content_hash FROM outputs
WHERE organization_id = $1 AND identity = $2 AND +job_id = $3
"""
_RARE_SHARE = 0.05
_MAX_DIFFERENCES = 3
_MIN_MEASURES = 20
_MIN_DISTANCE = 2  # binary digits between the median and an extreme value: about four times


class UnusualOutput(NamedTuple):
    """An output that differs from the others of its job."""

    identity: bytes
    reason: Literal["rare_shape", "outlier"]
    detail: str


class _Candidate(NamedTuple):
    """An output that was unusual when the statistics were written."""

    output: UnusualOutput
    shape: int | None = None
    content_hash: bytes = b""
    """The beginning of the hash of the content with the extreme value."""


async def unusual_outputs(
    database: Database, group_id: int, job_id: int, limit: int
) -> list[UnusualOutput]:
    """Returns outputs of the job, each once: first those of the rarest shapes, then outliers."""
    jobs = [
        job async for rows in reading.read_jobs(database, group_id, job_id) for job in rows.decode()
    ]
    found: dict[bytes, UnusualOutput] = {}
    for candidate in chain(*map(_rare_shapes, jobs), *map(_outliers, jobs)):
        identity = candidate.output.identity
        if len(found) == limit:
            break
        if identity not in found and await _is_current(database, job_id, candidate):
            found[identity] = candidate.output
    return [*found.values()]


async def _is_current(database: Database, job_id: int, candidate: _Candidate) -> bool:
    """Returns True if the output still has the shape, or the value, that is unusual."""
    key = (database.organization_id, candidate.output.identity, job_id)
    rows = await database.read(_CURRENT, *key)
    return any(
        shape == candidate.shape
        if candidate.shape is not None
        else content_hash.startswith(candidate.content_hash)
        for shape, content_hash in rows
    )


def _rare_shapes(job: StoredJob) -> Iterator[_Candidate]:
    """Yields examples of rare shapes: one of each shape, the rarest first, then the next ones."""
    counts = {shape: counted.output_count for shape, counted in job.statistics.shapes.items()}
    total = sum(counts.values())
    common = max(counts, key=lambda shape: counts[shape], default=OTHER)
    rare = sorted(
        (shape for shape in counts if 0 < counts[shape] <= _RARE_SHARE * total and shape != OTHER),
        key=lambda shape: counts[shape],
    )
    for round_ in zip_longest(*(job.statistics.shapes[shape].examples for shape in rare)):
        for shape, identity in zip(rare, round_, strict=True):
            if identity is not None:
                difference = _difference(job.fields.get(shape), job.fields.get(common))
                detail = f"{difference} ({counts[shape]} of {total} outputs)"
                yield _Candidate(UnusualOutput(identity, "rare_shape", detail), shape)


def _difference(rare: list[Field] | None, common: list[Field] | None) -> str:
    """Says in which fields a rare shape differs from the most common one."""
    kinds = dict[Names, str](rare or [])
    common_kinds = dict[Names, str](common or [])
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
        detail = _describe(column, range_, is_largest)
        yield _Candidate(
            UnusualOutput(source.identity, "outlier", detail), None, source.content_hash
        )


def _distance(range_: Range, is_largest: bool) -> int:
    extreme = int(range_.max if is_largest else range_.min)
    return abs(extreme.bit_length() - range_.median_digits)


def _describe(column: Column, range_: Range, is_largest: bool) -> str:
    path = field_paths.of_names(column.names)
    extreme = readable(range_.max if is_largest else range_.min)
    if column.is_length:
        adjective = "long" if is_largest else "short"
        return f"{path} is unusually {adjective}: {extreme}"
    return f"{path} is unusually {'large' if is_largest else 'small'}: {extreme}"
