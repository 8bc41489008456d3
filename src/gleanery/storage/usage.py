"""Usage of organizations: requests, bytes and outputs of each day, and bytes that are stored.

The services add to the numbers of a day in every sweep; see ``background.usage``. Days are days
since 1970, in UTC.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, NamedTuple

from gleanery.storage.database import Database, Engine, Row, Transaction
from gleanery.values import timestamps

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
WHERE organization_id = $1 AND day >= $2 ORDER BY day
"""
_GROUPS = """
SELECT id FROM groups WHERE organization_id = $1 AND id > $2 ORDER BY id LIMIT $3
"""
# Each statement returns the key of a row and its bytes. A step seeks behind the last key.
_GROUP_TABLES = tuple(
    f"SELECT {key}, {size} FROM {table} WHERE organization_id = $1 AND group_id = $2 "
    f"AND {key} > $3 ORDER BY {key} LIMIT $4"
    for table, key, size in (
        ("outputs", "seq", "octet_length(item)"),
        ("output_history", "first_replaced_seq", "octet_length(versions)"),
        ("approved_versions", "seq", "octet_length(item)"),
    )
)
_SESSION_TABLES = tuple(
    f"SELECT id, octet_length(encrypted_value) FROM {table} WHERE organization_id = $1 "
    "AND id > $2 ORDER BY id LIMIT $3"
    for table in ("cookies", "local_storage")
)
# Files with the same bytes share a blob, so each counts as a part of it.
_FILES = """
SELECT files.id, size, file_count FROM files
JOIN blobs ON blobs.organization_id = files.organization_id AND blobs.checksum = files.checksum
WHERE files.organization_id = $1 AND files.id > $2 ORDER BY files.id LIMIT $3
"""
_STEP_ROWS = 1000


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


async def measure_storage(database: Database) -> Storage:
    """Add up the bytes of the handle's organization, a thousand rows at a time."""
    return Storage(await _database_bytes(database), await _file_bytes(database))


async def _database_bytes(database: Database) -> int:
    total = 0
    for sql in _SESSION_TABLES:
        async for row in _rows(database, sql, 0):
            total += row[1]
    async for [group_id] in _rows(database, _GROUPS, 0):
        for sql in _GROUP_TABLES:
            async for row in _rows(database, sql, -1, group_id):
                total += row[1]
    return total


async def _file_bytes(database: Database) -> int:
    total = 0.0
    async for _, size, file_count in _rows(database, _FILES, b""):
        total += size / file_count
    return round(total)


async def _rows(database: Database, sql: str, first: Any, *values: int) -> AsyncIterator[Row]:
    """Yield the rows of a statement in the order of their keys, which are unique."""
    last, rows = first, None
    while rows is None or len(rows) == _STEP_ROWS:
        rows = await database.read(sql, database.organization_id, *values, last, _STEP_ROWS)
        for row in rows:
            yield row
        last = rows[-1][0] if rows else last
