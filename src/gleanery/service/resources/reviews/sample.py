"""A sample of a job's outputs for a review: random, changed, rare and extreme ones, with reasons.

The random outputs are the beginning of a random order of all outputs of the job. So they represent
the job, whatever the reasons for the other outputs are.

The random order depends on the number of outputs, and ranks move with each change. So a reviewer
who comes back sends the outputs of the earlier sample, and ``read_chosen`` reads them again.

See ``docs/explanation/reviews.md``.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from gleanery.service.foundation.errors import (
    ErrorDetail,
    InvalidRequest,
    NotFound,
    ReviewedStateLost,
)
from gleanery.service.foundation.scheduling.fair_shares import FairThread
from gleanery.service.foundation.values import json_text
from gleanery.service.resources.fields.unusual import unusual_outputs
from gleanery.service.resources.files.references import decode_item
from gleanery.service.resources.history import field_changes
from gleanery.service.resources.outputs.elements import parse_output_id
from gleanery.service.resources.reviews import reading
from gleanery.service.resources.reviews.models import SampleReason
from gleanery.service.storage import group_lock, metadata, paging
from gleanery.service.storage.database import Database, Row, Sql, Statement, indexed

_JOB = f"""
SELECT groups.id, jobs.id, groups.last_seq, jobs.output_count, {metadata.RESTORE_TIME} FROM groups
JOIN jobs ON jobs.organization_id = groups.organization_id AND jobs.group_id = groups.id
WHERE groups.organization_id = $1 AND groups.name = $2 AND jobs.name = $3
"""
_OF_JOB = "organization_id = $1 AND group_id = $2 AND job_id = $3"
_OUTPUT_AFTER = indexed(
    f"""
SELECT seq, identity FROM {{outputs}}
WHERE {_OF_JOB} AND seq > $4 ORDER BY seq LIMIT 1 OFFSET $5
""",
    outputs="outputs_by_job",
)
_CHANGED_AFTER = indexed(
    f"""
SELECT seq, identity FROM {{approved_versions}}
WHERE {_OF_JOB} AND seq > $4 ORDER BY seq LIMIT 1 OFFSET $5
""",
    approved_versions="approved_versions_by_job",
)
_COUNT_CHANGED = indexed(
    f"""
SELECT count(*) FROM (
    SELECT seq FROM {{approved_versions}}
    WHERE {_OF_JOB} AND seq > $4 ORDER BY seq LIMIT $5) AS changed
""",
    approved_versions="approved_versions_by_job",
)
_SIZE = "octet_length({0}.item) + 64 * octet_length({0}.file_ids)"
_SIZES = f"{_SIZE.format('outputs')} + coalesce({_SIZE.format('approved_versions')}, 0)"
_ITEMS = f"""
SELECT {_SIZES}, CASE WHEN {_SIZES} <= $5 THEN outputs.item END,
    CASE WHEN {_SIZES} <= $5 THEN approved_versions.item END, outputs.version_seq, outputs.seq
FROM outputs LEFT JOIN approved_versions
    ON approved_versions.organization_id = outputs.organization_id
    AND approved_versions.identity = outputs.identity
WHERE outputs.organization_id = $1 AND +outputs.group_id = $2 AND +outputs.job_id = $3
    AND outputs.identity = $4
