"""Stores and deletes session records of any kind, alone or as a part of a transaction.

A record that is given without a partition or an origin can mean a stored one that has it.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Container, Hashable, Iterable, Sequence
from itertools import islice
from typing import Any, Generic, Literal, NamedTuple

from gleanery.service.foundation.errors import ErrorDetail, InvalidRequest
from gleanery.service.foundation.models import WriteCounts
from gleanery.service.foundation.security.tokens import Actor
from gleanery.service.foundation.security.vault import (
    DecryptionFailed,
    Vault,
    encrypted_length,
)
from gleanery.service.foundation.values import timestamps
from gleanery.service.resources.audit import log
from gleanery.service.resources.audit.models import AuditAbout
from gleanery.service.resources.sessions.kinds import (
    HostRecord,
    In,
    Out,
    PreparedRecord,
    RecordKind,
    StoredRecord,
)
from gleanery.service.resources.sessions.records import (
    QUEUE_KEY,
    RECORDS_PER_PAUSE,
    IfMatch,
    LockedState,
    lock_session_state,
    lock_without_key,
)
from gleanery.service.resources.sessions.state_models import DEFAULT_PROFILE
from gleanery.service.storage.database import Database, Row, Transaction

_MAX_AUDITED_DOMAINS = 20
_MAX_COMPARED_BYTES = 32 * 1024 * 1024  # of stored values that one array is compared with


# --- storing ------------------------------------------------------------------------------------


class Prepared(NamedTuple, Generic[In]):
    """Records to store, as given and by identity."""

    inputs: Sequence[In]
    records: Sequence[PreparedRecord]
    """The record of each input."""
    by_identity: dict[bytes, PreparedRecord]


class RecordChange(NamedTuple):
    """What a write does to a record, or would do."""

    change: Literal["created", "updated", "unchanged", "deleted"]
    identity: bytes
    columns: Sequence[Any]
    """The values of ``RecordKind.columns``."""


async def prepare(
    kind: RecordKind[In, Out], organization_id: int, inputs: Sequence[In]
) -> Prepared[In]:
    """Prepare records for ``store_prepared``, in a thread if there are many."""
    if len(inputs) <= RECORDS_PER_PAUSE:
        return prepare_at_once(kind, organization_id, inputs)
    return await asyncio.to_thread(prepare_at_once, kind, organization_id, inputs)


def prepare_at_once(
    kind: RecordKind[In, Out],
    organization_id: int,
    inputs: Sequence[In],
    kept_columns: Iterable[str] = (),
    keeps_expiry: bool = False,
) -> Prepared[In]:
    """Prepare records for ``store_prepared``. Of two with one identity, the last one is kept.

    A stored record keeps its values of ``kept_columns``, and perhaps its expiry.
    """
    kept = tuple(kind.columns.index(column) for column in kept_columns)
    prepared = (kind.prepare(organization_id, one) for one in inputs)
    records = [
        one._replace(kept=(*one.kept, *kept), keeps_expiry=keeps_expiry)
        if kept or keeps_expiry
        else one
        for one in prepared
    ]
    return Prepared(inputs, records, {one.identity: one for one in records})


async def store(
    kind: RecordKind[In, Out],
    database: Database,
    vault: Vault,
    inputs: Sequence[In],
    now: int,
    actor: Actor,
    if_match: IfMatch = None,
) -> WriteCounts:
    """Store an array completely or not at all. Of two records with one identity, the last wins.

    Raise InvalidRequest if it is not clear which partition or origin a record means.
    """
    given = await prepare(kind, database.organization_id, inputs)

    async def work(transaction: Transaction) -> WriteCounts:
        locked = await lock_session_state(transaction, vault, now, if_match)
        prepared = await _with_meant_identities(kind, locked, given)
        changes = await store_prepared(kind, locked, prepared)
        domains = audited_domains(one.domain for one in prepared.by_identity.values())
        about = AuditAbout(records=len(prepared.by_identity), domains=domains)
        await log.append(transaction, actor, now, kind.store_action, about)
        return _count(changes)

    return await database.write(work, queue_key=QUEUE_KEY)


def _count(changes: Iterable[RecordChange]) -> WriteCounts:
    counts = Counter(one.change for one in changes)
    return WriteCounts(
        created=counts["created"], updated=counts["updated"], unchanged=counts["unchanged"]
    )


async def store_prepared(
    kind: RecordKind[In, Out],
    locked: LockedState,
    prepared: Prepared[In],
    is_dry_run: bool = False,
) -> list[RecordChange]:
    """Store records as a part of a transaction. The caller audits it.

    A dry run writes nothing.
    """
    if kind.check is not None:
        await kind.check(locked.transaction, prepared.inputs)
    changes: list[RecordChange] = []
    remaining = iter(prepared.by_identity.values())
    while step := list(islice(remaining, RECORDS_PER_PAUSE)):
        changes += await _store_some(kind, locked, step, is_dry_run)
        await locked.transaction.pause()
    return changes


async def _store_some(
    kind: RecordKind[In, Out],
    locked: LockedState,
    given: Sequence[PreparedRecord],
    is_dry_run: bool,
) -> list[RecordChange]:
    """Write the records that are new or changed; return what happens to each."""
    records, stored = await _match(kind, locked, given)
    changes = [_compare(locked.vault, one, stored.get(one.identity)) for one in records]
    if not is_dry_run:
        pairs = zip(records, changes, strict=True)
        await _write(kind, locked, [one for one, made in pairs if made.change != "unchanged"])
    return changes


def _compare(vault: Vault, record: PreparedRecord, stored: StoredRecord | None) -> RecordChange:
    if stored is None:
        return RecordChange("created", record.identity, record.columns)
    change: Literal["unchanged", "updated"]
    change = "unchanged" if _is_unchanged(vault, record, stored) else "updated"
    return RecordChange(change, record.identity, record.columns)


async def _match(
    kind: RecordKind[In, Out], locked: LockedState, given: Sequence[PreparedRecord]
) -> tuple[list[PreparedRecord], dict[bytes, StoredRecord]]:
    """Find the stored record that each given one means.

    Return the records to store, with the values that they keep, and the stored ones by identity.
    """
    transaction = locked.transaction
    stored = await _find(kind, transaction, given)
    new = [record for record in given if record.alternative and record.identity not in stored]
    found = await _find_alternatives(kind, transaction, new) if new else {}
    meant = {given: others[0] for given, others in found.items() if len(others) == 1}
    if meant:
        given = [one._replace(identity=meant.get(one.identity, one.identity)) for one in given]
        stored |= await _find(kind, transaction, [r for r in given if r.identity in meant.values()])
    records = {
        r.identity: _with_kept_values(kind, locked, r, stored.get(r.identity)) for r in given
    }
    return list(records.values()), stored


async def _find_alternatives(
    kind: RecordKind[In, Out], transaction: Transaction, records: Iterable[PreparedRecord]
) -> dict[bytes, list[bytes]]:
    """Return the identities that the client can mean instead, by the given identity."""
    organization_id = transaction.organization_id
    if not await transaction.fetch(kind.statements.any_alternative, organization_id):
        return {}  # usually: it saves one look-up for each record
    by_key = {record.alternative: record.identity for record in records}
    keys = [(organization_id, *key) for key in by_key if key is not None]
    found = defaultdict[bytes, list[bytes]](list)
    for identity, *key in await transaction.fetch_many(kind.statements.find_alternatives, keys):
        found[by_key[tuple(key)]].append(bytes(identity))
    return found


# --- records without a partition or origin ------------------------------------------------------
#
# The shapes of the lists are fixed: they have no partition and no origin. So two listed records can
# look like two versions of one record. A version that equals a stored record means that record. One
# other version can mean the record that ``_match`` chooses. Everything else is an error: it could
# replace the value of a login by that of another partition.


async def _with_meant_identities(
    kind: RecordKind[In, Out], locked: LockedState, given: Prepared[In]
) -> Prepared[In]:
    """Return the records with the identities of the stored records that they mean."""
    unnamed = [one for one in given.records if one.alternative is not None]
    found: dict[bytes, list[bytes]] = {}
    for start in range(0, len(unnamed), RECORDS_PER_PAUSE):
        step = unnamed[start : start + RECORDS_PER_PAUSE]
        found |= await _find_alternatives(kind, locked.transaction, step)
        await locked.transaction.pause()
    # The record with the usual origin of its host has the identity of the one without an origin.
    others = {own: [one for one in all_ if one != own] for own, all_ in found.items()}
    versions = {own: Counter[PreparedRecord]() for own in others if others[own]}
    if not versions:
        return given
    for record in unnamed:
        if record.identity in versions:
            versions[record.identity][record] += 1
    identities = [one for own in versions for one in (own, *others[own])]
    lengths = {encrypted_length(one.value) for counts in versions.values() for one in counts}
    stored = await _find_values(kind, locked, identities, lengths)
    meant: dict[PreparedRecord, PreparedRecord] = {}
    for own, counts in versions.items():
        chosen = _choose(kind, locked.vault, counts, stored, others[own])
        if chosen is None:
            position = max(n for n, one in enumerate(given.records) if one.identity == own)
            raise _ambiguous(kind, str(position), kind.alternative_member)
        meant |= chosen
    records = [meant.get(one, one) for one in given.records]
    return Prepared(given.inputs, records, {one.identity: one for one in records})


def _ambiguous(kind: RecordKind[In, Out], *loc: str) -> InvalidRequest:
    return InvalidRequest(ErrorDetail(("body", *loc), kind.ambiguous, "ambiguous"))


async def _find_values(
    kind: RecordKind[In, Out],
    locked: LockedState,
    identities: Iterable[bytes],
    lengths: Container[int],
) -> dict[bytes, StoredRecord]:
    """Find the stored records by identity, with the values that have one of these lengths.

    Raise InvalidRequest if these values are too large.
    """
    transaction, found, left = locked.transaction, dict[bytes, StoredRecord](), _MAX_COMPARED_BYTES
    organization_id, remaining = transaction.organization_id, iter(identities)
    while step := list(islice(remaining, RECORDS_PER_PAUSE)):
        keys = [(organization_id, identity) for identity in step]
        rows = await transaction.fetch_many(kind.statements.find_length, keys)
        sizes = {bytes(one): size if size in lengths else 0 for one, size in rows}
        left -= sum(sizes.values())
        if left < 0:
            raise _ambiguous(kind)
        with_sizes = [(organization_id, *one) for one in sizes.items()]
        rows = await transaction.fetch_many(kind.statements.find, with_sizes)
        found |= _by_identity(rows)
        await transaction.pause()
    return found


def _choose(
    kind: RecordKind[In, Out],
    vault: Vault,
    versions: Counter[PreparedRecord],
    stored: dict[bytes, StoredRecord],
    alternatives: Sequence[bytes],
) -> dict[PreparedRecord, PreparedRecord] | None:
    """Return the records to store in the place of the versions; None if that is not clear."""
    own = next(iter(versions)).identity
    default = alternatives[0] if own not in stored and len(alternatives) == 1 else own
    candidates = {one: stored[one] for one in (*alternatives, own) if one in stored}
    values = {one: _value(vault, one, record) for one, record in candidates.items()}
    uncompared = tuple(map(kind.columns.index, kind.uncompared_columns))
    contents = {  # its own identity is the last one, so it wins
        kept: {
            _content(record.columns, kept + uncompared, values[one]): one
            for one, record in candidates.items()
        }
        for kept in {version.kept for version in versions}
    }
    meant: dict[PreparedRecord, PreparedRecord] = {}
    for version in versions:
        content = _content(version.columns, version.kept + uncompared, version.value)
        identity = contents[version.kept].get(content, default)
        meant[version] = version._replace(identity=identity, alternative=None)
    taken = {one.identity for one in meant.values()}
    # A single record that equals another one than the default may be a new value of the default.
    is_clear = len(taken) == len(versions) and (versions.total() > 1 or default in taken)
    return meant if is_clear else None


def _value(vault: Vault, identity: bytes, stored: StoredRecord) -> str | None:
    encrypted_value = stored.encrypted_value
    try:
        return None if encrypted_value is None else vault.decrypt(encrypted_value, identity)
    except DecryptionFailed:
        return None


def _content(columns: Sequence[Any], left_out: Container[int], value: str | None) -> Hashable:
    """Return what a client can see of a record, without the columns at these positions."""
    return value, *(one for position, one in enumerate(columns) if position not in left_out)


def _with_kept_values(
    kind: RecordKind[In, Out],
    locked: LockedState,
    record: PreparedRecord,
    stored: StoredRecord | None,
) -> PreparedRecord:
    if stored is None:
        return record
    kept = record.kept
    if record.keeps_expiry:
        kept += _kept_expiry(kind, locked, record, stored)
    columns = list(record.columns)
    for position in kept:
        columns[position] = stored.columns[position]
    return record._replace(columns=tuple(columns)) if kept else record


def _kept_expiry(
    kind: RecordKind[In, Out], locked: LockedState, record: PreparedRecord, stored: StoredRecord
) -> tuple[int, ...]:
    """Return the position of the expiry, if the stored record keeps it.

    A new value has an expiry of its own, which is not known. Who has a record after its expiry has
    one that was renewed.
    """
    position = kind.columns.index("expires")
    expires = stored.columns[position]
    is_current = expires is not None and expires > locked.now // timestamps.SECOND
    return (position,) if is_current and _has_value(locked.vault, record, stored) else ()


async def _find(
    kind: RecordKind[In, Out], transaction: Transaction, records: Iterable[PreparedRecord]
) -> dict[bytes, StoredRecord]:
    """Find the stored records by identity, with the values that may be equal."""
    organization_id = transaction.organization_id
    rows = await transaction.fetch_many(
        kind.statements.find,
        [(organization_id, r.identity, encrypted_length(r.value)) for r in records],
    )
    return _by_identity(rows)


def _by_identity(rows: Iterable[Row]) -> dict[bytes, StoredRecord]:
    return {bytes(row[0]): StoredRecord(row[1], tuple(row[2:])) for row in rows}


async def _write(
    kind: RecordKind[In, Out], locked: LockedState, records: Iterable[PreparedRecord]
) -> None:
    key, organization_id = locked.key, locked.transaction.organization_id
    change = (locked.now, locked.revision)
    await locked.transaction.execute_many(
        kind.statements.store,
        [
            (organization_id, r.identity, key.encrypt(r.value, r.identity), *change, *r.columns)
            for r in records
        ],
    )


def _is_unchanged(vault: Vault, record: PreparedRecord, stored: StoredRecord) -> bool:
    return stored.columns == record.columns and _has_value(vault, record, stored)


def _has_value(vault: Vault, record: PreparedRecord, stored: StoredRecord) -> bool:
    """Return True if the stored record has the same value."""
    return _value(vault, record.identity, stored) == record.value


def audited_domains(domains: Iterable[str]) -> list[str]:
    """Return the first domains, for the audit log."""
    return list(dict.fromkeys(domains))[:_MAX_AUDITED_DOMAINS]


# --- deleting -----------------------------------------------------------------------------------


async def delete(
    kind: RecordKind[In, Out],
    database: Database,
    domain: str,
    name: str | None,
    now: int,
    actor: Actor,
    if_match: IfMatch = None,
) -> int:
    """Delete the default profile's records of exactly this domain, or those with this name.

    Return the number of deleted records.
    """

    async def work(transaction: Transaction) -> int:
        await lock_without_key(transaction, now, if_match)
        key = (transaction.organization_id, DEFAULT_PROFILE, domain.removeprefix("."), domain, name)
        deleted = await transaction.fetch(kind.statements.delete, *key)
        about = AuditAbout(records=len(deleted), domains=[domain])
        await log.append(transaction, actor, now, kind.delete_action, about)
        return len(deleted)

    return await database.write(work, queue_key=QUEUE_KEY)


async def delete_hosts(
    kind: RecordKind[In, Out],
    transaction: Transaction,
    profile: str,
    hosts: Iterable[str],
    kept: Container[bytes] = (),
    group_id: int | None = None,
    is_dry_run: bool = False,
) -> list[RecordChange]:
    """Delete the records of these hosts, with and without a leading dot, as a part of a write.

    Those with an identity in ``kept`` stay. Of a kind with groups, ``group_id`` selects those of
    one group. The caller locks the session state and audits the deletion. A dry run writes nothing.
    """
    organization_id, changes = transaction.organization_id, list[RecordChange]()
    group = (group_id,) if kind.has_groups else ()
    remaining = iter(dict.fromkeys(hosts))
    while step := list(islice(remaining, RECORDS_PER_PAUSE)):
        keys = [(organization_id, profile, host, *group) for host in step]
        rows = await transaction.fetch_many(kind.statements.list_host, keys)
        found = (HostRecord(bytes(row[0]), row[1:]) for row in rows)
        deleted = [record for record in found if record.identity not in kept]
        changes += await delete_records(kind, transaction, deleted, is_dry_run)
        await transaction.pause()
    return changes


async def delete_records(
    kind: RecordKind[In, Out],
    transaction: Transaction,
    records: Sequence[HostRecord],
    is_dry_run: bool,
) -> list[RecordChange]:
    """Delete these records as a part of a write."""
    if not is_dry_run:
        keys = [(transaction.organization_id, record.identity) for record in records]
        await transaction.execute_many(kind.statements.delete_one, keys)
    return [RecordChange("deleted", *record) for record in records]
