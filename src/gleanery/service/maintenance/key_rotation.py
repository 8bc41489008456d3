"""Key rotation: re-encrypts session values, and secrets and headers of webhooks, with a new key.

It works in short transactions.

The database names the active key. A writer reads it after it has locked its organization's
session state. Rotation first stores the new key and then locks each organization's session state
once. After that, no writer uses an old key, and the values under old keys are found and
re-encrypted. Rotation can be repeated, interrupted, or run twice at the same time.

See ``docs/explanation/secret-keys.md``.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from gleanery.service.foundation.observability.progress import Advance
from gleanery.service.foundation.security.tokens import COMMAND_LINE
from gleanery.service.foundation.security.vault import FINGERPRINT_BYTES, DecryptionFailed, Vault
from gleanery.service.resources.access import organizations
from gleanery.service.resources.audit import log
from gleanery.service.resources.audit.models import AuditAbout
from gleanery.service.resources.sessions.cookies import COOKIES
from gleanery.service.resources.sessions.local_storage import LOCAL_STORAGE
from gleanery.service.resources.sessions.records import QUEUE_KEY, lock_session_state
from gleanery.service.resources.webhooks.endpoints import HEADERS, SECRETS
from gleanery.service.storage import metadata
from gleanery.service.storage.database import Database, Engine, Row, Transaction
from gleanery.service.storage.paging import count_fitting


class _Encrypted(Protocol):
    """A table with encrypted values."""

    @property
    def table(self) -> str: ...

    @property
    def identity_columns(self) -> tuple[str, ...]: ...

    @property
    def hash_identity(self) -> Callable[..., bytes]: ...


_KINDS: tuple[_Encrypted, ...] = (COOKIES, LOCAL_STORAGE, SECRETS, HEADERS)
_KEY_OF_VALUE = f"substr(encrypted_value, 1, {FINGERPRINT_BYTES})"


def _for_each_kind(sql: str) -> dict[str, str]:
    """Return the statement for each table with encrypted values."""
    return {
        kind.table: sql.format(table=kind.table, identity=", ".join(kind.identity_columns))
        for kind in _KINDS
    }


# The limit is no limit. Without it, SQLite sorts whole values in memory.
_COUNT_BY_KEY = _for_each_kind(f"""
SELECT fingerprint, count(*) FROM (
    SELECT {_KEY_OF_VALUE} AS fingerprint FROM {{table}}
    WHERE organization_id = $1 LIMIT {2**62}
) AS found
GROUP BY fingerprint
""")
_NEXT_SIZES = _for_each_kind(f"""
SELECT id, length(encrypted_value) FROM {{table}}
WHERE organization_id = $1 AND id > $2 AND {_KEY_OF_VALUE} <> $3 ORDER BY id LIMIT $4
""")
_NEXT = _for_each_kind(f"""
SELECT id, encrypted_value, {{identity}} FROM {{table}}
WHERE organization_id = $1 AND id > $2 AND {_KEY_OF_VALUE} <> $3 ORDER BY id LIMIT $4
""")
_FIND = _for_each_kind(
    "SELECT id, identity, encrypted_value FROM {table} WHERE organization_id = $1 AND id = $2"
)
_UPDATE = _for_each_kind(
    "UPDATE {table} SET encrypted_value = $3 WHERE organization_id = $1 AND id = $2"
)
_DELETE = _for_each_kind("""
DELETE FROM {table} WHERE organization_id = $1 AND id = $2 AND encrypted_value = $3 RETURNING id
""")
_BATCH_SIZE = 500
_BATCH_BYTES = 8 * 1024 * 1024
_NO_KEY = b""  # the fingerprint of no key


class _Batch(NamedTuple):
    """Records of one kind and organization: id, encrypted value and identity columns of each."""

    database: Database
    kind: _Encrypted
    rows: Sequence[Row]


async def _tenants(engine: Engine) -> list[Database]:
    return [engine.for_tenant(id_) for id_ in await organizations.all_ids(engine)]


async def count_by_key(engine: Engine) -> Counter[str]:
    """Count the values under each key, by the key's fingerprint."""
    counts = Counter[str]()
    for database in await _tenants(engine):
        for kind in _KINDS:
            sql = _COUNT_BY_KEY[kind.table]
            for fingerprint, count in await database.read(sql, database.organization_id):
                counts[bytes(fingerprint).hex()] += count
    return counts


async def needed_keys(engine: Engine) -> set[str]:
    """Return the fingerprints of the keys without which the database must not be served.

    This is the active key. If the database does not name it, the values show their keys.
    """
    active = await metadata.key_fingerprint(engine)
    return {active} if active is not None else set(await count_by_key(engine))


async def begin(database: Database, choose: Callable[[str, str | None], str]) -> str:
    """Store the chosen key as the active key, and return its fingerprint.

    ``choose`` gets the active key and the key of an interrupted rotation. On SQLite it runs while
    no other process can write, so it may change the key file.
    """

    async def work(transaction: Transaction) -> str:
        active, pending = (
            await metadata.active_key(transaction),
            await metadata.rotation(transaction),
        )
        fingerprint = choose(active, pending)
        await metadata.begin_rotation(transaction, fingerprint)
        return fingerprint

    return await database.write(work)


async def end(database: Database, vault: Vault, fingerprint: str, now: int) -> None:
    """Schedules the retirement of the other keys, unless another rotation has begun."""

    async def work(transaction: Transaction) -> None:
        if await metadata.active_key(transaction) == fingerprint:
            old_keys = [key for key in vault.fingerprints if key != fingerprint]
            await metadata.end_rotation(transaction, fingerprint, old_keys, now)

    await database.write(work)


