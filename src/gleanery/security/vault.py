"""Secrets at rest: AES-256-GCM under keys that the database never holds."""

from __future__ import annotations

import contextlib
import hmac
import os
from collections.abc import Callable, Iterator, Sequence

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from gleanery.errors import SettingsError
from gleanery.security.key_files import FINGERPRINT_BYTES, fingerprint

_NONCE_BYTES = 12


class DecryptionFailed(Exception):
    """A stored value does not open: another record's value, or damage, or a key not at hand."""


class UnknownKey(DecryptionFailed):
    """A value needs a key that is not at hand."""

    def __init__(self, fingerprint: str) -> None:
        super().__init__(f"no key {fingerprint} is at hand")
        self.fingerprint = fingerprint


class Key:
    """One key: encrypts values so that each opens only under it and for the record it is for."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._cipher = AESGCM(key)
        self._mark = fingerprint(key)

    @property
    def fingerprint(self) -> str:
        return self._mark.hex()

    def derived(self, purpose: str) -> bytes:
        """A key for another purpose, which tells nothing about this one."""
        return hmac.digest(self._key, f"gleanery {purpose}".encode(), "sha256")

    def encrypt(self, value: str, record: bytes) -> bytes:
        nonce = os.urandom(_NONCE_BYTES)
        return self._mark + nonce + self._cipher.encrypt(nonce, value.encode(), record)

    def decrypt(self, encrypted: bytes, record: bytes) -> str:
        start = FINGERPRINT_BYTES + _NONCE_BYTES
        try:
            nonce = encrypted[FINGERPRINT_BYTES:start]
            return self._cipher.decrypt(nonce, encrypted[start:], record).decode()
        except (InvalidTag, ValueError):
            raise DecryptionFailed from None


class Vault:
    """All keys at hand. It opens with any of them; which one encrypts, the database says.

    A encrypted value is the key's fingerprint, a random nonce and the ciphertext. A key that is
    not known is looked for in the source once more, so that a process learns of a new one the
    moment it needs it. What was once known stays known, for what was read before a change ended.
    """

    def __init__(self, source: Callable[[], Sequence[bytes]]) -> None:
        self._source = source
        self._keys: dict[str, Key] = {}
        self.learn()
        self.current = next(iter(self._keys), "")
        """The key to derive others from: the one that encrypts, as far as this process has heard."""

    @property
    def fingerprints(self) -> Sequence[str]:
        """Of all keys, the first one first."""
        return list(self._keys)

    def knows(self, fingerprint: str) -> bool:
        if fingerprint not in self._keys:
            self._look_again()
        return fingerprint in self._keys

    def key(self, fingerprint: str) -> Key:
        if not self.knows(fingerprint):
            raise UnknownKey(fingerprint)
        return self._keys[fingerprint]

    def decrypt(self, encrypted: bytes, record: bytes) -> str:
        return self.key(encrypted[:FINGERPRINT_BYTES].hex()).decrypt(encrypted, record)

    def each_derived(self, purpose: str) -> Iterator[bytes]:
        """What each key gives for the purpose, at last those that were not known before."""
        known = self._keys
        for key in known.values():
            yield key.derived(purpose)
        self._look_again()
        for name, key in self._keys.items():
            if name not in known:
                yield key.derived(purpose)

    def _look_again(self) -> None:
        with contextlib.suppress(SettingsError, OSError):  # what is known stays known
            self.learn()

    def learn(self) -> None:
        """Takes in what the source holds now; its first key becomes the first one here."""
        found = {key.fingerprint: key for key in map(Key, self._source())}
        self._keys = found | {n: key for n, key in self._keys.items() if n not in found}
