"""Usage of organizations: requests, bytes and outputs of each day, and bytes that are stored.

The services add to the numbers of a day in every sweep; see ``maintenance``. The bytes that
are stored are measured by ``maintenance.storage_bytes``. Days are days since 1970, in UTC.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gleanery.service.foundation.values import timestamps
from gleanery.service.storage.database import Database, Engine, Transaction

DAY = 86_400 * timestamps.SECOND
KEPT_DAYS = 400
_EXISTING = "SELECT id FROM organizations WHERE id = $1"
_ADD = """
INSERT INTO organization_usage
    (organization_id, day, requests, received_bytes, sent_bytes, stored_outputs)
VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (organization_id, day) DO UPDATE SET
    requests = organization_usage.requests + excluded.requests,
    received_bytes = organization_usage.received_bytes + excluded.received_bytes,
    sent_bytes = organization_usage.sent_bytes + excluded.sent_bytes,
    stored_outputs = organization_usage.stored_outputs + excluded.stored_outputs
"""
_DELETE_OLD = "DELETE FROM organization_usage WHERE organization_id = $1 AND day < $2"
_READ = """
SELECT day, requests, received_bytes, sent_bytes, stored_outputs FROM organization_usage
WHERE organization_id = $1 AND day >= $2 AND requests > 0 ORDER BY day
"""
_SET_STORAGE = """
INSERT INTO organization_usage
    (organization_id, day, requests, received_bytes, sent_bytes, stored_outputs, database_bytes,
    file_bytes)
VALUES ($1, $2, 0, 0, 0, 0, $3, $4)
ON CONFLICT (organization_id, day) DO UPDATE SET
    database_bytes = excluded.database_bytes, file_bytes = excluded.file_bytes
"""
_LAST_STORAGE = """
SELECT database_bytes, file_bytes, day FROM organization_usage
WHERE organization_id = $1 AND day <= $2 AND database_bytes IS NOT NULL
ORDER BY day DESC LIMIT 1
"""


class DayUsage(NamedTuple):
    """Usage of an organization on one day."""

    day: int
    requests: int
    received_bytes: int
    sent_bytes: int
    stored_outputs: int


class Storage(NamedTuple):
    """Bytes that an organization occupies, without indexes and free space."""

    database_bytes: int
    """Outputs, their earlier and approved versions, and values of sessions."""
    file_bytes: int
    """Files; the same bytes count once."""
    day: int
    """Day of the measurement."""


async def add(engine: Engine, day: int, counts: Mapping[int, Sequence[int]]) -> None:
    """Add the counts of organizations to those of a day, in one transaction.

    An organization that is gone is left out. What a deletion has missed, the sweep removes.
    """

    async def work(transaction: Transaction) -> None:
        # Two workers that lock the rows in different orders could deadlock.
        found = await transaction.fetch_many(_EXISTING, [(id_,) for id_ in sorted(counts)])
        existing = sorted(row[0] for row in found)
        await transaction.execute_many(_ADD, [(id_, day, *counts[id_]) for id_ in existing])
        await transaction.execute_many(_DELETE_OLD, [(id_, day - KEPT_DAYS) for id_ in existing])

    await engine.for_all_tenants().write(work)


async def read(database: Database, first_day: int) -> list[DayUsage]:
    """Return the days with requests of the handle's organization, the oldest first."""
    rows = await database.read(_READ, database.organization_id, first_day)
    return [DayUsage(*row) for row in rows]


async def set_storage(database: Database, storage: Storage) -> None:
    """Store what was measured for the handle's organization, unless it is gone."""
    id_, day = database.organization_id, storage.day

    async def work(transaction: Transaction) -> None:
        if await transaction.fetch(_EXISTING, id_):
            await transaction.fetch(
                _SET_STORAGE, id_, day, storage.database_bytes, storage.file_bytes
            )
            await transaction.fetch(_DELETE_OLD, id_, day - KEPT_DAYS)

    await database.write(work)


async def last_storage(database: Database, today: int) -> Storage | None:
    """Return the last measurement of the handle's organization; None if there is none.

    A later day than ``today`` comes from a wrong clock, and does not count.
    """
    rows = await database.read(_LAST_STORAGE, database.organization_id, today)
    return Storage(*rows[0]) if rows else None
