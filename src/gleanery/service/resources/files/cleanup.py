"""Cleanup: deletes files that no output references, and blobs that no file uses."""

from __future__ import annotations

from gleanery.service.foundation import blobs
from gleanery.service.foundation.values import timestamps
from gleanery.service.resources.files.uploads import ADD_UNREFERENCED, CHANGE_FILE_COUNT
from gleanery.service.storage.database import Database, Engine, Transaction

_UNUSED_FILES = """
SELECT organization_id, checksum, id FROM files WHERE reference_count = 0 AND used_at < $1
ORDER BY used_at LIMIT $2
"""
_LOCK_BLOB = "UPDATE blobs SET file_count = file_count WHERE organization_id = $1 AND checksum = $2"
_DELETE_FILE = """
DELETE FROM files
WHERE organization_id = $1 AND id = $2 AND reference_count = 0 AND used_at < $3 RETURNING id
"""
_DELETE_BLOB = "DELETE FROM blobs WHERE organization_id = $1 AND checksum = $2 AND file_count = 0"
_UNREFERENCED_BLOBS = """
SELECT organization_id, key FROM unreferenced_blobs
WHERE unreferenced_at < $1 ORDER BY unreferenced_at LIMIT $2
"""
_CLAIM_UNREFERENCED = """
UPDATE unreferenced_blobs SET unreferenced_at = 0
WHERE organization_id = $1 AND key = $2 RETURNING key
"""
_ORGANIZATION_IS_DELETED = "SELECT 1 FROM deleted_organizations WHERE id = $1"
_REMOVE_UNREFERENCED = "DELETE FROM unreferenced_blobs WHERE organization_id = $1 AND key = $2"
_BATCH_SIZE = 500
_MAX_UPLOAD_TIME = 86_400 * timestamps.SECOND  # no upload takes a day
_TO_DELETE = 0  # value of unreferenced_at: the upload of the blob must not be finished


async def delete_unused(engine: Engine, store: blobs.Blobs, before: int, now: int) -> None:
    """Delete files without references that were last used before a time, and unreferenced blobs.

    Stop at the first failure of the store, because the next deletions would fail too.
    """
    while files := await engine.for_all_tenants().read(_UNUSED_FILES, before, _BATCH_SIZE):
        for organization_id, checksum, id_ in files:
            await _delete_file(engine.for_tenant(organization_id), checksum, id_, before)
        await _delete_unreferenced_blobs(engine, store, now)
        if len(files) < _BATCH_SIZE:
            break
    await _delete_unreferenced_blobs(engine, store, now)


async def _delete_file(database: Database, checksum: bytes, id_: bytes, before: int) -> None:
    """Delete a file if it is still unused. A blob that loses its last file is unreferenced."""
    organization_id = database.organization_id
    blob = (organization_id, checksum)

    async def work(transaction: Transaction) -> None:
        await transaction.fetch(_LOCK_BLOB, *blob)
        if await transaction.fetch(_DELETE_FILE, organization_id, id_, before):
            [[file_count, key]] = await transaction.fetch(CHANGE_FILE_COUNT, *blob, -1)
            if file_count == 0:
                await transaction.fetch(_DELETE_BLOB, *blob)
                await transaction.fetch(ADD_UNREFERENCED, organization_id, key, _TO_DELETE)

    await database.write(work)


async def _delete_unreferenced_blobs(engine: Engine, store: blobs.Blobs, now: int) -> None:
    before = now - _MAX_UPLOAD_TIME
    while rows := await engine.for_all_tenants().read(_UNREFERENCED_BLOBS, before, _BATCH_SIZE):
        for organization_id, key in rows:
            await delete_unreferenced_blob(engine.for_tenant(organization_id), store, key)
        if len(rows) < _BATCH_SIZE:
            return


async def delete_unreferenced_blob(database: Database, store: blobs.Blobs, key: str) -> None:
    """Delete a blob from the store if it is still unreferenced, then its record."""

    async def claim(transaction: Transaction) -> bool:
        return bool(await transaction.fetch(_CLAIM_UNREFERENCED, transaction.organization_id, key))

    async def remove(transaction: Transaction) -> None:
        await transaction.fetch(_REMOVE_UNREFERENCED, transaction.organization_id, key)

    # Not claimed: the upload has just been finished, or the organization has been deleted.
    if await database.write(claim) or await _is_deleted(database):
        await store.delete(key)
        await database.write(remove)


async def _is_deleted(database: Database) -> bool:
    """Return True if the handle's organization is deleted, or is being deleted."""
    return bool(await database.read(_ORGANIZATION_IS_DELETED, database.organization_id))
