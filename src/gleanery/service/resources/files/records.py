"""File records: their columns, identity and look-ups."""

from __future__ import annotations

import re
from typing import NamedTuple

from gleanery.service.foundation.errors import NotFound, no_file
from gleanery.service.foundation.field_types import FILE_ID_PATTERN
from gleanery.service.foundation.values import timestamps
from gleanery.service.foundation.values.json_text import hash_parts
from gleanery.service.resources.files.models import StoredFile
from gleanery.service.storage.database import Database, Transaction

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
