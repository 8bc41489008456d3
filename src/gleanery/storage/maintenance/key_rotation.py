"""A change of the secret key: every encrypted value, in short steps, from the keys before to the new.

The database says which key encrypts, and every writer asks it after it has got its organization's
locked. So once the new key is noted and each organization has had a locked, nobody encrypts with an old
one; what is still encrypted with one is then found and encrypted anew. All of it may be repeated, be
interrupted, or be done twice at once.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import NamedTuple

from gleanery.models.responses import AuditAbout
from gleanery.observability.progress import Tell
from gleanery.security.key_files import FINGERPRINT_BYTES
from gleanery.security.vault import DecryptionFailed, Vault
from gleanery.storage import audit, metadata, organizations
from gleanery.storage.database import Database, Engine, Row, Transaction
from gleanery.storage.sessions import cookies, local_storage, records

_KINDS = ("cookies", "local_storage")
_IDENTITY_OF: dict[str, Callable[..., bytes]] = {
    "cookies": cookies.identity_of,
    "local_storage": local_storage.identity_of,
}
_NAMED_BY = {"cookies": "domain, path, name", "local_storage": "group_id, domain, path, key"}
_MARK = f"substr(encrypted, 1, {FINGERPRINT_BYTES})"
_COUNT = {
    kind: f"SELECT {_MARK}, count(*) FROM {kind} WHERE organization_id = $1 GROUP BY 1"
    for kind in _KINDS
}
_NEXT = {
    kind: f"""
SELECT id, encrypted, {_NAMED_BY[kind]} FROM {kind}
WHERE organization_id = $1 AND id > $2 AND {_MARK} <> $3 ORDER BY id LIMIT $4
"""
    for kind in _KINDS
}
_ONE = {
    kind: f"SELECT id, identity, encrypted FROM {kind} WHERE organization_id = $1 AND id = $2"
    for kind in _KINDS
}
_RESEAL = {
    kind: f"UPDATE {kind} SET encrypted = $3 WHERE organization_id = $1 AND id = $2"
    for kind in _KINDS
}
_REMOVE = {
    kind: f"DELETE FROM {kind} WHERE organization_id = $1 AND id = $2 AND encrypted = $3 RETURNING id"
    for kind in _KINDS
}
_AT_ONCE = 500
_ANY = b""  # no key has this fingerprint


class _Some(NamedTuple):
    """Some of an organization's records of one kind: id, encrypted value and names of each."""

    organization_id: int
    kind: str
    rows: Sequence[Row]


async def count_by_key(engine: Engine) -> Counter[str]:
    """How many values are encrypted with each key, by the keys' fingerprints."""
    found = Counter[str]()
    for organization_id in await organizations.every_id(engine):
        for kind in _KINDS:
            rows = await engine.for_tenant(organization_id).read(_COUNT[kind], organization_id)
            for mark, count in rows:
                found[bytes(mark).hex()] += count
    return found


async def begin(database: Database, choose: Callable[[], str]) -> str:
    """Makes the chosen key the one that encrypts, and gives its fingerprint.

    On SQLite, ``choose`` runs while no other process can write: it may change the file of keys.
    """

    async def work(transaction: Transaction) -> str:
        fingerprint = choose()
        await metadata.use_key(transaction, fingerprint)
        return fingerprint

    return await database.write(work)


async def end(database: Database, fingerprint: str, keep_only: Callable[[str], None]) -> bool:
    """Drops the keys before, unless yet another change has begun; tells whether it did."""

    async def work(transaction: Transaction) -> bool:
        is_last = await metadata.encryption_key(transaction) == fingerprint
        if is_last:
            keep_only(fingerprint)
        return is_last

    return await database.write(work)


