"""Changes of stored outputs without a new value: approval, resending and deletion."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from operator import attrgetter
from typing import NamedTuple

from gleanery.service.foundation.errors import no_output
from gleanery.service.resources.fields import recording as statistics
from gleanery.service.resources.files.references import change_reference_counts, split_ids
from gleanery.service.resources.history import storing
from gleanery.service.resources.outputs.elements import parse_output_id
from gleanery.service.resources.outputs.rows import (
    UPDATE_SEQ,
    Removal,
    add_view_tombstones,
    copies_stored_until,
    delete_copies,
    seq_update,
)
from gleanery.service.resources.run_records import comparison
from gleanery.service.resources.run_records.rows import fetch_open
from gleanery.service.storage import paging
from gleanery.service.storage.database import Database, Row, Transaction, indexed
from gleanery.service.storage.group_lock import Clock, LockedGroup, lock

_COLUMNS = """
identity, seq, last_scraped_at, approved, version_seq, view_seq, id, job_id, missing_since,
octet_length(item)
"""
_BY_IDENTITY = f"SELECT {_COLUMNS} FROM outputs WHERE organization_id = $1 AND identity = $2"
_JOB_RANGE = indexed(
    f"""
SELECT {_COLUMNS} FROM {{outputs}}
WHERE organization_id = $1 AND group_id = $2 AND job_id = $3 AND seq > $4 AND seq <= $5
ORDER BY seq LIMIT $6
""",
    outputs="outputs_by_job",
)
_GROUP_RANGE = f"""
SELECT {_COLUMNS} FROM outputs
WHERE organization_id = $1 AND group_id = $2 AND seq > $3 AND seq <= $4
ORDER BY seq LIMIT $5
"""
# The plus sign prevents planners from scanning the whole group to find one identity in it.
_IN_GROUP = """
SELECT 1 FROM outputs WHERE organization_id = $1 AND identity = $2 AND +group_id = $3
"""
_DELETE = """
DELETE FROM outputs WHERE organization_id = $1 AND identity = $2 AND +group_id = $3
RETURNING identity, id, job_id, approved, view_seq, country, file_ids, fields, run_id, run_change,
    seq, last_scraped_at, missing_since
