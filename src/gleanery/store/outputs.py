"""Outputs: stored under their key in the group's change order, read back as stored bytes.

An item is rendered once, when its value is written. At its end stands what an approval or another
scrape changes, to be replaced without a look at the rest. A page is items joined.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

from gleanery import instants
from gleanery.answers import IngestAnswer, StoredOutput
from gleanery.batches import Batch
from gleanery.errors import Fault, Missing, NotFound
from gleanery.fingerprints import fingerprint
from gleanery.store import files, groups, requests
from gleanery.store.database import Database, Row, Transaction
from gleanery.store.drafts import Draft, Drafting, Sketch, content_of, known_by
from gleanery.store.rules import rules_of
from gleanery.store.schemas import Schemas

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
_FEW = 16  # outputs that are read sooner than it can be found out whether they must be
_NO_FILE = "Your organization has no such file"


def _moving(seq: int, scraped: int, approved: bool) -> bytes:
    """The end of an item: what changes without a new value."""
    return _end(seq // instants.SECOND, scraped // instants.SECOND, approved)


@lru_cache(maxsize=1024)  # the outputs of a batch have it in common, mostly
def _end(updated: int, scraped: int, approved: bool) -> bytes:
    return b',"update_date":"%b"%b,"is_approved":%b}' % (
        instants.render(updated).encode(),
        _scraped(scraped),
        b"true" if approved else b"false",
    )


def _scraped(second: int) -> bytes:
    return b',"last_scraped_date":"%b"' % instants.render(second).encode()


def _length_from(beginning: bytes) -> str:
    """How long an item is from there to its end, in SQL: that depends on the approval."""
    ends = (_moving(0, 0, approved) for approved in (True, False))
    return "CASE WHEN approved THEN {} ELSE {} END".format(
        *(len(end) - end.index(beginning) for end in ends)
    )


_MOVE = f"""
UPDATE outputs SET seq = $3, approved = $4, scraped = $5, item = CAST(
    substr(item, 1, length(item) - {_length_from(b',"update_date"')}) || $6 AS BYTEA)
WHERE organization_id = $1 AND identity = $2
"""
# What stays in its place is not written into any index, not even with the same values.
_TOUCH = f"""
UPDATE outputs SET scraped = $2, item = CAST(
    substr(item, 1, length(item) - {_length_from(b',"last_scraped_date"')}) || $3
    || substr(item, 1 + length(item) - {_length_from(b',"is_approved"')}) AS BYTEA)