async def reencrypt(engine: Engine, vault: Vault, fingerprint: str, tell: Tell, now: int) -> int:
    """Seals anew what is not encrypted with this key; gives how many values no key opens."""
    broken = 0
    for organization_id in await organizations.every_id(engine):
        database = engine.for_tenant(organization_id)
        await _let_writers_end(database, vault, now)
        async for some in _records(database, bytes.fromhex(fingerprint)):
            started = time.monotonic()
            broken += await database.write(partial(_step, vault, some), queue_key=records.QUEUE_KEY)
            tell(len(some.rows))
            await asyncio.sleep(time.monotonic() - started)  # as long again for others
    return broken


async def _let_writers_end(database: Database, vault: Vault, now: int) -> None:
    async def work(transaction: Transaction) -> None:
        key = await records.take_turn(transaction, vault)
        about = AuditAbout(key=key.fingerprint)
        await audit.note(transaction, audit.COMMAND_LINE, now, "rotate_keys", about)

    await database.write(work, queue_key=records.QUEUE_KEY)


async def _records(database: Database, not_under: bytes) -> AsyncIterator[_Some]:
    """All that are not encrypted with the key of this fingerprint, some at a time."""
    organization_id = database.organization_id
    for kind in _KINDS:
        after = 0
        while rows := await database.read(_NEXT[kind], organization_id, after, not_under, _AT_ONCE):
            after = rows[-1][0]
            yield _Some(organization_id, kind, rows)


async def _step(vault: Vault, some: _Some, transaction: Transaction) -> int:
    """Reads the records once more, under the lock, and encrypts them anew; gives how many can't be."""
    key = await records.take_turn(transaction, vault)
    now = await transaction.fetch_many(
        _ONE[some.kind], [(some.organization_id, row[0]) for row in some.rows]
    )
    reencrypted, broken = [], 0
    for id_, identity, encrypted in now:
        try:
            value = vault.decrypt(encrypted, identity)
        except DecryptionFailed:
            broken += 1
        else:
            reencrypted.append((some.organization_id, id_, key.encrypt(value, identity)))
    await transaction.execute_many(_RESEAL[some.kind], reencrypted)
    return broken


# --- keys that are lost -------------------------------------------------------------------------


async def count_unopenable(engine: Engine, vault: Vault) -> int:
    return sum([len(some.rows) async for some in _unopenable(engine, vault)])


async def forget_unopenable(engine: Engine, vault: Vault, now: int) -> int:
    """Removes the values that no key at hand opens; gives how many.

    Another process may still have a lost key; it must not encrypt with it meanwhile.
    """
    if not await metadata.follow_key(engine, vault):
        await begin(engine, lambda: vault.fingerprints[0])
        for organization_id in await organizations.every_id(engine):
            await _let_writers_end(engine.for_tenant(organization_id), vault, now)
    forgotten = 0
    async for some in _unopenable(engine, vault):
        database = engine.for_tenant(some.organization_id)
        forgotten += await database.write(partial(_remove, some, now), queue_key=records.QUEUE_KEY)
    return forgotten


async def _unopenable(engine: Engine, vault: Vault) -> AsyncIterator[_Some]:
    for organization_id in await organizations.every_id(engine):
        async for some in _records(engine.for_tenant(organization_id), _ANY):
            yield some._replace(rows=[row for row in some.rows if not _opens(vault, some, row)])


def _opens(vault: Vault, some: _Some, row: Row) -> bool:
    """As it does when it is read: a record that was turned into another does not, either."""
    _, encrypted, *named_by = row
    try:
        vault.decrypt(encrypted, _IDENTITY_OF[some.kind](some.organization_id, *named_by))
    except DecryptionFailed:
        return False
    return True


async def _remove(some: _Some, now: int, transaction: Transaction) -> int:
    """Only what is still what it was: another node may have stored a new value."""
    removed = await transaction.fetch_many(
        _REMOVE[some.kind], [(some.organization_id, row[0], row[1]) for row in some.rows]
    )
    if removed:
        about = AuditAbout(records=len(removed))
        await audit.note(transaction, audit.COMMAND_LINE, now, "forget_keys", about)
    return len(removed)
