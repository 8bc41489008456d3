"""Stores, reads and deletes session records of any kind; encrypts and decrypts their values."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import islice
from operator import itemgetter
from typing import Any, NamedTuple

from gleanery.client.sessions.hostnames import is_address
from gleanery.errors import Unavailable
from gleanery.models.responses import AuditAbout, WriteCounts
from gleanery.security.vault import DecryptionFailed, Key, UnknownKey, Vault, encrypted_length
from gleanery.storage import audit, list_pages, metadata
from gleanery.storage.database import Database, Row, Transaction
from gleanery.storage.list_pages import ListPage, ListQuery, PageLimits
from gleanery.storage.sessions.kinds import In, Out, PreparedRecord, RecordKind
from gleanery.values import json_text

_log = logging.getLogger("gleanery")

QUEUE_KEY = ("session state",)
"""Key of the writers' queue; a tuple, so that it differs from every group's name."""
ALL_GROUPS = 0
"""The ``group_id`` of a record that applies to every group."""
_LOCK = "UPDATE organizations SET session_revision = session_revision + 1 WHERE id = $1"
_KEY_MISSING = "Values are encrypted with a secret key that this service does not have"
_KEY_MISSING_HELP = "gleanery keys list shows the missing key; gleanery keys forget gives it up"
_RECORDS_PER_PAUSE = 500
_MAX_AUDITED_DOMAINS = 20


# --- writing ------------------------------------------------------------------------------------


async def lock_session_state(transaction: Transaction, vault: Vault) -> Key:
    """Locks the organization's session state until the commit; returns the active key.

    The key is read after the wait for the lock. A key rotation takes this lock once it has selected
    the new key, so after that no writer uses the old key.
    """
    await lock_without_key(transaction)
    try:
        return vault.key(await metadata.active_key(transaction))
    except UnknownKey as error:
        raise _key_missing(error) from None


async def lock_without_key(transaction: Transaction) -> None:
    """Locks the organization's session state until the commit, for a deletion of records."""
    await transaction.fetch(_LOCK, transaction.organization_id)


async def store(
    kind: RecordKind[In, Out],
    database: Database,
    vault: Vault,
    inputs: Sequence[In],
    now: int,
    actor: audit.Actor,
) -> WriteCounts:
    """Stores an array completely or not at all. Of two records with one identity, the last wins."""
    prepare = partial(_prepare, kind, database.organization_id, inputs)
    is_long = len(inputs) > _RECORDS_PER_PAUSE
    records = await asyncio.to_thread(prepare) if is_long else prepare()

    async def work(transaction: Transaction) -> WriteCounts:
        key = await lock_session_state(transaction, vault)
        if kind.check is not None:
            await kind.check(transaction, inputs)
        counts = WriteCounts(created=0, updated=0, unchanged=0)
        remaining = iter(records.values())
        while step := list(islice(remaining, _RECORDS_PER_PAUSE)):
            await _store_some(kind, transaction, vault, key, step, now, counts)
            await transaction.pause()
        about = AuditAbout(records=len(records), domains=_domains(records.values()))
        await audit.append(transaction, actor, now, kind.store_action, about)
        return counts

    return await database.write(work, queue_key=QUEUE_KEY)


def _prepare(
    kind: RecordKind[In, Out], organization_id: int, inputs: Sequence[In]
) -> dict[bytes, PreparedRecord]:
    """Returns the records by identity."""
    prepared = (kind.prepare(organization_id, one) for one in inputs)
    return {record.identity: record for record in prepared}


async def _store_some(
    kind: RecordKind[In, Out],
    transaction: Transaction,
    vault: Vault,
    key: Key,
    records: Sequence[PreparedRecord],
    now: int,
    counts: WriteCounts,
) -> None:
    """Writes the records that are new or changed, and adds to the counts."""
    stored = await _find(kind, transaction, records)
    changed = [
        record
        for record in records
        if not _is_unchanged(vault, record, stored.get(record.identity))
    ]
    await _write(kind, transaction, key, changed, now)
    created = len(records) - len(stored)
    counts["created"] += created
    counts["updated"] += len(changed) - created
    counts["unchanged"] += len(records) - len(changed)


async def _find(
    kind: RecordKind[In, Out], transaction: Transaction, records: Iterable[PreparedRecord]
) -> dict[bytes, Row]:
    """Finds the stored records by identity, with the values that may be equal."""
    organization_id = transaction.organization_id
    rows = await transaction.fetch_many(
        kind.statements.find,
        [(organization_id, r.identity, encrypted_length(r.value)) for r in records],
    )
    return {bytes(row[0]): row for row in rows}


