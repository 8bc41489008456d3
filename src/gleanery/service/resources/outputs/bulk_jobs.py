"""Creates and runs bulk jobs, such as the approval of a million outputs.

A bulk job is stored in the transaction of the request that starts it. It covers the outputs up to
the group's last sequence number at that time; later outputs are not affected. A request that stores
a covered output again first applies the bulk job to that output. Each step is a separate
transaction, so that other writers of the group can run between two steps. A group has one bulk job
at a time.

After the outputs of a deleted job or group, its reviews, sightings, jobs, counts, statistics and
history are deleted in steps, and the local-storage entries of a group. Each step first finds rows
and then deletes them by their keys. A single statement for both could keep a query plan from the
time when the table was small. That plan would be slow on a large table. No review is added during a
removal, because a new review waits for the group's bulk job.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import TypeVar

from gleanery.service.foundation.errors import NotFound
from gleanery.service.resources.fields import recording
from gleanery.service.resources.fields.job_statistics import delete_of_jobs
from gleanery.service.resources.history import storing
from gleanery.service.resources.outputs import mutations
from gleanery.service.resources.sessions import local_storage
from gleanery.service.storage import group_lock
from gleanery.service.storage.database import Database, Engine, Transaction
from gleanery.service.storage.group_lock import BulkJob, BulkJobKind, LockedGroup

T = TypeVar("T")
_log = logging.getLogger("gleanery")

_CREATE = """
INSERT INTO bulk_jobs (organization_id, group_id, job_id, kind, until_seq, done_seq, as_of)
VALUES ($1, $2, $3, $4, $5, 0, $6)
"""
_SAVE_PROGRESS = "UPDATE bulk_jobs SET done_seq = $3 WHERE organization_id = $1 AND id = $2"
_FINISH = "DELETE FROM bulk_jobs WHERE organization_id = $1 AND id = $2"
_UNFINISHED = """
SELECT bulk_jobs.organization_id, groups.name, bulk_jobs.id FROM bulk_jobs
JOIN groups ON groups.organization_id = bulk_jobs.organization_id AND groups.id = bulk_jobs.group_id
ORDER BY bulk_jobs.id
"""
_UNFINISHED_OF_GROUP = """
SELECT bulk_jobs.id FROM bulk_jobs
JOIN groups ON groups.organization_id = bulk_jobs.organization_id AND groups.id = bulk_jobs.group_id
WHERE bulk_jobs.organization_id = $1 AND groups.name = $2
"""
_BATCH_SIZE = 1000


async def create(
    locked: LockedGroup, kind: BulkJobKind, job_id: int | None, as_of: int | None = None
) -> None:
    """Create a bulk job for the current outputs of a job, or of the group if it is None.

    With ``as_of``, an approval skips the outputs whose values were stored after this position.
    """
    key, until_seq = (locked.organization_id, locked.group_id), locked.last_seq
    as_of = until_seq if as_of is None else as_of
    await locked.transaction.fetch(_CREATE, *key, job_id, kind, until_seq, as_of)


async def run_and_finish_bulk_job(
    database: Database,
    group: str,
    clock: group_lock.Clock,
    action: Callable[[LockedGroup], Awaitable[T]],
    lock: group_lock.Lock = group_lock.lock,
) -> T:
    """Run ``action`` under the group's lock, then the bulk job that it created, if any.

    An unfinished bulk job of the group runs first. If the new bulk job fails after ``action`` was
    committed, the sweep continues it later. ``action`` must not return None.
    """

    async def work(transaction: Transaction) -> tuple[BulkJob | None, T | None]:
        locked = await lock(transaction, group, clock)
        pending = await locked.pending_bulk_job()
        if pending is not None:
            return pending, None
        result = await action(locked)
        await locked.commit_counts()
        return await locked.pending_bulk_job(), result

    while True:
        bulk_job, result = await database.write(work, queue_key=group)
        try:
            if bulk_job is not None:
                await _run(database, group, clock, bulk_job.id)
        except Exception:
            if result is None:
                raise
            _log.exception("a bulk job failed; the sweep will continue it")
        if result is not None:
            return result


async def finish_bulk_job(database: Database, group: str, clock: group_lock.Clock) -> None:
    """Run the unfinished bulk job of the group, if there is one, even if another request does."""
    rows = await database.read(_UNFINISHED_OF_GROUP, database.organization_id, group)
    for [bulk_job_id] in rows:
        await _run(database, group, clock, bulk_job_id)


async def unfinished(
    engine: Engine, clock: group_lock.Clock
) -> list[Callable[[], Awaitable[None]]]:
    """Return a function for each unfinished bulk job, which continues it."""
    return [
        partial(_run, engine.for_tenant(organization_id), group, clock, bulk_job_id)
        for organization_id, group, bulk_job_id in await engine.for_all_tenants().read(_UNFINISHED)
    ]


async def _run(database: Database, group: str, clock: group_lock.Clock, bulk_job_id: int) -> None:
    """Run steps until the bulk job is finished, by this process or by another."""

    async def step(transaction: Transaction) -> bool:
        try:
            locked = await group_lock.lock(transaction, group, clock)
        except NotFound:  # the bulk job deleted the group
            return False
        bulk_job = await locked.pending_bulk_job()
        if bulk_job is None or bulk_job.id != bulk_job_id:
            return False
        is_finished = await _run_step(locked, bulk_job)
        if is_finished:
            await transaction.fetch(_FINISH, locked.organization_id, bulk_job.id)
        await locked.commit_counts()
        return not is_finished

    while await database.write(step, queue_key=group):
        pass


async def _run_step(locked: LockedGroup, bulk_job: BulkJob) -> bool:
    """Process the next outputs of the bulk job. Return True if it is finished."""
    done_seq = await _process_batch(locked, bulk_job)
    if done_seq is not None:
        bulk_job_key = (locked.organization_id, bulk_job.id)
        await locked.transaction.fetch(_SAVE_PROGRESS, *bulk_job_key, done_seq)
        return False
    if bulk_job.kind == "delete":
        return await delete_dependents(locked, bulk_job, _BATCH_SIZE)
    return True


async def _process_batch(locked: LockedGroup, bulk_job: BulkJob) -> int | None:
    """Apply the bulk job to a batch of outputs.

    Return the sequence number up to which the bulk job is done; None if no outputs are left.
    """
    seq_range = mutations.SeqRange(bulk_job.done_seq, bulk_job.until_seq, _BATCH_SIZE)
    if bulk_job.kind == "delete":
        return await mutations.delete_range(locked, bulk_job.job_id, seq_range)
    assert bulk_job.job_id is not None, "an approval covers one job"
    approved = bulk_job.kind == "approve"
    return await mutations.approve_range(
        locked, bulk_job.job_id, approved, seq_range, bulk_job.as_of
    )


_REVIEWS_OF_GROUP = """
SELECT job_id, id FROM reviews WHERE organization_id = $1 AND group_id = $2 LIMIT $3
"""
_REVIEWS_OF_JOB = """
SELECT job_id, id FROM reviews
WHERE organization_id = $1 AND group_id = $2 AND job_id = $4 LIMIT $3
"""
_UNSET_LATEST_REVIEW = """
UPDATE jobs SET latest_review_id = NULL
WHERE organization_id = $1 AND id = $2 AND latest_review_id = $3
"""
_DELETE_REVIEW = "DELETE FROM reviews WHERE organization_id = $1 AND id = $2"
_EMPTY_JOB = """
SELECT id FROM jobs WHERE organization_id = $1 AND id = $2 AND output_count = 0
"""
_EMPTY_JOBS = """
SELECT id FROM jobs WHERE organization_id = $1 AND group_id = $2 AND output_count = 0 LIMIT $3
"""
_DELETE_JOB = """
DELETE FROM jobs WHERE organization_id = $1 AND id = $2 AND output_count = 0
"""
_EMPTY_COUNTRIES = """
SELECT country FROM country_counts
WHERE organization_id = $1 AND group_id = $2 AND output_count = 0 LIMIT $3
"""
_DELETE_COUNTRY = """
DELETE FROM country_counts WHERE organization_id = $1 AND group_id = $2 AND country = $3
"""
_CLEAR_SETTINGS = """
UPDATE groups SET display_name = NULL, key_fields = NULL, schema = NULL, retain_days = NULL,
    keep_versions = NULL, keep_days = NULL, run_timeout_minutes = NULL, missing_after_runs = NULL,
    missing_max_share = NULL, monitors = NULL
