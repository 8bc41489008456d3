"""Hashes of records, over length-prefixed parts, so that it is clear where each part ends."""

from __future__ import annotations

from hashlib import sha256
from struct import Struct

_pack_length = Struct(">Q").pack


def hash_parts(*parts: str | bytes | int) -> bytes:
    """Return the SHA-256 of the length-prefixed parts: ("ab", "c") and ("a", "bc") differ."""
    return sha256(b"".join(map(length_prefixed, parts))).digest()


def length_prefixed(part: str | bytes | int) -> bytes:
    """Encode a part after its length. Callers encode a prefix that many hashes share only once."""
    text = part if isinstance(part, bytes) else str(part).encode()
    return _pack_length(len(text)) + text
