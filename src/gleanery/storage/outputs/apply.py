"""Applying a prepared batch under the group's lock: decides which outputs are new or changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import Literal, NamedTuple

from gleanery.models.batches import Batch
from gleanery.models.responses import IngestResult, OutputResult
from gleanery.storage.database import Transaction
from gleanery.storage.group_lock import Clock, LockedGroup, lock_or_create
from gleanery.storage.history import storing
from gleanery.storage.idempotency import IdempotentRequest
from gleanery.storage.outputs import mutations, rows
from gleanery.storage.outputs.file_references import reference_files
from gleanery.storage.outputs.hashes import has_same_bytes
from gleanery.storage.outputs.preparation import PreparedBatch, PreparedOutput, UnparsedOutput
from gleanery.storage.outputs.rows import OutputRow
from gleanery.storage.statistics import recording as statistics
from gleanery.storage.statistics.shapes import FieldTable

# The statement does not name the group, although an identity belongs to one group. Without
# statistics a planner could choose an index that begins with the group, and scan it.
_COLUMNS = """
    outputs.identity, sent_hash, id, content_hash, outputs.seq, approved, created_seq, job_id,
    country, file_ids, history_seq, fields, last_scraped_at
"""
FETCH_ROWS = f"SELECT {_COLUMNS} FROM outputs WHERE organization_id = $1 AND identity = $2"
FETCH_UNPARSED = """
SELECT identity, id, sent_hash, content_hash, seq, job_id, fields, last_scraped_at FROM outputs
WHERE organization_id = $1 AND identity = $2
"""
FETCH_WITH_VERSIONS = (
    f"SELECT {_COLUMNS}, {storing.EARLY_COLUMNS} FROM {storing.WITH_SEGMENT.lstrip()}"
)


class UnchangedRow(NamedTuple):
    """The row of an output that was not parsed: the columns that matter if it has not changed."""

    identity: bytes
    id: int
    sent_hash: bytes
    content_hash: bytes
    seq: int
    job_id: int
    fields: bytes | None
    last_scraped_at: int


RowsByIdentity = dict[bytes, OutputRow]
UnchangedRows = dict[bytes, UnchangedRow]
_OUTPUTS_PER_PAUSE = 500
_MIN_EARLY = 16  # parsed outputs; a smaller batch may have parsed unchanged outputs
_NO_SEQ = 0  # of a row whose number is not issued yet


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
    batch: PreparedBatch,
    request: IdempotentRequest | None,
    clock: Clock,
) -> IngestResult:
    """Locks the group and stores what has changed. Raises RulesChanged or UnparsedChanged."""
    locked = await lock_or_create(transaction, group, clock)
    if request is not None:
        stored: IngestResult | None = await request.fetch_response(transaction)
        if stored is not None:  # a concurrent repetition of the request was faster
            return stored
    if (locked.key_fields, locked.schema, locked.identity_format) != batch.rules:
        raise RulesChanged
    results = []
    for outputs in _without_repetitions(batch.outputs):
        results += await _apply(locked, outputs, batch.fields)
    response = summarize(results, batch)
    if request is not None:
        await request.save_response(transaction, response, locked.now)
    await locked.commit_counts()
    return response


def _without_repetitions(
    outputs: Sequence[UnparsedOutput | PreparedOutput],
) -> Iterator[Sequence[UnparsedOutput | PreparedOutput]]:
    """Split a batch where an output occurs again, so that each of its values has a version."""
    seen = {output.identity for output in outputs}
    if len(seen) == len(outputs):
        yield outputs
        return
    start = 0
    seen.clear()
    for index, output in enumerate(outputs):
        if output.identity in seen:
            yield outputs[start:index]
            start = index
            seen.clear()
        seen.add(output.identity)
    yield outputs[start:]


async def _apply(
    locked: LockedGroup,
    outputs: Sequence[UnparsedOutput | PreparedOutput],
    fields: FieldTable,
) -> list[OutputResult]:
    parsed = [output for output in outputs if isinstance(output, PreparedOutput)]
    unparsed = [output for output in outputs if isinstance(output, UnparsedOutput)]
    stored = await _fetch(locked, parsed)
    unchanged = await _fetch_unparsed(locked, unparsed)
    await _apply_pending_job(locked, stored, unchanged)
    _check_unparsed(unchanged, outputs)
    changed = [output for output in parsed if _differs(stored.get(output.identity), output)]
    new = {output.identity for output in changed} - stored.keys()
    new_ids = iter(await locked.transaction.new_output_ids(len(new)) if new else ())
    job_names = dict.fromkeys(output.job for output in changed)
    jobs = await locked.find_or_create_jobs(job_names)
    in_order: RowsByIdentity = {}
    results = []
    for number, output in enumerate(outputs):
        if number % _OUTPUTS_PER_PAUSE == 0:
            await locked.transaction.pause()
        if isinstance(output, PreparedOutput):
            results.append(_apply_output(locked, stored, output, jobs, new_ids, in_order))
        else:
            results.append(_result(unchanged[output.identity], "unchanged"))
    same = [row for row in stored.values() if row.new_value is None]
    _count_new(locked, in_order.values())
    await reference_files(locked, in_order.values(), changed)
    uncounted = [row for row in same if row.fields is None]
    await _record_statistics(locked, in_order.values(), unchanged, same, parsed, fields)
    await _read_replaced(locked, in_order.values())
    _issue_numbers(locked, in_order.values())
    await rows.write(locked, in_order.values())
    await rows.write_sent_hashes(locked, same)
    await rows.write_fields(locked, uncounted)
    await rows.write_last_scraped(locked, [*unchanged, *(row.identity for row in same)])
    return results


async def _record_statistics(
    locked: LockedGroup,
    changed: Collection[OutputRow],
    unchanged: UnchangedRows,
    same: Sequence[OutputRow],
    parsed: Sequence[PreparedOutput],
    fields: FieldTable,
) -> None:
    """Count the outputs of the batch, also those that an older program has stored uncounted."""
    changes = [(row, row.new_value.fields) for row in changed if row.new_value is not None]
    counted = [row for row in same if row.fields is not None]
    if len(counted) < len(same):
        values = {output.identity: output.fields for output in parsed}
        changes += [(row, values[row.identity]) for row in same if row.fields is None]
    await statistics.record(locked, changes, [*unchanged.values(), *counted], fields)


async def _fetch(locked: LockedGroup, outputs: Sequence[PreparedOutput]) -> RowsByIdentity:
    """Reads the rows of parsed outputs, which may have changed; of many also their versions."""
    identities = {output.identity for output in outputs}
    with_versions = len(identities) >= _MIN_EARLY and locked.keep_versions
    return await _fetch_rows(
        locked, identities, FETCH_WITH_VERSIONS if with_versions else FETCH_ROWS
    )


async def _fetch_unparsed(locked: LockedGroup, outputs: Sequence[UnparsedOutput]) -> UnchangedRows:
    identities = [output.identity for output in outputs]
    key = locked.organization_id
    found = await locked.transaction.fetch_by_keys(identities, FETCH_UNPARSED, key)
    return {row[0]: UnchangedRow._make(row) for row in found}


async def _read_replaced(locked: LockedGroup, changed: Collection[OutputRow]) -> None:
    """Reads the versions that the batch replaces, unless they were read with the rows."""
    if locked.keep_versions:
        missing = {
            row.identity: row for row in changed if not row.is_new and row.version_seq is None
        }
        for identity, *columns in await storing.read_present(locked, missing.keys()):
            row = missing[identity]
            row.version_seq, row.item, row.segment_count, row.segment_size = columns


async def _fetch_rows(
    locked: LockedGroup, identities: Collection[bytes], sql: str = FETCH_ROWS
) -> RowsByIdentity:
    found = await locked.transaction.fetch_by_keys(identities, sql, locked.organization_id)
    return {row[0]: OutputRow(*row) for row in found}


async def _apply_pending_job(
    locked: LockedGroup, stored: RowsByIdentity, unchanged: UnchangedRows
) -> None:
    """Applies an unfinished bulk job first: it does not cover the outputs' new sequence numbers."""
    bulk_job = await locked.pending_bulk_job()
    if bulk_job is None:
        return
    rows: list[OutputRow | UnchangedRow] = [*stored.values(), *unchanged.values()]
    pending = [row.identity for row in rows if bulk_job.covers(row.job_id, row.seq)]
    if bulk_job.kind == "delete":
        is_whole_group = bulk_job.job_id is None
        await mutations.delete(locked, pending, is_whole_group, is_bulk=True)
        for identity in pending:
            stored.pop(identity, None)
            unchanged.pop(identity, None)
        return
    approved = bulk_job.kind == "approve"
    await mutations.approve_outputs(locked, pending, approved, bulk_job.as_of)
    stored.update(await _fetch_rows(locked, stored.keys() & pending))