WHERE organization_id = $1 AND id = $2
"""
_DELETE_GROUP = """
UPDATE groups SET deleted = TRUE WHERE organization_id = $1 AND id = $2 AND output_count = 0
"""


async def clear_settings(locked: LockedGroup) -> None:
    """Remove the settings; outputs stored from now on form a new group with the same name."""
    await locked.transaction.fetch(_CLEAR_SETTINGS, locked.organization_id, locked.group_id)


async def delete_dependents(locked: LockedGroup, bulk_job: BulkJob, limit: int) -> bool:
    """Delete at most ``limit`` rows of each table. Return True if nothing is left to delete.

    The history of outputs that were stored again after the request stays.
    """
    await locked.save_counts()
    if bulk_job.job_id is None:
        is_empty = await storing.delete_with_group(locked, bulk_job.until_seq, limit)
        return is_empty and await _delete_group(locked, limit)
    if not await _delete_reviews(locked, _REVIEWS_OF_JOB, limit, bulk_job.job_id):
        return False
    job_key = (locked.organization_id, bulk_job.job_id)
    jobs = await locked.transaction.fetch(_EMPTY_JOB, *job_key)
    if not await _delete_jobs(locked, [row[0] for row in jobs], limit):
        return False
    return await _delete_countries(locked, limit)


async def _delete_group(locked: LockedGroup, limit: int) -> bool:
    group_key = (locked.organization_id, locked.group_id)
    if not await _delete_reviews(locked, _REVIEWS_OF_GROUP, limit):
        return False
    jobs = await locked.transaction.fetch(_EMPTY_JOBS, *group_key, limit)
    if not await _delete_jobs(locked, [row[0] for row in jobs], limit) or len(jobs) == limit:
        return False
    if not await _delete_countries(locked, limit):
        return False
    if not await local_storage.delete_of_group(locked.transaction, locked.group_id, limit):
        return False
    await locked.transaction.fetch(_DELETE_GROUP, *group_key)
    return True


async def _delete_jobs(locked: LockedGroup, jobs: Collection[int], limit: int) -> bool:
    """Delete jobs without outputs. Return False if some have too many sightings for one step."""
    ready = await recording.forget_sightings(locked, jobs, limit)
    deletions = [(locked.organization_id, job_id) for job_id in ready]
    await locked.transaction.execute_many(_DELETE_JOB, deletions)
    await delete_of_jobs(locked, ready)
    return len(ready) == len(jobs)


async def _delete_reviews(locked: LockedGroup, search: str, limit: int, *job_id: int) -> bool:
    group_key = (locked.organization_id, locked.group_id)
    rows = await locked.transaction.fetch(search, *group_key, limit, *job_id)
    await locked.transaction.execute_many(
        _UNSET_LATEST_REVIEW, [(locked.organization_id, *row) for row in rows]
    )
    await locked.transaction.execute_many(
        _DELETE_REVIEW, [(locked.organization_id, review_id) for _, review_id in rows]
    )
    return len(rows) < limit


async def _delete_countries(locked: LockedGroup, limit: int) -> bool:
    group_key = (locked.organization_id, locked.group_id)
    rows = await locked.transaction.fetch(_EMPTY_COUNTRIES, *group_key, limit)
    await locked.transaction.execute_many(_DELETE_COUNTRY, [(*group_key, *row) for row in rows])
    return len(rows) < limit