WHERE organization_id = $1 AND identity = $4
"""
_MARK = "UPDATE outputs SET sent = $3 WHERE organization_id = $1 AND identity = $2"


# --- storing ------------------------------------------------------------------------------------


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
    new_value: Draft | None = None

    @property
    def concerns_files(self) -> bool:
        """Whether its new value names files, or the one before did."""
        return self.new_value is not None and bool(self.new_value.files or self.file_ids)

    def was_sent_in(self, mark: bytes) -> bool:
        """Whether what it says came in just the bytes of this mark."""
        return bool(mark) and self.sent == known_by(mark, self.content)

    def differs(self, draft: Draft) -> bool:
        """Whether a client could see a difference."""
        return self.content != draft.content


class _Unread(Exception):
    """Some outputs, by their numbers, are not what they were last time, or are new."""

    def __init__(self, numbers: Sequence[int]) -> None:
        self.numbers = numbers


async def store_outputs(
    database: Database,
    schemas: Schemas,
    organization_id: int,
    group: str,
    batch: Batch,
    clock: groups.Clock,
    idempotency_key: str | None = None,
) -> IngestAnswer:
    """Stores the batch whole or not at all; an output met before moves only if it changed.

    The same batch under the same idempotency key is answered as it was the first time.
    """

    async def work(transaction: Transaction) -> IngestAnswer | None:
        turn = await groups.enter_or_create(transaction, organization_id, group, clock)
        earlier = request and await request.earlier_answer(transaction.fetch)
        if earlier is not None:  # from a repetition that was faster
            return earlier
        if (turn.key_fields, turn.schema) != drafting.rules:
            return None  # they were changed in between
        answer = await _store(turn, drafting.drafts)
        if request is not None:
            await request.note(transaction, answer, turn.now)
        await turn.end()
        return answer

    if not batch.heads:
        return _answer([])
    request = None
    if idempotency_key is not None:
        # What the group's rules make of the batch is no part of it: they may change meanwhile.
        batch = await asyncio.to_thread(batch.read_whole)
        content = await asyncio.to_thread(content_of, batch.read(range(len(batch.heads))))
        identity = fingerprint(group, idempotency_key, batch.places[0])
        request = requests.Request(organization_id, identity, content)
        earlier = await request.earlier_answer(database.read)
        if earlier is not None:
            return earlier
    drafting = await _drafting(database, schemas, organization_id, group, batch)
    while True:
        try:
            answer = await database.write(work, line=groups.line(organization_id, group))
        except _Unread as unread:
            await asyncio.to_thread(drafting.read, unread.numbers)
            continue
        if answer is not None:
            return answer
        drafting = await _drafting(database, schemas, organization_id, group, batch)


async def _drafting(
    database: Database, schemas: Schemas, organization_id: int, group: str, batch: Batch
) -> Drafting:
    """Begins to draft under the group's rules, which may need to know all that the batch says."""
    rules = await rules_of(database, organization_id, group)
    if rules.look_into_data:
        batch = await asyncio.to_thread(batch.read_whole)
        await rules.check(schemas, batch)
    drafting = Drafting(organization_id, group, batch, rules)
    must_be_read = len(batch.heads) < _FEW or await _begins_with_news(
        database, organization_id, drafting
    )
    # Hashing and rendering is work: in a thread, so that other requests get their turns.
    await asyncio.to_thread(drafting.begin, must_be_read)
    return drafting


async def _begins_with_news(database: Database, organization_id: int, drafting: Drafting) -> bool:
    """Whether the first output is not what it was; then the others hardly are."""
    identity, mark, _ = drafting.first()
    rows = await database.read(_SENT, organization_id, identity)
    return not mark or not rows or rows[0][0] != known_by(mark, rows[0][1])


async def _store(turn: groups.Turn, drafts: Sequence[Sketch | Draft]) -> IngestAnswer:
    outputs = await _known_outputs(turn, drafts)
    await _hasten_chore(turn, outputs)
    _refuse_unread(outputs, drafts)
    read = [draft for draft in drafts if isinstance(draft, Draft)]
    changed = [d for d in read if d.identity not in outputs or outputs[d.identity].differs(d)]
    new = {draft.identity for draft in changed} - outputs.keys()
    unused_ids = iter(await turn.transaction.new_output_ids(len(new)) if new else ())
    jobs = {job: await turn.job(job) for job in dict.fromkeys(draft.job for draft in changed)}
    results = [_apply(turn, outputs, draft, jobs, unused_ids) for draft in drafts]
    _count_new(turn, outputs.values())
    await _name_files(turn, outputs.values(), changed)
    await _write(turn, outputs.values())
    return _answer(results)


def _refuse_unread(outputs: dict[bytes, _Output], drafts: Sequence[Sketch | Draft]) -> None:
    unread = [
        number
        for number, draft in enumerate(drafts)
        if isinstance(draft, Sketch)
        and not (draft.identity in outputs and outputs[draft.identity].was_sent_in(draft.mark))
    ]
    if unread:
        raise _Unread(unread)


