"""One round of the sweep: continues work, finds overdue jobs, deletes expired data."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import NamedTuple

from gleanery.service.foundation.blobs import Blobs
from gleanery.service.foundation.errors import NotFound
from gleanery.service.foundation.field_types import MAX_INT64
from gleanery.service.foundation.values import timestamps
from gleanery.service.maintenance import organization_removal
from gleanery.service.resources.audit import log
from gleanery.service.resources.changes import feed
from gleanery.service.resources.files import records as file_records
from gleanery.service.resources.history import storing
from gleanery.service.resources.monitors.evaluation import Monitors
from gleanery.service.resources.outputs import bulk_jobs, mutations
from gleanery.service.resources.runs import changing as runs
from gleanery.service.resources.sessions import leases
from gleanery.service.resources.webhooks import deliveries
from gleanery.service.storage import group_lock, idempotency, paging
from gleanery.service.storage.database import Database, Engine, Row, Transaction
from gleanery.service.storage.group_lock import Clock

_DUE_GROUPS = """
SELECT organization_id, name, id, retain_days FROM groups
WHERE retain_days IS NOT NULL AND NOT deleted AND next_expiry_at <= $1
"""
_SCRAPE_TIMES = """
SELECT identity, seq, last_scraped_at, job_id, octet_length(item) FROM outputs
WHERE organization_id = $1 AND group_id = $2 AND seq > $3 ORDER BY seq LIMIT $4
"""
_SAME_RETENTION = """
SELECT 1 FROM groups WHERE organization_id = $1 AND id = $2 AND retain_days = $3
"""
_STILL_EXPIRED = """
SELECT identity FROM outputs
WHERE organization_id = $1 AND identity = $2 AND last_scraped_at < $3
"""
# The last run of a job that tells what the job still has.
_LAST_RUN = """
SELECT started_at, seen_at FROM runs
WHERE organization_id = $1 AND group_id = $2 AND job_id = $3
    AND (status IN ('complete', 'partial', 'unknown')
        OR status = 'running' AND is_implicit AND ends_at <= $4)
    AND created_count + updated_count + unchanged_count > 0 AND seen_at < $5
ORDER BY id DESC LIMIT 1
"""
# A run that goes on may send more. A job that never pauses has an implicit run without an end.
_ENDLESS_RUN = """
SELECT started_at, seen_at FROM runs
WHERE organization_id = $1 AND group_id = $2 AND job_id = $3 AND is_open
    AND status = 'running' AND is_implicit AND seen_at - started_at >= $4
"""
# A run that a client has started may still send the others, so later runs say nothing yet.
_FIRST_GOING_ON = """
SELECT min(started_at) FROM runs
WHERE organization_id = $1 AND group_id = $2 AND job_id = $3 AND is_open
    AND status = 'running' AND NOT is_implicit AND ends_at > $4
