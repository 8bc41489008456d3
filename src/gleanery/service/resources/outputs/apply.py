"""Applying a prepared batch under the group's lock: decides which outputs are new or changed.

A batch that has an output several times is applied in rounds. Round k has the k-th value of each
output, so every value has a version, as if each came in another request.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Literal, NamedTuple

from gleanery.service.resources.fields import recording as statistics
from gleanery.service.resources.fields.batch_runs import (
    CREATED,
    UPDATED,
    BatchRuns,
    Sighting,
    find_run,
)
from gleanery.service.resources.fields.shapes import FieldTable
from gleanery.service.resources.history import storing
from gleanery.service.resources.outputs import mutations, rows
from gleanery.service.resources.outputs.batches import Batch, PreparedBatch
from gleanery.service.resources.outputs.elements import (
    PreparedOutput,
    UnparsedOutput,
    has_same_bytes,
)
from gleanery.service.resources.outputs.models import IngestResult, OutputResult
from gleanery.service.resources.outputs.rows import OutputRow, reference_files
from gleanery.service.storage.database import Transaction
from gleanery.service.storage.group_lock import Clock, LockedGroup, lock_or_create
from gleanery.service.storage.idempotency import IdempotentRequest

# The statement does not name the group, although an identity belongs to one group. Without
# statistics a planner could choose an index that begins with the group, and scan it.
_COLUMNS = """
    outputs.identity, sent_hash, id, content_hash, outputs.seq, approved, created_seq, job_id,
    country, file_ids, history_seq, fields, last_scraped_at, outputs.run_id, run_change,
    missing_since
"""
FETCH_ROWS = f"SELECT {_COLUMNS} FROM outputs WHERE organization_id = $1 AND identity = $2"
FETCH_UNPARSED = """
SELECT identity, id, sent_hash, content_hash, seq, job_id, fields, last_scraped_at, run_id,
    run_change, missing_since
FROM outputs
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
    run_id: int
    run_change: int
    missing_since: int


RowsByIdentity = dict[bytes, OutputRow]
UnchangedRows = dict[bytes, UnchangedRow]
_OUTPUTS_PER_PAUSE = 500
_MIN_EARLY = 16  # parsed outputs; a smaller batch may have parsed unchanged outputs
_MAX_ROUNDS = 100  # each one costs some milliseconds on PostgreSQL
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
    run_id: str | None = None,
) -> IngestResult:
    """Locks the group and stores what has changed. Raises RulesChanged or UnparsedChanged."""
    locked = await lock_or_create(transaction, group, clock)
    if request is not None:
        stored: IngestResult | None = await request.fetch_response(transaction)
        if stored is not None:  # a concurrent repetition of the request was faster
            return stored
    if (locked.key_fields, locked.schema, locked.identity_format) != batch.rules:
        raise RulesChanged
    runs = BatchRuns(locked, None if run_id is None else await find_run(locked, run_id))
    results = await _apply_in_rounds(locked, runs, batch.outputs, batch.fields)
    await runs.reject(0 if batch.skipped is None else len(batch.skipped.positions))
    await runs.save()
    response = summarize(results, batch)
    if request is not None:
        await request.save_response(transaction, response, locked.now)
    await locked.commit_counts()
    return response


class _Repetitions:
    """The values of a batch that follow another value of the same output.

    Of more than 100 values of an output, only the first and the last 99 are applied. A value that
    equals the one before it does not count.
    """

    def __init__(self, outputs: Sequence[UnparsedOutput | PreparedOutput]) -> None:
        self.first: list[PreparedOutput] = []
        """The first value of each output."""
        self.following: list[PreparedOutput] = []
        """All later values that differ from the one before them."""
        self.later_rounds: list[list[PreparedOutput]] = []
        self.changes: list[Literal["updated", "unchanged"] | None] = []
        """The result of each element; None for the first value of an output."""
        self.numbers: dict[int, int] = {}
        """The sequence number of each change, by its position in the request."""
        self._divide(outputs)

    def _divide(self, outputs: Sequence[UnparsedOutput | PreparedOutput]) -> None:
        values = defaultdict[bytes, list[PreparedOutput]](list)
        for output in outputs:
            assert isinstance(output, PreparedOutput)  # see preparation.prepare
            earlier = values[output.identity]
            if not earlier:
                self.changes.append(None)
            elif earlier[-1].content_hash != output.content_hash:
                self.changes.append("updated")
                self.following.append(output)
            else:  # the first rendering is stored, and the last bytes are recognised
                self.changes.append("unchanged")
                earlier[-1] = earlier[-1]._replace(sent_hash=output.sent_hash)
                continue
            earlier.append(output)
        for of_output in values.values():
            self.first.append(of_output[0])
            for number, output in enumerate(_applied_later(of_output)):
                if number == len(self.later_rounds):
                    self.later_rounds.append([])
                self.later_rounds[number].append(output)
        for of_round in self.later_rounds:
            of_round.sort(key=_position)

    def issue_numbers(self, locked: LockedGroup, changed: Collection[OutputRow]) -> None:
        """Issue the numbers of all rounds in the order of the request, as the feed shows them."""
        values = [row.new_value for row in changed if row.new_value is not None]
        for of_round in self.later_rounds:
            values += of_round
        for position in sorted(map(_position, values)):
            self.numbers[position] = locked.next_sequence_number()


