"""Secrets of the console: the cookie and the key of a session, and one-time login links."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import quote

COOKIE = "__Host-gleanery"
"""Browsers accept this prefix only for a secure cookie of exactly this host."""
KEY_HEADER = b"gleanery-session-key"
"""Carries the key. A browser sends cookies also to other ports of the host, but not this header."""
SITE_HEADER = b"sec-fetch-site"
"""Set by the browser itself: a page cannot change it."""
SAME_ORIGIN = b"same-origin"

_SECRET = re.compile(rb"[A-Za-z0-9_-]{43}", re.ASCII)
_COOKIE_NAME = COOKIE.encode("ascii")


class Credentials(NamedTuple):
    """The cookie and the key that a request carries."""

    cookie: bytes
    key: bytes

    @property
    def digest(self) -> bytes:
        """The hash that is stored. 512 random bits need no salt and no slow hash."""
        return hashlib.sha256(self.cookie + b"." + self.key).digest()


def new_secret() -> str:
    """Create a secret of 256 random bits, for a cookie, a key or a login link."""
    return secrets.token_urlsafe(32)


def link_address(address: str, secret: str, person: str | None = None) -> str:
    """Return the URL of a login link. Its fragment is not sent to the service, and not logged."""
    name = "" if person is None else f"&person={quote(person, safe='')}"
    return f"{address}/console#login={secret}{name}"


def link_digest(secret: str) -> bytes:
    """Return the hash of a login link that is stored."""
    return hashlib.sha256(secret.encode()).digest()


def has_session(headers: Mapping[bytes, bytes]) -> bool:
    """Return True if a request tries to use a session of the console, valid or not."""
    return KEY_HEADER in headers


def find_credentials(headers: Mapping[bytes, bytes]) -> Credentials | None:
    """Return the credentials of a request from the console's own page; None if it has none."""
    if headers.get(SITE_HEADER) != SAME_ORIGIN:
        return None
    cookie, key = _find_cookie(headers.get(b"cookie", b"")), headers.get(KEY_HEADER, b"")
    if cookie is None or not _SECRET.fullmatch(key):
        return None
    return Credentials(cookie, key)


def _find_cookie(header: bytes) -> bytes | None:
    for pair in header.split(b";"):
        name, _, value = pair.strip().partition(b"=")
        if name == _COOKIE_NAME and _SECRET.fullmatch(value):
            return value
    return None


def set_cookie(secret: str) -> bytes:
    """Return the value of Set-Cookie. The cookie ends with the browser at the latest."""
    return f"{COOKIE}={secret}; Path=/; Secure; HttpOnly; SameSite=Strict".encode("ascii")


def clear_cookie() -> bytes:
    return f"{COOKIE}=; Path=/; Secure; HttpOnly; SameSite=Strict; Max-Age=0".encode("ascii")
