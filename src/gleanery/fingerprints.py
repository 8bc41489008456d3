"""Hashes that stand for records: short, of fixed length, and unambiguous about their parts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable


def fingerprint(*parts: str | bytes | int) -> bytes:
    """SHA-256 over the parts, each with its length, so that no two divisions look alike."""
    return hashlib.sha256(_measured(parts)).digest()


def _measured(parts: Iterable[str | bytes | int]) -> bytearray:
    whole = bytearray()  # of a whole batch, too: bytes would be copied for each part
    for part in parts:
        text = part if isinstance(part, bytes) else str(part).encode()
        whole += len(text).to_bytes(8, "big") + text
    return whole


class Beginning:
    """Fingerprints that begin alike: what they share is hashed once."""

    def __init__(self, *parts: str | bytes | int) -> None:
        self._digest = hashlib.sha256(_measured(parts))

    def with_end(self, part: str | bytes | int) -> bytes:
        """What ``fingerprint`` gives for the beginning and this last part."""
        digest = self._digest.copy()
        digest.update(_measured((part,)))
        return digest.digest()
