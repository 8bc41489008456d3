"""Steps after a restore from a backup, so that clients do not mistake old data for new.

The changes after the backup are lost, but clients have seen their cursors, dates and ids. So
cursors from before the restore are rejected. New ids start far above all ids that were issued. Each
output gets a new sequence number, later than any date that a client may hold, so that each client
receives the restored state.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial

from gleanery.service.foundation.errors import NotFound
from gleanery.service.foundation.observability.progress import StartProgress
from gleanery.service.foundation.security.tokens import COMMAND_LINE
from gleanery.service.foundation.values import timestamps
from gleanery.service.resources.access import console_sessions, organizations
from gleanery.service.resources.audit import log
from gleanery.service.resources.audit.models import AuditAbout
from gleanery.service.resources.history import storing
from gleanery.service.resources.outputs import bulk_jobs, mutations, rows
from gleanery.service.storage import group_lock, metadata
from gleanery.service.storage.database import Database, Engine, Transaction

_CREATED_AT = "SELECT min(applied_at) FROM migrations"
_LAST_CHANGE = "SELECT coalesce(max(last_seq), 0) FROM groups WHERE organization_id = $1"
_GROUPS = """
SELECT name, output_count FROM groups WHERE organization_id = $1 AND NOT deleted ORDER BY id
"""
_RAISE_LAST_SEQ = """
UPDATE groups SET last_seq = $2 WHERE organization_id = $1 AND last_seq < $2
"""
# No valid cursor is older than the restore, so no client needs the older tombstones.
_DELETE_TOMBSTONES = (
    "DELETE FROM tombstones WHERE organization_id = $1 AND seq < $2",
    "DELETE FROM view_tombstones WHERE organization_id = $1 AND seq < $2",
)
_BATCH_SIZE = 1000
_MIN_SKIPPED_IDS = 3600 * timestamps.SECOND


async def complete_restore(
    engine: Engine,
    clock: group_lock.Clock,
    progress: StartProgress,
    notice_seconds: float = 0.0,
) -> int:
    """Run all steps, in short transactions; return the number of outputs that were resent.

    Nodes that run are given ``notice_seconds`` to admit no more requests. If it is interrupted, it
    must be run again before the database is served.
    """
    await engine.write(metadata.mark_restore_as_pending)
    await asyncio.sleep(notice_seconds)
    await engine.write(console_sessions.delete_all)
    tenants = [engine.for_tenant(id_) for id_ in await organizations.all_ids(engine)]
    last_change = await _last_change(engine, tenants)
    for run in await bulk_jobs.unfinished(engine, clock):  # they refer to old sequence numbers
        await run()
    restore_time = await engine.write(partial(_begin_restore, last_change, clock))
    for database in tenants:
        await storing.delete_of_all_deleted(database)  # their tombstones are deleted next
        await database.write(partial(_move_groups, restore_time))
    resent = await _resend_outputs(tenants, restore_time, clock, progress)
    await metadata.store_identity(engine)
    await engine.write(metadata.finish_restore)
    return resent


async def _last_change(engine: Engine, tenants: list[Database]) -> int:
    [[last_change]] = await engine.read(_CREATED_AT)
    for database in tenants:
        [[last_seq]] = await database.read(_LAST_CHANGE, database.organization_id)
        last_change = max(last_change, last_seq)
    return int(last_change)


async def _begin_restore(
    last_change: int, clock: group_lock.Clock, transaction: Transaction
) -> int:
    """Skips ids and returns the restore time, before which all cursors are rejected.

    At most one id can have been issued in a microsecond.
    """
    now = clock()
    restore_time = max(now, last_change + 1)
    await transaction.skip_ids(max(now - last_change, _MIN_SKIPPED_IDS))
    await metadata.begin_restore(transaction, restore_time)
    return restore_time


async def _move_groups(restore_time: int, transaction: Transaction) -> None:
    """Move the change order of all groups of an organization to the restore time."""
    organization_id = transaction.organization_id
    for sql in _DELETE_TOMBSTONES:
        await transaction.fetch(sql, organization_id, restore_time)
    await transaction.fetch(_RAISE_LAST_SEQ, organization_id, restore_time)
    about = AuditAbout()
    await log.append(transaction, COMMAND_LINE, restore_time, "restore", about)


async def _resend_outputs(
    tenants: list[Database], restore_time: int, clock: group_lock.Clock, progress: StartProgress
) -> int:
    groups = [
        (database, name, output_count)
        for database in tenants
        for name, output_count in await database.read(_GROUPS, database.organization_id)
    ]
    advance, resent = progress("Sending outputs again", sum(group[2] for group in groups)), 0
    for database, name, _ in groups:
        step = partial(_resend_batch, name, restore_time, clock)
        view_step = partial(_resend_approved_versions, name, restore_time, clock)
        with suppress(NotFound):  # a request that began before has deleted the group
            while count := await database.write(step, queue_key=name):
                resent += count
                advance(count)
            while await database.write(view_step, queue_key=name):
                pass
    return resent


async def _resend_batch(
    name: str, until_seq: int, clock: group_lock.Clock, transaction: Transaction
) -> int:
    locked = await group_lock.lock(transaction, name, clock)
    count = await mutations.resend_range(locked, mutations.SeqRange(0, until_seq, _BATCH_SIZE))
    await locked.commit_counts()
    return count


async def _resend_approved_versions(
    name: str, until_seq: int, clock: group_lock.Clock, transaction: Transaction
) -> int:
    locked = await group_lock.lock(transaction, name, clock)
    count = await rows.resend_copies(locked, until_seq)
    await locked.commit_counts()
    return count
