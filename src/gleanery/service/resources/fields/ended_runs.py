"""The end of a run: its fields are stored by name, because their slots get other meanings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from gleanery.service.resources.fields import job_statistics
from gleanery.service.resources.fields.job_statistics import JobStatistics
from gleanery.service.resources.fields.shapes import Names
from gleanery.service.resources.run_records import responses, rows
from gleanery.service.resources.run_records.rows import End, Run, Status
from gleanery.service.storage.database import Row, indexed
from gleanery.service.storage.group_lock import LockedGroup

KEPT_RUNS = 1000
"""Runs of a job that are kept."""
KEPT_FIELDS = 30
"""Runs of a job whose fields are kept."""
KEPT_MODELS = 10
"""Complete runs without an alert, with the same labels as the last run, whose fields are kept.

While an alert is open for long, they say what is usual.
"""
_MOST_KEPT_FIELDS = 200
"""No run before that many others keeps its fields."""
MAX_ENDED = 5
"""Silent runs that one transaction ends."""
_JOB_NAME = "SELECT name FROM jobs WHERE organization_id = $1 AND id = $2"
_NEWEST = """
SELECT id FROM runs WHERE organization_id = $1 AND group_id = $2 AND job_id = $3
ORDER BY id DESC LIMIT 1 OFFSET $4
"""
_OLDEST_MODEL = indexed(
    f"""
SELECT id FROM {{runs}} WHERE organization_id = $1 AND group_id = $2 AND job_id = $3
    AND status = 'complete' AND NOT has_alert AND labels = (
        SELECT labels FROM runs WHERE organization_id = $1 AND id = $4)
ORDER BY id DESC LIMIT 1 OFFSET {KEPT_MODELS}
""",
    runs="runs_usual",
)
_FORGET_FIELDS = """
UPDATE runs SET field_counts = NULL
WHERE organization_id = $1 AND group_id = $2 AND job_id = $3 AND id <= $4
    AND field_counts IS NOT NULL
    AND (status <> 'complete' OR has_alert OR id <= $5
        OR id <= $6 AND labels = (SELECT labels FROM runs WHERE organization_id = $1 AND id = $7))
"""
_DELETE_OLD = """
DELETE FROM runs
WHERE organization_id = $1 AND group_id = $2 AND job_id = $3 AND id <= $4 AND NOT is_open
    AND id <> $5 AND coalesce(removal, '') <> 'held'
