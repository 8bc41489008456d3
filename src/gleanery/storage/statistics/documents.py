"""The statistics of a job as they are stored: one row, which a batch reads and writes once.

The row has the number of outputs of each shape, the ranges and the current scrape. The fields of a
shape, and the scrapes that have ended, are rows of their own, because they rarely change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property

import msgspec

from gleanery.storage.database import Row
from gleanery.storage.group_lock import LockedGroup
from gleanery.storage.statistics.ranges import Ranges, decode_ranges, encode_ranges
from gleanery.storage.statistics.shapes import OTHER

MAX_SHAPES = 256
"""Shapes of a job that are counted separately."""
_MAX_EXAMPLES = 4
_MANY_SHAPES = 32  # with more, a shape gets one example, because a batch writes all of them

# The statement has no plus sign and no join: it runs once per batch for all its jobs.
_SELECT = """
SELECT job_id, scrape_started_at, scrape_seen_at, scrape_counts, shape_counts, ranges
FROM job_statistics WHERE organization_id = $1 AND group_id = $2 AND job_id = $3
"""
# Without the long columns, which only changed outputs need.
_SELECT_SCRAPES = """
SELECT job_id, scrape_started_at, scrape_seen_at, scrape_counts
FROM job_statistics WHERE organization_id = $1 AND group_id = $2 AND job_id = $3
"""
_INSERT = """
INSERT INTO job_statistics
    (organization_id, group_id, job_id, scrape_started_at, scrape_seen_at, scrape_counts,
     shape_counts, ranges)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
"""
_UPDATE = """
UPDATE job_statistics SET scrape_started_at = $4, scrape_seen_at = $5, scrape_counts = $6,
    shape_counts = $7, ranges = $8
