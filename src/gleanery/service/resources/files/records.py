"""File records: their identity and look-ups, uploads, and the deletion of unused files."""

from __future__ import annotations

import re
from typing import NamedTuple

from gleanery.service.foundation import blobs
from gleanery.service.foundation.errors import NotFound, Unavailable, no_file
from gleanery.service.foundation.field_types import FILE_ID_PATTERN
from gleanery.service.foundation.values import timestamps
from gleanery.service.foundation.values.json_text import hash_parts
from gleanery.service.resources.files.models import StoredFile
from gleanery.service.storage.database import Database, Engine, Transaction

ID_BYTES = 16
COLUMNS = "id, checksum, size, file_type, url_etag_hash, source_url, filename, created_at"
BLOB_KEY = """
(SELECT key FROM blobs WHERE blobs.organization_id = $1
    AND blobs.checksum = files.checksum) AS key
"""
_SELECT = f"SELECT {COLUMNS}, {BLOB_KEY} FROM files WHERE organization_id = $1"
_BY_SOURCE = f"""
SELECT reference_count, used_at, {COLUMNS}, {BLOB_KEY} FROM files
WHERE organization_id = $1 AND url_etag_hash = $2 ORDER BY uploaded_at DESC LIMIT 1
"""
_RENEW = "UPDATE files SET used_at = $3 WHERE organization_id = $1 AND id = $2 RETURNING id"
_RENEWED_EVERY = 3600 * timestamps.SECOND  # a scraper may look up the same file all the time
_ADD_UNREFERENCED = """
INSERT INTO unreferenced_blobs (organization_id, key, unreferenced_at) VALUES ($1, $2, $3)
"""
_FINISH_UNREFERENCED = """
DELETE FROM unreferenced_blobs
WHERE organization_id = $1 AND key = $2 AND unreferenced_at > 0 RETURNING key
"""
# Locks the blob's row. Every transaction that adds or removes a file of a blob holds this lock.
_LOCK_OR_ADD_BLOB = """
INSERT INTO blobs (organization_id, checksum, key, file_count) VALUES ($1, $2, $3, 0)
ON CONFLICT (organization_id, checksum) DO UPDATE SET file_count = blobs.file_count
RETURNING key
"""
_UPDATE_FILE = f"""
UPDATE files SET uploaded_at = $3, used_at = $3 WHERE organization_id = $1 AND id = $2
RETURNING {COLUMNS}
"""
_ADD_FILE = f"""
INSERT INTO files (organization_id, {COLUMNS}, uploaded_at, used_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $9, $9)
"""
_CHANGE_FILE_COUNT = """
UPDATE blobs SET file_count = file_count + $3 WHERE organization_id = $1 AND checksum = $2
RETURNING file_count, key
"""
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


# --- records ------------------------------------------------------------------------------------


class File(NamedTuple):
    """A row of the table ``files``, and the key of its blob."""

    id: bytes
    checksum: bytes
    size: int
    file_type: str
    url_etag_hash: bytes
    source_url: str
    filename: str
    created_at: int
    key: str

    def to_response(self) -> StoredFile:
        return StoredFile(
            id=self.id.hex(),
            blob_key=self.key,
            file_checksum=self.checksum.hex(),
            file_type=self.file_type,
            url_etag_hash=self.url_etag_hash.hex(),
            size=self.size,
        )


def url_etag_hash(source_url: str, etag: str) -> bytes:
    return hash_parts(source_url, etag)


def file_id(organization_id: int, source: bytes, checksum: bytes) -> bytes:
    """Return the id of the file with these bytes from this source (a ``url_etag_hash``)."""
    return hash_parts(organization_id, source, checksum)[:ID_BYTES]


async def find(database: Database, id_: str) -> File:
    """Find a file by its hexadecimal id. Raise NotFound."""
    if not re.fullmatch(FILE_ID_PATTERN, id_):
        raise no_file()
    by_id = f"{_SELECT} AND id = $2"
    rows = await database.read(by_id, database.organization_id, bytes.fromhex(id_))
    if not rows:
        raise no_file()
    return File(*rows[0])


async def find_by_source(database: Database, source_url: str, etag: str, now: int) -> File:
    """Find the file that was last uploaded from this URL with this ETag. Raise NotFound.

    The client will reference the file, so an unreferenced file is kept for some more days.
    """
    source = url_etag_hash(source_url, etag)
    while rows := await database.read(_BY_SOURCE, database.organization_id, source):
        reference_count, used_at, *columns = rows[0]
        file = File(*columns)
        if reference_count or used_at > now - _RENEWED_EVERY or await _renew(database, file, now):
            return file
        # Otherwise the file has just been deleted. An older one may be left.
    raise NotFound(("query", "source_url"), "There is no file with this source_url and etag")


async def _renew(database: Database, file: File, now: int) -> bool:
    """Mark a file as used. Return False if it does not exist any more."""

    async def work(transaction: Transaction) -> bool:
        key = (transaction.organization_id, file.id)
        return bool(await transaction.fetch(_RENEW, *key, now))

    return await database.write(work)


# --- uploads ------------------------------------------------------------------------------------


class Upload(NamedTuple):
    """The properties of an upload, known when all bytes have arrived."""

    checksum: bytes
    size: int
    file_type: str
    source_url: str
    etag: str
    filename: str


async def begin_upload(database: Database, now: int) -> str:
    """Return the key for the bytes. The blob is unreferenced until ``finish_upload``."""
    organization_id = database.organization_id
    key = blobs.new_key(organization_id)

    async def work(transaction: Transaction) -> None:
        await transaction.fetch(_ADD_UNREFERENCED, organization_id, key, now)

    await database.write(work)
    return key


async def finish_upload(database: Database, key: str, upload: Upload, now: int) -> File:
    """Create the file of the uploaded bytes, or return the file that already exists.

    If the organization has the same bytes under another key, the file uses that key, and the
    uploaded blob stays unreferenced.
    """
    organization_id = database.organization_id
    source = url_etag_hash(upload.source_url, upload.etag)
    id_ = file_id(organization_id, source, upload.checksum)

    async def work(transaction: Transaction) -> File:
        fetch = transaction.fetch
        [[blob_key]] = await fetch(_LOCK_OR_ADD_BLOB, organization_id, upload.checksum, key)
        if blob_key == key and not await fetch(_FINISH_UNREFERENCED, organization_id, key):
            raise Unavailable("The upload took too long; try again")
        known = await fetch(_UPDATE_FILE, organization_id, id_, now)
        if known:
            return File._make((*known[0], blob_key))
        checksum, size, file_type, source_url, _, filename = upload
        columns = (id_, checksum, size, file_type, source, source_url, filename, now)
        await fetch(_ADD_FILE, organization_id, *columns)
        await fetch(_CHANGE_FILE_COUNT, organization_id, checksum, 1)
        return File(*columns, blob_key)

    return await database.write(work)


# --- deletion -----------------------------------------------------------------------------------


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
            [[file_count, key]] = await transaction.fetch(_CHANGE_FILE_COUNT, *blob, -1)
            if file_count == 0:
                await transaction.fetch(_DELETE_BLOB, *blob)
                await transaction.fetch(_ADD_UNREFERENCED, organization_id, key, _TO_DELETE)

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