"""


# --- the fields of a run ------------------------------------------------------------------------


class RunFields(NamedTuple):
    """A run of a job: when it was, and which fields the outputs had that it has sent."""

    run_id: str
    status: Status
    started_at: int
    seen_at: int
    outputs: int
    counted: int
    """Outputs whose fields are known."""
    fields: Sequence[tuple[Names, dict[str, int]]]
    """Fields with the number of outputs by kind."""


class RunFieldsRow(NamedTuple):
    """The columns of a run that its fields need."""

    run_id: str
    is_implicit: bool
    status: Status
    started_at: int
    seen_at: int
    ends_at: int
    outputs: int
    slot_counts: str | None
    field_counts: str | None


class _StoredFields(msgspec.Struct, array_like=True):
    """The column ``field_counts``."""

    outputs: int
    fields: list[tuple[Names, dict[str, int]]]


_decode_stored = msgspec.json.Decoder(_StoredFields).decode


def decode(row: RunFieldsRow, job: JobStatistics, now: int) -> RunFields:
    """Return the fields of a run, which may still be running."""
    status = row.status
    if status == "running" and row.ends_at <= now:
        status = _silent_status(row.is_implicit)
    found: Sequence[tuple[Names, dict[str, int]]]
    if row.slot_counts is not None:
        seen = rows.decode_seen(row.slot_counts)
        counted, found = seen.outputs, [*job.seen_fields(seen.by_slot)]
    else:
        counted, found = decode_fields(row.field_counts)
    return RunFields(row.run_id, status, row.started_at, row.seen_at, row.outputs, counted, found)


def decode_fields(
    field_counts: str | None,
) -> tuple[int, Sequence[tuple[Names, dict[str, int]]]]:
    """Return how many outputs of an ended run are counted, and their fields by kind."""
    if field_counts is None or not field_counts.startswith("["):
        return 0, []  # the run is old, or its outputs were counted by shape
    stored = _decode_stored(field_counts)
    return stored.outputs, stored.fields


def _encode(run: Run, job: JobStatistics) -> str:
    stored = _StoredFields(run.seen.outputs, [*job.seen_fields(run.seen.by_slot)])
    return msgspec.json.encode(stored).decode()


# --- ending -------------------------------------------------------------------------------------


def shown_status(run: Run, now: int | None = None) -> Status:
    """Return the status that clients see."""
    if run.is_running and (now is None or run.is_silent(now)):
        return _silent_status(run.row.is_implicit)
    return run.row.status


def _silent_status(is_implicit: bool) -> Status:
    return "unknown" if is_implicit else "abandoned"


async def job_name(locked: LockedGroup, job_id: int) -> str:
    [[name]] = await locked.transaction.fetch(_JOB_NAME, locked.organization_id, job_id)
    return str(name)


async def end_some_silent(
    locked: LockedGroup, runs: Iterable[Run], *, only_implicit: bool = False
) -> int:
    """End some of the open runs of a job that have been silent for too long. Return how many.

    It holds the lock of the group for a short time, so it does not end them all.
    """
    runs = [*runs]
    silent = [run for run in runs if run.is_silent(locked.now)]
    if only_implicit:
        silent = [run for run in silent if run.row.is_implicit]
    ending = {run.id: End(_silent_status(run.row.is_implicit)) for run in silent[:MAX_ENDED]}
    if ending:
        await _end(locked, runs, ending)
    return len(ending)


async def end(locked: LockedGroup, run: Run, how: End, others: Sequence[Run]) -> None:
    """End a run. ``others`` are the running runs of the same job."""
    await _end(locked, [run, *others], {run.id: how})


async def _end(locked: LockedGroup, runs: Sequence[Run], ending: Mapping[int, End]) -> None:
    """End some of the running runs of a job; the others go on."""
    job_id = runs[0].job_id
    job = (await job_statistics.load(locked, [job_id]))[job_id]
    for run in runs:
        if run.id in ending:
            await rows.end(locked, run, ending[run.id], _encode(run, job))
            if ending[run.id].complete_number is None:  # a complete run is compared first
                await responses.store_event(locked, run)
    others = [run for run in runs if run.is_running and run.id not in ending]
    job.forget_unused(others)
    await job_statistics.save(locked, [job])
    await rows.save(locked, others)
    await _forget_old(locked, job_id, max(ending))


async def _forget_old(locked: LockedGroup, job_id: int, ended: int) -> None:
    """Delete the oldest runs of a job, and the fields of those that are not needed any more.

    The run that ends now stays, because the client gets it. So does one whose removal is held.
    """
    key = (locked.organization_id, locked.group_id, job_id)
    newest = await locked.transaction.fetch(_NEWEST, *key, KEPT_FIELDS)
    if newest:
        oldest = await locked.transaction.fetch(_NEWEST, *key, _MOST_KEPT_FIELDS)
        model = await locked.transaction.fetch(_OLDEST_MODEL, *key, ended)
        bounds = (newest[0][0], _first(oldest), _first(model), ended)
        await locked.transaction.fetch(_FORGET_FIELDS, *key, *bounds)
    newest = await locked.transaction.fetch(_NEWEST, *key, KEPT_RUNS)
    if newest:
        await locked.transaction.fetch(_DELETE_OLD, *key, newest[0][0], ended)


def _first(rows: Sequence[Row]) -> int:
    """Return the number in the first row; 0 if there is none."""
    return int(rows[0][0]) if rows else 0
