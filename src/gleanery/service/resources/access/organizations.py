"""Organizations and their tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from gleanery.common.errors import SettingsError
from gleanery.service.foundation.errors import NotFound
from gleanery.service.foundation.security import tokens
from gleanery.service.foundation.security.tokens import COMMAND_LINE, Actor
from gleanery.service.resources.audit import log
from gleanery.service.resources.audit.models import AuditAbout
from gleanery.service.storage.database import Database, Engine, Row, Transaction

_CREATE = """
INSERT INTO organizations (name, created_at) VALUES ($1, $2)
ON CONFLICT (name) DO NOTHING RETURNING id
"""
_FIND = "SELECT id FROM organizations WHERE name = $1"
_FIND_OTHER = "SELECT 1 FROM organizations WHERE name = $1 AND id <> $2"
# Locks the organization's row until the transaction ends.
_LOCK = "UPDATE organizations SET name = name WHERE id = $1 RETURNING name"
_RENAME = "UPDATE organizations SET name = $2 WHERE id = $1"
_DELETION = "SELECT 1 FROM deleted_organizations WHERE id = $1"
_CREATE_TOKEN = """
INSERT INTO tokens (organization_id, digest, scopes, created_at, expires_at, name)
VALUES ($1, $2, $3, $4, $5, $6)
RETURNING id
"""
_ALL_IDS = "SELECT id FROM organizations ORDER BY id"
_FIND_GRANT = """
SELECT id, organization_id, scopes, expires_at FROM tokens
WHERE digest = $1 AND revoked_at IS NULL
"""
_FIND_GRANT_BY_ID = """
SELECT id, organization_id, scopes, expires_at FROM tokens WHERE id = $1 AND revoked_at IS NULL
"""
_LIST_TOKENS = """
SELECT tokens.id, organizations.name, tokens.name, scopes, tokens.created_at, expires_at,
    revoked_at, last_used_at
FROM tokens JOIN organizations ON organizations.id = organization_id
ORDER BY tokens.id
"""
_NAMES_OF_TOKEN = """
SELECT organizations.name, tokens.name
FROM tokens JOIN organizations ON organizations.id = organization_id WHERE tokens.id = $1
"""
_LIST_VALID_TOKENS = """
SELECT id, name, scopes, created_at, expires_at, last_used_at FROM tokens
WHERE organization_id = $1 AND revoked_at IS NULL AND id < $2 ORDER BY id DESC LIMIT $3
"""
_TOKEN_STATE = "SELECT id, organization_id, revoked_at, expires_at FROM tokens WHERE digest = $1"
_TOKEN_STATE_BY_ID = "SELECT id, organization_id, revoked_at, expires_at FROM tokens WHERE id = $1"
_ORGANIZATION_OF_TOKEN = "SELECT organization_id FROM tokens WHERE id = $1"
_REVOKE = """
UPDATE tokens SET revoked_at = $3
WHERE organization_id = $1 AND id = $2 AND revoked_at IS NULL RETURNING id
"""
_SET_LAST_USE = """
UPDATE tokens SET last_used_at = $2
WHERE id = $1 AND (last_used_at IS NULL OR last_used_at < $3)
"""
_NAMES = "SELECT id, name FROM organizations ORDER BY id"
_LIST = """
SELECT organizations.id, organizations.name, created_at, started_at IS NOT NULL
FROM organizations LEFT JOIN deleted_organizations
    ON deleted_organizations.id = organizations.id
ORDER BY organizations.id
"""
_COUNTS = """
SELECT
    (SELECT count(*) FROM groups WHERE organization_id = $1 AND NOT deleted),
    (SELECT coalesce(sum(output_count), 0) FROM groups WHERE organization_id = $1),
    (SELECT count(*) FROM files WHERE organization_id = $1),
    (SELECT count(*) FROM cookies WHERE organization_id = $1),
    (SELECT count(*) FROM local_storage WHERE organization_id = $1),
    (SELECT count(*) FROM tokens WHERE organization_id = $1 AND revoked_at IS NULL)
