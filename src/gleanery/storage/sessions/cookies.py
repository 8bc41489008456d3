"""Cookies: one per organization, domain, path and name; the value encrypted."""

from __future__ import annotations

from collections.abc import Sequence

from gleanery.models.requests import CookieIn
from gleanery.models.responses import AuditAbout, CookieOut, Tally
from gleanery.security.vault import Vault
from gleanery.storage import audit
from gleanery.storage.database import Database
from gleanery.storage.sessions import records
from gleanery.values.hashing import fingerprint

_LIST = """
SELECT identity, encrypted, domain, host, name, path, secure, http_only, expires
FROM cookies WHERE organization_id = $1
"""
_SEEN = f"AND (host = $2 OR {records.IS_PARENT_HOST})"
_STATEMENTS = records.Statements(
    get="get_cookies",
    set="set_cookies",
    remove="delete_cookies",
    known=f"{_LIST} AND identity = $2",
    store="""
INSERT INTO cookies
    (organization_id, identity, encrypted, updated, domain, host, name, path, secure, http_only,
     expires)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
ON CONFLICT (organization_id, identity) DO UPDATE SET
    encrypted = excluded.encrypted, updated = excluded.updated, path = excluded.path,
    secure = excluded.secure, http_only = excluded.http_only, expires = excluded.expires
""",
    list=f"{_LIST} ORDER BY id",
    list_seen=f"{_LIST} {_SEEN} ORDER BY id",
    delete="""
DELETE FROM cookies
WHERE organization_id = $1 AND domain = $2 AND (CAST($3 AS TEXT) IS NULL OR name = $3)
RETURNING id
""",
)
_SESSION_COOKIE = -1


async def store_cookies(
    database: Database,
    vault: Vault,
    cookies: Sequence[CookieIn],
    now: int,
    actor: audit.Actor,
) -> Tally:
    prepared = [_prepare(database.organization_id, cookie) for cookie in cookies]
    return await records.store(database, vault, _STATEMENTS, prepared, now, actor)


def _prepare(organization_id: int, cookie: CookieIn) -> records.PreparedRecord:
    path = cookie.path or ""
    # A browser has no date before 1970: such a cookie has expired, and -1 means something else.
    expires = None if cookie.expires is None else max(cookie.expires, 0)
    columns = (
        cookie.domain,
        cookie.domain.removeprefix("."),
        cookie.name,
        path,
        bool(cookie.secure),
        bool(cookie.http_only),
        expires,
    )
    identity = identity_of(organization_id, cookie.domain, path, cookie.name)
    return records.PreparedRecord(identity, cookie.domain, columns, cookie.value)


def identity_of(organization_id: int, domain: str, path: str, name: str) -> bytes:
    return fingerprint("cookie", organization_id, domain, path or "/", name)


async def list_cookies(
    database: Database,
    vault: Vault,
    read_auditor: audit.ReadAuditor,
    domain: str | None,
    now: int,
    actor: audit.Actor,
) -> list[CookieOut]:
    """In the order of their first insertion, the expired ones too; the reading is on record."""
    organization_id = database.organization_id
    rows = await records.rows_of(database, _STATEMENTS, domain)
    listed = [
        CookieOut(
            name=name,
            value=records.decrypted(vault, encrypted, identity_of(organization_id, of, path, name)),
            url=f"{'https' if secure else 'http'}://{host}/{path.removeprefix('/')}",
            domain=of,
            path=path,
            expires=_SESSION_COOKIE if expires is None else expires,
            http_only=bool(http_only),
            secure=bool(secure),
        )
        async for (
            _, encrypted, of, host, name, path, secure, http_only, expires,
        ) in records.in_turns(rows)
    ]  # fmt: skip
    about = AuditAbout(records=len(listed)) | records.about_domain(domain)
    entry = audit.Entry(actor, now, _STATEMENTS.get, about)
    await read_auditor.note(database, entry)
    return listed


async def delete_cookies(
    database: Database,
    domain: str,
    name: str | None,
    now: int,
    actor: audit.Actor,
) -> int:
    """Removes those of exactly this domain, or only those of this name there."""
    return await records.delete(database, _STATEMENTS, domain, name, now, actor)
