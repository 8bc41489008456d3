"""Organizations and the tokens that speak for them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from gleanery.errors import NotFound
from gleanery.models.responses import AuditAbout
from gleanery.security import tokens
from gleanery.storage import audit
from gleanery.storage.database import Database, Engine, Transaction

_ORGANIZATION = """
INSERT INTO organizations (name, created) VALUES ($1, $2)
ON CONFLICT (name) DO UPDATE SET name = excluded.name
RETURNING id
"""
_TOKEN = """
INSERT INTO tokens (organization_id, digest, scopes, created, expires)
VALUES ($1, $2, $3, $4, $5)
RETURNING id
"""
_ALL = "SELECT id FROM organizations ORDER BY id"
_GRANT = """
SELECT id, organization_id, scopes, expires FROM tokens WHERE digest = $1 AND revoked IS NULL
"""
_LIST = """
SELECT tokens.id, organizations.name, scopes, tokens.created, expires, revoked
FROM tokens JOIN organizations ON organizations.id = organization_id
ORDER BY tokens.id
"""
_OWNER = "SELECT organization_id FROM tokens WHERE id = $1"
_REVOKE = "UPDATE tokens SET revoked = $2 WHERE id = $1 AND revoked IS NULL RETURNING id"


@dataclass(frozen=True, slots=True)
class ListedToken:
    """A token as an operator sees it; of the token itself nothing is left."""

    id: int
    organization: str
    scopes: list[str]
    created: int
    expires: int | None
    revoked: int | None


async def create_token(
    engine: Engine, organization: str, scopes: frozenset[str], now: int, expires: int | None
) -> str:
    """Makes a token and, if it is new, its organization; the token is told this once."""
    token = tokens.mint()
    organization_id = await engine.write(partial(_enter, organization, now))

    async def work(transaction: Transaction) -> None:
        spelled = sorted(scopes)
        [[token_id]] = await transaction.fetch(
            _TOKEN, organization_id, tokens.digest(token), ",".join(spelled), now, expires
        )
        about = AuditAbout(token_id=token_id, scopes=spelled)
        await audit.note(transaction, audit.COMMAND_LINE, now, "create_token", about)

    await engine.for_tenant(organization_id).write(work)
    return token


async def _enter(name: str, now: int, transaction: Transaction) -> int:
    [[organization_id]] = await transaction.fetch(_ORGANIZATION, name, now)
    return int(organization_id)


async def every_id(database: Database) -> list[int]:
    """The numbers of all organizations, for work that each of them has a share in."""
    return [row[0] for row in await database.read(_ALL)]


async def find_grant(database: Database, digest: bytes) -> tokens.Grant | None:
    """What the token of this digest allows, if it was not revoked."""
    rows = await database.read(_GRANT, digest)
    if not rows:
        return None
    token_id, organization_id, scopes, expires = rows[0]
    return tokens.Grant(token_id, organization_id, frozenset(scopes.split(",")), expires)


async def list_tokens(database: Database) -> list[ListedToken]:
    rows = await database.read(_LIST)
    return [
        ListedToken(id_, name, scopes.split(","), created, expires, revoked)
        for id_, name, scopes, created, expires, revoked in rows
    ]


async def revoke_token(engine: Engine, token_id: int, now: int) -> None:
    """From now on the token is worth nothing; revoking twice changes nothing."""
    found = await engine.read(_OWNER, token_id)
    if not found:
        raise NotFound(("token",), f"There is no token {token_id}")
    [[organization_id]] = found

    async def work(transaction: Transaction) -> None:
        if await transaction.fetch(_REVOKE, token_id, now):
            about = AuditAbout(token_id=token_id)
            await audit.note(transaction, audit.COMMAND_LINE, now, "revoke_token", about)

    await engine.for_tenant(organization_id).write(work)
