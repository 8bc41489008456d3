"""Storing a batch: each output under its key, in the group's change order, whole or not at all."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from gleanery.errors import ErrorDetail, ReferenceNotFound
from gleanery.json_schema.validator import SchemaValidator
from gleanery.models.batches import Batch
from gleanery.models.responses import IngestAnswer, StoredOutput
from gleanery.storage import files, group_lock
from gleanery.storage.database import Database, Transaction
from gleanery.storage.outputs import idempotency
from gleanery.storage.outputs.items import (
    UPDATE_LAST_SCRAPED,
    UPDATE_SEQ,
    item,
    mutable_suffix,
    scraped_date,
)
from gleanery.storage.outputs.mutations import delete
from gleanery.storage.outputs.preparation import (
    BatchPreparer,
    OutputKeyHash,
    PreparedOutput,
    content_of,
    sent_hash_of,
)
from gleanery.storage.outputs.rules import rules_of
from gleanery.values import timestamps
from gleanery.values.hashing import fingerprint

# An identity is looked up without its group, which it was hashed from: an index that begins with
# the group would look as good to a planner without statistics, and be a scan.
_KNOWN = """
SELECT identity, sent, id, content, seq, approved, created, job_id, country, file_ids
FROM outputs WHERE organization_id = $1 AND identity = $2
"""
_SENT = "SELECT sent, content FROM outputs WHERE organization_id = $1 AND identity = $2"
_CREATE = """
INSERT INTO outputs
    (organization_id, identity, seq, approved, scraped, item,
     sent, content, url, country, region, file_ids, id, group_id, job_id, created)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)
"""
_UPDATE = """
UPDATE outputs SET
    seq = $3, approved = $4, scraped = $5, item = $6,
    sent = $7, content = $8, url = $9, country = $10, region = $11, file_ids = $12
WHERE organization_id = $1 AND identity = $2
"""
_MARK = "UPDATE outputs SET sent = $3 WHERE organization_id = $1 AND identity = $2"
_FEW = 16  # outputs that are read sooner than it can be found out whether they must be
_NO_FILE = "Your organization has no such file"


@dataclass(slots=True)
class _Output:
    """The state of one output while its batch is applied."""

    identity: bytes
    sent: bytes
    id: int
    content: bytes
    seq: int
    approved: bool
    created: int
    job_id: int
    country: str | None
    file_ids: bytes = b""
    files: bytes = b""
    is_new: bool = False
    has_moved: bool = False
    is_spelled_anew: bool = False
    new_value: PreparedOutput | None = None

    @property
    def concerns_files(self) -> bool:
        """Whether its new value names files, or the one before did."""
        return self.new_value is not None and bool(self.new_value.files or self.file_ids)

    def was_sent_in(self, mark: bytes) -> bool:
        """Whether what it says came in just the bytes of this mark."""
        return bool(mark) and self.sent == sent_hash_of(mark, self.content)

    def differs(self, draft: PreparedOutput) -> bool:
        """Whether a client could see a difference."""
        return self.content != draft.content


class _Unread(Exception):
    """Some outputs, by their numbers, are not what they were last time, or are new."""

    def __init__(self, numbers: Sequence[int]) -> None:
        self.numbers = numbers


async def store_outputs(
    database: Database,
    schemas: SchemaValidator,
    organization_id: int,
    group: str,
    batch: Batch,
    clock: group_lock.Clock,
    idempotency_key: str | None = None,
) -> IngestAnswer:
    """Stores the batch whole or not at all; an output met before moves only if it changed.

    The same batch under the same idempotency key is answered as it was the first time.
    """

    async def work(transaction: Transaction) -> IngestAnswer | None:
        locked = await group_lock.lock_or_create(transaction, group, clock)
        earlier = request and await request.earlier_answer(transaction.fetch)
        if earlier is not None:  # from a repetition that was faster
            return earlier
        if (locked.key_fields, locked.schema) != drafting.rules:
            return None  # they were changed in between
        answer = await _store(locked, drafting.drafts)
        if request is not None:
            await request.note(transaction, answer, locked.now)
        await locked.commit_counts()
        return answer

    if not batch.heads:
        return _answer([])
    request = None
    if idempotency_key is not None:
        # What the group's rules make of the batch is no part of it: they may change meanwhile.
        batch = await asyncio.to_thread(batch.read_whole)
        content = await asyncio.to_thread(content_of, batch.read(range(len(batch.heads))))
        identity = fingerprint(group, idempotency_key, batch.places[0])
        request = idempotency.Request(organization_id, identity, content)
        earlier = await request.earlier_answer(database.read)
        if earlier is not None:
            return earlier
    drafting = await _drafting(database, schemas, organization_id, group, batch)
    while True:
        try:
            answer = await database.write(work, queue_key=group)
        except _Unread as unread:
            await asyncio.to_thread(drafting.read, unread.numbers)
            continue
        if answer is not None:
            return answer
        drafting = await _drafting(database, schemas, organization_id, group, batch)


async def _drafting(
    database: Database, schemas: SchemaValidator, organization_id: int, group: str, batch: Batch
) -> BatchPreparer:
    """Begins to draft under the group's rules, which may need to know all that the batch says."""
    rules = await rules_of(database, organization_id, group)
    if rules.look_into_data:
        batch = await asyncio.to_thread(batch.read_whole)
        await rules.check(schemas, batch)
    drafting = BatchPreparer(organization_id, group, batch, rules)
    must_be_read = len(batch.heads) < _FEW or await _begins_with_news(
        database, organization_id, drafting
    )
    # Hashing and rendering is work: in a thread, so that other requests get their turns.
    await asyncio.to_thread(drafting.begin, must_be_read)
    return drafting


