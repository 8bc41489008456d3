"""The open runs of a job: they run, or their outputs are still compared or removed.

A run is one execution of a job. Either a client starts and finishes it, or it is implicit: it
begins with a batch that names no run, and ends after a pause. All of this happens under the lock of
the group.

States of a run::

    running ──┬── complete, partial, failed    a client finishes it
              ├── abandoned                    a client has started it, and was silent for too long
              └── unknown                      it was implicit, and there was a pause

A run that has been silent has ended at once for everybody who reads it. Its row says so later: the
next batch of the job writes it, or the sweep.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Literal, NamedTuple
from uuid import uuid4

import msgspec

from gleanery.service.foundation.values import timestamps
from gleanery.service.storage.group_lock import LockedGroup

Status = Literal["running", "complete", "partial", "failed", "unknown", "abandoned"]
IDLE = 30 * 60 * timestamps.SECOND
"""An implicit run ends if no output of its job is stored for this time."""
_MINUTE = 60 * timestamps.SECOND
_COLUMNS = """
id, job_id, run_id, is_implicit, status, started_at, seen_at, ends_at, created_count, updated_count,
unchanged_count, rejected_count, sighting_count, slot_counts, complete_number, comparison,
compared_until, compared_seq, output_count, removal, removal_count, removal_until, removed_seq,
finished_at
"""
IS_JUDGED_LATER = "coalesce(monitoring, '') = 'pending'"
"""Is true of a run that has ended, and that the monitors have not judged yet. It stays open."""
_OPEN = f"""
SELECT {_COLUMNS} FROM runs
WHERE organization_id = $1 AND group_id = $2 AND job_id = $3 AND is_open
"""
_FIND = f"SELECT {_COLUMNS} FROM runs WHERE organization_id = $1 AND +group_id = $2 AND run_id = $3"
_LAST_SEEN = """
SELECT job_id, seen_at FROM runs WHERE organization_id = $1 AND group_id = $2 AND job_id = $3
ORDER BY id DESC LIMIT 10
"""
_INSERT = """
INSERT INTO runs (organization_id, group_id, job_id, run_id, is_implicit, status, is_open,
    started_at, seen_at, ends_at, labels, slot_counts)
VALUES ($1, $2, $3, $4, $5, 'running', TRUE, $6, $6, $7, $8, '[]')
RETURNING run_id, id
"""
_SAVE = """
UPDATE runs SET seen_at = $3, ends_at = $4, created_count = $5, updated_count = $6,
    unchanged_count = $7, rejected_count = $8, sighting_count = $9, slot_counts = $10
WHERE organization_id = $1 AND id = $2
"""
_END = """
UPDATE runs SET status = $3, is_open = $4, finished_at = $5, message = $6, slot_counts = NULL,
    field_counts = $7, complete_number = $8, comparison = $9,
    compared_until = $10, output_count = $11, monitoring = $12
