"""Long work on a group, such as approving a million outputs: in short steps that survive a crash.

A bulk_job is noted in the transaction that decides on it, with the place in the change order up to
which it reaches: what comes later is not its business, and an output that is stored again before
the bulk_job has come to it is worked on first. Each step is a transaction of its own, so
that others get their turns in between. A group has one bulk_job at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from gleanery.errors import NotFound
from gleanery.storage import group_lock
from gleanery.storage.bulk_jobs import removal
from gleanery.storage.database import Database, Engine, Transaction
from gleanery.storage.outputs import mutations

T = TypeVar("T")
_log = logging.getLogger("gleanery")

_NOTE = """
INSERT INTO bulk_jobs (organization_id, group_id, job_id, kind, until, done)
VALUES ($1, $2, $3, $4, $5, 0)
"""
_PROGRESS = "UPDATE bulk_jobs SET done = $3 WHERE organization_id = $1 AND id = $2"
_FINISH = "DELETE FROM bulk_jobs WHERE organization_id = $1 AND id = $2"
_LEFT_OVER = """
SELECT bulk_jobs.organization_id, groups.name, bulk_jobs.id FROM bulk_jobs
JOIN groups ON groups.organization_id = bulk_jobs.organization_id AND groups.id = bulk_jobs.group_id
ORDER BY bulk_jobs.id
"""
_AT_ONCE = 1000


async def note(
    locked: group_lock.LockedGroup, kind: group_lock.BulkJobKind, job_id: int | None
) -> None:
    """Decides on a bulk_job for all that the job, or the whole group, holds at this moment."""
    await locked.transaction.fetch(
        _NOTE, locked.organization_id, locked.group_id, job_id, kind, locked.clock
    )


async def decide_and_carry_out(
    database: Database,
    group: str,
    clock: group_lock.Clock,
    decide: Callable[[group_lock.LockedGroup], Awaitable[T]],
    lock: group_lock.Lock = group_lock.lock,
) -> T:
    """Lets ``decide`` note a bulk_job as soon as no other is under way, and carries it out.

    Once it is decided, it is done sooner or later: if this fails on the way, the sweep goes on.
    """

    async def work(transaction: Transaction) -> tuple[group_lock.BulkJob | None, T | None]:
        locked = await lock(transaction, group, clock)
        under_way = await locked.bulk_job()
        if under_way is not None:
            return under_way, None
        decided = await decide(locked)
        await locked.commit_counts()
        return await locked.bulk_job(), decided

    while True:
        bulk_job, decided = await database.write(work, queue_key=group)
        try:
            if bulk_job is not None:
                await _carry_out(database, group, clock, bulk_job.id)
        except Exception:
            if decided is None:
                raise
            _log.exception("a bulk_job is left to the sweep")
        if decided is not None:
            return decided


async def left_over(engine: Engine, clock: group_lock.Clock) -> list[Callable[[], Awaitable[None]]]:
    """What a crash has interrupted, each to be carried out on its own."""
    return [
        partial(_carry_out, engine.for_tenant(organization_id), group, clock, chore_id)
        for organization_id, group, chore_id in await engine.for_all_tenants().read(_LEFT_OVER)
    ]


async def _carry_out(
    database: Database, group: str, clock: group_lock.Clock, chore_id: int
) -> None:
    """Takes steps until this bulk_job is done, by whomever."""

    async def step(transaction: Transaction) -> bool:
        try:
            locked = await group_lock.lock(transaction, group, clock)
        except NotFound:  # the bulk_job was to remove it
            return False
        bulk_job = await locked.bulk_job()
        if bulk_job is None or bulk_job.id != chore_id:
            return False
        last = await _take_step(locked, bulk_job)
        if last:
            await transaction.fetch(_FINISH, locked.organization_id, bulk_job.id)
        await locked.commit_counts()
        return not last

    while await database.write(step, queue_key=group):
        pass


async def _take_step(locked: group_lock.LockedGroup, bulk_job: group_lock.BulkJob) -> bool:
    """Works on the next of the bulk_job's outputs; tells whether nothing is left to do."""
    span = mutations.Span(bulk_job.done, bulk_job.until, _AT_ONCE)
    if bulk_job.kind == "delete":
        places = await mutations.delete_some(locked, bulk_job.job_id, span)
    else:
        assert bulk_job.job_id is not None, "only a job is approved"
        places = await mutations.approve_some(
            locked, bulk_job.job_id, bulk_job.kind == "approve", span
        )
    if len(places) == _AT_ONCE:
        await locked.transaction.fetch(_PROGRESS, locked.organization_id, bulk_job.id, places[-1])
        return False
    return bulk_job.kind != "delete" or await removal.forget(locked, bulk_job.job_id, _AT_ONCE)
