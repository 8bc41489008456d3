"""What a database does once after it was restored, so that no client takes old news for new.

What came after the backup is lost, but clients have seen it: its cursors, its dates, its ids. So
cursors of the feed from before this moment are refused, ids go on far ahead of any that can have
been given out, and every output takes a new place in the change order, behind all dates that a
client may hold: whoever syncs is sent everything as it now is.
"""

from __future__ import annotations

from functools import partial

from gleanery.models.responses import AuditAbout
from gleanery.observability.progress import Begin
from gleanery.storage import audit, group_lock, metadata, organizations
from gleanery.storage.bulk_jobs import jobs
from gleanery.storage.database import Database, Engine, Transaction
from gleanery.storage.outputs import mutations
from gleanery.values import timestamps

_MADE = "SELECT min(applied) FROM migrations"
_LAST_CHANGE = "SELECT coalesce(max(clock), 0) FROM groups WHERE organization_id = $1"
_GROUPS = """
SELECT name, outputs FROM groups
WHERE organization_id = $1 AND NOT deleted ORDER BY id
"""
_MOVE_CLOCKS = "UPDATE groups SET clock = $2 WHERE organization_id = $1 AND clock < $2"
_FORGET_DELETIONS = "DELETE FROM tombstones WHERE organization_id = $1"  # nobody may ask for them
_AT_ONCE = 1000
_LEAST_SKIPPED = 3600 * timestamps.SECOND


async def begin_anew(engine: Engine, clock: group_lock.Clock, begin: Begin) -> int:
    """Does all of it, in short steps; if it is interrupted, it is to be done again before serving.

    Gives the number of outputs that are sent again.
    """
    tenants = [engine.for_tenant(id_) for id_ in await organizations.every_id(engine)]
    [[made]] = await engine.read(_MADE)
    last_change = max([made, *[await _last_change(database) for database in tenants]])
    for work in await jobs.left_over(engine, clock):  # they go by the places of outputs
        await work()
    moment = await engine.write(partial(_refuse_cursors, last_change, clock))
    for database in tenants:
        await database.write(partial(_move_on, moment))
    found = [
        (database, *row)
        for database in tenants
        for row in await database.read(_GROUPS, database.organization_id)
    ]
    tell, sent = begin("Sending outputs again", sum(row[2] for row in found)), 0
    for database, name, _ in found:
        step = partial(_send_some_again, name, moment, clock)
        while count := await database.write(step, queue_key=name):
            sent += count
            tell(count)
    await engine.write(metadata.end_restore)
    return sent


async def _last_change(database: Database) -> int:
    [[last_change]] = await database.read(_LAST_CHANGE, database.organization_id)
    return int(last_change)


async def _refuse_cursors(
    last_change: int, clock: group_lock.Clock, transaction: Transaction
) -> int:
    """Notes the moment before which every cursor is refused, and leaves out ids.

    No more than one id can have been given out in a microsecond.
    """
    now = clock()
    moment = max(now, last_change + 1)
    await transaction.skip_ids(max(now - last_change, _LEAST_SKIPPED))
    await metadata.note_restore(transaction, moment)
    return moment


async def _move_on(moment: int, transaction: Transaction) -> None:
    organization_id = transaction.organization_id
    await transaction.fetch(_FORGET_DELETIONS, organization_id)
    await transaction.fetch(_MOVE_CLOCKS, organization_id, moment)
    about = AuditAbout()
    await audit.note(transaction, audit.COMMAND_LINE, moment, "restore", about)


async def _send_some_again(
    name: str, until: int, clock: group_lock.Clock, transaction: Transaction
) -> int:
    locked = await group_lock.lock(transaction, name, clock)
    count = await mutations.send_some_again(locked, mutations.Span(0, until, _AT_ONCE))
    await locked.commit_counts()
    return count
