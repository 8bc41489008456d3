"""Outputs that a reviewer should see: those with rare fields, and those with extreme values.

A field is rare in an output if few outputs of the job have a value of this kind there, or if few
lack it. The set of all fields of an output does not matter: where many fields are optional, almost
every set is rare.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import zip_longest
from typing import Literal, NamedTuple

from gleanery.service.foundation.scheduling.fair_shares import FairThread
from gleanery.service.foundation.values import json_text
from gleanery.service.resources.fields import reading
from gleanery.service.resources.fields.job_fields import CountedField, JobFields
from gleanery.service.resources.fields.reading import StoredJob, StoredRows
from gleanery.service.resources.fields.shapes import Column, Names, Range, decode_source, readable
from gleanery.service.storage.database import Database

_CURRENT = """
SELECT fields, content_hash FROM outputs
WHERE organization_id = $1 AND identity = $2 AND +job_id = $3
"""
_RARE_SHARE = 0.05
_MAX_DIFFERENCES = 3
_MIN_MEASURES = 20
_MIN_DISTANCE = 2  # binary digits between an extreme value and the next: at least twice as large
_NUMBERS = ("integer", "number")  # alike, such as 12 beside 12.5


class UnusualOutput(NamedTuple):
    """An output that differs from the others of its job."""

    identity: bytes
    reason: Literal["rare_shape", "outlier"]
    detail: str


class _Candidate(NamedTuple):
    """An output that was unusual when the statistics were written."""

    identity: bytes
    reason: Literal["rare_shape", "outlier"]
    describe: Callable[[bytes | None, bytes], str | None]
    """Returns why the output with these fields and this hash is unusual; None if it is not."""


async def unusual_outputs(
    database: Database, computations: FairThread, group_id: int, job_id: int, limit: int
) -> list[UnusualOutput]:
    """Return outputs of the job, each once: first those of the rarest fields, then outliers."""
    organization_id = database.organization_id
    found: dict[bytes, UnusualOutput] = {}
    async for rows in reading.read_jobs(database, group_id, now=0, job_id=job_id):
        for candidate in await computations.run(organization_id, _candidates, rows):
            if len(found) == limit:
                break
            identity = candidate.identity
            if identity in found:
                continue
            await asyncio.sleep(0)  # other requests run between two statements
            for row in await database.read(_CURRENT, organization_id, identity, job_id):
                detail = await computations.run(organization_id, candidate.describe, *row)
                if detail is not None:
                    found[identity] = UnusualOutput(identity, candidate.reason, detail)
    return [*found.values()]


def _candidates(rows: StoredRows) -> list[_Candidate]:
    job = rows.decode()
    return [*_rare_fields(job.statistics.fields), *_outliers(job)]


class _RareField(NamedTuple):
    """A kind of a field that few outputs have."""

    output_count: int
    names: Names
    kind: str | None
    """None: the field is missing."""
    slots: int
    """A bitmap. An output has the kind if it has one of these slots; if it has none, in case the
    field is missing."""
    objects: int
    """The slot of the object whose member the field is, as a bitmap; 0 if there is none."""
    examples: Sequence[int]

    def is_in(self, bits: int) -> bool:
        if self.kind is None:
            return not bits & self.slots and bits & self.objects == self.objects
        return bool(bits & self.slots)

    @property
    def text(self) -> str:
        return f"{json_text.path_of_names(self.names)} is {_in_words(self.kind)}"


def _rare_fields(fields: JobFields) -> Iterator[_Candidate]:
    """Yield examples of rare fields: one of each, the rarest first, then the next ones."""
    limit = _RARE_SHARE * fields.counted
    kinds = (kind for field in fields.listed if field.names for kind in _kinds(field, fields))
    rare = sorted(
        (kind for kind in kinds if 0 < kind.output_count <= limit),
        key=lambda kind: (kind.output_count, kind.names, kind.kind or ""),
    )
    describe = partial(_describe_fields, rare, fields.counted)
    for examples in zip_longest(*(kind.examples for kind in rare)):
        for example in examples:
            if example is not None:
                identity = bytes.fromhex(fields.identities[example])
                yield _Candidate(identity, "rare_shape", describe)


def _kinds(field: CountedField, fields: JobFields) -> Iterator[_RareField]:
    """Yield the kinds of a field, and the outputs that lack it."""
    numbers = [field.kinds[name] for name in _NUMBERS if name in field.kinds]
    alike = [("number", numbers)] if numbers else []
    alike += [(name, [kind]) for name, kind in field.kinds.items() if name not in _NUMBERS]
    for name, kinds in alike:
        yield _RareField(
            sum(kind.output_count for kind in kinds),
            field.names,
            name,
            sum(1 << kind.slot for kind in kinds),
            0,
            [example for kind in kinds for example in kind.examples],
        )
    if fields.unlisted_count:  # these outputs may have the field
        return
    possible, objects = fields.counted, fields.objects_of(field.names)
    if len(field.names) > 1:
        possible = fields.by_names[field.names[:1]].object_count
    missing = possible - field.output_count
    yield _RareField(missing, field.names, None, field.slots, objects, field.missing)


def _describe_fields(
    rare: Sequence[_RareField], outputs: int, fields: bytes | None, _hash: bytes
) -> str | None:
    """Say which rare fields an output has, the rarest first."""
    bits = int.from_bytes(fields or b"", "little")
    found = [kind for kind in rare if fields is not None and kind.is_in(bits)]
    if not found:
        return None
    texts = [kind.text for kind in found]
    more = len(texts) - _MAX_DIFFERENCES
    if more > 0:
        texts[_MAX_DIFFERENCES:] = [f"{more} more"]
    return f"{', '.join(texts)} ({found[0].output_count} of {outputs} outputs)"


def _in_words(kind: str | None) -> str:
    """Write a kind with its article; None is a field that is missing."""
    if kind in (None, "null"):
        return kind or "missing"
    words = str(kind).replace("_", " ")
    return f"an {words}" if words[0] in "aeio" else f"a {words}"


def _outliers(job: StoredJob) -> Iterator[_Candidate]:
    """Yield the outputs with extreme values, the most extreme first."""
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
        text = _describe_extreme(column, range_, is_largest)
        describe = partial(_describe_if_stored, text, source.content_hash)
        yield _Candidate(source.identity, "outlier", describe)


def _describe_if_stored(
    text: str, hash_start: bytes, _fields: bytes | None, content_hash: bytes
) -> str | None:
    """Return the text if the output still has the content with the extreme value."""
    return text if content_hash.startswith(hash_start) else None


def _distance(range_: Range, is_largest: bool) -> int:
    """Return the binary digits between an extreme value and the next ones; 0 if it is not rare.

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
    path = json_text.path_of_names(column.names)
    extreme = readable(range_.max if is_largest else range_.min)
    if column.is_length:
        adjective = "long" if is_largest else "short"
        return f"{path} is unusually {adjective}: {extreme}"
    return f"{path} is unusually {'large' if is_largest else 'small'}: {extreme}"
