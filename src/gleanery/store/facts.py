"""What a database knows of itself beside its records: which key its secrets are sealed with."""

from __future__ import annotations

from gleanery.errors import SettingsError
from gleanery.store.database import Database, Transaction

_NOTE = "INSERT INTO facts (name, value) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING"
_READ = "SELECT value FROM facts WHERE name = $1"
_KEY = "secret key"


async def claim_key(database: Database, fingerprint: str) -> None:
    """Notes the key on first use; afterwards a service with another key does not start."""
    known = await database.read(_READ, _KEY)
    if not known:

        async def work(transaction: Transaction) -> None:
            await transaction.fetch(_NOTE, _KEY, fingerprint)

        await database.write(work)
        known = await database.read(_READ, _KEY)
    if known[0][0] != fingerprint:
        raise SettingsError(
            "The secret key is not the one this database's values are sealed with: "
            "give the right GLEANERY_SECRET_KEY, or put back the right secret.key file"
        )
