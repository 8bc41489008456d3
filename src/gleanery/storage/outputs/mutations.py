"""Changes of stored outputs without a new value: approval, resending and deletion."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from gleanery.errors import no_output
from gleanery.storage import page_sizes
from gleanery.storage.database import Database, Row, Transaction
from gleanery.storage.files.references import change_reference_counts, split_ids
from gleanery.storage.group_lock import Clock, LockedGroup, lock
from gleanery.storage.outputs.hashes import parse_output_id
from gleanery.storage.outputs.rows import UPDATE_SEQ, seq_update
from gleanery.storage.statistics import recording as statistics

_JOB_RANGE = """
SELECT identity, seq, last_scraped_at, approved, octet_length(item)
FROM outputs /* INDEXED BY outputs_by_job */
WHERE organization_id = $1 AND group_id = $2 AND job_id = $3 AND seq > $4 AND seq <= $5
ORDER BY seq LIMIT $6
"""
_GROUP_RANGE = """
SELECT identity, seq, last_scraped_at, approved, octet_length(item) FROM outputs
WHERE organization_id = $1 AND group_id = $2 AND seq > $3 AND seq <= $4
ORDER BY seq LIMIT $5
"""
# The plus sign prevents planners from scanning the whole group to find one identity in it.
_DELETE = """
DELETE FROM outputs WHERE organization_id = $1 AND identity = $2 AND +group_id = $3
RETURNING identity, id, job_id, approved, country, file_ids, shape
"""
_INSERT_TOMBSTONE = """
INSERT INTO tombstones (organization_id, group_id, seq, id, identity, job_name)
SELECT $1, $2, $3, $4, $5, name FROM jobs WHERE organization_id = $1 AND id = $6
"""


_MAX_BYTES = 16 * 1024 * 1024  # of the outputs that one transaction changes


class SeqRange(NamedTuple):
    """A range of sequence numbers, and the maximum number of outputs to take from it."""

    after: int
    until: int
    limit: int

    def first_step(self, rows: Sequence[Row]) -> tuple[Sequence[Row], int | None]:
        """Returns the first outputs of the range, which one transaction can change.

        Also returns the sequence number after which the rest of the range begins; None if there is
        no rest. The last column of a row is the size of the output.
        """
        count = page_sizes.count_fitting([row[-1] for row in rows], _MAX_BYTES)
        is_whole = count == len(rows) < self.limit
        return rows[:count], None if is_whole else rows[count - 1][1]


async def approve_range(
    locked: LockedGroup, job_id: int, approved: bool, seq_range: SeqRange
) -> int | None:
    """Approves outputs of the job, or withdraws their approval.

    If the approval changes, an output gets a new number. Returns the number after which the rest of
    the range begins, or None.
    """
    found = await locked.transaction.fetch(
        _JOB_RANGE, locked.organization_id, locked.group_id, job_id, *seq_range
    )
    rows, done_seq = seq_range.first_step(found)
    locked.refresh_time()
    changed = [
        seq_update(locked, identity, locked.next_sequence_number(size), approved, last_scraped_at)
        for identity, _, last_scraped_at, was_approved, size in rows
        if bool(was_approved) != approved
    ]
    await locked.transaction.execute_many(UPDATE_SEQ, changed)
    locked.change_counts(job_id, approved=len(changed) if approved else -len(changed))
    return done_seq


async def resend_range(locked: LockedGroup, seq_range: SeqRange) -> int:
    """Gives outputs of the group new sequence numbers, so that clients read them again.

    Returns the number of outputs.
    """
    found = await locked.transaction.fetch(
        _GROUP_RANGE, locked.organization_id, locked.group_id, *seq_range
    )
    rows, _ = seq_range.first_step(found)
    locked.refresh_time()
    await locked.transaction.execute_many(
        UPDATE_SEQ,
        [
            seq_update(
                locked, identity, locked.next_sequence_number(size), bool(approved), last_scraped_at
            )
            for identity, _, last_scraped_at, approved, size in rows
        ],
    )
    return len(rows)


async def delete_range(locked: LockedGroup, job_id: int | None, seq_range: SeqRange) -> int | None:
    """Deletes outputs of the job, or of the whole group.

    Returns the number after which the rest of the range begins, or None.
    """
    group_key = (locked.organization_id, locked.group_id)
    if job_id is None:
        found = await locked.transaction.fetch(_GROUP_RANGE, *group_key, *seq_range)
    else:
        found = await locked.transaction.fetch(_JOB_RANGE, *group_key, job_id, *seq_range)
    rows, done_seq = seq_range.first_step(found)
    await delete(locked, [row[0] for row in rows])
    return done_seq


async def delete(locked: LockedGroup, identities: Iterable[bytes]) -> int:
    """Deletes outputs of the group, and stores a tombstone of each. Returns how many existed."""
    deleted = await locked.transaction.fetch_many(
        _DELETE, [(locked.organization_id, identity, locked.group_id) for identity in identities]
    )
    locked.refresh_time()
    tombstones = []
    references = Counter[bytes]()
    for identity, id_, job_id, approved, country, file_ids, _ in deleted:
        references.subtract(split_ids(file_ids))
        locked.change_counts(job_id, outputs=-1, approved=-int(approved), country=country)
        seq = locked.next_sequence_number()
        tombstones.append((locked.organization_id, locked.group_id, seq, id_, identity, job_id))
    await locked.transaction.execute_many(_INSERT_TOMBSTONE, tombstones)
    await statistics.subtract(locked, [(row[0], row[2], row[6]) for row in deleted])
    if references:
        await change_reference_counts(locked, references)
    return len(deleted)


async def delete_output(database: Database, group: str, output_id: str, clock: Clock) -> int:
    """Deletes one output. Raises NotFound if the group has no such output."""
    identity = parse_output_id(output_id)

    async def work(transaction: Transaction) -> int:
        locked = await lock(transaction, group, clock)
        deleted = await delete(locked, [identity])
        if not deleted:
            raise no_output()
        await locked.commit_counts()
        return deleted

    return await database.write(work, queue_key=group)
