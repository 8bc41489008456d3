"""What a database knows of itself beside its records: its key, a restore, if it is a sample."""

from __future__ import annotations

from gleanery.errors import SettingsError
from gleanery.security.vault import Vault
from gleanery.storage.database import Database, Transaction

_NOTE = "INSERT INTO metadata (name, value) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING"
_READ = "SELECT value FROM metadata WHERE name = $1"
_SET = """
INSERT INTO metadata (name, value) VALUES ($1, $2)
ON CONFLICT (name) DO UPDATE SET value = excluded.value
"""
_FORGET = "DELETE FROM metadata WHERE name = $1"
_KEY = "secret key"
_HALF_RESTORED = "half restored"
_SAMPLE = "sample"
RESTORED = "(SELECT value FROM metadata WHERE name = 'restored')"
"""In SQL: the moment of the last restore, as text; null if there was none."""


async def knows_key(database: Database) -> bool:
    """Whether values of this database may already be encrypted."""
    return await known_key(database) is not None


async def known_key(database: Database) -> str | None:
    """The fingerprint of the key that encrypts, if there is one yet."""
    return await _read(database, _KEY)


async def claim_key(database: Database, vault: Vault) -> None:
    """Notes the first key on first use; afterwards a service without the noted one can't start."""
    if not await knows_key(database):
        await _note(database, _KEY, vault.fingerprints[0])
    if not await follow_key(database, vault):
        raise SettingsError(
            "The secret key is not the one this database's values are encrypted with: "
            "give the right GLEANERY_SECRET_KEY, or put back the right secret.key file; if it is "
            "lost, gleanery keys forget removes what only it could open"
        )


async def follow_key(database: Database, vault: Vault) -> bool:
    """Tells the vault which key encrypts now; False if it does not have that one."""
    fingerprint = await known_key(database)
    if fingerprint is None or not vault.knows(fingerprint):
        return False
    vault.current = fingerprint
    return True


async def encryption_key(transaction: Transaction) -> str:
    """The fingerprint of the key that encrypts, for as long as this transaction holds its locks."""
    [[fingerprint]] = await transaction.fetch(_READ, _KEY)
    return str(fingerprint)


async def use_key(transaction: Transaction, fingerprint: str) -> None:
    """From now on this key encrypts, on every node."""
    await transaction.fetch(_SET, _KEY, fingerprint)


async def note_restore(transaction: Transaction, moment: int) -> None:
    """Whatever was given out until this moment may be of what is lost."""
    await transaction.fetch(_SET, "restored", str(moment))
    await transaction.fetch(_SET, _HALF_RESTORED, str(moment))


async def end_restore(transaction: Transaction) -> None:
    """All that has to be done after a restore is done."""
    await transaction.fetch(_FORGET, _HALF_RESTORED)


async def refuse_half_restored(database: Database) -> None:
    """A client that syncs by dates would never hear of what was not sent again."""
    if await _read(database, _HALF_RESTORED) is not None:
        raise SettingsError("gleanery restored was interrupted: run it again, to its end")


async def is_sample(database: Database) -> bool:
    """Whether the database holds the sample of ``gleanery demo`` and nothing else."""
    return await _read(database, _SAMPLE) is not None


async def mark_as_sample(database: Database) -> None:
    await _note(database, _SAMPLE, "whole")


async def _read(database: Database, name: str) -> str | None:
    rows = await database.read(_READ, name)
    return rows[0][0] if rows else None


async def _note(database: Database, name: str, value: str) -> None:
    async def work(transaction: Transaction) -> None:
        await transaction.fetch(_NOTE, name, value)

    await database.write(work)