"""
_INSERT_TOMBSTONE = """
INSERT INTO tombstones (organization_id, group_id, seq, id, identity, job_name, reason)
SELECT organization_id, $2, $3, $4, $5, name, $7 FROM jobs WHERE organization_id = $1 AND id = $6
"""
_SET_VERSION_SEQ = (
    "UPDATE outputs SET version_seq = seq WHERE organization_id = $1 AND identity = $2"
)
_SET_OUT_OF_VIEW = "UPDATE outputs SET view_seq = 0 WHERE organization_id = $1 AND identity = $2"


MAX_BYTES = 16 * 1024 * 1024
"""The maximum size of the outputs that one transaction changes."""


class _StoredOutput(NamedTuple):
    """The columns of an output that a change without a new value depends on."""

    identity: bytes
    seq: int
    last_scraped_at: int
    approved: bool
    version_seq: int
    view_seq: int
    id: int
    job_id: int
    missing_since: int
    size: int


class _DeletedRow(NamedTuple):
    """The columns of a deleted output."""

    identity: bytes
    id: int
    job_id: int
    approved: bool
    view_seq: int
    country: str | None
    file_ids: bytes
    fields: bytes | None
    run_id: int
    run_change: int
    seq: int
    last_scraped_at: int
    missing_since: int


class _Step(NamedTuple):
    """The outputs that one transaction changes."""

    outputs: Sequence[_StoredOutput]
    done_seq: int | None
    """Sequence number after which the rest of the range begins; None if there is no rest."""


class SeqRange(NamedTuple):
    """A range of sequence numbers, and the maximum number of outputs to take from it."""

    after: int
    until: int
    limit: int

    def first_step(self, rows: Sequence[Row]) -> _Step:
        """Return the first outputs of the range, which one transaction can change."""
        outputs = [_StoredOutput(*row) for row in rows]
        count = paging.count_fitting([output.size for output in outputs], MAX_BYTES)
        is_whole = count == len(rows) < self.limit
        return _Step(outputs[:count], None if is_whole else outputs[count - 1].seq)


async def approve_range(
    locked: LockedGroup, job_id: int, approved: bool, seq_range: SeqRange, as_of: int
) -> int | None:
    """Approve or unapprove outputs of the job whose values were stored up to ``as_of``.

    Return the number after which the rest of the range begins, or None.
    """
    found = await locked.transaction.fetch(
        _JOB_RANGE, locked.organization_id, locked.group_id, job_id, *seq_range
    )
    step = seq_range.first_step(found)
    await _set_approval(locked, step.outputs, approved, as_of)
    return step.done_seq


async def approve_outputs(
    locked: LockedGroup, identities: Collection[bytes], approved: bool, as_of: int
) -> None:
    """Approve or unapprove those of the outputs whose values were stored up to ``as_of``."""
    rows = await locked.transaction.fetch_by_keys(identities, _BY_IDENTITY, locked.organization_id)
    outputs = sorted((_StoredOutput(*row) for row in rows), key=attrgetter("seq"))
    await _set_approval(locked, outputs, approved, as_of)


async def _set_approval(
    locked: LockedGroup, outputs: Sequence[_StoredOutput], approved: bool, as_of: int
) -> None:
    """Set the approval of outputs. If it changes, an output gets a new number."""
    locked.refresh_time()
    later = [output for output in outputs if output.version_seq > as_of]
    if approved:
        await _approve(locked, [output for output in outputs if output.version_seq <= as_of])
        return
    # The reviewer has seen the earlier version that the view has of an output.
    seen = await copies_stored_until(locked, _copied(later), as_of)
    unseen = {output.identity for output in later} - seen
    await _unapprove(locked, [output for output in outputs if output.identity not in unseen])


async def _approve(locked: LockedGroup, outputs: Sequence[_StoredOutput]) -> None:
    """Approve outputs: the view has their present values from now on."""
    unapproved = [output for output in outputs if not output.approved]
    await comparison.settle(locked, unapproved)
    updates = []
    for output in unapproved:
        seq = locked.next_sequence_number(output.size)
        updates.append(_seq_update(locked, output, seq, True, output.view_seq or seq))
        locked.change_counts(output.job_id, approved=1)
    await locked.transaction.execute_many(UPDATE_SEQ, updates)
    await delete_copies(locked, _copied(outputs))


async def _unapprove(locked: LockedGroup, outputs: Sequence[_StoredOutput]) -> None:
    """Remove outputs from the view. One with a newer value keeps its place in the full order."""
    await comparison.settle(locked, [output for output in outputs if output.approved])
    updates, removals = [], []
    for output in outputs:
        if output.approved:
            seq = locked.next_sequence_number(output.size)
            updates.append(_seq_update(locked, output, seq, False, view_seq=0))
            locked.change_counts(output.job_id, approved=-1)
        elif output.view_seq:
            seq = locked.next_sequence_number()
        else:
            continue
        removals.append(Removal(seq, output.id, output.identity, output.job_id))
    copied = _copied(outputs)
    await locked.transaction.execute_many(UPDATE_SEQ, updates)
    await locked.transaction.execute_many(
        _SET_OUT_OF_VIEW, [(locked.organization_id, identity) for identity in copied]
    )
    await delete_copies(locked, copied)
    await add_view_tombstones(locked, removals)


def _copied(outputs: Iterable[_StoredOutput]) -> list[bytes]:
    """Return the outputs of which the view has an earlier version."""
    return [output.identity for output in outputs if output.view_seq and not output.approved]


def _seq_update(
    locked: LockedGroup, output: _StoredOutput, seq: int, approved: bool, view_seq: int
) -> Row:
    return seq_update(locked, output.identity, seq, approved, output.last_scraped_at, view_seq)


async def resend_range(locked: LockedGroup, seq_range: SeqRange) -> int:
    """Give outputs of the group new sequence numbers, so that clients read them again.

    Return the number of outputs.
    """
    found = await locked.transaction.fetch(
        _GROUP_RANGE, locked.organization_id, locked.group_id, *seq_range
    )
    step = seq_range.first_step(found)
    await comparison.settle(locked, step.outputs)
    locked.refresh_time()
    updates = []
    for output in step.outputs:
        seq = locked.next_sequence_number(output.size)
        updates.append(_seq_update(locked, output, seq, bool(output.approved), output.view_seq))
    await locked.transaction.execute_many(UPDATE_SEQ, updates)
    await locked.transaction.execute_many(_SET_VERSION_SEQ, [update[:2] for update in updates])
    return len(step.outputs)


async def delete_range(locked: LockedGroup, job_id: int | None, seq_range: SeqRange) -> int | None:
    """Delete outputs of the job, or of the whole group.

    Return the number after which the rest of the range begins, or None.
    """
    group_key = (locked.organization_id, locked.group_id)
    if job_id is None:
        found = await locked.transaction.fetch(_GROUP_RANGE, *group_key, *seq_range)
    else:
        found = await locked.transaction.fetch(_JOB_RANGE, *group_key, job_id, *seq_range)
    step = seq_range.first_step(found)
    identities = [output.identity for output in step.outputs]
    await delete(locked, identities, is_whole_group=job_id is None, is_bulk=True)
    return step.done_seq


async def delete(
    locked: LockedGroup,
    identities: Collection[bytes],
    is_whole_group: bool = False,
    is_bulk: bool = False,
    reason: str | None = None,
) -> int:
    """Delete outputs of the group, and store a tombstone of each. Return how many existed.

    Their history stays, unless the whole group is deleted: then the bulk job deletes it. The
    change feed tells the reason.
    """
    last_versions = () if is_whole_group else await storing.read_last_versions(locked, identities)
    found = await locked.transaction.fetch_many(
        _DELETE, [(locked.organization_id, identity, locked.group_id) for identity in identities]
    )
    deleted = [_DeletedRow(*row) for row in found]
    open_runs = await fetch_open(locked, {row.job_id for row in deleted})
    await comparison.settle(locked, deleted, open_runs, are_removed=reason == "missing")
    locked.refresh_time()
    locked.count_value_changes(len(deleted))
    tombstones, copied, removals = [], [], []
    references = Counter[bytes]()
    for row in deleted:
        references.subtract(split_ids(row.file_ids))
        locked.change_counts(
            row.job_id, outputs=-1, approved=-int(row.approved), country=row.country
        )
        removal = Removal(locked.next_sequence_number(), row.id, row.identity, row.job_id, reason)
        tombstones.append((locked.organization_id, locked.group_id, *removal))
        if row.view_seq:
            removals.append(removal)
            if not row.approved:
                copied.append(row.identity)
    await locked.transaction.execute_many(_INSERT_TOMBSTONE, tombstones)
    await storing.store_last_versions(locked, last_versions, {row[4]: row[2] for row in tombstones})
    await add_view_tombstones(locked, removals)
    await delete_copies(locked, copied)
    await statistics.subtract(
        locked,
        [
            statistics.DeletedOutput(
                row.identity, row.job_id, row.fields, row.run_id, row.run_change
            )
            for row in deleted
        ],
        open_runs,
        is_bulk=is_bulk,
    )
    if references:
        await change_reference_counts(locked, references)
    return len(deleted)


async def delete_output(database: Database, group: str, output_id: str, clock: Clock) -> int:
    """Delete one output. Raise NotFound if the group has no such output."""
    identity = parse_output_id(output_id)

    async def work(transaction: Transaction) -> int:
        locked = await lock(transaction, group, clock)
        key = (locked.organization_id, identity, locked.group_id)
        if not await transaction.fetch(_IN_GROUP, *key):
            raise no_output()
        deleted = await delete(locked, [identity])
        await locked.commit_counts()
        return deleted

    return await database.write(work, queue_key=group)