async def _begins_with_news(
    database: Database, organization_id: int, drafting: BatchPreparer
) -> bool:
    """Whether the first output is not what it was; then the others hardly are."""
    identity, mark, _ = drafting.first()
    rows = await database.read(_SENT, organization_id, identity)
    return not mark or not rows or rows[0][0] != sent_hash_of(mark, rows[0][1])


async def _store(
    locked: group_lock.LockedGroup, drafts: Sequence[OutputKeyHash | PreparedOutput]
) -> IngestAnswer:
    outputs = await _known_outputs(locked, drafts)
    await _apply_pending_job(locked, outputs)
    _refuse_unread(outputs, drafts)
    read = [draft for draft in drafts if isinstance(draft, PreparedOutput)]
    changed = [d for d in read if d.identity not in outputs or outputs[d.identity].differs(d)]
    new = {draft.identity for draft in changed} - outputs.keys()
    unused_ids = iter(await locked.transaction.new_output_ids(len(new)) if new else ())
    jobs = {job: await locked.job(job) for job in dict.fromkeys(draft.job for draft in changed)}
    results = [_apply(locked, outputs, draft, jobs, unused_ids) for draft in drafts]
    _count_new(locked, outputs.values())
    await _name_files(locked, outputs.values(), changed)
    await _write(locked, outputs.values())
    return _answer(results)


def _refuse_unread(
    outputs: dict[bytes, _Output], drafts: Sequence[OutputKeyHash | PreparedOutput]
) -> None:
    unread = [
        number
        for number, draft in enumerate(drafts)
        if isinstance(draft, OutputKeyHash)
        and not (draft.identity in outputs and outputs[draft.identity].was_sent_in(draft.mark))
    ]
    if unread:
        raise _Unread(unread)


async def _name_files(
    locked: group_lock.LockedGroup, outputs: Iterable[_Output], changed: Sequence[PreparedOutput]
) -> None:
    """Puts the files that the new values name into the outputs, and counts who names them."""
    asked = {file.id for draft in changed for file in draft.files if file.id is not None}
    moved = [output for output in outputs if output.concerns_files]
    if not moved and not asked:
        return
    names = Counter(dict.fromkeys(asked, 0))
    for output in moved:
        assert output.new_value is not None
        names.update(file.id for file in output.new_value.files if file.id is not None)
        names.subtract(files.named_in(output.file_ids))
    held = await files.name(locked, names) if names else {}
    missing = [
        ErrorDetail(("body", str(draft.place), "files", str(n), "id"), _NO_FILE, "not_found")
        for draft in changed
        for n, file in enumerate(draft.files)
        if file.id is not None and file.id not in held
    ]
    if missing:
        raise ReferenceNotFound(*missing)
    texts = files.Texts(held, locked.now)
    for output in moved:
        assert output.new_value is not None
        output.files, output.file_ids = texts.of(output.new_value.files)


async def _known_outputs(
    locked: group_lock.LockedGroup, drafts: Sequence[OutputKeyHash | PreparedOutput]
) -> dict[bytes, _Output]:
    identities = {draft.identity for draft in drafts}
    rows = await locked.transaction.fetch_by_keys(identities, _KNOWN, locked.organization_id)
    return {row[0]: _Output(*row) for row in rows}


