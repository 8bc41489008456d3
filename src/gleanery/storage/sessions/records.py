"""What cookies and local storage share: identity, sealing, and storing an array whole."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any, NamedTuple

from gleanery.errors import Unavailable
from gleanery.models.responses import AuditAbout, AuditAction, Tally
from gleanery.security.vault import DecryptionFailed, Key, UnknownKey, Vault
from gleanery.storage import audit, metadata
from gleanery.storage.database import Database, Row, Transaction
from gleanery.values.hostnames import is_address

_log = logging.getLogger("gleanery")

# RFC 6265 domain-match: host is a parent domain of $2; $3 says whether $2 can have parents.
IS_PARENT_HOST = "$3 AND substr($2, length($2) - length(host)) = '.' || host"

_TAKE_TURN = "UPDATE organizations SET session_revision = session_revision + 1 WHERE id = $1"
_NO_KEY = "Values are encrypted with a secret key that this service does not have"
_WHAT_TO_DO = "gleanery keys list shows which key is missing, gleanery keys forget gives it up"
QUEUE_KEY = ("session state",)
"""Unlike the name of any group."""
_RECORDS_PER_TURN = 500
_DOMAINS_NOTED = 20


class PreparedRecord(NamedTuple):
    """A record about to be stored."""

    identity: bytes
    """A fingerprint of what makes it the same record; the value is encrypted for just this one."""
    domain: str
    columns: tuple[Any, ...]
    """All that, beside the value, makes it another version of the record."""
    value: str


class Statements(NamedTuple):
    """The SQL of one kind of record, and what the audit log calls the work on it."""

    get: AuditAction
    set: AuditAction
    remove: AuditAction
    known: str
    """Identity, encrypted value and columns of a record ($1 organization, $2 identity)."""
    store: str
    """Inserts or replaces: $1 organization, $2 identity, $3 encrypted, $4 now, then the columns."""
    list: str
    """All of an organization's records ($1), in the order of their first insertion."""
    list_seen: str
    """Those of them that a page on host $2 sees; $3 is whether that host can have parents."""
    delete: str
    """Removes those of domain $2 and, unless it is null, of name or key $3; gives their ids."""


async def store(
    database: Database,
    vault: Vault,
    statements: Statements,
    records: Iterable[PreparedRecord],
    now: int,
    actor: audit.Actor,
) -> Tally:
    """Stores the records whole or not at all. Of two with one identity the last wins."""
    organization_id = database.organization_id
    wanted = {record.identity: record for record in records}

    async def work(transaction: Transaction) -> Tally:
        key = await take_turn(transaction, vault)
        rows = await transaction.fetch_many(
            statements.known, [(organization_id, identity) for identity in wanted]
        )
        known = {bytes(row[0]): row for row in rows}
        changed = [
            record
            for record in wanted.values()
            if not _is_unchanged(vault, record, known.get(record.identity))
        ]
        await transaction.execute_many(
            statements.store,
            [
                (organization_id, d.identity, key.encrypt(d.value, d.identity), now, *d.columns)
                for d in changed
            ],
        )
        about = AuditAbout(records=len(wanted), domains=_domains(wanted.values()))
        await audit.note(transaction, actor, now, statements.set, about)
        created = len(wanted) - len(known)
        return Tally(
            created=created,
            updated=len(changed) - created,
            unchanged=len(wanted) - len(changed),
        )

    return await database.write(work, queue_key=QUEUE_KEY)


def _domains(records: Iterable[PreparedRecord]) -> list[str]:
    return list(dict.fromkeys(record.domain for record in records))[:_DOMAINS_NOTED]


async def take_turn(transaction: Transaction, vault: Vault) -> Key:
    """Waits for others who write the organization's session state; gives the key to encrypt with.

    It is asked for after the wait: once a change of keys has had its locked, nobody encrypts with the
    old one any more.
    """
    await transaction.fetch(_TAKE_TURN, transaction.organization_id)
    try:
        return vault.key(await metadata.encryption_key(transaction))
    except UnknownKey as error:
        raise _no_key(error) from None


def _no_key(error: UnknownKey) -> Unavailable:
    _log.error("a secret key is missing", extra={"key": error.fingerprint, "help": _WHAT_TO_DO})
    return Unavailable(_NO_KEY)


def _is_unchanged(vault: Vault, record: PreparedRecord, row: Row | None) -> bool:
    if row is None or tuple(row[2:]) != record.columns:
        return False
    try:
        return vault.decrypt(row[1], record.identity) == record.value
    except DecryptionFailed:
        return False


async def delete(
    database: Database,
    statements: Statements,
    domain: str,
    name: str | None,
    now: int,
    actor: audit.Actor,
) -> int:
    """How many records were removed."""
    organization_id = database.organization_id

    async def work(transaction: Transaction) -> int:
        await transaction.fetch(_TAKE_TURN, organization_id)
        gone = await transaction.fetch(statements.delete, organization_id, domain, name)
        about = AuditAbout(records=len(gone), domains=[domain])
        await audit.note(transaction, actor, now, statements.remove, about)
        return len(gone)

    return await database.write(work, queue_key=QUEUE_KEY)


def decrypted(vault: Vault, encrypted: bytes, identity: bytes) -> str:
    """The value; a record that does not open is named, so that an operator can find it.

    The identity is that of the record as it reads now, not what stands beside the value: who can
    write to the database, but has no key, must not turn it into another's, or another domain's.
    """
    try:
        return vault.decrypt(encrypted, identity)
    except UnknownKey as error:
        raise _no_key(error) from None
    except DecryptionFailed:
        raise DecryptionFailed(
            f"the record with identity {identity.hex()} is damaged, or was another: it must be "
            "stored again, or removed, with DELETE or with gleanery keys forget"
        ) from None


async def rows_of(database: Database, statements: Statements, domain: str | None) -> Sequence[Row]:
    """All rows of the organization, or those a page on the domain's host would see."""
    organization_id = database.organization_id
    if domain is None:
        return await database.read(statements.list, organization_id)
    host = domain.removeprefix(".")
    return await database.read(statements.list_seen, organization_id, host, not is_address(host))


def about_domain(domain: str | None) -> AuditAbout:
    return AuditAbout() if domain is None else AuditAbout(domains=[domain])


async def in_turns(rows: Iterable[Row]) -> AsyncIterator[Row]:
    """The rows, with a pause now and then in which other requests are served."""
    for count, row in enumerate(rows, 1):
        yield row
        if count % _RECORDS_PER_TURN == 0:
            await asyncio.sleep(0)
