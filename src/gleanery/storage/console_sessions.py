"""Sessions of the console, and the one-time links that create them."""

from __future__ import annotations

from typing import NamedTuple

from gleanery.security import console_login
from gleanery.security.tokens import ConsoleSession, Grant
from gleanery.storage.database import Database, Engine, Transaction
from gleanery.values import timestamps

IDLE = 8 * 3600 * timestamps.SECOND
"""A session ends if it is not used for this time."""
LINK_LIFETIME = 15 * 60 * timestamps.SECOND
_USE_INTERVAL = 5 * 60 * timestamps.SECOND  # the last use is stored about this often

_CREATE = """
INSERT INTO console_sessions
    (organization_id, token_id, digest, person, created_at, confirmed_at, last_used_at)
VALUES ($1, $2, $3, $4, $5, $5, $5)
"""
_FIND = """
SELECT console_sessions.id, token_id, console_sessions.organization_id, scopes, expires_at, person,
    confirmed_at, console_sessions.last_used_at
FROM console_sessions JOIN tokens ON tokens.id = token_id
WHERE console_sessions.digest = $1 AND console_sessions.last_used_at > $2 AND revoked_at IS NULL
"""
_SET_LAST_USE = "UPDATE console_sessions SET last_used_at = $2 WHERE id = $1 AND last_used_at < $2"
_CONFIRM = "UPDATE console_sessions SET confirmed_at = $2 WHERE id = $1"
_END = "DELETE FROM console_sessions WHERE id = $1"
_END_OF_TOKEN = "DELETE FROM console_sessions WHERE token_id = $1"
_DELETE_IDLE = "DELETE FROM console_sessions WHERE last_used_at <= $1"
_CREATE_LINK = """
INSERT INTO login_links (digest, organization_id, token_id, person, expires_at)
SELECT $1, organization_id, id, $3, $4 FROM tokens WHERE id = $2 AND revoked_at IS NULL
RETURNING token_id
"""
_USE_LINK = "DELETE FROM login_links WHERE digest = $1 RETURNING token_id, person, expires_at"
_DELETE_LINKS = "DELETE FROM login_links WHERE expires_at <= $1"


class UsedLink(NamedTuple):
    """A login link that was valid, and cannot be used again."""

    token_id: int
    person: str | None


async def create(
    engine: Engine, grant: Grant, credentials: console_login.Credentials, person: str, now: int
) -> None:
    """Create a session with the rights of the grant's token."""

    async def work(transaction: Transaction) -> None:
        row = (grant.organization_id, grant.token_id, credentials.digest, person, now)
        await transaction.fetch(_CREATE, *row)

    await engine.write(work)


async def find(engine: Engine, credentials: console_login.Credentials, now: int) -> Grant | None:
    """Return the grant of a session; None if it is unknown or has ended, or its token has."""
    rows = await engine.read(_FIND, credentials.digest, now - IDLE)
    if not rows:
        return None
    id_, token_id, organization_id, scopes, expires_at, person, confirmed_at, used_at = rows[0]
    if now - used_at > _USE_INTERVAL:
        await _run(engine, _SET_LAST_USE, id_, now)
    session = ConsoleSession(id_, person, confirmed_at)
    return Grant(token_id, organization_id, frozenset(scopes.split(",")), expires_at, session)


async def confirm(engine: Engine, session_id: int, now: int) -> None:
    """Record that the person has proved again to have the token."""
    await _run(engine, _CONFIRM, session_id, now)


async def end(engine: Engine, session_id: int) -> None:
    await _run(engine, _END, session_id)


async def end_all_of_token(engine: Engine, token_id: int) -> None:
    await _run(engine, _END_OF_TOKEN, token_id)


async def create_link(engine: Engine, token_id: int, person: str | None, now: int) -> str | None:
    """Create a login link. Returns its secret; None if there is no such token."""
    secret = console_login.new_secret()
    row = (console_login.link_digest(secret), token_id, person, now + LINK_LIFETIME)

    async def work(transaction: Transaction) -> bool:
        return bool(await transaction.fetch(_CREATE_LINK, *row))

    return secret if await engine.write(work) else None


async def use_link(engine: Engine, secret: str, now: int) -> UsedLink | None:
    """Use a link, which deletes it. Returns None if it is unknown, used or expired."""

    async def work(transaction: Transaction) -> UsedLink | None:
        rows = await transaction.fetch(_USE_LINK, console_login.link_digest(secret))
        return UsedLink(*rows[0][:2]) if rows and now < rows[0][2] else None

    return await engine.write(work)


async def delete_ended(engine: Engine, now: int) -> None:
    """Delete idle sessions and expired links."""
    await _run(engine, _DELETE_IDLE, now - IDLE)
    await _run(engine, _DELETE_LINKS, now)


async def _run(database: Database, sql: str, *values: int) -> None:
    async def work(transaction: Transaction) -> None:
        await transaction.fetch(sql, *values)

    await database.write(work)
