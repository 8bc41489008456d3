"""A sample of a job's outputs for a review: random, changed, rare and extreme ones, with reasons.

The random outputs are the beginning of a random order of all outputs of the job. So they represent
the job, whatever the reasons for the other outputs are.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from gleanery.errors import NotFound
from gleanery.scheduling.fair_thread import FairThread
from gleanery.storage import group_lock, page_sizes
from gleanery.storage.database import Database, Row
from gleanery.storage.files.references import decode_item
from gleanery.storage.history import field_changes
from gleanery.storage.statistics.unusual import unusual_outputs
from gleanery.values import json_text

Reason = Literal["random", "changed", "rare_shape", "outlier"]

_JOB = """
SELECT groups.id, jobs.id, groups.last_seq, jobs.output_count FROM groups
JOIN jobs ON jobs.organization_id = groups.organization_id AND jobs.group_id = groups.id
WHERE groups.organization_id = $1 AND groups.name = $2 AND jobs.name = $3
"""
_OF_JOB = "organization_id = $1 AND group_id = $2 AND job_id = $3"
_OUTPUT_AFTER = f"""
SELECT seq, identity FROM outputs /* INDEXED BY outputs_by_job */
WHERE {_OF_JOB} AND seq > $4 ORDER BY seq LIMIT 1 OFFSET $5
"""
_CHANGED_AFTER = f"""
SELECT seq, identity FROM approved_versions /* INDEXED BY approved_versions_by_job */
WHERE {_OF_JOB} AND seq > $4 ORDER BY seq LIMIT 1 OFFSET $5
"""
_COUNT_CHANGED = f"""
SELECT count(*) FROM (
    SELECT seq FROM approved_versions /* INDEXED BY approved_versions_by_job */
    WHERE {_OF_JOB} AND seq > $4 ORDER BY seq LIMIT $5) AS changed
"""
_SIZE = "octet_length({0}.item) + 64 * octet_length({0}.file_ids)"
_SIZES = f"{_SIZE.format('outputs')} + coalesce({_SIZE.format('approved_versions')}, 0)"
_ITEMS = f"""
SELECT {_SIZES}, CASE WHEN {_SIZES} <= $3 THEN outputs.item END,
    CASE WHEN {_SIZES} <= $3 THEN approved_versions.item END
FROM outputs LEFT JOIN approved_versions
    ON approved_versions.organization_id = outputs.organization_id
    AND approved_versions.identity = outputs.identity
WHERE outputs.organization_id = $1 AND outputs.identity = $2
"""
_MAX_SKIPPED = 4_000  # index entries in one statement, so that other requests run between two
_MAX_CHANGED = 10_000  # the changed outputs are chosen among this many
_SMALL_BYTES = 64 * 1024
_FRAME_BYTES = 100  # of an element, beside its outputs and its detail


class SampledOutput(NamedTuple):
    """An output of a sample, with the reason for its choice."""

    reason: Reason
    detail: str | None
    item: bytes
    approved_item: bytes | None
    """The last approved version, if the output has a newer value that is not approved."""
    fields: bytes | None
    """What has changed since that version, as JSON text. None if the text is too large."""


class Sample(NamedTuple):
    """A sample of the outputs of a job."""

    cursor: int
    """Position before the sample was read: a value that was stored up to it has been seen."""
    output_count: int
    """Number of outputs of the job."""
    outputs: list[SampledOutput]


class _Choice(NamedTuple):
    reason: Reason
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

    async def read(self, sql: str, *values: int) -> Sequence[Row]:
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
) -> Sample:
    """Chooses and reads outputs of the job. The same seed chooses the same while nothing changes.

    The sample has all outputs of a job with at most ``size`` outputs. It has fewer than ``size`` if
    they have too many bytes.
    """
    found = await _find_job(database, computations, group, job)
    numbers = random.Random(seed)  # noqa: S311 (the seed is public)
    chosen = [*(await _choose(found, size, numbers)).items()]
    numbers.shuffle(chosen)  # a sample with too many bytes loses outputs of every reason
    outputs = await _read_outputs(database, computations, chosen, max_bytes)
    return Sample(found.last_seq, found.output_count, outputs)


async def _find_job(database: Database, computations: FairThread, group: str, job: str) -> _Job:
    rows = await database.read(_JOB, database.organization_id, group, job)
    if not rows:
        await group_lock.require_group(database, group)
        raise NotFound(("query", "job_id"), "This group has no job with this job_id")
    return _Job(database, computations, *rows[0])


# --- choosing -----------------------------------------------------------------------------------


async def _choose(job: _Job, size: int, numbers: random.Random) -> _Choices:
    """Chooses outputs: a quarter changed, a quarter unusual, and random ones.

    A random output is so even if it has another reason, too. Otherwise the random ones would have
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
    """Adds outputs of rare shapes and with extreme values."""
    limit = count + len(chosen)
    unusual = await unusual_outputs(job.database, job.computations, job.group_id, job.id, limit)
    others = [output for output in unusual if output.identity not in chosen][:count]
    return chosen | {output.identity: _Choice(output.reason, output.detail) for output in others}


async def _find_ranks(job: _Job, statement: str, ranks: Iterable[int]) -> dict[int, bytes]:
    """Returns the outputs at these places of an index, which count from 0.

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
    database: Database,
    computations: FairThread,
    chosen: Iterable[tuple[bytes, _Choice]],
    max_bytes: int,
) -> list[SampledOutput]:
    """Reads as many of the outputs as fit, and at least one."""
    outputs: list[SampledOutput] = []
    for identity, (reason, detail) in chosen:
        limit = max_bytes if outputs else page_sizes.UNLIMITED
        row = await _read_items(database, identity, limit)
        if row is None:  # it was deleted meanwhile
            continue
        size, item, approved_item = row
        if item is None:
            break
        max_bytes -= size + _FRAME_BYTES + len(json_text.encode(detail))
        fields = None
        if approved_item is not None:
            key = database.organization_id
            fields = await computations.run(key, _compare, approved_item, item, max_bytes)
        outputs.append(SampledOutput(reason, detail, item, approved_item, fields))
        max_bytes -= len(fields or b"")
    return outputs


def _compare(before: bytes, after: bytes, max_bytes: int) -> bytes | None:
    """Returns the changed fields as JSON text, if it fits."""
    changes = field_changes.compare(decode_item(before), decode_item(after))
    text = json_text.encode(changes)
    return text if len(text) <= max_bytes else None


async def _read_items(database: Database, identity: bytes, max_bytes: int) -> Row | None:
    """Returns the size of an output with its approved version, and both if they fit."""
    await asyncio.sleep(0)
    key = (database.organization_id, identity)
    rows = await database.read(_ITEMS, *key, min(_SMALL_BYTES, max_bytes))
    if rows and _SMALL_BYTES < rows[0][0] <= max_bytes:
        rows = await database.read_large(_ITEMS, *key, max_bytes)
    return rows[0] if rows else None