def _check_unparsed(
    stored: UnchangedRows, outputs: Sequence[UnparsedOutput | PreparedOutput]
) -> None:
    """Raises UnparsedChanged unless every unparsed output is stored with the same bytes.

    An output that an older program has stored is parsed, because its fields are not counted.
    """
    changed = [
        index
        for index, output in enumerate(outputs)
        if isinstance(output, UnparsedOutput) and not _is_stored(stored, output)
    ]
    if changed:
        raise UnparsedChanged(changed)


def _is_stored(stored: UnchangedRows, output: UnparsedOutput) -> bool:
    row = stored.get(output.identity)
    return (
        row is not None
        and row.fields is not None
        and has_same_bytes(output.raw_hash, row.sent_hash, row.content_hash)
    )


def _differs(row: OutputRow | None, output: PreparedOutput) -> bool:
    """Returns True if a client can see a difference."""
    return row is None or row.content_hash != output.content_hash


def _apply_output(
    locked: LockedGroup,
    stored: RowsByIdentity,
    output: PreparedOutput,
    jobs: dict[str, int],
    new_ids: Iterator[int],
    in_order: RowsByIdentity,
) -> OutputResult:
    """Changes the row of one output, or adds one, and reports the kind of change.

    A changed row becomes the last one ``in_order``.
    """
    row = stored.get(output.identity)
    if row is None:
        row = _new_row(output, jobs[output.job], next(new_ids))
        stored[output.identity] = in_order[output.identity] = row
        return _result(row, "created")
    if row.sent_hash != output.sent_hash:
        row.sent_hash, row.sent_hash_changed = output.sent_hash, True
    if not _differs(row, output):
        return _result(row, "unchanged")
    _update_row(locked, row, output)
    in_order.pop(output.identity, None)
    in_order[output.identity] = row
    return _result(row, "updated")


