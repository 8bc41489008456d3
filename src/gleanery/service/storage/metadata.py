"""Metadata of a database: its identity, keys, restores, background work, and demo data."""

from __future__ import annotations

from collections.abc import Iterable

from gleanery.common.errors import SettingsError
from gleanery.service.foundation.security.vault import Vault
from gleanery.service.foundation.values import timestamps
from gleanery.service.storage.database import Database, Engine, Transaction

_ADD = "INSERT INTO metadata (name, value) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING"
_READ = "SELECT value FROM metadata WHERE name = $1"
_SET = """
INSERT INTO metadata (name, value) VALUES ($1, $2)
ON CONFLICT (name) DO UPDATE SET value = excluded.value
"""
_DELETE = "DELETE FROM metadata WHERE name = $1"
_READ_RETIREMENTS = "SELECT name, value FROM metadata WHERE name LIKE 'retirement:%'"
KEY_FINGERPRINT = "key_fingerprint"
WRONG_KEY = (
    "The secret key is not the one that encrypts this database's values: give the right "
    "GLEANERY_SECRET_KEY, or put back the right secret.key file. If that key is lost, gleanery "
    "keys forget deletes the values that need it"
)
_IDENTITY = "identity"
_UNKNOWN = "-"
_ANOTHER_DATABASE = (
    "This database is not the one that was served before, but a copy or on another server: if a "
    "dump or backup was restored, run gleanery restored, so that clients sync again; if the data "
    "is the same, as after a move or an upgrade of the server, start once with --same-data"
)
_ROTATION = "rotation"
_RETIREMENT = "retirement:"  # a fingerprint follows
_LINK_SECONDS = "link_seconds"
_RESTORE_TIME = "restore_time"
_RESTORE_PENDING = "restore_pending"
_DEMO = "demo"
_SWEEP_CLOCK = "sweep_clock"
_STORAGE_PASS = "storage_pass"
_WEBHOOK_LEASE = "webhook_lease"
_LOCK = "UPDATE metadata SET value = value WHERE name = $1 RETURNING value"
RESTORE_TIME = f"(SELECT value FROM metadata WHERE name = '{_RESTORE_TIME}')"
"""SQL expression: the time of the last restore, as text; null if there was none."""


async def has_key(database: Database) -> bool:
    """Return True if the database has an encryption key, so that it may hold encrypted values."""
    return await key_fingerprint(database) is not None


async def key_fingerprint(database: Database) -> str | None:
    """Return the fingerprint of the active key; None before the first start."""
    return await _read(database, KEY_FINGERPRINT)


async def check_or_store_key(database: Database, vault: Vault) -> None:
    """Store the fingerprint of the first key on first use; later checks that the vault has it."""
    if not await has_key(database):
        await _add(database, KEY_FINGERPRINT, vault.fingerprints[0])
    if not await load_active_key(database, vault):
        raise SettingsError(WRONG_KEY)


async def load_active_key(database: Database, vault: Vault) -> bool:
    """Make the database's key the vault's current key; return False if the vault lacks it."""
    fingerprint = await key_fingerprint(database)
    if fingerprint is None or not vault.knows(fingerprint):
        return False
    vault.current = fingerprint
    return True


async def active_key(transaction: Transaction) -> str:
    """Return the fingerprint of the active key, valid while the transaction has locks."""
    [[fingerprint]] = await transaction.fetch(_READ, KEY_FINGERPRINT)
    return str(fingerprint)


async def set_active_key(transaction: Transaction, fingerprint: str) -> None:
    """Select the active key of every node."""
    await transaction.fetch(_SET, KEY_FINGERPRINT, fingerprint)


async def begin_rotation(transaction: Transaction, fingerprint: str) -> None:
    """Select the active key of every node, and store that a rotation to it is in progress."""
    await set_active_key(transaction, fingerprint)
    await transaction.fetch(_SET, _ROTATION, fingerprint)


async def rotation(transaction: Transaction) -> str | None:
    """Return the key of the rotation in progress."""
    rows = await transaction.fetch(_READ, _ROTATION)
    return rows[0][0] if rows else None


async def end_rotation(
    transaction: Transaction, fingerprint: str, old_keys: Iterable[str], now: int
) -> None:
    """Store from when on each old key is not needed: when the links of these keys have expired."""
    rows = await transaction.fetch(_READ, _LINK_SECONDS)
    retires_at = now + (int(rows[0][0]) if rows else 0) * timestamps.SECOND
    await transaction.fetch(_DELETE, _ROTATION)
    await transaction.fetch(_DELETE, _RETIREMENT + fingerprint)
    for key in old_keys:
        await transaction.fetch(_ADD, _RETIREMENT + key, str(retires_at))


async def forget_retirement(transaction: Transaction, fingerprint: str) -> None:
    await transaction.fetch(_DELETE, _RETIREMENT + fingerprint)


async def retirements(database: Database) -> dict[str, int]:
    """Return the old keys, and the time from which on each is not needed."""
    rows = await database.read(_READ_RETIREMENTS)
    return {name.removeprefix(_RETIREMENT): int(value) for name, value in rows}