"""
_LIST_DELETED = """
SELECT id, name, output_count, file_count, started_at, finished_at FROM deleted_organizations
ORDER BY started_at, id
"""


@dataclass(frozen=True, slots=True)
class ListedToken:
    """A token for display to an operator. The token itself is not stored."""

    id: int
    organization: str
    name: str | None
    scopes: list[str]
    created_at: int
    expires_at: int | None
    revoked_at: int | None
    last_used_at: int | None


class OwnToken(NamedTuple):
    """A token that is not revoked, for display to its organization."""

    id: int
    name: str | None
    scopes: list[str]
    created_at: int
    expires_at: int | None
    last_used_at: int | None


class TokenState(NamedTuple):
    """Whether a token still works. The organization is known also if it does not."""

    id: int
    organization_id: int
    revoked_at: int | None
    expires_at: int | None


class NewToken(NamedTuple):
    """A token that was just created. It cannot be shown again."""

    token: str
    is_new_organization: bool


class AddedToken(NamedTuple):
    """The id of a new token, and the token itself, which is not stored."""

    id: int
    token: str


class TokenNames(NamedTuple):
    """The names of a token's organization and of the token, for display."""

    organization: str
    token: str | None


class Counts(NamedTuple):
    """Numbers of an organization's records."""

    groups: int
    outputs: int
    files: int
    cookies: int
    local_storage: int
    tokens: int
    """Tokens that are not revoked."""


class ListedOrganization(NamedTuple):
    """An organization for display to an operator."""

    id: int
    name: str
    created_at: int
    is_being_deleted: bool
    counts: Counts


class DeletedOrganization(NamedTuple):
    """The record of a deletion, which remains when the organization's data is gone."""

    id: int
    name: str
    output_count: int
    file_count: int
    started_at: int
    finished_at: int | None


# --- organizations ------------------------------------------------------------------------------


async def find(database: Database, name: str) -> int:
    """Return the id of the organization with this name. Raise NotFound."""
    rows = await database.read(_FIND, name)
    if not rows:
        raise NotFound(
            ("organization",),
            "There is no organization of this name: gleanery organization list shows all names",
        )
    return int(rows[0][0])


async def rename(engine: Engine, name: str, new_name: str, now: int) -> None:
    """Rename an organization. Its id, tokens and data stay as they are."""
    organization_id = await find(engine, name)

    async def work(transaction: Transaction) -> None:
        await _lock_existing(transaction)
        await transaction.fetch(_RENAME, organization_id, new_name)
        about = AuditAbout()
        await log.append(transaction, COMMAND_LINE, now, "rename_organization", about)

    try:
        await engine.for_tenant(organization_id).write(work)
    except Exception:
        # The index of names decides, because a check before it can be out of date.
        if await engine.read(_FIND_OTHER, new_name, organization_id):
            raise SettingsError(
                "There is already an organization of the new name: choose another"
            ) from None
        raise


async def _lock_existing(transaction: Transaction) -> None:
    """Locks the organization's row. Raises SettingsError if the organization is being deleted."""
    organization_id = transaction.organization_id
    is_there = await transaction.fetch(_LOCK, organization_id)
    if not is_there or await transaction.fetch(_DELETION, organization_id):
        raise SettingsError(
            "The organization is being deleted: run gleanery organization delete until it ends"
        )


async def count_records(database: Database) -> Counts:
    """Count the records of the handle's organization."""
    [row] = await database.read(_COUNTS, database.organization_id)
    return Counts(*map(int, row))


async def list_all(engine: Engine) -> list[ListedOrganization]:
    return [
        ListedOrganization(
            id_, name, created_at, is_deleted, await count_records(engine.for_tenant(id_))
        )
        for id_, name, created_at, is_deleted in await engine.read(_LIST)
    ]


async def list_deleted(database: Database) -> list[DeletedOrganization]:
    return [DeletedOrganization(*row) for row in await database.read(_LIST_DELETED)]


async def similar_name(database: Database, name: str) -> str | None:
    """Return the name of another organization that differs only in case."""
    names = [other for _, other in await all_names(database)]
    similar = (other for other in names if other.casefold() == name.casefold() and other != name)
    return next(similar, None)


async def all_names(database: Database) -> list[tuple[int, str]]:
    """Return the ids and names of all organizations."""
    return [(id_, name) for id_, name in await database.read(_NAMES)]


async def all_ids(database: Database) -> list[int]:
    """Return the ids of all organizations, for work that concerns each of them."""
    return [row[0] for row in await database.read(_ALL_IDS)]


# --- tokens -------------------------------------------------------------------------------------


async def create_token(
    engine: Engine, organization: str, scopes: frozenset[str], now: int, expires_at: int | None
) -> str:
    """Create a token, and its organization if that is new. Only this call returns the token."""
    return (await create_named_token(engine, organization, None, scopes, now, expires_at)).token


async def create_named_token(
    engine: Engine,
    organization: str,
    name: str | None,
    scopes: frozenset[str],
    now: int,
    expires_at: int | None,
) -> NewToken:
    """Do the same for a token with a name; also returns whether the organization is new."""
    organization_id, is_new = await engine.write(partial(_find_or_create, organization, now))
    database = engine.for_tenant(organization_id)
    created = await add_token(database, name, scopes, COMMAND_LINE, now, expires_at)
    return NewToken(created.token, is_new)


