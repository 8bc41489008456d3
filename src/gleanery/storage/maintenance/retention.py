"""What time does to records: they expire, are forgotten, and bulk_jobs go on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from gleanery.blobs import Blobs
from gleanery.errors import NotFound
from gleanery.storage import audit, files, group_lock
from gleanery.storage.bulk_jobs import jobs
from gleanery.storage.database import Database, Engine, Transaction
from gleanery.storage.outputs import changes, idempotency, mutations
from gleanery.values import timestamps

_EXPIRING = """
SELECT organization_id, name, id, retain_days FROM groups
WHERE retain_days IS NOT NULL AND NOT deleted AND next_expiry <= $1
"""
_SCRAPED = """
SELECT identity, seq, scraped FROM outputs
WHERE organization_id = $1 AND group_id = $2 AND seq > $3 ORDER BY seq LIMIT $4
"""
_STILL_EXPIRES = """
SELECT 1 FROM groups WHERE organization_id = $1 AND id = $2 AND retain_days = $3
"""
_STILL_OLD = """
SELECT identity FROM outputs WHERE organization_id = $1 AND identity = $2 AND scraped < $3
"""
_LOOK_AGAIN = """
UPDATE groups SET next_expiry = $4 WHERE organization_id = $1 AND id = $2 AND retain_days = $3
"""
_AT_ONCE = 1000
_HOUR = 3600 * timestamps.SECOND
_DAY = 24 * _HOUR


async def sweep(
    engine: Engine,
    blobs: Blobs,
    clock: group_lock.Clock,
    *,
    tombstone_days: int,
    unnamed_file_days: int,
    audit_days: int,
) -> None:
    """One round of all of it, in short steps; safe from several processes at once.

    What fails keeps nothing else from being done; all failures are raised at the end.
    """
    now = clock()
    works: list[Callable[[], Awaitable[None]]] = [
        *await jobs.left_over(engine, clock),
        partial(idempotency.forget, engine, now - _DAY),
        *await changes.forgettable(engine, now - tombstone_days * _DAY),
        *await audit.forgettable(engine, now - audit_days * _DAY),
    ]
    for organization_id, name, group_id, days in await engine.for_all_tenants().read(
        _EXPIRING, now
    ):
        database = engine.for_tenant(organization_id)
        works.append(partial(_expire, database, name, group_id, days, clock))
    works.append(partial(files.collect, engine, blobs, now - unnamed_file_days * _DAY, now))
    failures = []
    for work in works:
        try:
            await work()
        except NotFound:
            pass  # the group was removed in the meantime
        except Exception as failure:
            failures.append(failure)
    if failures:
        raise ExceptionGroup("parts of the sweep", failures)


async def _expire(
    database: Database, name: str, group_id: int, days: int, clock: group_lock.Clock
) -> None:
    """Removes the outputs that no scraper has seen for so many days."""
    organization_id, now = database.organization_id, clock()
    before = now - days * _DAY
    of_group = (organization_id, group_id)
    oldest, after = now, 0
    while rows := await database.read(_SCRAPED, *of_group, after, _AT_ONCE):
        after = rows[-1][1]
        await asyncio.sleep(0)  # SQLite reads in the event loop: let others have a turn
        old = [(organization_id, row[0], before) for row in rows if row[2] < before]
        oldest = min([oldest, *(row[2] for row in rows if row[2] >= before)])

        async def remove(transaction: Transaction, old: list[tuple[int, bytes, int]] = old) -> None:
            locked = await group_lock.lock(transaction, name, clock)
            if not await transaction.fetch(_STILL_EXPIRES, *of_group, days):
                raise NotFound  # what was set has changed meanwhile
            still_old = await transaction.fetch_many(_STILL_OLD, old)
            await mutations.delete(locked, [row[0] for row in still_old])
            await locked.commit_counts()

        if old:
            await database.write(remove, queue_key=name)

    async def look_again(transaction: Transaction) -> None:
        # A scrape only ever makes an output younger, so nothing expires before the oldest does.
        moment = max(oldest + days * _DAY, now + _HOUR)
        await transaction.fetch(_LOOK_AGAIN, *of_group, days, moment)

    await database.write(look_again, queue_key=name)
