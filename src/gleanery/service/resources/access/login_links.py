"""One-time links that create sessions of the console."""

from __future__ import annotations

from typing import NamedTuple

from gleanery.service.foundation.security.tokens import COMMAND_LINE, Grant
from gleanery.service.foundation.values import timestamps
from gleanery.service.resources.access import login_secrets
from gleanery.service.resources.audit import log
from gleanery.service.resources.audit.models import AuditAbout
from gleanery.service.storage.database import Engine, Transaction

LINK_LIFETIME = 15 * 60 * timestamps.SECOND

_CREATE_LINK = """
INSERT INTO login_links (organization_id, digest, token_id, person, expires_at)
VALUES ($1, $2, $3, $4, $5)
"""
_TOKEN_OF_LINK = "SELECT token_id FROM login_links WHERE digest = $1"
_USE_LINK = "DELETE FROM login_links WHERE digest = $1 RETURNING token_id, person, expires_at"
_DELETE_LINKS_OF_TOKEN = "DELETE FROM login_links WHERE organization_id = $1 AND token_id = $2"
_DELETE_EXPIRED_LINKS = "DELETE FROM login_links WHERE expires_at <= $1 OR expires_at >= $2"
_DELETE_ALL_LINKS = "DELETE FROM login_links"


class Link(NamedTuple):
    """A login link that was found and deleted, so that it cannot be used again."""

    token_id: int
    person: str | None
    is_valid: bool
    """False if it has expired, or if a wrong clock gave it an expiry too far ahead."""


async def create_link(engine: Engine, grant: Grant, person: str | None, now: int) -> str:
    """Create a login link of a token on the command line, and return its secret."""
    secret = login_secrets.new_secret()
    row = (login_secrets.link_digest(secret), grant.token_id, person, now + LINK_LIFETIME)

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
    rows = await engine.read(_TOKEN_OF_LINK, login_secrets.link_digest(secret))
    return int(rows[0][0]) if rows else None


async def use_link(engine: Engine, secret: str, now: int) -> Link | None:
    """Use a link, which deletes it. Returns None if it is unknown or was used before."""

    async def work(transaction: Transaction) -> Link | None:
        rows = await transaction.fetch(_USE_LINK, login_secrets.link_digest(secret))
        if not rows:
            return None
        [[token_id, person, expires_at]] = rows
        return Link(token_id, person, now < expires_at < _latest_expiry(now))

    return await engine.write(work)


async def delete_links_of_token(transaction: Transaction, token_id: int) -> None:
    await transaction.fetch(_DELETE_LINKS_OF_TOKEN, transaction.organization_id, token_id)


async def delete_expired_links(engine: Engine, now: int) -> None:
    async def work(transaction: Transaction) -> None:
        await transaction.fetch(_DELETE_EXPIRED_LINKS, now, _latest_expiry(now))

    await engine.write(work)


async def delete_all_links(transaction: Transaction) -> None:
    await transaction.fetch(_DELETE_ALL_LINKS)


def _latest_expiry(now: int) -> int:
    return now + LINK_LIFETIME + timestamps.MAX_CLOCK_DIFFERENCE
