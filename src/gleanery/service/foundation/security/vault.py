"""Secret keys, and the encryption of session values with them: AES-256-GCM.

The database never holds a key. The keys are in an environment variable, or in a file next to the
SQLite database. Both may contain several keys, separated by white space. A rotation encrypts with
the first one. The others decrypt the values that are not yet re-encrypted.

Folders with secrets are private: only their owner can use them.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import hmac
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from gleanery.common.errors import SettingsError
from gleanery.service.foundation.folders import create_private_folder

# --- private folders ----------------------------------------------------------------------------


# --- storage of keys ----------------------------------------------------------------------------

_KEY_BYTES = 32
FINGERPRINT_BYTES = 4


def fingerprint(key: bytes) -> bytes:
    """Return a short public name of a key, which reveals nothing about it."""
    return hashlib.sha256(b"gleanery key\0" + key).digest()[:FINGERPRINT_BYTES]


def keys_from_text(text: str) -> Sequence[bytes]:
    """Parse the keys of ``GLEANERY_SECRET_KEY``: each is 32 bytes in base64."""
    keys = _decode(text.encode())
    if keys is None:
        raise SettingsError(
            "GLEANERY_SECRET_KEY must be 32 bytes in base64; openssl rand -base64 32 creates a key"
        )
    return keys


class KeyFile:
    """Key file of a SQLite database. Only its owner can read it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._cached: tuple[tuple[int, ...], Sequence[bytes]] | None = None

    def create(self) -> None:
        """Create the file with a new key, unless it exists.

        The file is written under another name and then linked. So two processes that start at
        the same time read the same key.
        """
        if self._path.exists():
            return
        create_private_folder(self._path.parent)
        temporary = self._write_temporary(secrets.token_hex(8), [_new_key()])
        with contextlib.suppress(FileExistsError):
            os.link(temporary, self._path)
        temporary.unlink()
        self._sync_folder()

    def read(self) -> Sequence[bytes]:
        """Return all keys. The file is read again only after a change."""
        try:
            status = self._path.stat()
        except FileNotFoundError:
            raise SettingsError(f"The secret key {self._path} is missing: put it back") from None
        if status.st_mode & 0o077:
            raise SettingsError(f"Other users can read the secret key: chmod 600 {self._path}")
        version = (status.st_ino, status.st_mtime_ns, status.st_size)
        if self._cached is None or self._cached[0] != version:
            self._cached = (version, self._parse())
        return self._cached[1]

    def fingerprints(self) -> Sequence[str]:
        return [fingerprint(key).hex() for key in self.read()]

    def add_new(self) -> None:
        """Put a new key in front."""
        self._replace([_new_key(), *self.read()])

    def remove(self, names: Sequence[str]) -> None:
        """Remove the keys with these fingerprints; the last key always stays."""
        keys = self.read()
        kept = [key for key in keys if fingerprint(key).hex() not in names]
        if kept and len(kept) < len(keys):
            self._replace(kept)

    def _parse(self) -> Sequence[bytes]:
        keys = _decode(self._path.read_bytes())
        if keys is None:
            raise SettingsError(
                f"{self._path} does not contain keys of 32 bytes in base64: put back the right one"
            )
        return keys

    def _replace(self, keys: Sequence[bytes]) -> None:
        """Replace the keys durably, because values will depend on them.

        The caller excludes other writers.
        """
        temporary = self._write_temporary("new", keys)
        try:
            # Keep the owner: root may run this for the service of another user.
            os.chown(temporary, self._path.stat().st_uid, -1)
            temporary.replace(self._path)
        finally:
            temporary.unlink(missing_ok=True)
        self._sync_folder()

    def _sync_folder(self) -> None:
        folder = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _write_temporary(self, suffix: str, keys: Sequence[bytes]) -> Path:
        temporary = self._path.with_name(f"{self._path.name}.{suffix}")
        temporary.unlink(missing_ok=True)  # leftover of a process that was killed
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.writelines(base64.b64encode(key).decode() + "\n" for key in keys)
            file.flush()
            os.fsync(file.fileno())
        return temporary


def _new_key() -> bytes:
    return os.urandom(_KEY_BYTES)


def _decode(text: bytes) -> Sequence[bytes] | None:
    try:
        keys = [base64.b64decode(part, validate=True) for part in text.split()]
    except binascii.Error:
        return None
    return keys if keys and all(len(key) == _KEY_BYTES for key in keys) else None


# --- encryption ---------------------------------------------------------------------------------

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