"""
_SET_NEXT_EXPIRY = """
UPDATE groups SET next_expiry_at = $4
WHERE organization_id = $1 AND id = $2 AND retain_days = $3
"""
_BATCH_SIZE = 1000
_HOUR = 3600 * timestamps.SECOND
_DAY = 24 * _HOUR
_WEBHOOK_DAYS = 30  # for which deliveries to webhooks are kept

Task = Callable[[], Awaitable[None]]


class RetentionDays(NamedTuple):
    """Retention times of unneeded data, in days."""

    tombstones: int
    unreferenced_files: int
    audit_entries: int


async def sweep(
    engine: Engine,
    blobs: Blobs,
    monitors: Monitors,
    clock: Clock,
    keep: RetentionDays,
    now: int | None,
) -> None:
    """Run one round, in short transactions; safe when several processes do it at the same time.

    Ages are measured at ``now``. If it is None, the clock is not reliable and nothing expires.
    A failed task does not stop the others. All failures are raised together at the end.
    """
    failures = []
    tasks = [
        *await bulk_jobs.unfinished(engine, clock),
        *await runs.unfinished(engine, monitors, clock, now),
        *await monitors.overdue(engine),
        *await storing.pending_expirations(engine, clock, now),
    ]
    if now is not None:
        tasks += await _deletions(engine, blobs, clock, keep, now)
    tasks.append(engine.release_space)
    for task in tasks:
        try:
            await task()
        except NotFound:
            pass  # the group was deleted meanwhile
        except Exception as failure:
            failures.append(failure)
    if failures:
        raise ExceptionGroup("tasks of the sweep failed", failures)


async def _deletions(
    engine: Engine, blobs: Blobs, clock: Clock, keep: RetentionDays, now: int
) -> list[Task]:
    """Return the tasks that delete data because of its age."""
    unused_since = now - keep.unreferenced_files * _DAY
    return [
        partial(idempotency.delete_expired, engine, now - _DAY),
        partial(leases.delete_expired, engine, now - _DAY),
        partial(deliveries.delete_old, engine, now - _WEBHOOK_DAYS * _DAY),
        *await feed.pending_purges(engine, now - keep.tombstones * _DAY),
        *await log.pending_purges(engine, now - keep.audit_entries * _DAY),
        *await _expirations(engine, clock, now),
        partial(file_records.delete_unused, engine, blobs, unused_since, now),
        *await organization_removal.pending_removals(engine, blobs),
    ]


async def _expirations(engine: Engine, clock: Clock, now: int) -> list[Task]:
    """Return a task for each group with outputs that may have expired."""
    return [
        _Expiration(engine.for_tenant(organization_id), name, group_id, days, clock, now).run
        for organization_id, name, group_id, days in await engine.for_all_tenants().read(
            _DUE_GROUPS, now
        )
    ]


class _Expiration(NamedTuple):
    """Deletes the outputs of a group that no scraper has sent for some days.

    It pauses for a job that has stored nothing since then. An output expires only if a run of its
    job has stored others: the last run that has ended, or a run that has gone on for these days.
    While a run of a client goes on, only runs that ended before its start count.
    """

    database: Database
    group: str
    group_id: int
    days: int
    clock: Clock
    now: int

    async def run(self) -> None:
        now = self.now
        before = now - self.days * _DAY
        key = (self.database.organization_id, self.group_id)
        oldest_kept, last_seq = now, 0
        tested_until: dict[int, int] = {}
        while rows := await self.database.read(_SCRAPE_TIMES, *key, last_seq, _BATCH_SIZE):
            last_seq = rows[-1][1]
            await asyncio.sleep(0)  # SQLite reads in the event loop: let other requests run
            old = [row for row in rows if row[2] < before]
            for job_id in {row[3] for row in old} - tested_until.keys():
                tested_until[job_id] = await self._tested_until(job_id)
            expired = [row for row in old if row[2] < tested_until[row[3]]]
            limits = {job_id: min(before, until) for job_id, until in tested_until.items()}
            kept = (row[2] for row in rows if row[2] >= limits.get(row[3], before))
            oldest_kept = min([oldest_kept, *kept])
            while expired:  # a transaction reads them all, because it stores their last versions
                count = paging.count_fitting([row[-1] for row in expired], mutations.MAX_BYTES)
                delete = partial(self._delete, expired[:count], before)
                await self.database.write(delete, queue_key=self.group)
                expired = expired[count:]
        # A batch only makes an output younger, so no output expires before the oldest one. If the
        # job of an old one is silent, it can expire after the next run.
        next_expiry_at = max(oldest_kept + self.days * _DAY, now + _HOUR)
        save = partial(self._set_next_expiry, next_expiry_at)
        await self.database.write(save, queue_key=self.group)

    async def _tested_until(self, job_id: int) -> int:
        """Return a time: the job would have sent its older outputs again, if it still had them."""
        key, days = (self.database.organization_id, self.group_id, job_id), self.days * _DAY
        [[going_on]] = await self.database.read(_FIRST_GOING_ON, *key, self.now)
        runs = [
            *await self.database.read(_LAST_RUN, *key, self.now, going_on or MAX_INT64),
            *await self.database.read(_ENDLESS_RUN, *key, days),
        ]
        return max((max(started_at, seen_at - days) for started_at, seen_at in runs), default=0)

    async def _delete(self, expired: Sequence[Row], before: int, transaction: Transaction) -> None:
        locked = await group_lock.lock(transaction, self.group, self.clock)
        organization_id = locked.organization_id
        if not await transaction.fetch(_SAME_RETENTION, organization_id, self.group_id, self.days):
            raise NotFound  # the group's retention was changed meanwhile
        still_expired = await transaction.fetch_many(
            _STILL_EXPIRED, [(organization_id, row[0], before) for row in expired]
        )
        await mutations.delete(locked, [row[0] for row in still_expired], is_bulk=True)
        await locked.commit_counts()

    async def _set_next_expiry(self, next_expiry_at: int, transaction: Transaction) -> None:
        key = (transaction.organization_id, self.group_id, self.days)
        await transaction.fetch(_SET_NEXT_EXPIRY, *key, next_expiry_at)
