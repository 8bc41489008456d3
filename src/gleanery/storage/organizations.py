"""Organizations and their tokens."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from gleanery.errors import NotFound
from gleanery.models.responses import AuditAbout
from gleanery.security import tokens
from gleanery.storage import audit
from gleanery.storage.database import Database, Engine, Transaction

_FIND_OR_CREATE = """
INSERT INTO organizations (name, created_at) VALUES ($1, $2)
ON CONFLICT (name) DO UPDATE SET name = excluded.name
RETURNING id
"""
_CREATE_TOKEN = """
INSERT INTO tokens (organization_id, digest, scopes, created_at, expires_at)
VALUES ($1, $2, $3, $4, $5)
RETURNING id
"""
_ALL_IDS = "SELECT id FROM organizations ORDER BY id"
_FIND_GRANT = """
SELECT id, organization_id, scopes, expires_at FROM tokens
WHERE digest = $1 AND revoked_at IS NULL
"""
_LIST_TOKENS = """
SELECT tokens.id, organizations.name, scopes, tokens.created_at, expires_at, revoked_at
FROM tokens JOIN organizations ON organizations.id = organization_id
ORDER BY tokens.id
"""
_ORGANIZATION_OF_TOKEN = "SELECT organization_id FROM tokens WHERE id = $1"
_REVOKE = "UPDATE tokens SET revoked_at = $2 WHERE id = $1 AND revoked_at IS NULL RETURNING id"


@dataclass(frozen=True, slots=True)
class ListedToken:
    """A token for display to an operator. The token itself is not stored."""

    id: int
    organization: str
    scopes: list[str]
    created_at: int
    expires_at: int | None
    revoked_at: int | None


async def create_token(
    engine: Engine, organization: str, scopes: frozenset[str], now: int, expires_at: int | None
) -> str:
    """Creates a token, and its organization if that is new. Only this call returns the token."""
    token = tokens.mint()
    organization_id = await engine.write(partial(_find_or_create, organization, now))

    async def work(transaction: Transaction) -> None:
        names = sorted(scopes)
        [[token_id]] = await transaction.fetch(
            _CREATE_TOKEN, organization_id, tokens.digest(token), ",".join(names), now, expires_at
        )
        about = AuditAbout(token_id=token_id, scopes=names)
        await audit.append(transaction, audit.COMMAND_LINE, now, "create_token", about)

    await engine.for_tenant(organization_id).write(work)
    return token


async def _find_or_create(name: str, now: int, transaction: Transaction) -> int:
    [[organization_id]] = await transaction.fetch(_FIND_OR_CREATE, name, now)
    return int(organization_id)


async def all_ids(database: Database) -> list[int]:
    """Returns the ids of all organizations, for work that concerns each of them."""
    return [row[0] for row in await database.read(_ALL_IDS)]


async def find_grant(database: Database, digest: bytes) -> tokens.Grant | None:
    """Returns the grant of the token with this digest; None if it is unknown or revoked."""
    rows = await database.read(_FIND_GRANT, digest)
    if not rows:
        return None
    token_id, organization_id, scopes, expires_at = rows[0]
    return tokens.Grant(token_id, organization_id, frozenset(scopes.split(",")), expires_at)


async def list_tokens(database: Database) -> list[ListedToken]:
    rows = await database.read(_LIST_TOKENS)
    return [
        ListedToken(id_, name, scopes.split(","), created_at, expires_at, revoked_at)
        for id_, name, scopes, created_at, expires_at, revoked_at in rows
    ]


async def revoke_token(engine: Engine, token_id: int, now: int) -> None:
    """Revokes a token; a second revocation does not change the date."""
    rows = await engine.read(_ORGANIZATION_OF_TOKEN, token_id)
    if not rows:
        raise NotFound(("token",), f"There is no token {token_id}")
    [[organization_id]] = rows

    async def work(transaction: Transaction) -> None:
        if await transaction.fetch(_REVOKE, token_id, now):
            about = AuditAbout(token_id=token_id)
            await audit.append(transaction, audit.COMMAND_LINE, now, "revoke_token", about)

    await engine.for_tenant(organization_id).write(work)
