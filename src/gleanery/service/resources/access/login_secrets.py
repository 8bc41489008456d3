"""Secrets of the console: the cookie and the key of a session, and one-time login links."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import quote

_COOKIE_PREFIX = "__Host-gleanery-"
"""Browsers accept this prefix only for a secure cookie of exactly this host."""
KEY_HEADER = b"gleanery-session-key"
"""Carries the key. A browser sends cookies also to other ports of the host, but not this header."""
SITE_HEADER = b"sec-fetch-site"
"""Set by the browser itself: a page cannot change it."""
SAME_ORIGIN = b"same-origin"
BACKGROUND_HEADER = b"gleanery-background"
"""Marks a request that the page repeats by itself: it does not keep the session in use."""

_SECRET = re.compile(rb"[A-Za-z0-9_-]{43}", re.ASCII)


class Credentials(NamedTuple):
    """The cookie and the key that a request carries."""

    cookie: bytes
    key: bytes

    @property
    def digest(self) -> bytes:
        """The hash that is stored. 512 random bits need no salt and no slow hash."""
        return hashlib.sha256(self.cookie + b"." + self.key).digest()


def cookie_name(address: str) -> str:
    """Return the name of the cookie. Services on other ports of a host have other names."""
    return _COOKIE_PREFIX + hashlib.sha256(address.encode()).hexdigest()[:8]


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


def is_background(headers: Mapping[bytes, bytes]) -> bool:
    return BACKGROUND_HEADER in headers


def find_credentials(name: str, headers: Mapping[bytes, bytes]) -> Credentials | None:
    """Return the credentials of a request from the console's own page; None if it has none."""
    if headers.get(SITE_HEADER) != SAME_ORIGIN:
        return None
    cookie, key = _find_cookie(name, headers.get(b"cookie", b"")), headers.get(KEY_HEADER, b"")
    if cookie is None or not _SECRET.fullmatch(key):
        return None
    return Credentials(cookie, key)


def _find_cookie(name: str, header: bytes) -> bytes | None:
    for pair in header.split(b";"):
        found, _, value = pair.strip().partition(b"=")
        if found == name.encode("ascii") and _SECRET.fullmatch(value):
            return value
    return None


def set_cookie(name: str, secret: str, max_age: int | None) -> bytes:
    """Return the value of Set-Cookie. Without an age, the cookie ends with the browser."""
    age = "" if max_age is None else f"; Max-Age={max_age}"
    return f"{name}={secret}; Path=/; Secure; HttpOnly; SameSite=Strict{age}".encode("ascii")


def clear_cookie(name: str) -> bytes:
    return set_cookie(name, "", 0)
