"""Local-storage entries: one per organization, group, domain, path and key."""

from __future__ import annotations

from collections.abc import Sequence

from gleanery.errors import NotFound
from gleanery.models.responses import LocalStorageOut
from gleanery.models.session_state import LocalStorageEntry
from gleanery.storage import group_lock
from gleanery.storage.database import Database, Row
from gleanery.storage.sessions.kinds import HOST_IS_PARENT, PreparedRecord, RecordKind
from gleanery.values import timestamps
from gleanery.values.hashing import hash_parts


def _hash_identity(organization_id: int, group_id: int, domain: str, path: str, key: str) -> bytes:
    return hash_parts("local storage", organization_id, group_id, domain, path, key)


def _prepare(organization_id: int, entry: LocalStorageEntry) -> PreparedRecord:
    domain, key, value, group_id, path, expires = entry
    columns = (group_id, domain, domain.removeprefix("."), key, path, expires)
    identity = _hash_identity(organization_id, group_id, domain, path, key)
    return PreparedRecord(identity, domain, columns, value)


def _to_response(organization_id: int, value: str, row: Row) -> LocalStorageOut:
    _, _, group_id, domain, _, key, path, expires, id_, created_at, updated_at = row
    return LocalStorageOut(
        organization_id=organization_id,
        domain=domain,
        key=key,
        value=value,
        expires=None if expires is None else timestamps.render(expires),
        id=id_,
        group_id=group_id,
        path=path,
        create_date=timestamps.render_microseconds(created_at),
        update_date=timestamps.render_microseconds(updated_at),
    )


async def _check_groups(database: Database, entries: Sequence[LocalStorageEntry]) -> None:
    """Raises NotFound for an entry of a group that does not exist."""
    for position, entry in enumerate(entries):
        if entry.group_id and not await group_lock.group_exists(database, entry.group_id):
            loc = ("body", str(position), "group_id")
            raise NotFound(loc, "There is no group with this number")


LOCAL_STORAGE = RecordKind[LocalStorageEntry, LocalStorageOut](
    table="local_storage",
    columns=("group_id", "domain", "host", "key", "path", "expires"),
    identity_columns=("group_id", "domain", "path", "key"),
    name_column="key",
    replaced_columns=("expires",),
    # Local storage belongs to one host. A leading dot makes it visible to subdomains.
    visible_if=f"host = $4 OR domain <> host AND {HOST_IS_PARENT}",
    hash_identity=_hash_identity,
    prepare=_prepare,
    to_response=_to_response,
    read_action="get_local_storage",
    store_action="set_local_storage",
    delete_action="delete_local_storage",
    extra_columns=("id", "created_at", "updated_at"),
    has_created_at=True,
    check=_check_groups,
)