def _new_row(output: PreparedOutput, job_id: int, id_: int) -> OutputRow:
    return OutputRow(
        output.identity,
        output.sent_hash,
        id_,
        output.content_hash,
        _NO_SEQ,
        False,
        _NO_SEQ,
        job_id,
        output.country,
        is_new=True,
        new_value=output,
    )


def _update_row(locked: LockedGroup, row: OutputRow, output: PreparedOutput) -> None:
    if row.approved and not output.has_same_value(row.content_hash):
        row.approved, row.replaces_approved = False, True  # a new value needs a new approval
        locked.change_counts(row.job_id, approved=-1)
    if row.country != output.country and not row.is_new:
        locked.change_counts(row.job_id, outputs=-1, country=row.country)
        locked.change_counts(row.job_id, outputs=1, country=output.country)
    row.country, row.content_hash, row.new_value = output.country, output.content_hash, output


def _issue_numbers(locked: LockedGroup, changed: Collection[OutputRow]) -> None:
    """Gives the changed rows their numbers, in this order."""
    locked.refresh_time()
    locked.count_value_changes(len(changed))
    for row in changed:
        row.new_seq = locked.next_sequence_number()
        if row.is_new:
            row.created_seq = row.new_seq


def _count_new(locked: LockedGroup, changed: Collection[OutputRow]) -> None:
    new = Counter((row.job_id, row.country) for row in changed if row.is_new)
    for (job_id, country), count in new.items():
        locked.change_counts(job_id, outputs=count, country=country)


def _result(
    row: OutputRow | UnchangedRow, change: Literal["created", "updated", "unchanged"]
) -> OutputResult:
    return {"id": row.id, "output_id": row.identity.hex(), "change": change}


def summarize(results: Sequence[OutputResult], batch: PreparedBatch | Batch) -> IngestResult:
    """Returns the response. Only a batch that skips invalid elements lists those."""
    counts = Counter(result["change"] for result in results)
    response = IngestResult(
        created=counts["created"],
        updated=counts["updated"],
        unchanged=counts["unchanged"],
        results=[*results],
    )
    if batch.skipped is not None:
        by_position: dict[int, OutputResult | None] = dict.fromkeys(batch.skipped.positions)
        by_position.update(zip(batch.positions, results, strict=True))
        response["results"] = [by_position[position] for position in sorted(by_position)]
        response["skipped"] = len(batch.skipped.positions)
        response["errors"] = [
            {"loc": [*detail.loc], "msg": detail.msg, "type": detail.type}
            for detail in sorted(batch.skipped.details, key=lambda detail: int(detail.loc[1]))
        ]
    return response