async def record_link_seconds(database: Database, seconds: int) -> None:
    """Store for how long links can be valid after a rotation; keep the longest time."""
    stored = await _read(database, _LINK_SECONDS)
    if stored is not None and int(stored) >= seconds:
        return

    async def work(transaction: Transaction) -> None:
        await transaction.fetch(_SET, _LINK_SECONDS, str(seconds))

    await database.write(work)


async def mark_restore_as_pending(transaction: Transaction) -> None:
    """Prevents that the database is served before ``finish_restore``, even by nodes that run."""
    await transaction.fetch(_SET, _RESTORE_PENDING, "")


async def begin_restore(transaction: Transaction, restore_time: int) -> None:
    """Store the time of a restore. Earlier cursors are invalid."""
    await transaction.fetch(_SET, _RESTORE_TIME, str(restore_time))


async def restore_time(transaction: Transaction) -> int:
    """Return the time of the last restore; 0 if there was none."""
    [[value]] = await transaction.fetch(f"SELECT {RESTORE_TIME}")
    return int(value or 0)


async def finish_restore(transaction: Transaction) -> None:
    await transaction.fetch(_DELETE, _RESTORE_PENDING)


async def pending_restore(database: Database) -> str | None:
    """Return a sentence if a restore is not finished; None if the database can be served.

    A client that syncs by dates would miss the outputs that have no new sequence number yet.
    """
    if await _read(database, _RESTORE_PENDING) is None:
        return None
    return "gleanery restored has not ended: wait for it. If it was interrupted, run it again"


async def reject_pending_restore(database: Database) -> None:
    """Raise SettingsError if a restore is not finished."""
    if (problem := await pending_restore(database)) is not None:
        raise SettingsError(problem)


async def check_or_store_identity(engine: Engine, is_same_data: bool) -> None:
    """Store the identity of the database on first use; later checks that it is the same.

    Raise SettingsError if it differs. With ``is_same_data``, store the new one instead.
    """
    identity, stored = await engine.identity(), await _read(engine, _IDENTITY)
    if identity is None:
        return
    if stored is not None and not is_same_data:
        identity = _merged(identity, stored)
    if identity != stored:
        await _set_identity(engine, identity)


def _merged(identity: str, stored: str) -> str:
    """Return the identity with the parts that only the stored one knows.

    The right to read a part can be revoked. Raise SettingsError if a known part differs.
    """
    pairs = [*zip(identity.split(), stored.split(), strict=False)]
    if any(new != old and _UNKNOWN not in (new, old) for new, old in pairs):
        raise SettingsError(_ANOTHER_DATABASE)
    return " ".join(old if new == _UNKNOWN else new for new, old in pairs)


async def store_identity(engine: Engine) -> None:
    """Store that the database with its present identity is the one to serve."""
    await _set_identity(engine, await engine.identity())


async def _set_identity(engine: Engine, identity: str | None) -> None:

    async def work(transaction: Transaction) -> None:
        await transaction.fetch(_SET, _IDENTITY, identity)

    if identity is not None:
        await engine.write(work)


async def lock_sweep_clock(transaction: Transaction) -> str | None:
    """Return the state of the clock guard, locked until the commit; None before its first use."""
    return await _lock(transaction, _SWEEP_CLOCK)


async def set_sweep_clock(transaction: Transaction, state: str) -> None:
    await transaction.fetch(_SET, _SWEEP_CLOCK, state)


async def add_webhook_lease(database: Database) -> None:
    """Store that the database has webhooks, so that a process begins to deliver."""
    if await webhook_lease(database) is None:
        await _add(database, _WEBHOOK_LEASE, "")


async def webhook_lease(database: Database) -> str | None:
    """Return which process delivers to webhooks; None if the database never had one."""
    return await _read(database, _WEBHOOK_LEASE)


async def lock_webhook_lease(transaction: Transaction) -> str:
    """Return the same, locked until the commit."""
    return await _lock(transaction, _WEBHOOK_LEASE) or ""


async def set_webhook_lease(transaction: Transaction, lease: str) -> None:
    await transaction.fetch(_SET, _WEBHOOK_LEASE, lease)


async def storage_pass(database: Database) -> str | None:
    """Return how far the stored bytes are measured; None before the first measurement."""
    return await _read(database, _STORAGE_PASS)


async def lock_storage_pass(transaction: Transaction) -> str | None:
    """Return the same, locked until the commit."""
    return await _lock(transaction, _STORAGE_PASS)


async def set_storage_pass(transaction: Transaction, state: str) -> None:
    await transaction.fetch(_SET, _STORAGE_PASS, state)


async def is_demo(database: Database) -> bool:
    """Return True if the database holds only the data of ``gleanery demo``."""
    return await _read(database, _DEMO) is not None


async def mark_as_demo(database: Database) -> None:
    await _add(database, _DEMO, "complete")


async def _read(database: Database, name: str) -> str | None:
    rows = await database.read(_READ, name)
    return rows[0][0] if rows else None


async def _lock(transaction: Transaction, name: str) -> str | None:
    rows = await transaction.fetch(_LOCK, name)
    return rows[0][0] if rows else None


async def _add(database: Database, name: str, value: str) -> None:
    async def work(transaction: Transaction) -> None:
        await transaction.fetch(_ADD, name, value)

    await database.write(work)