async def _name_files(
    turn: groups.Turn, outputs: Iterable[_Output], changed: Sequence[Draft]
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
    held = await files.name(turn, names) if names else {}
    missing = [
        Fault(("body", str(draft.place), "files", str(n), "id"), _NO_FILE, "not_found")
        for draft in changed
        for n, file in enumerate(draft.files)
        if file.id is not None and file.id not in held
    ]
    if missing:
        raise Missing(*missing)
    texts = files.Texts(held, turn.now)
    for output in moved:
        assert output.new_value is not None
        output.files, output.file_ids = texts.of(output.new_value.files)


async def _known_outputs(
    turn: groups.Turn, drafts: Sequence[Sketch | Draft]
) -> dict[bytes, _Output]:
    identities = {draft.identity for draft in drafts}
    rows = await turn.transaction.fetch_for(identities, _KNOWN, turn.organization_id)
    return {row[0]: _Output(*row) for row in rows}


async def _hasten_chore(turn: groups.Turn, outputs: dict[bytes, _Output]) -> None:
    """Does now what a chore under way would do to these outputs later: they are about to move."""
    chore = await turn.chore()
    if chore is None:
        return
    concerned = [o for o in outputs.values() if chore.concerns(o.job_id, o.seq)]
    if chore.kind == "delete":
        await delete(turn, [output.identity for output in concerned])
        for output in concerned:
            del outputs[output.identity]
        return
    approved = chore.kind == "approve"
    for output in concerned:
        if output.approved != approved:
            output.approved, output.seq = approved, turn.next_sequence_number()
            output.has_moved = True
            turn.count(output.job_id, approved=1 if approved else -1)


def _apply(
    turn: groups.Turn,
    outputs: dict[bytes, _Output],
    draft: Sketch | Draft,
    jobs: dict[str, int],
    unused_ids: Iterator[int],
) -> StoredOutput:
    """Takes the output from what it was to what the draft says, and tells which change that is."""
    output = outputs.get(draft.identity)
    if output is None:
        assert isinstance(draft, Draft)
        output = _new(draft, jobs[draft.job], next(unused_ids), turn.next_sequence_number())
        outputs[draft.identity] = output
        return _stored(output, "created")
    if isinstance(draft, Sketch):
        return _stored(output, "unchanged")
    output.sent, output.is_spelled_anew = draft.sent, output.sent != draft.sent
    if not output.differs(draft):
        return _stored(output, "unchanged")
    if output.content[:16] != draft.content[:16] and output.approved:
        output.approved = False  # another value needs another approval
        turn.count(output.job_id, approved=-1)
    if output.country != draft.country and not output.is_new:
        turn.count(output.job_id, outputs=-1, country=output.country)
        turn.count(output.job_id, outputs=1, country=draft.country)
    output.country, output.content, output.new_value = draft.country, draft.content, draft
    output.seq = turn.next_sequence_number()
    return _stored(output, "updated")


def _new(draft: Draft, job_id: int, id_: int, seq: int) -> _Output:
    what = (draft.identity, draft.sent, id_, draft.content, seq, False, seq, job_id, draft.country)
    return _Output(*what, is_new=True, new_value=draft)


def _count_new(turn: groups.Turn, outputs: Iterable[_Output]) -> None:
    new = Counter((output.job_id, output.country) for output in outputs if output.is_new)
    for (job_id, country), count in new.items():
        turn.count(job_id, outputs=count, country=country)


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


async def _write(turn: groups.Turn, outputs: Iterable[_Output]) -> None:
    created, updated, moved, marked, touched = [], [], [], [], []
    whose, now = turn.organization_id, turn.now
    for output in outputs:
        value = output.new_value
        if value is None and not output.has_moved:
            touched.append(output.identity)
            if output.is_spelled_anew:
                marked.append((whose, output.identity, output.sent))
            continue
        place = (whose, output.identity, output.seq, output.approved, now)
        moving = _moving(output.seq, now, output.approved)
        if value is None:
            moved.append((*place, moving))
            continue
        row = (*place, _item(output, value, moving), *value[1:6], output.file_ids)
        if output.is_new:
            created.append((*row, output.id, turn.group_id, output.job_id, output.created))
        else:
            updated.append(row)
    run_each = turn.transaction.run_each
    await run_each(_CREATE, created)
    await run_each(_UPDATE, updated)
    await run_each(_MOVE, moved)
    await run_each(_MARK, marked)
    await turn.transaction.fetch_for(touched, _TOUCH, whose, now, _scraped(now // instants.SECOND))


def _item(output: _Output, value: Draft, moving: bytes) -> bytes:
    return b'%s%d%s,"create_date":"%s","files":[%s]%s' % (
        value.before_id,
        output.id,
        value.after_id,
        instants.render_moment(output.created).encode(),
        output.files,
        moving,
    )


def _moved(turn: groups.Turn, identity: bytes, seq: int, approved: bool, scraped: int) -> Row:
    moving = _moving(seq, scraped, approved)
    return (turn.organization_id, identity, seq, approved, scraped, moving)


# --- approving and removing ----------------------------------------------------------------------


class Span(NamedTuple):
    """Outputs after a place in the change order, up to another, at most so many."""

    after: int
    until: int
    limit: int


async def approve_some(turn: groups.Turn, job_id: int, approved: bool, span: Span) -> list[int]:
    """Approves the job's next outputs, or takes the approval back.

    Each output whose approval changes moves in the change order; told are the places of all that
    were looked at.
    """
    of_job = (turn.organization_id, turn.group_id, job_id)
    rows = await turn.transaction.fetch(_OF_JOB, *of_job, *span)
    moved = [
        _moved(turn, identity, turn.next_sequence_number(), approved, scraped)
        for identity, _, scraped, was_approved in rows
        if bool(was_approved) != approved
    ]
    await turn.transaction.run_each(_MOVE, moved)
    turn.count(job_id, approved=len(moved) if approved else -len(moved))
    return [row[1] for row in rows]


async def send_some_again(turn: groups.Turn, span: Span) -> int:
    """Gives the group's next outputs new places in the change order; tells how many there were."""
    rows = await turn.transaction.fetch(_OF_GROUP, turn.organization_id, turn.group_id, *span)
    await turn.transaction.run_each(
        _MOVE,
        [
            _moved(turn, identity, turn.next_sequence_number(), bool(approved), scraped)
            for identity, _, scraped, approved in rows
        ],
    )
    return len(rows)


async def delete_some(turn: groups.Turn, job_id: int | None, span: Span) -> list[int]:
    """Removes the next outputs of the job, or of the group; told are the places they left."""
    of_group = (turn.organization_id, turn.group_id)
    if job_id is None:
        rows = await turn.transaction.fetch(_OF_GROUP, *of_group, *span)
    else:
        rows = await turn.transaction.fetch(_OF_JOB, *of_group, job_id, *span)
    await delete(turn, [row[0] for row in rows])
    return [row[1] for row in rows]


async def delete(turn: groups.Turn, identities: Iterable[bytes]) -> int:
    """Removes outputs of the group; the change order keeps a tombstone of each."""
    gone = await turn.transaction.fetch_each(
        _DELETE, [(turn.organization_id, identity, turn.group_id) for identity in identities]
    )
    tombstones = []
    dropped = Counter[bytes]()
    for identity, id_, job_id, approved, country, file_ids in gone:
        dropped.subtract(files.named_in(file_ids))
        turn.count(job_id, outputs=-1, approved=-int(approved), country=country)
        seq = turn.next_sequence_number()
        tombstones.append((turn.organization_id, turn.group_id, seq, id_, identity, job_id))
    await turn.transaction.run_each(_TOMBSTONE, tombstones)
    if dropped:
        await files.name(turn, dropped)
    return len(gone)


async def delete_output(
    database: Database, organization_id: int, group: str, output_id: str, clock: groups.Clock
) -> int:
    """Removes one output."""
    try:
        identity = bytes.fromhex(output_id)
    except ValueError:
        raise NotFound from None

    async def work(transaction: Transaction) -> int:
        turn = await groups.enter(transaction, organization_id, group, clock)
        gone = await delete(turn, [identity])
        if not gone:
            raise NotFound
        await turn.end()
        return gone

    return await database.write(work, line=groups.line(organization_id, group))
