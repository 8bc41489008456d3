"""Local-storage entries: one per organization, profile, group, domain, path, key and origin.

The entries of a group are deleted with the group. The request that deletes the group locks the
session state when it starts, and from then on the group accepts no entries. So no entry outlives
its group, and a new group with the same name and number starts without entries.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gleanery.service.foundation.errors import NotFound
from gleanery.service.foundation.security.tokens import Actor
from gleanery.service.foundation.values import timestamps
from gleanery.service.foundation.values.json_text import hash_parts
from gleanery.service.resources.audit import log
from gleanery.service.resources.audit.models import AuditAbout
from gleanery.service.resources.sessions.kinds import HOST_IS_PARENT, PreparedRecord, RecordKind
from gleanery.service.resources.sessions.models import LocalStorageOut
from gleanery.service.resources.sessions.records import ALL_GROUPS, lock_without_key
from gleanery.service.resources.sessions.state_models import (
    DEFAULT_PROFILE,
    NOT_GIVEN,
    LocalStorageEntry,
)
from gleanery.service.storage import group_lock
from gleanery.service.storage.database import Row, Transaction

_COUNT_OF_GROUP = """
SELECT count(*) FROM local_storage WHERE organization_id = $1 AND group_id = $2
"""
_OF_GROUP = """
SELECT id FROM local_storage WHERE organization_id = $1 AND group_id = $2 ORDER BY id LIMIT $3
"""
_DELETE = "DELETE FROM local_storage WHERE organization_id = $1 AND id = $2"


_COLUMNS = ("group_id", "domain", "host", "key", "path", "expires", "origin", "profile")
_ORIGIN = _COLUMNS.index("origin")


def _hash_identity(
    organization_id: int,
    group_id: int,
    domain: str,
    path: str,
    key: str,
    profile: str,
    origin: str | None,
) -> bytes:
    """Hashes what identifies an entry.

    Values from before there were profiles are encrypted with this hash. So it must not change
    for an entry of the default profile without an origin, or with the usual origin of its host.
    """
    parts: tuple[str | int, ...] = ("local storage", organization_id, group_id, domain, path, key)
    if origin is not None and origin != f"https://{domain.removeprefix('.')}":
        parts += (profile, origin)
    elif profile != DEFAULT_PROFILE:
        parts += (profile,)
    return hash_parts(*parts)


def _prepare(organization_id: int, entry: LocalStorageEntry) -> PreparedRecord:
    domain, key, value, group_id, path, expires, origin, profile = entry
    host = domain.removeprefix(".")
    kept: tuple[int, ...] = ()
    alternative = None
    if origin is NOT_GIVEN:
        kept, origin = (_ORIGIN,), None
        alternative = (profile, host, key, domain, path, group_id)
    columns = (group_id, domain, host, key, path, expires, origin, profile)
    identity = _hash_identity(organization_id, group_id, domain, path, key, profile, origin)
    return PreparedRecord(identity, domain, columns, value, kept, alternative)


def _to_response(organization_id: int, value: str, row: Row) -> LocalStorageOut:
    _, _, group_id, domain, _, key, path, expires, _, _, id_, created_at, updated_at = row
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


async def _check_groups(transaction: Transaction, entries: Sequence[LocalStorageEntry]) -> None:
    """Raise NotFound for an entry of a group that does not exist or is being deleted."""
    known = {ALL_GROUPS}
    for position, entry in enumerate(entries):
        group_id = entry.group_id or ALL_GROUPS
        if group_id in known:
            continue
        if not await group_lock.accepts_records(transaction, group_id):
            loc = ("body", str(position), "group_id")
            raise NotFound(loc, "There is no group with this number")
        known.add(group_id)


LOCAL_STORAGE = RecordKind[LocalStorageEntry, LocalStorageOut](
    table="local_storage",
    columns=_COLUMNS,
    identity_columns=("group_id", "domain", "path", "key", "profile", "origin"),
    name_column="key",
    replaced_columns=("expires", "origin"),
    # Local storage belongs to one host. A leading dot makes it visible to subdomains.
    visible_if=f"host = $5 OR domain <> host AND {HOST_IS_PARENT}",
    alternative_column="origin",
    alternative_index="local_storage_with_origin",
    alternative_member="origin",
    ambiguous="It is not clear which entry is meant: entries with this domain, path and key are "
    "stored for several origins. Send origin",
    find_alternatives="""
SELECT identity, profile, host, key, domain, path, group_id
FROM local_storage
WHERE organization_id = $1 AND profile = $2 AND host = $3 AND key = $4
    AND origin IS NOT NULL AND domain = $5 AND path = $6 AND group_id = $7
""",
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


# --- whole entries ------------------------------------------------------------------------------


class StoredEntry(NamedTuple):
    """A stored entry with all that browsers know of it."""

    domain: str
    origin: str | None
    """Normalized origin; None for any origin of the host."""
    key: str
    value: str
    group_id: int
    path: str
    expires: int | None
    updated_at: int
    """Microseconds since 1970."""


def to_stored(value: str, row: Row) -> StoredEntry:
    """Convert a decrypted value and a row of a list."""
    _, _, group_id, domain, _, key, path, expires, origin, _, _, _, updated_at = row
    return StoredEntry(domain, origin, key, value, group_id, path, expires, updated_at)


# --- deletion of a group ------------------------------------------------------------------------


async def audit_deletion_of_group(
    transaction: Transaction, group_id: int, now: int, actor: Actor
) -> None:
    """Record that the entries of a group are about to be deleted; wait for their writers.

    Call it last in the transaction that starts the deletion.
    """
    await lock_without_key(transaction)
    key = (transaction.organization_id, group_id)
    [[count]] = await transaction.fetch(_COUNT_OF_GROUP, *key)
    if count:
        about = AuditAbout(records=count, for_group=group_id)
        await log.append(transaction, actor, now, LOCAL_STORAGE.delete_action, about)


async def delete_of_group(transaction: Transaction, group_id: int, limit: int) -> bool:
    """Delete at most ``limit`` entries of a group. Return True if none are left."""
    organization_id = transaction.organization_id
    rows = await transaction.fetch(_OF_GROUP, organization_id, group_id, limit)
    if rows:
        await lock_without_key(transaction)
        await transaction.execute_many(_DELETE, [(organization_id, *row) for row in rows])
    return len(rows) < limit