_position = attrgetter("position")


def _applied_later(values: Sequence[PreparedOutput]) -> Sequence[PreparedOutput]:
    """Return the values of an output to apply after the first. Each differs from the one before."""
    if len(values) <= _MAX_ROUNDS:
        return values[1:]
    last = values[1 - _MAX_ROUNDS :]
    return last[1:] if last[0].content_hash == values[0].content_hash else last


async def _apply_in_rounds(
    locked: LockedGroup,
    runs: BatchRuns,
    outputs: Sequence[UnparsedOutput | PreparedOutput],
    fields: FieldTable,
) -> list[OutputResult]:
    if len({output.identity for output in outputs}) == len(outputs):
        return await _apply(locked, runs, outputs, fields)
    repetitions = _Repetitions(outputs)
    first = await _apply(locked, runs, repetitions.first, fields, repetitions)
    for of_round in repetitions.later_rounds:
        await _apply(locked, runs, of_round, fields, repetitions)
    by_identity = {
        output.identity: result for output, result in zip(repetitions.first, first, strict=True)
    }
    results = []
    for output, change in zip(outputs, repetitions.changes, strict=True):
        result = by_identity[output.identity]
        results.append(
            result
            if change is None
            else OutputResult(id=result["id"], output_id=result["output_id"], change=change)
        )
    return results


async def _apply(
    locked: LockedGroup,
    runs: BatchRuns,
    outputs: Sequence[UnparsedOutput | PreparedOutput],
    fields: FieldTable,
    repetitions: _Repetitions | None = None,
) -> list[OutputResult]:
    """Apply outputs that differ from each other; with ``repetitions``, those of one round."""
    parsed = [output for output in outputs if isinstance(output, PreparedOutput)]
    unparsed = [output for output in outputs if isinstance(output, UnparsedOutput)]
    stored = await _fetch(locked, parsed)
    unchanged = await _fetch_unparsed(locked, [output.identity for output in unparsed])
    await _apply_pending_job(locked, stored, unchanged)
    _check_unparsed(unchanged, outputs)
    changed = [output for output in parsed if _differs(stored.get(output.identity), output)]
    new = {output.identity for output in changed} - stored.keys()
    new_ids = iter(await locked.transaction.new_output_ids(len(new)) if new else ())
    job_names = dict.fromkeys(output.job for output in changed)
    jobs = await locked.find_or_create_jobs(job_names)
    found: list[OutputRow | UnchangedRow] = [*stored.values(), *unchanged.values()]
    await runs.load({*jobs.values(), *(row.job_id for row in found)})
    await runs.settle(found)
    changed_rows: list[OutputRow] = []
    results = []
    for number, output in enumerate(outputs):
        if number % _OUTPUTS_PER_PAUSE == 0:
            await locked.transaction.pause()
        if isinstance(output, PreparedOutput):
            results.append(_apply_output(locked, stored, output, jobs, new_ids, changed_rows))
        else:
            results.append(_result(unchanged[output.identity], "unchanged"))
    same = [row for row in stored.values() if row.new_value is None]
    _count_new(locked, changed_rows)
    if repetitions and not repetitions.numbers:
        # The first round finds all unknown files, and those of values that are not applied.
        changed = sorted([*changed, *repetitions.following], key=_position)
    await reference_files(locked, changed_rows, changed)
    uncounted = [row for row in same if row.fields is None]
    sightings = await runs.sightings([*changed_rows, *same, *unchanged.values()])
    await _record_statistics(locked, runs, sightings, changed_rows, unchanged, same, parsed, fields)
    _count_in_runs(runs, sightings, changed_rows, [*unchanged.values(), *same])
    await _read_replaced(locked, changed_rows)
    _issue_numbers(locked, changed_rows, repetitions)
    await rows.write(locked, changed_rows)
    await rows.write_sent_hashes(locked, same)
    await rows.write_fields(locked, uncounted)
    await _write_last_scraped(locked, runs, sightings, [*unchanged.values(), *same])
    return results


def _count_in_runs(
    runs: BatchRuns,
    sightings: Mapping[bytes, Sighting],
    changed: Collection[OutputRow],
    unchanged: Iterable[OutputRow | UnchangedRow],
) -> None:
    """Count the outputs in the runs of their jobs, and give each changed one its run."""
    for row in changed:
        row.run_change = runs.count(row, CREATED if row.is_new else UPDATED, sightings)
        row.run_id = runs.current[row.job_id].id
    runs.count_unchanged(unchanged, sightings)