async def add_token(
    database: Database,
    name: str | None,
    scopes: frozenset[str],
    actor: Actor,
    now: int,
    expires_at: int | None,
) -> AddedToken:
    """Create a token of the handle's organization. Only this call returns the token."""
    token, names = tokens.mint(), sorted(scopes)

    async def work(transaction: Transaction) -> int:
        await _lock_existing(transaction)
        row = (tokens.digest(token), ",".join(names), now, expires_at, name)
        [[token_id]] = await transaction.fetch(_CREATE_TOKEN, transaction.organization_id, *row)
        about = AuditAbout(token_id=token_id, scopes=names)
        await log.append(transaction, actor, now, "create_token", about)
        return int(token_id)

    return AddedToken(await database.write(work), token)


async def _find_or_create(name: str, now: int, transaction: Transaction) -> tuple[int, bool]:
    created = await transaction.fetch(_CREATE, name, now)
    [[organization_id]] = created or await transaction.fetch(_FIND, name)
    return int(organization_id), bool(created)


async def find_grant(database: Database, digest: bytes) -> tokens.Grant | None:
    """Return the grant of the token with this digest; None if it is unknown or revoked."""
    return _grant(await database.read(_FIND_GRANT, digest))


async def find_grant_by_id(database: Database, token_id: int) -> tokens.Grant | None:
    """Return the grant of the token with this id; None if it is unknown or revoked."""
    return _grant(await database.read(_FIND_GRANT_BY_ID, token_id))


def _grant(rows: Sequence[Row]) -> tokens.Grant | None:
    if not rows:
        return None
    token_id, organization_id, scopes, expires_at = rows[0]
    return tokens.Grant(token_id, organization_id, frozenset(scopes.split(",")), expires_at)


async def names_of_token(database: Database, token_id: int) -> TokenNames:
    """Return the names of a token that exists."""
    [row] = await database.read(_NAMES_OF_TOKEN, token_id)
    return TokenNames(*row)


async def list_tokens(database: Database) -> list[ListedToken]:
    rows = await database.read(_LIST_TOKENS)
    return [
        ListedToken(id_, organization, name, scopes.split(","), *dates)
        for id_, organization, name, scopes, *dates in rows
    ]


async def list_valid_tokens(database: Database, before: int, limit: int) -> list[OwnToken]:
    """Return the tokens of the organization that are not revoked, newest first."""
    rows = await database.read(_LIST_VALID_TOKENS, database.organization_id, before, limit)
    return [OwnToken(id_, name, scopes.split(","), *dates) for id_, name, scopes, *dates in rows]


async def token_state(database: Database, digest: bytes) -> TokenState | None:
    """Return the state of a token, even of a revoked one; None if it is unknown."""
    rows = await database.read(_TOKEN_STATE, digest)
    return TokenState(*rows[0]) if rows else None


async def token_state_by_id(database: Database, token_id: int) -> TokenState | None:
    rows = await database.read(_TOKEN_STATE_BY_ID, token_id)
    return TokenState(*rows[0]) if rows else None


async def revoke_token(engine: Engine, token_id: int, now: int) -> None:
    """Revokes a token; a second revocation does not change the date."""
    rows = await engine.read(_ORGANIZATION_OF_TOKEN, token_id)
    if not rows:
        raise NotFound(("token",), f"There is no token {token_id}")
    database = engine.for_tenant(rows[0][0])
    await revoke_own_token(database, token_id, COMMAND_LINE, now)


async def revoke_own_token(database: Database, token_id: int, actor: Actor, now: int) -> bool:
    """Revokes a token of the organization. Returns False if it has no such valid token."""

    async def work(transaction: Transaction) -> bool:
        if not await transaction.fetch(_REVOKE, transaction.organization_id, token_id, now):
            return False
        about = AuditAbout(token_id=token_id)
        await log.append(transaction, actor, now, "revoke_token", about)
        return True

    return await database.write(work)


async def record_token_use(database: Database, uses: Mapping[int, int], interval: int) -> None:
    """Store the last use of tokens, unless a use less than ``interval`` earlier is stored.

    ``uses`` holds times by token id.
    """

    async def work(transaction: Transaction) -> None:
        in_order = sorted(
            uses.items()
        )  # two nodes that lock the rows in different orders could deadlock
        rows = [(token_id, used_at, used_at - interval) for token_id, used_at in in_order]
        await transaction.execute_many(_SET_LAST_USE, rows)

    await database.write(work)