async def _apply_pending_job(locked: group_lock.LockedGroup, outputs: dict[bytes, _Output]) -> None:
    """Does now what a bulk_job under way would do to these outputs later: they are about to move."""
    bulk_job = await locked.bulk_job()
    if bulk_job is None:
        return
    concerned = [o for o in outputs.values() if bulk_job.concerns(o.job_id, o.seq)]
    if bulk_job.kind == "delete":
        await delete(locked, [output.identity for output in concerned])
        for output in concerned:
            del outputs[output.identity]
        return
    approved = bulk_job.kind == "approve"
    for output in concerned:
        if output.approved != approved:
            output.approved, output.seq = approved, locked.next_sequence_number()
            output.has_moved = True
            locked.count(output.job_id, approved=1 if approved else -1)


def _apply(
    locked: group_lock.LockedGroup,
    outputs: dict[bytes, _Output],
    draft: OutputKeyHash | PreparedOutput,
    jobs: dict[str, int],
    unused_ids: Iterator[int],
) -> StoredOutput:
    """Takes the output from what it was to what the draft says, and tells which change that is."""
    output = outputs.get(draft.identity)
    if output is None:
        assert isinstance(draft, PreparedOutput)
        output = _new(draft, jobs[draft.job], next(unused_ids), locked.next_sequence_number())
        outputs[draft.identity] = output
        return _stored(output, "created")
    if isinstance(draft, OutputKeyHash):
        return _stored(output, "unchanged")
    output.sent, output.is_spelled_anew = draft.sent, output.sent != draft.sent
    if not output.differs(draft):
        return _stored(output, "unchanged")
    if output.content[:16] != draft.content[:16] and output.approved:
        output.approved = False  # another value needs another approval
        locked.count(output.job_id, approved=-1)
    if output.country != draft.country and not output.is_new:
        locked.count(output.job_id, outputs=-1, country=output.country)
        locked.count(output.job_id, outputs=1, country=draft.country)
    output.country, output.content, output.new_value = draft.country, draft.content, draft
    output.seq = locked.next_sequence_number()
    return _stored(output, "updated")


def _new(draft: PreparedOutput, job_id: int, id_: int, seq: int) -> _Output:
    what = (draft.identity, draft.sent, id_, draft.content, seq, False, seq, job_id, draft.country)
    return _Output(*what, is_new=True, new_value=draft)


def _count_new(locked: group_lock.LockedGroup, outputs: Iterable[_Output]) -> None:
    new = Counter((output.job_id, output.country) for output in outputs if output.is_new)
    for (job_id, country), count in new.items():
        locked.count(job_id, outputs=count, country=country)


def _stored(output: _Output, change: Literal["created", "updated", "unchanged"]) -> StoredOutput:
    return {"id": output.id, "output_id": output.identity.hex(), "change": change}


def _answer(results: list[StoredOutput]) -> IngestAnswer:
    changes = Counter(result["change"] for result in results)
    return IngestAnswer(
        created=changes["created"],
        updated=changes["updated"],
        unchanged=changes["unchanged"],
        results=results,
    )


async def _write(locked: group_lock.LockedGroup, outputs: Iterable[_Output]) -> None:
    created, updated, moved, marked, touched = [], [], [], [], []
    whose, now = locked.organization_id, locked.now
    for output in outputs:
        value = output.new_value
        if value is None and not output.has_moved:
            touched.append(output.identity)
            if output.is_spelled_anew:
                marked.append((whose, output.identity, output.sent))
            continue
        place = (whose, output.identity, output.seq, output.approved, now)
        moving = mutable_suffix(output.seq, now, output.approved)
        if value is None:
            moved.append((*place, moving))
            continue
        text = item(value, output.id, output.created, output.files, moving)
        row = (*place, text, *value[1:6], output.file_ids)
        if output.is_new:
            created.append((*row, output.id, locked.group_id, output.job_id, output.created))
        else:
            updated.append(row)
    execute_many = locked.transaction.execute_many
    await execute_many(_CREATE, created)
    await execute_many(_UPDATE, updated)
    await execute_many(UPDATE_SEQ, moved)
    await execute_many(_MARK, marked)
    await locked.transaction.fetch_by_keys(
        touched, UPDATE_LAST_SCRAPED, whose, now, scraped_date(now // timestamps.SECOND)
    )
