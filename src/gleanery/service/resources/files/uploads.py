"""Uploads: the database work before and after the bytes of a file are stored."""

from __future__ import annotations

from typing import NamedTuple

from gleanery.service.foundation import blobs
from gleanery.service.foundation.errors import Unavailable
from gleanery.service.resources.files import records
from gleanery.service.resources.files.records import COLUMNS, File
from gleanery.service.storage.database import Database, Transaction

ADD_UNREFERENCED = """
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
CHANGE_FILE_COUNT = """
UPDATE blobs SET file_count = file_count + $3 WHERE organization_id = $1 AND checksum = $2
RETURNING file_count, key
"""


class Upload(NamedTuple):
    """The properties of an upload, known when all bytes have arrived."""

    checksum: bytes
    size: int
    file_type: str
    source_url: str
    etag: str
    filename: str


async def begin(database: Database, now: int) -> str:
    """Return the key for the bytes. The blob is unreferenced until ``finish``."""
    organization_id = database.organization_id
    key = blobs.new_key(organization_id)

    async def work(transaction: Transaction) -> None:
        await transaction.fetch(ADD_UNREFERENCED, organization_id, key, now)

    await database.write(work)
    return key


async def finish(database: Database, key: str, upload: Upload, now: int) -> File:
    """Create the file of the uploaded bytes, or return the file that already exists.

    If the organization has the same bytes under another key, the file uses that key, and the
    uploaded blob stays unreferenced.
    """
    organization_id = database.organization_id
    source = records.url_etag_hash(upload.source_url, upload.etag)
    id_ = records.file_id(organization_id, source, upload.checksum)

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
        await fetch(CHANGE_FILE_COUNT, organization_id, checksum, 1)
        return File(*columns, blob_key)

    return await database.write(work)
