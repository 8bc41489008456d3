"""What time does to records: they expire, are forgotten, and chores go on."""

from __future__ import annotations

import asyncio
import contextlib

from gleanery import instants
from gleanery.errors import NotFound
from gleanery.store import changes, chores, groups, outputs, requests
from gleanery.store.database import Database, Transaction

_EXPIRING = """
SELECT organization_id, name, id, retain_days FROM groups
WHERE retain_days IS NOT NULL AND NOT deleted
"""
_SCRAPED = """
SELECT identity, seq, scraped FROM outputs
WHERE organization_id = $1 AND group_id = $2 AND seq > $3 ORDER BY seq LIMIT $4
"""
_STILL_OLD = """
SELECT identity FROM outputs WHERE organization_id = $1 AND identity = $2 AND scraped < $3
"""
_AT_ONCE = 1000
_DAY = 86_400 * instants.SECOND


async def sweep(database: Database, clock: groups.Clock, tombstone_days: int) -> None:
    """One round of all of it, in short steps; safe from several processes at once."""
    await chores.carry_out_left_over(database, clock)
    await requests.forget(database, clock() - _DAY)
    await changes.purge_tombstones(database, clock() - tombstone_days * _DAY)
    for organization_id, name, group_id, days in await database.read(_EXPIRING):
        before = clock() - days * _DAY
        with contextlib.suppress(NotFound):  # it was removed in the meantime
            await _expire(database, organization_id, name, group_id, before, clock)


async def _expire(
    database: Database,
    organization_id: int,
    name: str,
    group_id: int,
    before: int,
    clock: groups.Clock,
) -> None:
    """Removes the outputs that no scraper has seen since."""
    after = 0
    while rows := await database.read(_SCRAPED, organization_id, group_id, after, _AT_ONCE):
        after = rows[-1][1]
        await asyncio.sleep(0)  # SQLite reads in the event loop: let others have a turn
        old = [(organization_id, row[0], before) for row in rows if row[2] < before]

        async def work(transaction: Transaction, old: list[tuple[int, bytes, int]] = old) -> None:
            turn = await groups.enter(transaction, organization_id, name, clock)
            still_old = await transaction.fetch_each(_STILL_OLD, old)
            await outputs.delete(turn, [row[0] for row in still_old])
            await turn.end()

        if old:
            await database.write(work, line=groups.line(organization_id, name))
