"""Hashes that stand for records: short, of fixed length, and unambiguous about their parts."""

from __future__ import annotations

import hashlib


def fingerprint(*parts: str | bytes | int) -> bytes:
    """SHA-256 over the parts, each with its length, so that no two divisions look alike."""
    digest = hashlib.sha256()
    for part in parts:
        text = part if isinstance(part, bytes) else str(part).encode()
        digest.update(len(text).to_bytes(8, "big"))
        digest.update(text)
    return digest.digest()
