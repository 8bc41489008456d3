"""Sessions of the console: their secrets, the one-time links that create them, and their end.

See ``docs/explanation/console-sessions.md``.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple
from urllib.parse import quote

from gleanery.service.foundation.errors import Unavailable, revoked_session
from gleanery.service.foundation.security.tokens import COMMAND_LINE, Actor, ConsoleSession, Grant
from gleanery.service.foundation.values import timestamps
from gleanery.service.resources.audit import log
from gleanery.service.resources.audit.models import AuditAbout
from gleanery.service.storage.database import Database, Engine, Transaction

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

LINK_LIFETIME = 15 * 60 * timestamps.SECOND
IDLE = 8 * 3600 * timestamps.SECOND
"""A session ends if it is not used for this time."""
LIFETIME = 7 * 24 * 3600 * timestamps.SECOND
"""A session ends after this time in any case, because an open page keeps it in use."""
MAX_PER_TOKEN = 100
_MAX_LISTED = 500
_USE_INTERVAL = 5 * 60 * timestamps.SECOND  # the last use is stored about this often

_CREATE_LINK = """
INSERT INTO login_links (organization_id, digest, token_id, person, expires_at)
VALUES ($1, $2, $3, $4, $5)
"""
_TOKEN_OF_LINK = "SELECT token_id FROM login_links WHERE digest = $1"
_USE_LINK = "DELETE FROM login_links WHERE digest = $1 RETURNING token_id, person, expires_at"
_DELETE_LINKS_OF_TOKEN = "DELETE FROM login_links WHERE organization_id = $1 AND token_id = $2"
_DELETE_EXPIRED_LINKS = "DELETE FROM login_links WHERE expires_at <= $1 OR expires_at >= $2"
_DELETE_ALL_LINKS = "DELETE FROM login_links"
_CREATE = """
INSERT INTO console_sessions
    (organization_id, token_id, digest, person, created_at, confirmed_at, last_used_at)
VALUES ($1, $2, $3, $4, $5, $5, $5)
RETURNING id
"""
# The limit of the inner query is for SQLite, which accepts OFFSET only after LIMIT.
_END_SURPLUS = f"""
DELETE FROM console_sessions WHERE organization_id = $1 AND id IN (
    SELECT id FROM console_sessions WHERE organization_id = $1 AND token_id = $2
    ORDER BY last_used_at DESC, id DESC LIMIT {MAX_PER_TOKEN} OFFSET {MAX_PER_TOKEN})
"""
# A session from the future would live too long. It ends when the clock is right again.
_IN_TIME = """
console_sessions.last_used_at > $2 AND console_sessions.created_at > $3
AND console_sessions.last_used_at < $4 AND console_sessions.created_at < $4
"""
_FIND = f"""
SELECT console_sessions.id, token_id, console_sessions.organization_id, scopes, expires_at, person,
    confirmed_at, console_sessions.last_used_at, revoked_at
