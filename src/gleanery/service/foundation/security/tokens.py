"""Access tokens: their format, scopes and digests."""

from __future__ import annotations

import hashlib
import re
import secrets
import zlib
from dataclasses import dataclass
from typing import NamedTuple

PREFIX = "glean_"
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_BODY = 43  # base-62 digits of 256 bits
_CHECK = 6  # base-62 digits of a CRC-32
_FORMAT = re.compile(rf"{PREFIX}[0-9A-Za-z]{{{_BODY + _CHECK}}}", re.ASCII)

SCOPES = {
    "session:read": "read cookies and local storage, values included",
    "session:write": "store and remove cookies and local storage",
    "outputs:read": "read outputs, changes, groups, runs and files",
    "outputs:write": "store and remove outputs and files, start and finish runs, "
    "change the settings of groups",
    "reviews:read": "read reviews",
    "reviews:write": "review a job's outputs, decide about held removals",
    "monitors:read": "list the rules of monitors, and alerts",
    "monitors:write": "change the rules of monitors, acknowledge and mute alerts",
    "webhooks:read": "list webhooks and their deliveries",
    "webhooks:write": "create, change, test and delete webhooks, send events again",
    "audit:read": "read who read or stored session values, reviewed, made or revoked tokens",
    "tokens:write": "list, create and revoke tokens in the console",
}
DEFAULT_SCOPES = frozenset({"session:read", "session:write", "reviews:read", "outputs:read"})


@dataclass(frozen=True, slots=True)
class ConsoleSession:
    """The session of the console through which a token is used."""

    id: int
    person: str
    """Name of the person, for reviews and the audit log."""
    confirmed_at: int
    """When the person last proved to have the token, in microseconds."""


@dataclass(frozen=True, slots=True)
class Grant:
    """Permission of a valid token: an organization and its scopes."""

    token_id: int
    organization_id: int
    scopes: frozenset[str]
    expires: int | None
    session: ConsoleSession | None = None
    """None if the request itself carries the token."""

    def allows(self, scope: str, now: int) -> bool:
        """Return True if the token has the scope and has not expired."""
        return scope in self.scopes and (self.expires is None or now < self.expires)


def mint() -> str:
    """Create a token: prefix, 256 random bits, and a checksum against typing errors."""
    body = _base62(secrets.randbits(256), _BODY)
    return PREFIX + body + _checksum(body)


def is_well_formed(token: str) -> bool:
    """Check the format and the checksum of a token, without the database."""
    if not _FORMAT.fullmatch(token):
        return False
    body, check = token[len(PREFIX) : -_CHECK], token[-_CHECK:]
    return secrets.compare_digest(_checksum(body), check)


def digest(token: str) -> bytes:
    """Return the hash that is stored. 256 random bits need no salt and no slow hash."""
    return hashlib.sha256(token.encode("ascii")).digest()


def _checksum(body: str) -> str:
    return _base62(zlib.crc32((PREFIX + body).encode("ascii")), _CHECK)


def _base62(number: int, width: int) -> str:
    digits = []
    for _ in range(width):
        number, digit = divmod(number, 62)
        digits.append(_DIGITS[digit])
    return "".join(reversed(digits))


class Actor(NamedTuple):
    """The cause of an entry: a token in a request, or the command line."""

    token_id: int | None = None
    request_id: str | None = None
    person: str | None = None
    """Name of the person who used the token in the console."""


COMMAND_LINE = Actor()
