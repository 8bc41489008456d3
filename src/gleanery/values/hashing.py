"""Hashes that stand for records: short, of fixed length, and unambiguous about their parts."""

from __future__ import annotations

from hashlib import sha256
from struct import Struct

_length = Struct(">Q").pack


def fingerprint(*parts: str | bytes | int) -> bytes:
    """SHA-256 over the parts, each with its length, so that no two divisions look alike."""
    return sha256(b"".join(map(length_prefixed, parts))).digest()


def length_prefixed(part: str | bytes | int) -> bytes:
    """A part with its length: what fingerprints have in common is length_prefixed once, and joined."""
    text = part if isinstance(part, bytes) else str(part).encode()
    return _length(len(text)) + text