async def _write_last_scraped(
    locked: LockedGroup,
    runs: BatchRuns,
    sightings: Mapping[bytes, Sighting],
    outputs: Iterable[OutputRow | UnchangedRow],
) -> None:
    identities = [(row.identity, runs.current[row.job_id].id) for row in outputs]
    run_ids = {run_id for _, run_id in identities}
    if len(run_ids) == 1:  # the usual case
        await rows.write_last_scraped(locked, [one for one, _ in identities], run_ids.pop())
    else:
        await rows.write_last_scraped_of_runs(locked, identities)
    seen = [(one, sightings[one].change) for one, _ in identities if one in sightings]
    await rows.write_run_changes(locked, seen)


async def _record_statistics(
    locked: LockedGroup,
    runs: BatchRuns,
    sightings: Mapping[bytes, Sighting],
    changed: Collection[OutputRow],
    unchanged: UnchangedRows,
    same: Sequence[OutputRow],
    parsed: Sequence[PreparedOutput],
    fields: FieldTable,
) -> None:
    """Count the outputs of the batch, with those that an older program has not counted."""
    changes = [(row, row.new_value.fields) for row in changed if row.new_value is not None]
    counted = [row for row in same if row.fields is not None]
    if len(counted) < len(same):
        values = {output.identity: output.fields for output in parsed}
        changes += [(row, values[row.identity]) for row in same if row.fields is None]
    seen: list[OutputRow | UnchangedRow] = [*unchanged.values(), *counted]
    await statistics.record(locked, runs, sightings, changes, seen, fields)


async def _fetch(locked: LockedGroup, outputs: Sequence[PreparedOutput]) -> RowsByIdentity:
    """Read the rows of parsed outputs, which may have changed; of many also their versions."""
    identities = {output.identity for output in outputs}
    with_versions = len(identities) >= _MIN_EARLY and locked.keep_versions
    return await _fetch_rows(
        locked, identities, FETCH_WITH_VERSIONS if with_versions else FETCH_ROWS
    )


async def _fetch_unparsed(locked: LockedGroup, identities: Collection[bytes]) -> UnchangedRows:
    key = locked.organization_id
    found = await locked.transaction.fetch_by_keys(identities, FETCH_UNPARSED, key)
    return {row[0]: UnchangedRow._make(row) for row in found}


async def _read_replaced(locked: LockedGroup, changed: Collection[OutputRow]) -> None:
    """Read the versions that the batch replaces, unless they were read with the rows."""
    if locked.keep_versions:
        missing = {
            row.identity: row for row in changed if not row.is_new and row.version_seq is None
        }
        for present in await storing.read_present(locked, missing.keys()):
            row = missing[present.identity]
            _, row.version_seq, row.item, row.segment_count, row.segment_size = present


async def _fetch_rows(
    locked: LockedGroup, identities: Collection[bytes], sql: str = FETCH_ROWS
) -> RowsByIdentity:
    found = await locked.transaction.fetch_by_keys(identities, sql, locked.organization_id)
    return {row[0]: OutputRow(*row) for row in found}


async def _apply_pending_job(
    locked: LockedGroup, stored: RowsByIdentity, unchanged: UnchangedRows
) -> None:
    """Apply an unfinished bulk job first: it does not cover the outputs' new sequence numbers."""
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
    unchanged.update(await _fetch_unparsed(locked, unchanged.keys() & pending))


def _check_unparsed(
    stored: UnchangedRows, outputs: Sequence[UnparsedOutput | PreparedOutput]
) -> None:
    """Raise UnparsedChanged unless every unparsed output is stored with the same bytes.

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
    """Return True if a client can see a difference."""
    return row is None or row.content_hash != output.content_hash


def _apply_output(
    locked: LockedGroup,
    stored: RowsByIdentity,
    output: PreparedOutput,
    jobs: dict[str, int],
    new_ids: Iterator[int],
    changed: list[OutputRow],
) -> OutputResult:
    """Change the row of one output, or add one, and report the kind of change."""
    row = stored.get(output.identity)
    if row is None:
        row = _new_row(output, jobs[output.job], next(new_ids))
        changed.append(row)
        return _result(row, "created")
    if row.sent_hash != output.sent_hash:
        row.sent_hash, row.sent_hash_changed = output.sent_hash, True
    if not _differs(row, output):
        return _result(row, "unchanged")
    _update_row(locked, row, output)
    changed.append(row)
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
    if row.country != output.country:
        locked.change_counts(row.job_id, outputs=-1, country=row.country)
        locked.change_counts(row.job_id, outputs=1, country=output.country)
    row.country, row.content_hash, row.new_value = output.country, output.content_hash, output


def _issue_numbers(
    locked: LockedGroup, changed: Collection[OutputRow], repetitions: _Repetitions | None
) -> None:
    """Give the changed rows their numbers, in this order. The first round issues those of all."""
    locked.count_value_changes(len(changed))
    numbers = repetitions.numbers if repetitions else {}
    if not numbers:
        locked.refresh_time()
        if repetitions:
            repetitions.issue_numbers(locked, changed)
    for row in changed:
        if row.new_value is not None and numbers:
            row.new_seq = numbers[row.new_value.position]
        else:
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
    """Return the response. Only a batch that skips invalid elements lists those."""
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
