"""Storage of secret keys: an environment variable, or a file beside the SQLite database.

Both may contain several keys, separated by white space. A rotation encrypts with the first one.
The others decrypt the values that are not yet re-encrypted.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import os
import secrets
from collections.abc import Sequence
from pathlib import Path

from gleanery.errors import SettingsError
from gleanery.folders import create_private

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
        create_private(self._path.parent)
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
