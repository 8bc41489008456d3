"""Secret keys as they are kept: in a variable, or in a file beside the embedded database.

Either may hold several, with white space between them. The first is the one that a change of keys
leads to; the others open what is still encrypted with them.
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

_KEY_BYTES = 32
FINGERPRINT_BYTES = 4


def fingerprint(key: bytes) -> bytes:
    """Names a key without telling anything about it."""
    return hashlib.sha256(b"gleanery key\0" + key).digest()[:FINGERPRINT_BYTES]


def keys_from_text(text: str) -> Sequence[bytes]:
    """The keys of ``GLEANERY_SECRET_KEY``: each 32 bytes in base64."""
    keys = _decoded(text.encode())
    if keys is None:
        raise SettingsError(
            "GLEANERY_SECRET_KEY must be 32 bytes in base64: openssl rand -base64 32 makes one"
        )
    return keys


class KeyFile:
    """The file of an embedded database's keys, which only its owner can read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: tuple[tuple[int, ...], Sequence[bytes]] | None = None

    def make(self) -> None:
        """Makes a file with a new key, unless there is one.

        Written aside and then linked, so that of two processes that start at once both read one.
        """
        if self._path.exists():
            return
        draft = self._draft(secrets.token_hex(8), [_new_key()])
        with contextlib.suppress(FileExistsError):
            os.link(draft, self._path)
        draft.unlink()
        self._sync_folder()

    def read(self) -> Sequence[bytes]:
        """All keys in it; the file itself is only read again when it was changed."""
        try:
            about = self._path.stat()
        except FileNotFoundError:
            raise SettingsError(f"There is no secret key {self._path}: put it back") from None
        if about.st_mode & 0o077:
            raise SettingsError(f"Others can read the secret key; run: chmod 600 {self._path}")
        version = (about.st_ino, about.st_mtime_ns, about.st_size)
        if self._known is None or self._known[0] != version:
            self._known = (version, self._parsed())
        return self._known[1]

    def add_new(self) -> None:
        """Puts a new key in front, unless a change of keys is already under way."""
        keys = self.read()
        if len(keys) == 1:
            self._replace([_new_key(), *keys])

    def keep_only(self, name: str) -> None:
        """Ends a change of keys, with the key of this fingerprint."""
        keys = self.read()
        kept = [key for key in keys if fingerprint(key).hex() == name]
        if kept and len(keys) > 1:
            self._replace(kept)

    def _parsed(self) -> Sequence[bytes]:
        keys = _decoded(self._path.read_bytes())
        if keys is None:
            raise SettingsError(
                f"{self._path} does not hold secret keys of 32 bytes: put back the right one"
            )
        return keys

    def _replace(self, keys: Sequence[bytes]) -> None:
        """Durable when it returns: what is encrypted with a key must not outlive it.

        The caller sees to it that nobody else does this at the same time.
        """
        draft = self._draft("new", keys)
        try:
            # Another user's service, if root does this, must be able to read it as before.
            os.chown(draft, self._path.stat().st_uid, -1)
            draft.replace(self._path)
        finally:
            draft.unlink(missing_ok=True)
        self._sync_folder()

    def _sync_folder(self) -> None:
        folder = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _draft(self, suffix: str, keys: Sequence[bytes]) -> Path:
        draft = self._path.with_name(f"{self._path.name}.{suffix}")
        draft.unlink(missing_ok=True)  # of one that was killed, and may have been another user's
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.writelines(base64.b64encode(key).decode() + "\n" for key in keys)
            file.flush()
            os.fsync(file.fileno())
        return draft


def _new_key() -> bytes:
    return os.urandom(_KEY_BYTES)


def _decoded(text: bytes) -> Sequence[bytes] | None:
    try:
        keys = [base64.b64decode(part, validate=True) for part in text.split()]
    except binascii.Error:
        return None
    return keys if keys and all(len(key) == _KEY_BYTES for key in keys) else None
