"""Encryption of session values: AES-256-GCM with keys that the database never holds."""

from __future__ import annotations

import contextlib
import hmac
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from gleanery.errors import SettingsError
from gleanery.security.key_files import FINGERPRINT_BYTES, KeyFile, fingerprint, keys_from_text

_NONCE_BYTES = 12
_TAG_BYTES = 16


class DecryptionFailed(Exception):
    """Value that belongs to another record, is damaged, or needs a missing key."""


class UnknownKey(DecryptionFailed):
    """Value that needs a missing key."""

    def __init__(self, fingerprint: str) -> None:
        super().__init__(f"the key {fingerprint} is missing")
        self.fingerprint = fingerprint


class Key:
    """One secret key. It binds each encrypted value to its record.

    An encrypted value is the key's fingerprint, a random nonce and the ciphertext.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._cipher = AESGCM(key)
        self._fingerprint = fingerprint(key)

    @property
    def fingerprint(self) -> str:
        return self._fingerprint.hex()

    def derive(self, purpose: str) -> bytes:
        """Derive a key for another purpose. It reveals nothing about this one."""
        return hmac.digest(self._key, f"gleanery {purpose}".encode(), "sha256")

    def encrypt(self, value: str, record: bytes) -> bytes:
        nonce = os.urandom(_NONCE_BYTES)
        return self._fingerprint + nonce + self._cipher.encrypt(nonce, value.encode(), record)

    def decrypt(self, encrypted: bytes, record: bytes) -> str:
        start = FINGERPRINT_BYTES + _NONCE_BYTES
        try:
            nonce = encrypted[FINGERPRINT_BYTES:start]
            return self._cipher.decrypt(nonce, encrypted[start:], record).decode()
        except (InvalidTag, ValueError):
            raise DecryptionFailed from None


def encrypted_length(value: str) -> int:
    """Return the number of bytes of the encrypted value, which is the same for every key."""
    return FINGERPRINT_BYTES + _NONCE_BYTES + len(value.encode()) + _TAG_BYTES


class Vault:
    """All available keys. Each can decrypt; the database names the active key, which encrypts.

    An unknown key makes the vault read its source again, so a process finds a new key when it
    first needs it. A known key stays known, for values that were read before a rotation ended.
    """

    def __init__(self, source: Callable[[], Sequence[bytes]]) -> None:
        self._source = source
        self._keys: dict[str, Key] = {}
        self.current = ""
        """Fingerprint of the active key, as far as this process knows."""
        self._try_reload()

    @property
    def fingerprints(self) -> Sequence[str]:
        """Fingerprints of all keys, in the order of the source."""
        return list(self._keys)

    def knows(self, fingerprint: str) -> bool:
        if fingerprint not in self._keys:
            self._try_reload()
        return fingerprint in self._keys

    def key(self, fingerprint: str) -> Key:
        if not self.knows(fingerprint):
            raise UnknownKey(fingerprint)
        return self._keys[fingerprint]

    def decrypt(self, encrypted: bytes, record: bytes) -> str:
        return self.key(encrypted[:FINGERPRINT_BYTES].hex()).decrypt(encrypted, record)

    def derive_all(self, purpose: str) -> Iterator[bytes]:
        """Yield the derived key of every known key, then of every key that a reload adds."""
        known = self._keys
        for key in known.values():
            yield key.derive(purpose)
        self._try_reload()
        for name, key in self._keys.items():
            if name not in known:
                yield key.derive(purpose)

    def _try_reload(self) -> None:
        with contextlib.suppress(SettingsError, OSError):  # known keys stay usable
            self.reload()

    def reload(self) -> None:
        """Add the keys that the source holds now; they come before the older ones."""
        found = {key.fingerprint: key for key in map(Key, self._source())}
        self._keys = found | {n: key for n, key in self._keys.items() if n not in found}
        self.current = self.current or next(iter(found), "")


def create_vault(secret_key: str | None, key_file: Path) -> Vault:
    """Return a vault for the keys of the variable, or else of the file, which may be missing."""
    if secret_key is not None:
        return Vault(partial(keys_from_text, secret_key))
    return Vault(KeyFile(key_file).read)


def open_vault(secret_key: str | None, key_file: Path) -> Vault:
    """Do the same. Raises SettingsError if the keys cannot be read."""
    vault = create_vault(secret_key, key_file)
    vault.reload()
    return vault
