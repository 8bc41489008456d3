"""Secrets at rest: AES-256-GCM under a key that the database never holds."""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import hmac
import os
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from gleanery.errors import SettingsError

_KEY_BYTES = 32
_NONCE_BYTES = 12
_FINGERPRINT_BYTES = 4


class SealBroken(Exception):
    """A stored value does not open: another key, another record's value, or damage."""


class Vault:
    """Seals values so that each opens only under this key and for the record it was sealed for.

    A sealed value is the key's fingerprint, a random nonce and the ciphertext; the fingerprint
    tells during a change of keys which key a value still needs.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._cipher = AESGCM(key)
        self._fingerprint = hashlib.sha256(b"gleanery key\0" + key).digest()[:_FINGERPRINT_BYTES]

    @property
    def fingerprint(self) -> str:
        """Names the key without telling anything about it."""
        return self._fingerprint.hex()

    def derived(self, purpose: str) -> bytes:
        """A key for another purpose, which tells nothing about this one."""
        return hmac.digest(self._key, f"gleanery {purpose}".encode(), "sha256")

    def seal(self, value: str, record: bytes) -> bytes:
        nonce = os.urandom(_NONCE_BYTES)
        return self._fingerprint + nonce + self._cipher.encrypt(nonce, value.encode(), record)

    def open(self, sealed: bytes, record: bytes) -> str:
        nonce = sealed[_FINGERPRINT_BYTES : _FINGERPRINT_BYTES + _NONCE_BYTES]
        try:
            return self._cipher.decrypt(
                nonce, sealed[_FINGERPRINT_BYTES + _NONCE_BYTES :], record
            ).decode()
        except (InvalidTag, ValueError):
            raise SealBroken from None


def key_from_text(text: str) -> bytes:
    """The key of ``GLEANERY_SECRET_KEY``: 32 bytes in base64."""
    key = _decoded(text.encode())
    if key is None:
        raise SettingsError(
            "GLEANERY_SECRET_KEY must be 32 bytes in base64: openssl rand -base64 32 makes one"
        )
    return key


def key_from_file(path: Path) -> bytes:
    """The key kept beside an embedded database, made on first use, readable by its owner only."""
    if not path.exists():
        _make_key_file(path)
    return _read_key_file(path)


def _make_key_file(path: Path) -> None:
    """Written aside and then linked, so that of two processes that start at once both read one."""
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(base64.b64encode(os.urandom(_KEY_BYTES)).decode() + "\n")
        file.flush()
        os.fsync(file.fileno())
    with contextlib.suppress(FileExistsError):
        os.link(draft, path)
    draft.unlink()


def _read_key_file(path: Path) -> bytes:
    if path.stat().st_mode & 0o077:
        raise SettingsError(f"Others can read the secret key; run: chmod 600 {path}")
    key = _decoded(path.read_bytes())
    if key is None:
        raise SettingsError(
            f"{path} does not hold a secret key of 32 bytes: put back the right one"
        )
    return key


def _decoded(text: bytes) -> bytes | None:
    try:
        key = base64.b64decode(text.strip(), validate=True)
    except binascii.Error:
        return None
    return key if len(key) == _KEY_BYTES else None