"""
_LATER_STEP = 50
_KEYS = ", ".join(f"${place}" for place in range(4, 4 + _LATER_STEP))
_VALUE_POSITIONS = f"""
SELECT identity, version_seq FROM outputs
WHERE organization_id = $1 AND +group_id = $2 AND +job_id = $3 AND identity IN ({_KEYS})
"""
_MAX_SKIPPED = 4_000  # index entries in one statement, so that other requests run between two
_MAX_CHANGED = 10_000  # the changed outputs are chosen among this many
_SMALL_BYTES = 64 * 1024
_FRAME_BYTES = 100  # of an element, beside its outputs and its detail


class SampledOutput(NamedTuple):
    """An output of a sample, with the reason for its choice."""

    reason: SampleReason
    detail: str | None
    item: bytes
    approved_item: bytes | None
    """The last approved version, if the output has a newer value that is not approved."""
    fields: bytes | None
    """What has changed since that version, as JSON text. None if the text is too large."""
    value_seq: int
    """Position at which the value was stored."""
    seq: int
    """Position of the last change, which may be an approval."""
    identity: bytes

    @property
    def is_approved(self) -> bool:
        return self.item.endswith(b"true}")


class Sample(NamedTuple):
    """A sample of the outputs of a job."""

    cursor: int
    """Position before the sample was read: a value that was stored up to it has been seen."""
    output_count: int
    """Number of outputs of the job."""
    outputs: list[SampledOutput]


class Later(NamedTuple):
    """What was stored or deleted after a position."""

    output_count: int
    """Number of outputs of the job."""
    positions: dict[str, int]
    """Positions of the values that were stored later, by output."""
    deleted: list[str]


class _Choice(NamedTuple):
    reason: SampleReason
    detail: str | None = None


_Choices = dict[bytes, _Choice]


class _Job(NamedTuple):
    """The job of a sample, as it was when the sample began."""

    database: Database
    computations: FairThread
    group_id: int
    id: int
    last_seq: int
    output_count: int
    restored: str | None

    def position(self, as_of: int | None) -> int:
        """Return the position of a sample. Raise an error if a review could not have it."""
        if as_of is None:
            return self.last_seq
        if as_of < int(self.restored or 0):
            raise ReviewedStateLost
        if as_of > self.last_seq:
            msg = "This position is after the last change of the group: take a new sample"
            raise InvalidRequest(ErrorDetail(("query", "as_of"), msg, "unknown_cursor"))
        return as_of

    async def read(self, sql: Statement, *values: int) -> Sequence[Row]:
        await asyncio.sleep(0)  # other requests run between two statements
        key = (self.database.organization_id, self.group_id, self.id)
        return await self.database.read(sql, *key, *values)


async def read_sample(
    database: Database,
    computations: FairThread,
    group: str,
    job: str,
    seed: str,
    size: int,
    max_bytes: int,
    as_of: int | None = None,
) -> Sample:
    """Chooses and reads outputs of the job. The same seed chooses the same while nothing changes.

    The sample has all outputs of a job with at most ``size`` outputs. It has fewer than ``size`` if
    they have too many bytes. ``as_of`` is the position of an earlier sample, which stays.
    """
    found = await _find_job(database, computations, group, job)
    position = found.position(as_of)
    numbers = random.Random(seed)  # noqa: S311 (the seed is public)
    chosen = [*(await _choose(found, size, numbers)).items()]
    numbers.shuffle(chosen)  # a sample with too many bytes loses outputs of every reason
    return await _read_outputs(found, position, chosen, max_bytes)


async def read_chosen(
    database: Database,
    computations: FairThread,
    group: str,
    job: str,
    chosen: Mapping[str, SampleReason],
    as_of: int | None,
    max_bytes: int,
) -> Sample:
    """Read the outputs of an earlier sample as they are now, in their order."""
    found = await _find_job(database, computations, group, job)
    position = found.position(as_of)
    details: dict[bytes, str] = {}
    if {"rare_shape", "outlier"} & {*chosen.values()}:
        limit = len(chosen)
        unusual = await unusual_outputs(database, computations, found.group_id, found.id, limit)
        details = {output.identity: output.detail for output in unusual}
    choices = [
        (identity, _Choice(reason, details.get(identity)))
        for identity, reason in ((parse_output_id(one), chosen[one]) for one in chosen)
    ]
    return await _read_outputs(found, position, choices, max_bytes)


async def find_later(
    database: Database, group: str, job: str, output_ids: Sequence[str], as_of: int
) -> Later:
    """Find those of the outputs whose values were stored after a position."""
    found = await reading.find_job(database, group, job)
    key = (database.organization_id, found.group_id, found.id)
    known: dict[str, int] = {}
    for start in range(0, len(output_ids), _LATER_STEP):
        await asyncio.sleep(0)  # other requests run between two statements
        step = [parse_output_id(one) for one in output_ids[start : start + _LATER_STEP]]
        keys = [*step, *[b""] * (_LATER_STEP - len(step))]
        rows = await database.read(_VALUE_POSITIONS, *key, *keys)
        known |= {identity.hex(): seq for identity, seq in rows}
    later = {output_id: seq for output_id, seq in known.items() if seq > as_of}
    return Later(found.output_count, later, [one for one in output_ids if one not in known])


async def _find_job(database: Database, computations: FairThread, group: str, job: str) -> _Job:
    rows = await database.read(_JOB, database.organization_id, group, job)
    if not rows:
        await group_lock.require_group(database, group)
        raise NotFound(("query", "job_id"), "This group has no job with this job_id")
    return _Job(database, computations, *rows[0])


# --- choosing -----------------------------------------------------------------------------------


async def _choose(job: _Job, size: int, numbers: random.Random) -> _Choices:
    """Chooses outputs: a quarter changed, a quarter unusual, and random ones.

    A random output stays random even if it has another reason. Otherwise the random ones would have
    fewer changed outputs than the job. Only a sample of the whole job needs no random ones.
    """
    count = min(size, job.output_count)
    ranks = numbers.sample(range(job.output_count), count)
    chosen = await _choose_changed(job, size // 4, numbers)
    chosen = await _add_unusual(job, chosen, size // 4)
    by_rank = await _find_ranks(job, _OUTPUT_AFTER, ranks)
    for identity in (by_rank[rank] for rank in ranks if rank in by_rank):
        if len(chosen) >= count:
            break
        if identity not in chosen or count < job.output_count:
            other = chosen.get(identity)
            chosen[identity] = _Choice("random", other.detail if other is not None else None)
    return chosen


async def _choose_changed(job: _Job, count: int, numbers: random.Random) -> _Choices:
    """Chooses outputs with a value that is newer than their last approved version."""
    [[changed]] = await job.read(_COUNT_CHANGED, 0, _MAX_CHANGED)
    ranks = numbers.sample(range(changed), min(count, changed))
    found = await _find_ranks(job, _CHANGED_AFTER, ranks)
    return {found[rank]: _Choice("changed") for rank in ranks if rank in found}


async def _add_unusual(job: _Job, chosen: _Choices, count: int) -> _Choices:
    """Add outputs of rare shapes and with extreme values."""
    limit = count + len(chosen)
    unusual = await unusual_outputs(job.database, job.computations, job.group_id, job.id, limit)
    others = [output for output in unusual if output.identity not in chosen][:count]
    return chosen | {output.identity: _Choice(output.reason, output.detail) for output in others}


async def _find_ranks(job: _Job, statement: Sql, ranks: Iterable[int]) -> dict[int, bytes]:
    """Return the outputs at these places of an index, which count from 0.

    It goes through the index from one place to the next, and each statement skips few entries.
    """
    found: dict[int, bytes] = {}
    seq = passed = 0
    for rank in sorted(ranks):
        while passed <= rank:
            skipped = min(rank - passed, _MAX_SKIPPED)
            rows = await job.read(statement, seq, skipped)
            if not rows:  # outputs were deleted or changed meanwhile
                return found
            seq, identity = rows[0]
            passed += skipped + 1
        found[rank] = identity
    return found


# --- reading ------------------------------------------------------------------------------------


async def _read_outputs(
    job: _Job, position: int, chosen: Iterable[tuple[bytes, _Choice]], max_bytes: int
) -> Sample:
    """Read as many of the outputs as fit, and at least one."""
    outputs: list[SampledOutput] = []
    for identity, (reason, detail) in chosen:
        limit = max_bytes if outputs else paging.UNLIMITED
        row = await _read_items(job, identity, limit)
        if row is None:  # it was deleted meanwhile
            continue
        size, item, approved_item, value_seq, seq = row
        if item is None:
            break
        max_bytes -= size + _FRAME_BYTES + len(json_text.encode(detail))
        fields = None
        if approved_item is not None:
            key = job.database.organization_id
            fields = await job.computations.run(key, _compare, approved_item, item, max_bytes)
        positions = (value_seq, seq, identity)
        outputs.append(SampledOutput(reason, detail, item, approved_item, fields, *positions))
        max_bytes -= len(fields or b"")
    return Sample(position, job.output_count, outputs)


def _compare(before: bytes, after: bytes, max_bytes: int) -> bytes | None:
    """Return the changed fields as JSON text, if it fits."""
    changes = field_changes.compare(decode_item(before), decode_item(after))
    text = json_text.encode(changes)
    return text if len(text) <= max_bytes else None


async def _read_items(job: _Job, identity: bytes, max_bytes: int) -> Row | None:
    """Return the size of an output with its approved version, and both if they fit."""
    await asyncio.sleep(0)
    key = (job.database.organization_id, job.group_id, job.id, identity)
    rows = await job.database.read(_ITEMS, *key, min(_SMALL_BYTES, max_bytes))
    if rows and _SMALL_BYTES < rows[0][0] <= max_bytes:
        rows = await job.database.read_large(_ITEMS, *key, max_bytes)
    return rows[0] if rows else None
