"""Removal of an organization: the checks before it, and all its rows and blobs in short steps.

The first transaction records the deletion and revokes the tokens. After that the organization
cannot be used, and only the rest of the removal is possible. A process may still have a token in
its cache, or handle a request that began before. Such a late request can store rows again. So the
removal repeats until nothing is left, and the sweep removes what is stored after that.

The audit log stays until its entries are old enough for the sweep; see ``audit``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from gleanery.common.errors import SettingsError
from gleanery.common.settings import Settings
from gleanery.service.foundation.blobs import Blobs, open_blobs
from gleanery.service.foundation.observability.progress import Advance, StartProgress
from gleanery.service.foundation.security.tokens import COMMAND_LINE
from gleanery.service.foundation.values import timestamps
from gleanery.service.resources.access import organizations
from gleanery.service.resources.access.organizations import Counts
from gleanery.service.resources.audit import log
from gleanery.service.resources.audit.models import AuditAbout
from gleanery.service.storage.database import Database, Engine, Transaction

_LOCK = "UPDATE organizations SET name = name WHERE id = $1 RETURNING name"
_RECORD_START = """
INSERT INTO deleted_organizations (id, name, started_at, output_count, file_count)
VALUES ($1, $2, $3, $4, $5) ON CONFLICT (id) DO NOTHING RETURNING id
"""
_RECORD_END = "UPDATE deleted_organizations SET finished_at = $2 WHERE id = $1"
_REVOKE_TOKENS = """
UPDATE tokens SET revoked_at = $2 WHERE organization_id = $1 AND revoked_at IS NULL
"""
_DELETE_CONSOLE_SESSIONS = "DELETE FROM console_sessions WHERE organization_id = $1"
_DELETE_LOGIN_LINKS = "DELETE FROM login_links WHERE organization_id = $1"
_DELETE_TOKENS = "DELETE FROM tokens WHERE organization_id = $1"
_DELETE_ORGANIZATION = "DELETE FROM organizations WHERE id = $1 RETURNING id"

_GROUPS = "SELECT id, name FROM groups WHERE organization_id = $1 ORDER BY id LIMIT $2"
_LOCK_GROUP = "UPDATE groups SET name = name WHERE organization_id = $1 AND id = $2"
_DELETE_GROUP = "DELETE FROM groups WHERE organization_id = $1 AND id = $2"

_NEXT_BLOBS = """
SELECT checksum, key FROM blobs WHERE organization_id = $1 ORDER BY checksum LIMIT $2
"""
_DELETE_BLOB = "DELETE FROM blobs WHERE organization_id = $1 AND checksum = $2"
_SET_UNREFERENCED = """
INSERT INTO unreferenced_blobs (organization_id, key, unreferenced_at) VALUES ($1, $2, 0)
ON CONFLICT (organization_id, key) DO UPDATE SET unreferenced_at = 0
"""
_UNREFERENCED_BLOBS = """
SELECT key FROM unreferenced_blobs WHERE organization_id = $1 ORDER BY key LIMIT $2
"""
_DELETE_UNREFERENCED = "DELETE FROM unreferenced_blobs WHERE organization_id = $1 AND key = $2"

_DELETE_AUDIT_POSITION = "DELETE FROM audit_positions WHERE organization_id = $1"
_WITHOUT_AUDIT_ENTRIES = """
SELECT id FROM deleted_organizations
JOIN audit_positions ON audit_positions.organization_id = deleted_organizations.id
WHERE finished_at IS NOT NULL AND NOT EXISTS (
    SELECT 1 FROM audit_log WHERE audit_log.organization_id = audit_positions.organization_id)
