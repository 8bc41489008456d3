"""Outputs that are stored: moved in the group's change order by an approval, or removed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from gleanery.errors import NotFound
from gleanery.storage import files, group_lock
from gleanery.storage.database import Database, Row, Transaction
from gleanery.storage.outputs.items import UPDATE_SEQ, mutable_suffix

_OF_JOB = """
SELECT identity, seq, scraped, approved FROM outputs
WHERE organization_id = $1 AND group_id = $2 AND job_id = $3 AND seq > $4 AND seq <= $5
ORDER BY seq LIMIT $6
"""
_OF_GROUP = """
SELECT identity, seq, scraped, approved FROM outputs
WHERE organization_id = $1 AND group_id = $2 AND seq > $3 AND seq <= $4
ORDER BY seq LIMIT $5
"""
_DELETE = """
DELETE FROM outputs WHERE organization_id = $1 AND identity = $2 AND group_id = $3
RETURNING identity, id, job_id, approved, country, file_ids
"""
_TOMBSTONE = """
INSERT INTO tombstones (organization_id, group_id, seq, id, identity, job)
SELECT $1, $2, $3, $4, $5, name FROM jobs WHERE organization_id = $1 AND id = $6
"""


def _moved(
    locked: group_lock.LockedGroup, identity: bytes, seq: int, approved: bool, scraped: int
) -> Row:
    moving = mutable_suffix(seq, scraped, approved)
    return (locked.organization_id, identity, seq, approved, scraped, moving)


class Span(NamedTuple):
    """Outputs after a place in the change order, up to another, at most so many."""

    after: int
    until: int
    limit: int


async def approve_some(
    locked: group_lock.LockedGroup, job_id: int, approved: bool, span: Span
) -> list[int]:
    """Approves the job's next outputs, or takes the approval back.

    Each output whose approval changes moves in the change order; told are the places of all that
    were looked at.
    """
    of_job = (locked.organization_id, locked.group_id, job_id)
    rows = await locked.transaction.fetch(_OF_JOB, *of_job, *span)
    moved = [
        _moved(locked, identity, locked.next_sequence_number(), approved, scraped)
        for identity, _, scraped, was_approved in rows
        if bool(was_approved) != approved
    ]
    await locked.transaction.execute_many(UPDATE_SEQ, moved)
    locked.count(job_id, approved=len(moved) if approved else -len(moved))
    return [row[1] for row in rows]


async def send_some_again(locked: group_lock.LockedGroup, span: Span) -> int:
    """Gives the group's next outputs new places in the change order; tells how many there were."""
    rows = await locked.transaction.fetch(_OF_GROUP, locked.organization_id, locked.group_id, *span)
    await locked.transaction.execute_many(
        UPDATE_SEQ,
        [
            _moved(locked, identity, locked.next_sequence_number(), bool(approved), scraped)
            for identity, _, scraped, approved in rows
        ],
    )
    return len(rows)


async def delete_some(locked: group_lock.LockedGroup, job_id: int | None, span: Span) -> list[int]:
    """Removes the next outputs of the job, or of the group; told are the places they left."""
    of_group = (locked.organization_id, locked.group_id)
    if job_id is None:
        rows = await locked.transaction.fetch(_OF_GROUP, *of_group, *span)
    else:
        rows = await locked.transaction.fetch(_OF_JOB, *of_group, job_id, *span)
    await delete(locked, [row[0] for row in rows])
    return [row[1] for row in rows]


async def delete(locked: group_lock.LockedGroup, identities: Iterable[bytes]) -> int:
    """Removes outputs of the group; the change order keeps a tombstone of each."""
    gone = await locked.transaction.fetch_many(
        _DELETE, [(locked.organization_id, identity, locked.group_id) for identity in identities]
    )
    tombstones = []
    dropped = Counter[bytes]()
    for identity, id_, job_id, approved, country, file_ids in gone:
        dropped.subtract(files.named_in(file_ids))
        locked.count(job_id, outputs=-1, approved=-int(approved), country=country)
        seq = locked.next_sequence_number()
        tombstones.append((locked.organization_id, locked.group_id, seq, id_, identity, job_id))
    await locked.transaction.execute_many(_TOMBSTONE, tombstones)
    if dropped:
        await files.name(locked, dropped)
    return len(gone)


async def delete_output(
    database: Database, organization_id: int, group: str, output_id: str, clock: group_lock.Clock
) -> int:
    """Removes one output."""
    try:
        identity = bytes.fromhex(output_id)
    except ValueError:
        raise NotFound from None

    async def work(transaction: Transaction) -> int:
        locked = await group_lock.lock(transaction, group, clock)
        gone = await delete(locked, [identity])
        if not gone:
            raise NotFound
        await locked.commit_counts()
        return gone

    return await database.write(work, queue_key=group)
