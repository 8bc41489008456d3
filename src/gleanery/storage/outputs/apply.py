"""Applying a prepared batch under the group's lock: compares it with the stored outputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import Literal

from gleanery.errors import ErrorDetail, ReferenceNotFound
from gleanery.models.responses import IngestAnswer, StoredOutput
from gleanery.storage.files import references
from gleanery.storage.database import Transaction
from gleanery.storage.group_lock import Clock, LockedGroup, lock_or_create
from gleanery.storage.outputs import mutations, rows
from gleanery.storage.outputs.idempotency import IdempotentRequest
from gleanery.storage.outputs.preparation import BatchPreparer, PreparedOutput, UnparsedOutput
from gleanery.storage.outputs.rows import OutputRow

_FILE_NOT_FOUND = "Your organization has no file with this id"

RowsByIdentity = dict[bytes, OutputRow]


class RulesChanged(Exception):
    """The group's rules are not those under which the batch was prepared."""


class UnparsedChanged(Exception):
    """Outputs that were not parsed are new or changed, so that they must be parsed."""

    def __init__(self, indexes: Sequence[int]) -> None:
        self.indexes = indexes


async def apply_batch(
    transaction: Transaction,
    *,
    group: str,
    batch: BatchPreparer,
    request: IdempotentRequest | None,
    clock: Clock,
) -> IngestAnswer:
    """Locks the group and stores what has changed. Raises RulesChanged or UnparsedChanged."""
    locked = await lock_or_create(transaction, group, clock)
    if request is not None:
        response = await request.fetch_response(transaction)
        if response is not None:  # a concurrent repetition of the request was faster
            return response
    if (locked.key_fields, locked.schema) != batch.rules:
        raise RulesChanged
    response = _summarize(await _apply(locked, batch.outputs))
    if request is not None:
        await request.save_response(transaction, response, locked.now)
    await locked.commit_counts()
    return response


async def _apply(
    locked: LockedGroup, outputs: Sequence[UnparsedOutput | PreparedOutput]
) -> list[StoredOutput]:
    stored = await rows.fetch(locked, {output.identity for output in outputs})
    await _apply_pending_job(locked, stored)
    _check_unparsed(stored, outputs)
    changed = [
        output
        for output in outputs
        if isinstance(output, PreparedOutput) and _differs(stored.get(output.identity), output)
    ]
    new = {output.identity for output in changed} - stored.keys()
    new_ids = iter(await locked.transaction.new_output_ids(len(new)) if new else ())
    job_names = dict.fromkeys(output.job for output in changed)
    jobs = {name: await locked.find_or_create_job(name) for name in job_names}
    results = [_apply_output(locked, stored, output, jobs, new_ids) for output in outputs]
    _count_new(locked, stored.values())
    await _reference_files(locked, stored.values(), changed)
    await rows.write(locked, stored.values())
    return results


async def _apply_pending_job(locked: LockedGroup, stored: RowsByIdentity) -> None:
    """Applies an unfinished bulk job to these outputs first, because they may move behind it."""
    bulk_job = await locked.pending_bulk_job()
    if bulk_job is None:
        return
    pending = [row for row in stored.values() if bulk_job.covers(row.job_id, row.seq)]
    if bulk_job.kind == "delete":
        await mutations.delete(locked, [row.identity for row in pending])
        for row in pending:
            del stored[row.identity]
        return
    approved = bulk_job.kind == "approve"
    for row in pending:
        if row.approved != approved:
            row.approved, row.seq = approved, locked.next_sequence_number()
            row.seq_changed = True
            locked.change_counts(row.job_id, approved=1 if approved else -1)


def _check_unparsed(
    stored: RowsByIdentity, outputs: Sequence[UnparsedOutput | PreparedOutput]
) -> None:
    """Raises UnparsedChanged unless every unparsed output is stored with the same bytes."""
    changed = [
        index
        for index, output in enumerate(outputs)
        if isinstance(output, UnparsedOutput)
        and not (output.identity in stored and stored[output.identity].has_bytes(output.raw_hash))
    ]
    if changed:
        raise UnparsedChanged(changed)