"""
_BATCH_SIZE = 1000
_BLOB_BATCH_SIZE = 100
_CHECKED_BLOBS = 20
_WATCHED_DELETIONS = 100  # the newest ones: no request lasts as long as a hundred deletions


class _Table(NamedTuple):
    """Statements that delete the rows of a table in the order of a key.

    A step finds rows and then deletes them by their keys, so that no query plan depends on the
    size of the table.
    """

    find: str
    delete: str
    first: Any
    """A value below every key."""
    is_counted: bool = False
    """True if the progress report counts the rows."""


def _of_group(table: str, key: str, identity: str, first: Any, is_counted: bool = False) -> _Table:
    """Return the statements of a table with a group; they delete by the ``identity`` columns."""
    columns = identity.split(", ")
    values = "".join(f" AND {column} = ${n}" for n, column in enumerate(columns, 2))
    return _Table(
        f"SELECT {key}, {identity} FROM {table} WHERE organization_id = $1 AND group_id = $2 "
        f"AND {key} > $3 ORDER BY {key} LIMIT $4",
        f"DELETE FROM {table} WHERE organization_id = $1{values}",
        first,
        is_counted,
    )


def _of_organization(table: str, key: str, first: Any, is_counted: bool = False) -> _Table:
    return _Table(
        f"SELECT {key}, {key} FROM {table} WHERE organization_id = $1 "
        f"AND {key} > $2 ORDER BY {key} LIMIT $3",
        f"DELETE FROM {table} WHERE organization_id = $1 AND {key} = $2",
        first,
        is_counted,
    )


# A job has many sightings, so a step begins with the job at which the step before it ended.
_SIGHTINGS = _Table(
    "SELECT job_id, group_id, job_id, run_id, identity FROM run_sightings "
    "WHERE organization_id = $1 AND group_id = $2 AND job_id >= $3 "
    "ORDER BY job_id, run_id, identity LIMIT $4",
    "DELETE FROM run_sightings WHERE organization_id = $1 AND group_id = $2 AND job_id = $3 "
    "AND run_id = $4 AND identity = $5",
    0,
)
_GROUP_TABLES = (
    _of_group("bulk_jobs", "id", "id", 0),
    _of_group("outputs", "seq", "identity", 0, is_counted=True),
    _of_group("tombstones", "seq", "group_id, seq", 0),
    _of_group("output_history", "first_replaced_seq", "identity, seq", 0),
    _of_group("approved_versions", "seq", "identity", 0),
    _of_group("view_tombstones", "seq", "group_id, seq", 0),
    _of_group("reviews", "id", "id", 0),
    _SIGHTINGS,
    _of_group("runs", "id", "id", 0),
    _of_group("alerts", "id", "id", 0),
    _of_group("job_statistics", "job_id", "group_id, job_id", 0),
    _of_group("jobs", "name", "id", ""),
    _of_group("country_counts", "country", "group_id, country", ""),
)
_ORGANIZATION_TABLES = (
    _of_organization("cookies", "id", 0, is_counted=True),
    _of_organization("local_storage", "id", 0, is_counted=True),
    _of_organization("session_leases", "id", ""),
    _of_organization("session_revisions", "revision", -1),
    _of_organization("webhooks", "id", 0),
    _of_organization("webhook_secrets", "id", 0),
    _of_organization("webhook_headers", "id", 0),
    _of_organization("webhook_deliveries", "id", 0),
    _of_organization("webhook_positions", "webhook_id", 0),
    _of_organization("idempotency_keys", "key_hash", b""),
    _of_organization("files", "id", b"", is_counted=True),
    _of_organization("organization_usage", "day", -1),
)
# Rows that belong to a group exist only while the group exists.
_REMAINING_TABLES = (
    *("groups", "cookies", "local_storage", "session_leases", "idempotency_keys"),
    *("session_revisions", "files", "blobs", "unreferenced_blobs", "organization_usage"),
    *("webhooks", "webhook_secrets", "webhook_headers"),
    *("webhook_deliveries", "webhook_positions"),
)
_ANY_ROW = " UNION ALL ".join(
    f"SELECT * FROM (SELECT 1 FROM {table} WHERE organization_id = $1 LIMIT 1) AS {table}_row"
    for table in _REMAINING_TABLES
)
_WATCHED = f"""
SELECT id FROM deleted_organizations WHERE finished_at IS NOT NULL
ORDER BY finished_at DESC LIMIT {_WATCHED_DELETIONS}
"""


# --- the deletion -------------------------------------------------------------------------------


async def delete_organization(
    settings: Settings,
    name: str,
    ignore_missing_files: bool,
    progress: StartProgress,
    engine: Engine,
) -> Counts:
    """Delete an organization, or continue its deletion; return what was there."""
    database = engine.for_tenant(await organizations.find(engine, name))
    store = _open_store(settings)
    is_its_store = await _check_store(settings, store, database, ignore_missing_files)
    counts = await organizations.count_records(database)
    await begin(database, timestamps.now())
    total = counts.outputs + counts.files + counts.cookies + counts.local_storage
    advance = progress("Deleting", total)
    await remove(database, store, is_its_store, timestamps.now, advance)
    return counts


def _open_store(settings: Settings) -> Blobs | None:
    """Open the store of files; None if its folder does not exist, which must not be created."""
    folder = settings.blobs_folder
    if folder is not None and not folder.is_dir():
        return None
    return open_blobs(settings.blobs_location)


async def _check_store(
    settings: Settings, store: Blobs | None, database: Database, ignore_missing_files: bool
) -> bool:
    """Return True if the store has files of the organization.

    Reject a location without them: they would stay where they are.
    """
    keys = await blob_keys(database)
    if store is not None and any(await asyncio.gather(*map(store.exists, keys))):
        return True
    if keys and not ignore_missing_files:
        raise SettingsError(
            f"The organization's files are not in {settings.blobs_location}: give the location "
            "that the service uses with --blobs or GLEANERY_BLOBS. If the files are lost, give "
            "--ignore-missing-files"
        )
    return False


async def begin(database: Database, now: int) -> None:
    """Record the deletion and revoke all tokens, unless an earlier call has done so."""
    counts = await organizations.count_records(database)

    async def work(transaction: Transaction) -> None:
        organization_id = transaction.organization_id
        rows = await transaction.fetch(_LOCK, organization_id)
        if not rows:
            return  # another process has just finished the deletion
        started = (organization_id, rows[0][0], now, counts.outputs, counts.files)
        if await transaction.fetch(_RECORD_START, *started):
            await transaction.fetch(_REVOKE_TOKENS, organization_id, now)
            for delete in (_DELETE_CONSOLE_SESSIONS, _DELETE_LOGIN_LINKS):
                await transaction.fetch(delete, organization_id)
            about = AuditAbout()
            await log.append(transaction, COMMAND_LINE, now, "delete_organization", about)

    await database.write(work)


async def blob_keys(database: Database) -> list[str]:
    """Return some keys whose blobs must be in the store, for a check of its location."""
    rows = await database.read(_NEXT_BLOBS, database.organization_id, _CHECKED_BLOBS)
    return [row[1] for row in rows]


async def remove(
    database: Database,
    store: Blobs | None,
    is_its_store: bool,
    clock: Callable[[], int],
    advance: Advance,
) -> None:
    """Remove everything of an organization whose deletion has begun.

    If it is interrupted, a second call continues. Without a ``store``, blobs are not deleted. If it
    may be the store of another database, only blobs that the database names are deleted.
    """
    while True:
        await _remove_rows_and_blobs(database, store, is_its_store, advance)
        if await database.write(partial(_finish, clock)):
            return


async def _finish(clock: Callable[[], int], transaction: Transaction) -> bool:
    """Delete the organization itself. Return False if late requests have stored rows again."""
    organization_id = transaction.organization_id
    await transaction.fetch(_LOCK, organization_id)
    if await transaction.fetch(_ANY_ROW, organization_id):
        return False
    for delete in (_DELETE_CONSOLE_SESSIONS, _DELETE_LOGIN_LINKS, _DELETE_TOKENS):
        await transaction.fetch(delete, organization_id)
    if await transaction.fetch(_DELETE_ORGANIZATION, organization_id):
        await transaction.fetch(_RECORD_END, organization_id, clock())
    return True


async def _remove_rows_and_blobs(
    database: Database, store: Blobs | None, is_its_store: bool, advance: Advance
) -> None:
    organization_id = database.organization_id
    while groups := await database.read(_GROUPS, organization_id, _BATCH_SIZE):
        for group_id, name in groups:
            await _remove_group(database, group_id, name, advance)
    for table in _ORGANIZATION_TABLES:
        await _empty_table(database, table, (), None, advance)
    while await database.write(_release_blobs):
        pass
    await _delete_blobs(database, store)
    if store is not None and is_its_store:
        await store.delete_folder(str(organization_id))


async def _remove_group(database: Database, group_id: int, name: str, advance: Advance) -> None:
    """Remove a group after its rows. The lock excludes late writers of the group."""

    async def delete_if_empty(transaction: Transaction) -> bool:
        key = (transaction.organization_id, group_id)
        await transaction.fetch(_LOCK_GROUP, *key)
        for table in _GROUP_TABLES:
            if await transaction.fetch(table.find, *key, table.first, 1):
                return False
        await transaction.fetch(_DELETE_GROUP, *key)
        return True

    while not await database.write(delete_if_empty, queue_key=name):
        for table in _GROUP_TABLES:
            await _empty_table(database, table, (group_id,), name, advance)


async def _empty_table(
    database: Database,
    table: _Table,
    group: tuple[int, ...],
    queue_key: str | None,
    report: Advance,
) -> None:
    """Delete the rows of the organization, or of a group, a batch per transaction."""
    last = table.first

    async def step(transaction: Transaction) -> Sequence[Any]:
        organization_id = transaction.organization_id
        if group:
            await transaction.fetch(_LOCK_GROUP, organization_id, *group)
        rows = await transaction.fetch(table.find, organization_id, *group, last, _BATCH_SIZE)
        await transaction.execute_many(table.delete, [(organization_id, *row[1:]) for row in rows])
        return rows

    while rows := await database.write(step, queue_key=queue_key):
        last = rows[-1][0]
        if table.is_counted:
            report(len(rows))


# --- blobs --------------------------------------------------------------------------------------


async def _release_blobs(transaction: Transaction) -> int:
    """Make a batch of blobs unreferenced, after their files are deleted; return how many."""
    organization_id = transaction.organization_id
    rows = await transaction.fetch(_NEXT_BLOBS, organization_id, _BATCH_SIZE)
    await transaction.execute_many(_DELETE_BLOB, [(organization_id, row[0]) for row in rows])
    await transaction.execute_many(_SET_UNREFERENCED, [(organization_id, row[1]) for row in rows])
    return len(rows)


async def _delete_blobs(database: Database, store: Blobs | None) -> None:
    """Delete the unreferenced blobs from the store, then their rows.

    The first transaction prevents that an unfinished upload is finished.
    """

    async def claim(transaction: Transaction) -> list[str]:
        key = transaction.organization_id
        rows = await transaction.fetch(_UNREFERENCED_BLOBS, key, _BLOB_BATCH_SIZE)
        await transaction.execute_many(_SET_UNREFERENCED, [(key, *row) for row in rows])
        return [row[0] for row in rows]

    async def delete(keys: list[str], transaction: Transaction) -> None:
        id_ = transaction.organization_id
        await transaction.execute_many(_DELETE_UNREFERENCED, [(id_, key) for key in keys])

    while keys := await database.write(claim):
        if store is not None:
            await asyncio.gather(*map(store.delete, keys))
        await database.write(partial(delete, keys))


# --- late rows ----------------------------------------------------------------------------------


async def pending_removals(engine: Engine, store: Blobs) -> list[Callable[[], Awaitable[None]]]:
    """Return a function for each deleted organization with rows, which removes them.

    Late requests stored these rows. The position of an audit log goes with its last entry.
    """
    everyone = engine.for_all_tenants()
    watched = [row[0] for row in await everyone.read(_WATCHED)]
    late = [id_ for id_ in watched if await engine.for_tenant(id_).read(_ANY_ROW, id_)]
    purged = [row[0] for row in await everyone.read(_WITHOUT_AUDIT_ENTRIES)]
    return [
        *(partial(_remove_late_rows, engine.for_tenant(id_), store) for id_ in late),
        *(partial(_delete_audit_position, engine.for_tenant(id_)) for id_ in purged),
    ]


async def _remove_late_rows(database: Database, store: Blobs) -> None:
    await _remove_rows_and_blobs(database, store, True, lambda _: None)


async def _delete_audit_position(database: Database) -> None:
    async def work(transaction: Transaction) -> None:
        await transaction.fetch(_DELETE_AUDIT_POSITION, transaction.organization_id)

    await database.write(work)
