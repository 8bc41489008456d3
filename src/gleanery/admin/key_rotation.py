"""Changes the secret key of a database while it is served, and gives up keys that are lost."""

from __future__ import annotations

from typing import NamedTuple

from gleanery.api.app import has_key, vault_of
from gleanery.errors import SettingsError
from gleanery.observability.progress import Begin
from gleanery.security.key_files import KeyFile
from gleanery.security.vault import Vault
from gleanery.settings import Settings
from gleanery.storage import metadata
from gleanery.storage.database import Engine
from gleanery.storage.maintenance import key_rotation
from gleanery.values import timestamps


class Rotated(NamedTuple):
    """What a change of keys has come to."""

    key: str
    values: int
    broken: int
    """Values that no key at hand opens; they are as they were."""
    is_file: bool
    """The old keys are gone from the file: nothing is left to do."""


async def rotate(settings: Settings, database: Engine, begin: Begin) -> Rotated:
    """Seals everything with a new key. May be interrupted and repeated, beside any service."""
    vault = await _vault(settings, database)
    file = None if settings.secret_key is not None else KeyFile(settings.key_file)

    def first_key() -> str:
        if file is not None:
            file.add_new()
            vault.learn()
        elif len(vault.fingerprints) == 1:
            raise SettingsError(
                "GLEANERY_SECRET_KEY holds one key only: put a new one in front of it, with a "
                "space between them, on every node first; then run this again"
            )
        return vault.fingerprints[0]

    key = await key_rotation.begin(database, first_key)
    encrypted = await key_rotation.count_by_key(database)
    to_do = encrypted.total() - encrypted[key]
    tell = begin("Sealing values anew", to_do)
    broken = await key_rotation.reencrypt(database, vault, key, tell, timestamps.now())
    if file is not None:
        await key_rotation.end(database, key, file.keep_only)
    return Rotated(key, to_do - broken, broken, file is not None)


async def _vault(settings: Settings, database: Engine) -> Vault:
    """The keys at hand, among which is the one that encrypts now."""
    if await metadata.knows_key(database) and not has_key(settings):
        raise SettingsError(f"The secret key {settings.key_file} is missing: put it back first")
    vault = vault_of(settings)
    await metadata.claim_key(database, vault)
    return vault


class ListedKey(NamedTuple):
    """A key by its fingerprint, and how many values are encrypted with it."""

    fingerprint: str
    values: int
    encrypts: bool
    is_at_hand: bool


async def list_keys(settings: Settings, database: Engine) -> list[ListedKey]:
    vault = _at_hand(settings)
    sealing = await metadata.known_key(database)
    values = await key_rotation.count_by_key(database)
    names = dict.fromkeys([*vault.fingerprints, *([sealing] if sealing else []), *values])
    return [
        ListedKey(name, values[name], name == sealing, name in vault.fingerprints) for name in names
    ]


async def count_lost(settings: Settings, database: Engine) -> int:
    """How many values no key at hand opens."""
    return await key_rotation.count_unopenable(database, _at_hand(settings))


async def forget_lost(settings: Settings, database: Engine) -> int:
    """Removes them, and lets the first key at hand encrypt from now on; it is made if need be."""
    return await key_rotation.forget_unopenable(database, vault_of(settings), timestamps.now())


def _at_hand(settings: Settings) -> Vault:
    return vault_of(settings) if has_key(settings) else Vault(tuple)
