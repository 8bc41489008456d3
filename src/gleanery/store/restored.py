"""What a database does once after it was restored, so that no client takes old news for new.

What came after the backup is lost, but clients have seen it: its cursors, its dates, its ids. So
cursors of the feed from before this moment are refused, ids go on far ahead of any that can have
been given out, and every output takes a new place in the change order, behind all dates that a
client may hold: whoever syncs is sent everything as it now is.
"""

from __future__ import annotations

from functools import partial

from gleanery import instants
from gleanery.progress import Begin
from gleanery.store import chores, facts, groups, outputs
from gleanery.store.database import Database, Transaction

_LAST_CHANGE = """
SELECT coalesce((SELECT max(clock) FROM groups), 0), (SELECT min(applied) FROM migrations)
"""
_GROUPS = "SELECT organization_id, name, outputs FROM groups WHERE NOT deleted ORDER BY id"
_MOVE_CLOCKS = "UPDATE groups SET clock = $1 WHERE clock < $1"
_FORGET_DELETIONS = "DELETE FROM tombstones"  # nobody may ask for them any more
_AT_ONCE = 1000
_LEAST_SKIPPED = 3600 * instants.SECOND


async def begin_anew(database: Database, clock: groups.Clock, begin: Begin) -> int:
    """Does all of it, in short steps; if it is interrupted, it is to be done again.

    Gives the number of outputs that are sent again.
    """
    last_change = max((await database.read(_LAST_CHANGE))[0])
    for work in await chores.left_over(database, clock):  # they go by the places of outputs
        await work()
    moment = await database.write(partial(_forget_the_lost, last_change, clock))
    found = await database.read(_GROUPS)
    tell, sent = begin("Sending outputs again", sum(row[2] for row in found)), 0
    for organization_id, name, _ in found:
        step = partial(_send_some_again, organization_id, name, moment, clock)
        while count := await database.write(step, line=groups.line(organization_id, name)):
            sent += count
            tell(count)
    return sent


async def _forget_the_lost(last_change: int, clock: groups.Clock, transaction: Transaction) -> int:
    """Notes the moment before which every cursor is refused, and leaves out ids.

    No more than one id can have been given out in a microsecond.
    """
    now = clock()
    moment = max(now, last_change + 1)
    await transaction.skip_ids(max(now - last_change, _LEAST_SKIPPED))
    await transaction.run_script(_FORGET_DELETIONS)
    await transaction.fetch(_MOVE_CLOCKS, moment)
    await facts.note_restore(transaction, moment)
    return moment


async def _send_some_again(
    organization_id: int, name: str, until: int, clock: groups.Clock, transaction: Transaction
) -> int:
    turn = await groups.enter(transaction, organization_id, name, clock)
    count = await outputs.send_some_again(turn, outputs.Span(0, until, _AT_ONCE))
    await turn.end()
    return count
