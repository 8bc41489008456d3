"""Access tokens: how one is made, recognised, and reduced to what the database may hold."""

from __future__ import annotations

import hashlib
import re
import secrets
import zlib
from dataclasses import dataclass

PREFIX = "glean_"
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_BODY = 43  # base-62 digits that hold 256 bits
_CHECK = 6  # base-62 digits that hold a CRC-32
_FORM = re.compile(rf"{PREFIX}[0-9A-Za-z]{{{_BODY + _CHECK}}}", re.ASCII)

SCOPES = {
    "session:read": "read cookies and local storage, values included",
    "session:write": "store and remove cookies and local storage",
    "outputs:read": "read outputs, changes, groups and files",
    "outputs:write": "store and remove outputs and files, change the settings of groups",
    "reviews:read": "read reviews",
    "reviews:write": "review a job's outputs",
    "audit:read": "read who read or stored session values, reviewed, made or revoked tokens",
}
DEFAULT_SCOPES = frozenset({"session:read", "session:write", "reviews:read", "outputs:read"})


@dataclass(frozen=True, slots=True)
class Grant:
    """What a valid token allows: an organization's records, through these scopes."""

    token_id: int
    organization_id: int
    scopes: frozenset[str]
    expires: int | None


def mint() -> str:
    """A new token: the prefix, 256 random bits, and a checksum that catches typing errors."""
    body = _base62(secrets.randbits(256), _BODY)
    return PREFIX + body + _checksum(body)


def is_well_formed(token: str) -> bool:
    """Whether this can be a token at all; needs no database."""
    if not _FORM.fullmatch(token):
        return False
    body, check = token[len(PREFIX) : -_CHECK], token[-_CHECK:]
    return secrets.compare_digest(_checksum(body), check)


def digest(token: str) -> bytes:
    """What is stored in place of the token. 256 random bits need no salt and no slow hash."""
    return hashlib.sha256(token.encode("ascii")).digest()


def _checksum(body: str) -> str:
    return _base62(zlib.crc32((PREFIX + body).encode("ascii")), _CHECK)


def _base62(number: int, width: int) -> str:
    digits = []
    for _ in range(width):
        number, digit = divmod(number, 62)
        digits.append(_DIGITS[digit])
    return "".join(reversed(digits))