WHERE organization_id = $1 AND group_id = $2 AND job_id = $3
"""
# A scrape without changes writes only these columns, which are short.
_UPDATE_SCRAPE = """
UPDATE job_statistics SET scrape_started_at = $4, scrape_seen_at = $5, scrape_counts = $6
WHERE organization_id = $1 AND group_id = $2 AND job_id = $3
"""


class CountedShape(msgspec.Struct, array_like=True, gc=False):
    """The number of a job's outputs with one shape, and the identities of some of them.

    The identities are one text, because a batch reads and writes those of all shapes.
    """

    output_count: int = 0
    examples_hex: str = ""

    @property
    def examples(self) -> list[bytes]:
        return [bytes.fromhex(example) for example in self.examples_hex.split()]

    def add(self, identities: Sequence[bytes], max_examples: int) -> None:
        self.output_count += len(identities)
        examples = self.examples_hex.split()
        if len(examples) < max_examples:
            examples += [identity.hex() for identity in identities[:max_examples]]
            self.examples_hex = " ".join(examples[:max_examples])

    def subtract(self, identities: Sequence[bytes]) -> None:
        self.output_count -= len(identities)
        for identity in identities:
            if (example := identity.hex()) in self.examples_hex:
                kept = [one for one in self.examples_hex.split() if one != example]
                self.examples_hex = " ".join(kept)


class _StoredShapes(msgspec.Struct, array_like=True):
    """The column ``shape_counts``."""

    counted: dict[int, CountedShape] = {}
    other_fields: set[int] | None = set()


_decode_shapes = msgspec.json.Decoder(_StoredShapes).decode
_decode_counts = msgspec.json.Decoder(dict[int, int]).decode


class JobStatistics:
    """The statistics of one job; decodes what is needed.

    Only ``load_values`` adds the shapes and ranges of a job that was loaded without them.
    """

    def __init__(self, job_id: int, row: Row | None = None) -> None:
        self.job_id = job_id
        self.is_new = row is None
        self.values_changed = False
        started_at, seen_at, counts, *values = row or (0, 0, "{}", "[]", "[]")
        self.started_at: int = started_at
        self.seen_at: int = seen_at
        self.seen = decode_counts(counts)
        """Outputs of the current scrape by shape."""
        self.values: Sequence[str] = values
        """The columns ``shape_counts`` and ``ranges``, as they are stored; empty if not loaded."""

    @cached_property
    def _stored_shapes(self) -> _StoredShapes:
        return _decode_shapes(self.values[0])

    @property
    def shapes(self) -> dict[int, CountedShape]:
        """Each shape that has a definition, also if no output has it at present."""
        return self._stored_shapes.counted

    @property
    def other_fields(self) -> set[int] | None:
        """Numbers of the fields that the definition of ``OTHER`` has; None stands for any field."""
        return self._stored_shapes.other_fields

    @other_fields.setter
    def other_fields(self, numbers: set[int] | None) -> None:
        self._stored_shapes.other_fields = numbers

    @cached_property
    def ranges(self) -> Ranges:
        return decode_ranges(self.values[1])

    @property
    def value_columns(self) -> tuple[str, str]:
        """The columns ``shape_counts`` and ``ranges``."""
        shapes = msgspec.json.encode(self._stored_shapes)
        return shapes.decode(), encode_ranges(self.ranges)

    def number_of(self, shape: int) -> int:
        """Returns the number under which a shape is counted. A new one is added if it fits."""
        shapes = self.shapes
        if shape in shapes:
            return shape
        number = shape if len(shapes) - (OTHER in shapes) < MAX_SHAPES else OTHER
        if number not in shapes:
            shapes[number] = CountedShape()
        return number

    def add(self, identities_by_shape: Mapping[int, Sequence[bytes]]) -> None:
        """Counts outputs."""
        shapes = self.shapes
        max_examples = 1 if len(shapes) > _MANY_SHAPES else _MAX_EXAMPLES
        for shape, identities in identities_by_shape.items():
            shapes[shape].add(identities, max_examples)

    def subtract(self, identities_by_shape: Mapping[int, Sequence[bytes]]) -> None:
        """Subtracts outputs that have another shape now, or that are deleted."""
        shapes = self.shapes
        for shape, identities in identities_by_shape.items():
            shapes[shape].subtract(identities)


def decode_counts(text: str) -> Counter[int]:
    return Counter(_decode_counts(text))


def encode_counts(counts: Counter[int]) -> str:
    filled = {shape: count for shape, count in counts.items() if count}
    return msgspec.json.encode(filled).decode()


async def load(
    locked: LockedGroup, jobs: Collection[int], without_values: Collection[int] = ()
) -> dict[int, JobStatistics]:
    """Reads the statistics of jobs of the group; a job without any gets empty ones."""
    rows = [
        *await _fetch(locked, _SELECT, jobs),
        *await _fetch(locked, _SELECT_SCRAPES, without_values),
    ]
    found = {row[0]: row[1:] for row in rows}
    return {job_id: JobStatistics(job_id, found.get(job_id)) for job_id in (*jobs, *without_values)}


async def load_values(locked: LockedGroup, jobs: Iterable[JobStatistics]) -> None:
    """Reads the shapes and ranges of those jobs that were loaded without them."""
    missing = {job.job_id: job for job in jobs if not job.values}
    for job_id, _, _, _, *values in await _fetch(locked, _SELECT, missing.keys()):
        missing[job_id].values = values


async def _fetch(locked: LockedGroup, sql: str, jobs: Collection[int]) -> Sequence[Row]:
    if not jobs:
        return ()
    key = (locked.organization_id, locked.group_id)
    return await locked.transaction.fetch_many(sql, [(*key, job_id) for job_id in jobs])


async def save(locked: LockedGroup, jobs: Iterable[JobStatistics]) -> None:
    """Writes the statistics; the long columns only if they have changed."""
    inserts, updates, scrape_updates = [], [], []
    for job in jobs:
        key = (locked.organization_id, locked.group_id, job.job_id)
        scrape = (*key, job.started_at, job.seen_at, encode_counts(job.seen))
        if job.is_new:
            inserts.append((*scrape, *job.value_columns))
        elif job.values_changed:
            updates.append((*scrape, *job.value_columns))
        else:
            scrape_updates.append(scrape)
    execute_many = locked.transaction.execute_many
    await execute_many(_INSERT, inserts)
    await execute_many(_UPDATE, updates)
    await execute_many(_UPDATE_SCRAPE, scrape_updates)