async def retire(
    engine: Engine,
    available: Sequence[str],
    now: int,
    remove: Callable[[Sequence[str]], None] | None,
) -> list[str]:
    """Remove the old keys that nothing needs at this time; return their fingerprints.

    Values, an interrupted rotation and links that are still valid need a key. On SQLite,
    ``remove`` runs while no other process can write. Without it, the operator removes the keys.
    """
    counts, retirements = await count_by_key(engine), await metadata.retirements(engine)

    async def work(transaction: Transaction) -> list[str]:
        if await metadata.rotation(transaction) is not None:
            return []
        active = await metadata.active_key(transaction)
        is_due = {key for key, retires_at in retirements.items() if retires_at <= now}
        due = [key for key in available if key in is_due and key != active and not counts[key]]
        if remove is not None:
            remove(due)
            for key in due:
                await metadata.forget_retirement(transaction, key)
        return due

    return await engine.write(work)


async def reencrypt(
    engine: Engine, vault: Vault, fingerprint: str, advance: Advance, now: int
) -> int:
    """Re-encrypts the values under other keys; returns how many no key can decrypt."""
    failed = 0
    for database in await _tenants(engine):
        await _wait_for_writers(database, vault, now)
        async for batch in _batches(database, bytes.fromhex(fingerprint)):
            started = time.monotonic()
            failed += await database.write(partial(_reencrypt, vault, batch), queue_key=QUEUE_KEY)
            advance(len(batch.rows))
            await asyncio.sleep(time.monotonic() - started)  # leaves half of the time to clients
    return failed


async def _wait_for_writers(database: Database, vault: Vault, now: int) -> None:
    """Wait until no writer of the organization uses an old key; audit the rotation."""

    async def work(transaction: Transaction) -> None:
        locked = await lock_session_state(transaction, vault, now)
        about = AuditAbout(key=locked.key.fingerprint)
        await log.append(transaction, COMMAND_LINE, now, "rotate_keys", about)

    await database.write(work, queue_key=QUEUE_KEY)


async def _batches(database: Database, except_key: bytes) -> AsyncIterator[_Batch]:
    """Yield all records that are not encrypted with the key of this fingerprint.

    A batch is limited in records and in bytes, because a value can be large.
    """
    for kind in _KINDS:
        position = (database.organization_id, 0, except_key)
        while sizes := await database.read(_NEXT_SIZES[kind.table], *position, _BATCH_SIZE):
            count = count_fitting([size for _, size in sizes], _BATCH_BYTES)
            rows = await database.read_large(_NEXT[kind.table], *position, count)
            yield _Batch(database, kind, rows)
            position = (database.organization_id, sizes[count - 1][0], except_key)


async def _reencrypt(vault: Vault, batch: _Batch, transaction: Transaction) -> int:
    """Read the records again under the lock and re-encrypt them; return how many failed."""
    organization_id, table = transaction.organization_id, batch.kind.table
    locked = await lock_session_state(transaction, vault)
    ids = [(organization_id, row[0]) for row in batch.rows]
    updates, failed = [], 0
    for id_, identity, encrypted_value in await transaction.fetch_many(_FIND[table], ids):
        try:
            value = vault.decrypt(encrypted_value, identity)
        except DecryptionFailed:
            failed += 1
        else:
            updates.append((organization_id, id_, locked.key.encrypt(value, identity)))
    await transaction.execute_many(_UPDATE[table], updates)
    return failed


# --- lost keys ----------------------------------------------------------------------------------


async def count_undecryptable(engine: Engine, vault: Vault) -> int:
    """Count the values that no available key can decrypt."""
    return sum([len(batch.rows) async for batch in _undecryptable(engine, vault)])


async def delete_undecryptable(engine: Engine, vault: Vault, now: int) -> int:
    """Delete the values that no available key can decrypt; return how many.

    Another process may still have a lost key. It must not encrypt with that key meanwhile.
    """
    if not await metadata.load_active_key(engine, vault):
        use_first = partial(metadata.set_active_key, fingerprint=vault.fingerprints[0])
        await engine.write(use_first)
        for database in await _tenants(engine):
            await _wait_for_writers(database, vault, now)
    deleted = 0
    async for batch in _undecryptable(engine, vault):
        deleted += await batch.database.write(partial(_delete, batch, now), queue_key=QUEUE_KEY)
    return deleted


async def _undecryptable(engine: Engine, vault: Vault) -> AsyncIterator[_Batch]:
    for database in await _tenants(engine):
        async for batch in _batches(database, _NO_KEY):
            rows = [row for row in batch.rows if not _can_decrypt(vault, batch, row)]
            yield batch._replace(rows=rows)


def _can_decrypt(vault: Vault, batch: _Batch, row: Row) -> bool:
    """Decrypts as a read does: with the identity that follows from the record's columns."""
    _, encrypted_value, *identity_values = row
    identity = batch.kind.hash_identity(batch.database.organization_id, *identity_values)
    try:
        vault.decrypt(encrypted_value, identity)
    except DecryptionFailed:
        return False
    return True


async def _delete(batch: _Batch, now: int, transaction: Transaction) -> int:
    """Delete records with an unchanged value; another node may have stored a new one."""
    organization_id = transaction.organization_id
    deleted = await transaction.fetch_many(
        _DELETE[batch.kind.table], [(organization_id, row[0], row[1]) for row in batch.rows]
    )
    if deleted:
        about = AuditAbout(records=len(deleted))
        await log.append(transaction, COMMAND_LINE, now, "forget_keys", about)
    return len(deleted)
