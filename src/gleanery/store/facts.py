"""What a database knows of itself beside its records: its key, whether it is a sample."""

from __future__ import annotations

from gleanery.errors import SettingsError
from gleanery.store.database import Database, Transaction

_NOTE = "INSERT INTO facts (name, value) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING"
_READ = "SELECT value FROM facts WHERE name = $1"
_KEY = "secret key"
_SAMPLE = "sample"


async def knows_key(database: Database) -> bool:
    """Whether values of this database may already be sealed."""
    return await _read(database, _KEY) is not None


async def claim_key(database: Database, fingerprint: str) -> None:
    """Notes the key on first use; afterwards a service with another key does not start."""
    if not await knows_key(database):
        await _note(database, _KEY, fingerprint)
    if await _read(database, _KEY) != fingerprint:
        raise SettingsError(
            "The secret key is not the one this database's values are sealed with: "
            "give the right GLEANERY_SECRET_KEY, or put back the right secret.key file"
        )


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