FROM console_sessions JOIN tokens ON tokens.id = token_id
WHERE console_sessions.digest = $1 AND {_IN_TIME}
"""
_SET_LAST_USE = "UPDATE console_sessions SET last_used_at = $2 WHERE id = $1 AND last_used_at < $2"
_COLUMNS = """
console_sessions.id, token_id, person, console_sessions.created_at, console_sessions.last_used_at
"""
_VALID = f"""
{_IN_TIME} AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $5)
"""
_LIST = f"""
SELECT {_COLUMNS} FROM console_sessions JOIN tokens ON tokens.id = token_id
WHERE console_sessions.organization_id = $1 AND {_VALID}
ORDER BY console_sessions.last_used_at DESC, console_sessions.id DESC LIMIT {_MAX_LISTED}
"""
_LIST_OF_TOKEN = f"""
SELECT {_COLUMNS} FROM console_sessions JOIN tokens ON tokens.id = token_id
WHERE console_sessions.organization_id = $1 AND token_id = $6 AND {_VALID}
ORDER BY console_sessions.last_used_at DESC, console_sessions.id DESC LIMIT {_MAX_LISTED}
"""
_CONFIRM = "UPDATE console_sessions SET confirmed_at = $3 WHERE organization_id = $1 AND id = $2"
_TOKEN_OF = "SELECT token_id FROM console_sessions WHERE organization_id = $1 AND id = $2"
_END = """
DELETE FROM console_sessions WHERE organization_id = $1 AND id = $2 RETURNING token_id, person
"""
_END_REPLACED = "DELETE FROM console_sessions WHERE digest = $1"
_END_OF_TOKEN = "DELETE FROM console_sessions WHERE organization_id = $1 AND token_id = $2"
_DELETE_ENDED = """
DELETE FROM console_sessions
WHERE last_used_at <= $1 OR created_at <= $2 OR last_used_at >= $3 OR created_at >= $3
"""
_DELETE_ALL = "DELETE FROM console_sessions"


# --- secrets ------------------------------------------------------------------------------------


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


# --- login links --------------------------------------------------------------------------------


class Link(NamedTuple):
    """A login link that was found and deleted, so that it cannot be used again."""

    token_id: int
    person: str | None
    is_valid: bool
    """False if it has expired, or if a wrong clock gave it an expiry too far ahead."""


async def create_link(engine: Engine, grant: Grant, person: str | None, now: int) -> str:
    """Create a login link of a token on the command line, and return its secret."""
    secret = new_secret()
    row = (link_digest(secret), grant.token_id, person, now + LINK_LIFETIME)

    async def work(transaction: Transaction) -> None:
        await transaction.fetch(_CREATE_LINK, transaction.organization_id, *row)
        about = AuditAbout(token_id=grant.token_id)
        if person is not None:
            about["of_person"] = person
        await log.append(transaction, COMMAND_LINE, now, "create_login_link", about)

    await engine.for_tenant(grant.organization_id).write(work)
    return secret


async def token_of_link(engine: Engine, secret: str) -> int | None:
    """Return the token of a link without using it. A guess of a stranger only reads."""
    rows = await engine.read(_TOKEN_OF_LINK, link_digest(secret))
    return int(rows[0][0]) if rows else None


async def use_link(engine: Engine, secret: str, now: int) -> Link | None:
    """Use a link, which deletes it. Returns None if it is unknown or was used before."""

    async def work(transaction: Transaction) -> Link | None:
        rows = await transaction.fetch(_USE_LINK, link_digest(secret))
        if not rows:
            return None
        [[token_id, person, expires_at]] = rows
        return Link(token_id, person, now < expires_at < _latest_expiry(now))

    return await engine.write(work)


async def _delete_links_of_token(transaction: Transaction, token_id: int) -> None:
    await transaction.fetch(_DELETE_LINKS_OF_TOKEN, transaction.organization_id, token_id)


async def _delete_expired_links(engine: Engine, now: int) -> None:
    async def work(transaction: Transaction) -> None:
        await transaction.fetch(_DELETE_EXPIRED_LINKS, now, _latest_expiry(now))

    await engine.write(work)


async def _delete_all_links(transaction: Transaction) -> None:
    await transaction.fetch(_DELETE_ALL_LINKS)


def _latest_expiry(now: int) -> int:
    return now + LINK_LIFETIME + timestamps.MAX_CLOCK_DIFFERENCE


# --- sessions -----------------------------------------------------------------------------------


class ListedSession(NamedTuple):
    """A session for display. Its secrets are not stored."""

    id: int
    token_id: int
    person: str
    created_at: int
    last_used_at: int


async def create(
    database: Database,
    token_id: int,
    credentials: Credentials,
    actor: Actor,
    now: int,
) -> int:
    """Create a session with the rights of a token, and return its id.

    A token has a limited number of sessions: the one that was not used for the longest time ends.
    """

    async def work(transaction: Transaction) -> int:
        organization_id = transaction.organization_id
        row = (organization_id, token_id, credentials.digest, actor.person, now)
        [[id_]] = await transaction.fetch(_CREATE, *row)
        await transaction.fetch(_END_SURPLUS, organization_id, token_id)
        await log.append(transaction, actor, now, "sign_in", AuditAbout())
        return int(id_)

    return await database.write(work)


async def find(
    engine: Engine,
    credentials: Credentials,
    now: int,
    is_background: bool = False,
) -> Grant | None:
    """Return the grant of a session; None if it is unknown or has ended.

    Raise ``Unauthenticated`` if its token is revoked, so that the person learns why.
    A request in the background is not counted as use: an open page alone keeps no session.
    """
    rows = await engine.read(_FIND, credentials.digest, *_limits(now))
    if not rows:
        return None
    [(id_, token_id, organization_id, scopes, expires_at, person, confirmed_at, *rest)] = rows
    used_at, revoked_at = rest
    if revoked_at is not None:
        raise revoked_session()
    if not is_background and now - used_at > _USE_INTERVAL:
        with suppress(Unavailable):  # a read must not need a write, for example on a full disk
            await _run(engine, _SET_LAST_USE, id_, now)
    session = ConsoleSession(id_, person, confirmed_at)
    return Grant(token_id, organization_id, frozenset(scopes.split(",")), expires_at, session)


async def list_all(database: Database, now: int) -> list[ListedSession]:
    """Return the sessions of the organization, the last used first."""
    rows = await database.read(_LIST, *_valid_at(database, now))
    return [ListedSession(*row) for row in rows]


async def list_of_token(database: Database, token_id: int, now: int) -> list[ListedSession]:
    rows = await database.read(_LIST_OF_TOKEN, *_valid_at(database, now), token_id)
    return [ListedSession(*row) for row in rows]


def _valid_at(database: Database, now: int) -> tuple[int, ...]:
    return (database.organization_id, *_limits(now), now)


def _limits(now: int) -> tuple[int, int, int]:
    """Return between which times a valid session was used, and was created."""
    return (now - IDLE, now - LIFETIME, now + timestamps.MAX_CLOCK_DIFFERENCE)


async def confirm(database: Database, session_id: int, now: int) -> None:
    """Record that the person has proved again to have the token."""
    await _run(database, _CONFIRM, database.organization_id, session_id, now)


async def token_of(database: Database, session_id: int) -> int | None:
    """Return the token of a session of the organization; None if there is no such session."""
    rows = await database.read(_TOKEN_OF, database.organization_id, session_id)
    return int(rows[0][0]) if rows else None


async def end(database: Database, session_id: int, actor: Actor, now: int) -> None:
    """End a session of the organization, unless it has ended."""

    async def work(transaction: Transaction) -> None:
        for token_id, person in await transaction.fetch(
            _END, transaction.organization_id, session_id
        ):
            is_own = (token_id, person) == (actor.token_id, actor.person)
            about = AuditAbout() if is_own else AuditAbout(token_id=token_id, of_person=person)
            await log.append(transaction, actor, now, "sign_out", about)

    await database.write(work)


async def end_replaced(engine: Engine, credentials: Credentials) -> None:
    """End the session that a new login of the same browser replaces."""

    async def work(transaction: Transaction) -> None:
        await transaction.fetch(_END_REPLACED, credentials.digest)

    await engine.write(work)


async def end_all_of_token(database: Database, token_id: int, actor: Actor, now: int) -> None:
    """End all sessions of a token, and delete its login links, which could create others."""

    async def work(transaction: Transaction) -> None:
        await transaction.fetch(_END_OF_TOKEN, transaction.organization_id, token_id)
        await _delete_links_of_token(transaction, token_id)
        about = AuditAbout(everywhere=True)
        await log.append(transaction, actor, now, "sign_out", about)

    await database.write(work)


async def delete_ended(engine: Engine, now: int) -> None:
    """Delete ended sessions and expired links. The time must be confirmed."""
    await _run(engine, _DELETE_ENDED, *_limits(now))
    await _delete_expired_links(engine, now)


async def delete_all(transaction: Transaction) -> None:
    """Delete all sessions and links, so that a restored backup does not revive them."""
    await transaction.fetch(_DELETE_ALL)
    await _delete_all_links(transaction)


async def _run(database: Database, sql: str, *values: int) -> None:
    async def work(transaction: Transaction) -> None:
        await transaction.fetch(sql, *values)

    await database.write(work)
