"""Rotation of the secret key while the service runs, and removal of values under lost keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from gleanery.common.errors import SettingsError
from gleanery.common.settings import Settings
from gleanery.service.foundation.observability.progress import StartProgress
from gleanery.service.foundation.security.vault import KeyFile, Vault, open_vault
from gleanery.service.foundation.values import timestamps
from gleanery.service.maintenance import key_rotation
from gleanery.service.storage import metadata
from gleanery.service.storage.database import Engine

_END_OF_TIME = 2**62


class Rotation(NamedTuple):
    """Result of a key rotation."""

    key: str
    values: int
    broken: int
    """Number of values that no available key can decrypt; they are unchanged."""
    is_file: bool
    """False if the operator removes the old keys from the variable."""
    retires_at: int | None
    """Time until which an old key is needed; None if there is no old key."""


async def rotate(settings: Settings, database: Engine, progress: StartProgress) -> Rotation:
    """Encrypt every value with a new key. An interrupted rotation can be repeated."""
    vault = await _open_vault(settings, database)
    file = None if settings.secret_key is not None else KeyFile(settings.key_file)
    key = await key_rotation.begin(database, _new_key(vault, file))
    encrypted = await key_rotation.count_by_key(database)
    remaining = encrypted.total() - encrypted[key]
    advance = progress("Encrypting values again", remaining)
    broken = await key_rotation.reencrypt(database, vault, key, advance, timestamps.now())
    now = timestamps.now()
    await key_rotation.end(database, vault, key, now)
    waiting = (await _retire(settings, database, vault, now)).waiting
    retires_at = max(waiting.values(), default=None)
    return Rotation(key, remaining - broken, broken, file is not None, retires_at)


def _new_key(vault: Vault, file: KeyFile | None) -> Callable[[str, str | None], str]:
    """Return a function that chooses the key to rotate to, and returns its fingerprint."""

    def choose_in_file(file: KeyFile, active: str, pending: str | None) -> str:
        keys = file.fingerprints()
        if pending is not None and pending in keys:
            return pending  # continue the rotation that was interrupted
        if keys[0] == active:
            file.add_new()
            vault.reload()
        return vault.fingerprints[0]

    def choose(active: str, pending: str | None) -> str:
        if file is not None:
            return choose_in_file(file, active, pending)
        if len(vault.fingerprints) == 1:
            raise SettingsError(
                "GLEANERY_SECRET_KEY contains one key only: put a new one in front of it, with a "
                "space between them, on every node first; then run this again"
            )
        return vault.fingerprints[0]

    return choose


class Retirement(NamedTuple):
    """Result of the retirement of old keys."""

    retired: list[str]
    """Keys that nothing needs. They are removed from the key file, if there is one."""
    waiting: dict[str, int]
    """Keys that signed links need, and the times until which they do."""
    is_file: bool


async def retire(settings: Settings, database: Engine, at_once: bool) -> Retirement:
    """Remove the old keys from the key file, if no link and no value needs them.

    With ``at_once`` the links that they have signed become invalid.
    """
    now = _END_OF_TIME if at_once else timestamps.now()
    vault = await _open_vault(settings, database)
    retirement = await _retire(settings, database, vault, now)
    if not retirement.retired and not retirement.waiting and len(vault.fingerprints) > 1:
        raise SettingsError(
            "The other keys encrypt values, or are not yet in use: run gleanery keys rotate first"
        )
    return retirement


async def _retire(settings: Settings, database: Engine, vault: Vault, now: int) -> Retirement:
    file = None if settings.secret_key is not None else KeyFile(settings.key_file)
    remove = file.remove if file is not None else None
    retired = await key_rotation.retire(database, vault.fingerprints, now, remove)
    retirements = await metadata.retirements(database)
    waiting = {key: retirements[key] for key in vault.fingerprints if retirements.get(key, 0) > now}
    return Retirement(retired, waiting, file is not None)


async def _open_vault(settings: Settings, database: Engine) -> Vault:
    """Return the available keys, which include the active one."""
    if not settings.has_secret_key:
        if await key_rotation.needed_keys(database):
            raise SettingsError(f"The secret key {settings.key_file} is missing: put it back first")
        KeyFile(settings.key_file).create()
    vault = open_vault(settings.secret_key, settings.key_file)
    await metadata.check_or_store_key(database, vault)
    return vault


class ListedKey(NamedTuple):
    """Key with the number of values that it has encrypted."""

    fingerprint: str
    values: int
    is_active: bool
    is_available: bool
    retires_at: int | None
    """Time until which links need an old key."""


async def list_keys(settings: Settings, database: Engine) -> list[ListedKey]:
    available = _available_keys(settings).fingerprints
    active = await metadata.key_fingerprint(database)
    values = await key_rotation.count_by_key(database)
    keys = dict.fromkeys([*available, *([active] if active else []), *values])
    retirements = await metadata.retirements(database)
    return [
        ListedKey(key, values[key], key == active, key in available, retirements.get(key))
        for key in keys
    ]


async def count_lost(settings: Settings, database: Engine) -> int:
    """Count the values that no available key can decrypt."""
    return await key_rotation.count_undecryptable(database, _available_keys(settings))


async def forget_lost(settings: Settings, database: Engine) -> int:
    """Remove those values. The first available key, or a new one, becomes the active key."""
    if not settings.has_secret_key:
        KeyFile(settings.key_file).create()
    vault = open_vault(settings.secret_key, settings.key_file)
    return await key_rotation.delete_undecryptable(database, vault, timestamps.now())


def _available_keys(settings: Settings) -> Vault:
    if not settings.has_secret_key:
        return Vault(tuple)
    return open_vault(settings.secret_key, settings.key_file)
