"""Local-storage entries: one per organization, group, domain, path and key; the value encrypted."""

from __future__ import annotations

from collections.abc import Sequence

from gleanery.errors import NotFound
from gleanery.models.requests import LocalStorageIn
from gleanery.models.responses import AuditAbout, LocalStorageOut, Tally
from gleanery.security.vault import Vault
from gleanery.storage import audit, group_lock
from gleanery.storage.database import Database
from gleanery.storage.sessions import records
from gleanery.values import timestamps
from gleanery.values.hashing import fingerprint

_LIST = """
SELECT identity, encrypted, group_id, domain, key, path, expires, id, created, updated
FROM local_storage WHERE organization_id = $1
"""
# Local storage belongs to one host; a leading dot says that subdomains see it too.
_SEEN = f"AND (host = $2 OR domain <> host AND {records.IS_PARENT_HOST})"
_STATEMENTS = records.Statements(
    get="get_local_storage",
    set="set_local_storage",
    remove="delete_local_storage",
    known="""
SELECT identity, encrypted, group_id, domain, host, key, path, expires
FROM local_storage WHERE organization_id = $1 AND identity = $2
""",
    store="""
INSERT INTO local_storage
    (organization_id, identity, encrypted, created, updated, group_id, domain, host, key, path,
     expires)
VALUES ($1, $2, $3, $4, $4, $5, $6, $7, $8, $9, $10)
ON CONFLICT (organization_id, identity) DO UPDATE SET
    encrypted = excluded.encrypted, updated = excluded.updated, expires = excluded.expires
""",
    list=f"{_LIST} ORDER BY id",
    list_seen=f"{_LIST} {_SEEN} ORDER BY id",
    delete="""
DELETE FROM local_storage
WHERE organization_id = $1 AND domain = $2 AND (CAST($3 AS TEXT) IS NULL OR key = $3)
RETURNING id
""",
)
_EVERY_GROUP = 0


async def store_entries(
    database: Database,
    vault: Vault,
    entries: Sequence[LocalStorageIn],
    now: int,
    actor: audit.Actor,
) -> Tally:
    """Stores the array whole or not at all; an entry for a group needs that group to exist."""
    for number, entry in enumerate(entries):
        if entry.group_id and not await group_lock.exists_by_number(database, entry.group_id):
            raise NotFound(("body", str(number), "group_id"), "There is no group of this number")
    prepared = [_prepare(database.organization_id, entry) for entry in entries]
    return await records.store(database, vault, _STATEMENTS, prepared, now, actor)


def _prepare(organization_id: int, entry: LocalStorageIn) -> records.PreparedRecord:
    path = "/" if entry.path is None else entry.path
    host, group_id = entry.domain.removeprefix("."), entry.group_id or _EVERY_GROUP
    columns = (group_id, entry.domain, host, entry.key, path, entry.expires)
    identity = identity_of(organization_id, group_id, entry.domain, path, entry.key)
    return records.PreparedRecord(identity, entry.domain, columns, entry.value)


def identity_of(organization_id: int, group_id: int, domain: str, path: str, key: str) -> bytes:
    return fingerprint("local storage", organization_id, group_id, domain, path, key)


async def list_entries(
    database: Database,
    vault: Vault,
    read_auditor: audit.ReadAuditor,
    domain: str | None,
    for_group: int | None,
    now: int,
    actor: audit.Actor,
) -> list[LocalStorageOut]:
    """In the order of their first insertion, the expired ones too; the reading is on record."""
    organization_id = database.organization_id
    rows = await records.rows_of(database, _STATEMENTS, domain)
    if for_group is not None:
        rows = [row for row in rows if row[2] in (_EVERY_GROUP, for_group)]
    listed = [
        LocalStorageOut(
            organization_id=organization_id,
            domain=of,
            key=key,
            value=records.decrypted(
                vault, encrypted, identity_of(organization_id, group_id, of, path, key)
            ),
            expires=None if expires is None else timestamps.render(expires),
            id=id_,
            group_id=group_id,
            path=path,
            create_date=timestamps.render_moment(created),
            update_date=timestamps.render_moment(updated),
        )
        async for (
            _, encrypted, group_id, of, key, path, expires, id_, created, updated,
        ) in records.in_turns(rows)
    ]  # fmt: skip
    about = AuditAbout(records=len(listed)) | records.about_domain(domain)
    if for_group is not None:
        about["for_group"] = for_group
    entry = audit.Entry(actor, now, _STATEMENTS.get, about)
    await read_auditor.note(database, entry)
    return listed


async def delete_entries(
    database: Database,
    domain: str,
    key: str | None,
    now: int,
    actor: audit.Actor,
) -> int:
    """Removes those of exactly this domain, or only those of this key there."""
    return await records.delete(database, _STATEMENTS, domain, key, now, actor)