WHERE organization_id = $1 AND id = $2
"""


class SeenFields(msgspec.Struct, array_like=True):
    """The column ``slot_counts``: how many outputs a running run has seen, and with which fields.

    A slot stands for one kind of value of one field; see ``fields.recording``.
    """

    outputs: int = 0
    by_slot: dict[int, int] = {}
    generation: int = 0
    """How often slots got another meaning although a row of ``run_sightings`` may have them.

    Such a row has the number of its time. Its bitmap is of no use if the number is another one.
    """

    def change(self, outputs: int, by_slot: Mapping[int, int]) -> None:
        """Add numbers of outputs; negative ones are subtracted."""
        self.outputs += outputs
        for slot, change in by_slot.items():
            self.by_slot[slot] = self.by_slot.get(slot, 0) + change

    def encode(self) -> str:
        self.by_slot = {slot: outputs for slot, outputs in self.by_slot.items() if outputs}
        return msgspec.json.encode(self).decode()


decode_seen = msgspec.json.Decoder(SeenFields).decode


class RunRow(NamedTuple):
    """The columns of a run."""

    id: int
    job_id: int
    run_id: str
    is_implicit: bool
    status: Status
    started_at: int
    seen_at: int
    ends_at: int
    created: int
    updated: int
    unchanged: int
    rejected: int
    sightings: int
    slot_counts: str | None
    complete_number: int | None
    comparison: str | None
    compared_until: int
    compared_seq: int
    output_count: int
    removal: str | None
    removal_count: int
    removal_until: int
    removed_seq: int
    finished_at: int | None


class Run:
    """A run that is open: what it has counted so far, as it is stored and as it will be."""

    def __init__(self, row: RunRow) -> None:
        self.row = row
        self.id = row.id
        self.job_id = row.job_id
        self.started_at = row.started_at
        self.seen_at = row.seen_at
        self.ends_at = row.ends_at
        self.counts = [row.unchanged, row.updated, row.created]
        """Outputs by what the run has changed; the index is a ``RunChange``."""
        self.rejected = row.rejected
        self.sightings = row.sightings
        """Rows of ``run_sightings``; see ``counting``."""
        self.has_changed = False

    @cached_property
    def seen(self) -> SeenFields:
        """The fields of the outputs that it has seen."""
        return decode_seen(self.row.slot_counts or "[]")

    @property
    def is_running(self) -> bool:
        return self.row.status == "running"

    def is_silent(self, now: int) -> bool:
        """Return True if it has ended, although its row does not say so yet."""
        return self.is_running and self.ends_at <= now

    def extend(self, scrape_time: int, now: int, timeout_minutes: int) -> None:
        """Record a batch: the run ends later.

        The order of batches needs ``scrape_time``, which never goes back. A clock that was wrong
        for a moment must not change the end of the run: that follows from the time ``now``.
        """
        self.seen_at = max(self.seen_at, scrape_time)
        wait = IDLE if self.row.is_implicit else timeout_minutes * _MINUTE
        self.ends_at = now + wait
        self.has_changed = True


async def fetch_open(locked: LockedGroup, jobs: Collection[int]) -> dict[int, list[Run]]:
    """Return the open runs of these jobs, oldest first."""
    key = (locked.organization_id, locked.group_id)
    found: dict[int, list[Run]] = {job_id: [] for job_id in jobs}
    for row in await locked.transaction.fetch_many(_OPEN, [(*key, job_id) for job_id in jobs]):
        run = Run(RunRow(*row))
        found[run.job_id].append(run)
    for runs in found.values():
        runs.sort(key=lambda run: run.id)
    return found


async def find(locked: LockedGroup, run_id: str) -> Run | None:
    """Return a run of the group, open or not."""
    key = (locked.organization_id, locked.group_id)
    rows = await locked.transaction.fetch(_FIND, *key, run_id)
    return Run(RunRow(*rows[0])) if rows else None


async def begin(
    locked: LockedGroup,
    jobs: Mapping[int, Sequence[Run]],
    labels: str = "{}",
    *,
    is_implicit: bool,
) -> dict[int, Run]:
    """Begin a run of each of these jobs, which have these open runs.

    It starts after the last batch of every earlier run of the job. So the date of an output's last
    scrape says whether it was sent before the start.
    """
    if not jobs:
        return {}
    key = (locked.organization_id, locked.group_id)
    starts = dict.fromkeys(jobs, locked.scrape_time)
    seen = await locked.transaction.fetch_many(_LAST_SEEN, [(*key, job_id) for job_id in jobs])
    in_open = [(job_id, run.seen_at) for job_id, runs in jobs.items() for run in runs]
    for job_id, seen_at in (*seen, *in_open):
        starts[job_id] = max(starts[job_id], seen_at + 1)
    wait = IDLE if is_implicit else locked.run_timeout_minutes * _MINUTE
    run_ids = {job_id: uuid4().hex for job_id in jobs}
    inserted = await locked.transaction.fetch_many(
        _INSERT,
        [
            (*key, job_id, run_ids[job_id], is_implicit, started_at, locked.now + wait, labels)
            for job_id, started_at in starts.items()
        ],
    )
    ids = {row[0]: row[1] for row in inserted}
    return {
        job_id: _new_run(
            ids[run_id], job_id, run_id, is_implicit, starts[job_id], locked.now + wait
        )
        for job_id, run_id in run_ids.items()
    }


def _new_run(
    id_: int, job_id: int, run_id: str, is_implicit: bool, started_at: int, ends_at: int
) -> Run:
    row = RunRow(
        id=id_,
        job_id=job_id,
        run_id=run_id,
        is_implicit=is_implicit,
        status="running",
        started_at=started_at,
        seen_at=started_at,
        ends_at=ends_at,
        created=0,
        updated=0,
        unchanged=0,
        rejected=0,
        sightings=0,
        slot_counts="[]",
        complete_number=None,
        comparison=None,
        compared_until=0,
        compared_seq=0,
        output_count=0,
        removal=None,
        removal_count=0,
        removal_until=0,
        removed_seq=0,
        finished_at=None,
    )
    return Run(row)


async def last_seen(locked: LockedGroup, job_id: int) -> int:
    """Return the time of the last batch of the last runs of a job, or 0."""
    key = (locked.organization_id, locked.group_id, job_id)
    seen = await locked.transaction.fetch(_LAST_SEEN, *key)
    return max((seen_at for _, seen_at in seen), default=0)


async def save(locked: LockedGroup, runs: Iterable[Run]) -> None:
    """Store what the batches of running runs have changed."""
    await locked.transaction.execute_many(
        _SAVE,
        [
            (
                locked.organization_id,
                run.id,
                run.seen_at,
                run.ends_at,
                *run.counts[::-1],
                run.rejected,
                run.sightings,
                run.seen.encode(),
            )
            for run in runs
            if run.has_changed
        ],
    )
    for run in runs:
        run.has_changed = False


class End(NamedTuple):
    """How a run ends."""

    status: Status
    message: str | None = None
    complete_number: int | None = None
    output_count: int = 0
    """Outputs of its job; of a complete run only, which is compared with them."""
    last_seen_at: int = 0
    """The last batch of any run of its job; of a complete run only."""


async def end(locked: LockedGroup, run: Run, end: End, field_counts: str) -> None:
    """Store the end of a run, whose counts are stored already.

    It stays open until the monitors have judged it. They do not judge implicit runs. It stays open
    if there is something to forget as well.
    """
    is_complete = end.complete_number is not None
    is_judged = end.status != "unknown"
    is_silent = end.status in ("unknown", "abandoned")
    finished_at = (
        run.seen_at if is_silent else max(locked.scrape_time, run.seen_at, end.last_seen_at)
    )
    await locked.transaction.fetch(
        _END,
        locked.organization_id,
        run.id,
        end.status,
        is_judged or run.sightings > 0,
        finished_at,
        end.message,
        field_counts,
        end.complete_number,
        "pending" if is_complete else None,
        locked.last_seq if is_complete else 0,
        end.output_count,
        "pending" if is_judged else None,
    )