def _differs(row: OutputRow | None, output: PreparedOutput) -> bool:
    """Tells if a client can see a difference."""
    return row is None or row.content_hash != output.content_hash


def _apply_output(
    locked: LockedGroup,
    stored: RowsByIdentity,
    output: UnparsedOutput | PreparedOutput,
    jobs: dict[str, int],
    new_ids: Iterator[int],
) -> StoredOutput:
    """Changes the row of one output, or adds one, and reports the kind of change."""
    row = stored.get(output.identity)
    if row is None:
        assert isinstance(output, PreparedOutput)
        row = _new_row(output, jobs[output.job], next(new_ids), locked.next_sequence_number())
        stored[output.identity] = row
        return _result(row, "created")
    if isinstance(output, UnparsedOutput):
        return _result(row, "unchanged")
    if row.sent_hash != output.sent_hash:
        row.sent_hash, row.sent_hash_changed = output.sent_hash, True
    if not _differs(row, output):
        return _result(row, "unchanged")
    _update_row(locked, row, output)
    return _result(row, "updated")


def _new_row(output: PreparedOutput, job_id: int, id_: int, seq: int) -> OutputRow:
    return OutputRow(
        output.identity,
        output.sent_hash,
        id_,
        output.content_hash,
        seq,
        False,
        seq,
        job_id,
        output.country,
        is_new=True,
        new_value=output,
    )


def _update_row(locked: LockedGroup, row: OutputRow, output: PreparedOutput) -> None:
    if row.approved and not output.has_same_value(row.content_hash):
        row.approved = False  # a new value needs a new approval
        locked.change_counts(row.job_id, approved=-1)
    if row.country != output.country and not row.is_new:
        locked.change_counts(row.job_id, outputs=-1, country=row.country)
        locked.change_counts(row.job_id, outputs=1, country=output.country)
    row.country, row.content_hash, row.new_value = output.country, output.content_hash, output
    row.seq = locked.next_sequence_number()


def _count_new(locked: LockedGroup, stored: Collection[OutputRow]) -> None:
    new = Counter((row.job_id, row.country) for row in stored if row.is_new)
    for (job_id, country), count in new.items():
        locked.change_counts(job_id, outputs=count, country=country)


async def _reference_files(
    locked: LockedGroup, stored: Collection[OutputRow], changed: Sequence[PreparedOutput]
) -> None:
    """Renders the files that the new values reference, and updates the files' reference counts."""
    requested = {file.id for output in changed for file in output.files if file.id is not None}
    affected = [row for row in stored if row.new_value and (row.new_value.files or row.file_ids)]
    if not affected and not requested:
        return
    count_changes = Counter(dict.fromkeys(requested, 0))
    for row in affected:
        assert row.new_value is not None
        count_changes.update(file.id for file in row.new_value.files if file.id is not None)
        count_changes.subtract(references.split_ids(row.file_ids))
    found = await references.change_reference_counts(locked, count_changes) if count_changes else {}
    _check_files_found(changed, found)
    renderer = references.FileRenderer(found, locked.now)
    for row in affected:
        assert row.new_value is not None
        row.files_json, row.file_ids = renderer.render(row.new_value.files)


def _check_files_found(changed: Sequence[PreparedOutput], found: Collection[bytes]) -> None:
    missing = [
        ErrorDetail(
            ("body", str(output.position), "files", str(index), "id"), _FILE_NOT_FOUND, "not_found"
        )
        for output in changed
        for index, file in enumerate(output.files)
        if file.id is not None and file.id not in found
    ]
    if missing:
        raise ReferenceNotFound(*missing)


def _result(row: OutputRow, change: Literal["created", "updated", "unchanged"]) -> StoredOutput:
    return {"id": row.id, "output_id": row.identity.hex(), "change": change}


def _summarize(results: list[StoredOutput]) -> IngestAnswer:
    counts = Counter(result["change"] for result in results)
    return IngestAnswer(
        created=counts["created"],
        updated=counts["updated"],
        unchanged=counts["unchanged"],
        results=results,
    )