async def _write(
    kind: RecordKind[In, Out],
    transaction: Transaction,
    key: Key,
    records: Iterable[PreparedRecord],
    now: int,
) -> None:
    organization_id = transaction.organization_id
    await transaction.execute_many(
        kind.statements.store,
        [
            (organization_id, r.identity, key.encrypt(r.value, r.identity), now, *r.columns)
            for r in records
        ],
    )


def _is_unchanged(vault: Vault, record: PreparedRecord, row: Row | None) -> bool:
    if row is None or row[1] is None or tuple(row[2:]) != record.columns:
        return False
    try:
        return vault.decrypt(row[1], record.identity) == record.value
    except DecryptionFailed:
        return False


def _domains(records: Iterable[PreparedRecord]) -> list[str]:
    return list(dict.fromkeys(record.domain for record in records))[:_MAX_AUDITED_DOMAINS]


async def delete(
    kind: RecordKind[In, Out],
    database: Database,
    domain: str,
    name: str | None,
    now: int,
    actor: audit.Actor,
) -> int:
    """Deletes the records of exactly this domain, or only those with this name.

    Returns the number of deleted records.
    """

    async def work(transaction: Transaction) -> int:
        await lock_without_key(transaction)
        key = (transaction.organization_id, domain, name)
        deleted = await transaction.fetch(kind.statements.delete, *key)
        about = AuditAbout(records=len(deleted), domains=[domain])
        await audit.append(transaction, actor, now, kind.delete_action, about)
        return len(deleted)

    return await database.write(work, queue_key=QUEUE_KEY)


# --- reading ------------------------------------------------------------------------------------


class Filter(NamedTuple):
    """Filter of the records that a client requests; by default all."""

    domain: str | None = None
    """Only records that are visible to a page on this domain's host."""
    for_group: int | None = None
    """Only records of this group, and those that apply to every group."""


async def read(
    kind: RecordKind[In, Out],
    database: Database,
    vault: Vault,
    read_auditor: audit.ReadAuditor,
    filter_: Filter,
    limits: PageLimits,
    now: int,
    actor: audit.Actor,
) -> ListPage:
    """Reads records in the order of first insertion, including expired ones; audits the read."""
    page = await list_pages.read_page(_list_query(kind, database, vault, filter_), limits)
    about = _audit_details(len(page.records), filter_)
    await read_auditor.record(database, audit.Entry(actor, now, kind.read_action, about))
    return page


def _list_query(
    kind: RecordKind[In, Out], database: Database, vault: Vault, filter_: Filter
) -> ListQuery:
    statements, values = kind.statements, list[Any]()
    sizes, rows = statements.sizes_of_all, statements.list_all
    if filter_.domain is not None:
        sizes, rows = statements.sizes_of_visible, statements.list_visible
        host = filter_.domain.removeprefix(".")
        values += [host, not is_address(host)]
    if kind.has_groups:
        values.append(filter_.for_group)
    return ListQuery(database, sizes, rows, tuple(values), _encoder(kind, database, vault))


def _encoder(kind: RecordKind[In, Out], database: Database, vault: Vault) -> Callable[[Row], bytes]:
    """Returns the function that decrypts a record and renders it as JSON text."""
    organization_id = database.organization_id
    identity_values = itemgetter(*[2 + kind.columns.index(c) for c in kind.identity_columns])

    def encode(row: Row) -> bytes:
        identity = kind.hash_identity(organization_id, *identity_values(row))
        value = _decrypt(vault, row[1], identity)
        return json_text.encode(kind.to_response(organization_id, value, row[:-1]))

    return encode


def _decrypt(vault: Vault, encrypted_value: bytes, identity: bytes) -> str:
    """Decrypts a value. The error names the record, so that an operator can find it.

    The identity is computed from the record's current columns, not read from the table. So an
    attacker who can write to the database but has no key cannot move a value to another domain.
    """
    try:
        return vault.decrypt(encrypted_value, identity)
    except UnknownKey as error:
        raise _key_missing(error) from None
    except DecryptionFailed:
        raise DecryptionFailed(
            f"the record with identity {identity.hex()} is damaged or was changed: store it "
            "again, or delete it with DELETE or gleanery keys forget"
        ) from None


def _key_missing(error: UnknownKey) -> Unavailable:
    extra = {"key": error.fingerprint, "help": _KEY_MISSING_HELP}
    _log.error("a secret key is missing", extra=extra)
    return Unavailable(_KEY_MISSING)


def _audit_details(count: int, filter_: Filter) -> AuditAbout:
    about = AuditAbout(records=count)
    if filter_.domain is not None:
        about["domains"] = [filter_.domain]
    if filter_.for_group is not None:
        about["for_group"] = filter_.for_group
    return about
