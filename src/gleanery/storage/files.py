"""Files: what is known of each, which outputs name it, and when it is no longer wanted.

A file is some bytes from some source. Its bytes are a blob in the store of files, one for all files
of the organization that have the same. A blob that no file has is unreferenced: an upload under way, or
one to be removed. It is noted as such before its first byte is written, and stops being so in the
transaction that makes it a file's; so no blob is lost or forgotten, whatever is interrupted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from gleanery import blobs
from gleanery.errors import NotFound, Unavailable
from gleanery.models.fields import FILE_ID
from gleanery.models.requests import FileIn
from gleanery.models.responses import FileOut, StoredFile
from gleanery.storage import group_lock
from gleanery.storage.database import Database, Engine, Row, Transaction
from gleanery.values import json_text, timestamps
from gleanery.values.hashing import fingerprint

_COLUMNS = "id, checksum, size, file_type, source, source_url, filename, created"
_MARK_UNREFERENCED = (
    "INSERT INTO unreferenced_blobs (organization_id, key, since) VALUES ($1, $2, $3)"
)
_TAKE = """
DELETE FROM unreferenced_blobs WHERE organization_id = $1 AND key = $2 AND since > 0 RETURNING key
"""
_DOOM = (
    "UPDATE unreferenced_blobs SET since = 0 WHERE organization_id = $1 AND key = $2 RETURNING key"
)
# Whoever gives a blob a file, or takes one away from it, holds the lock on the blob's row.
_HOLD_BLOB = """
INSERT INTO blobs (organization_id, checksum, key, files) VALUES ($1, $2, $3, 0)
ON CONFLICT (organization_id, checksum) DO UPDATE SET files = blobs.files
RETURNING key
"""
_SENT_AGAIN = f"""
UPDATE files SET sent = $3, used = $3 WHERE organization_id = $1 AND id = $2 RETURNING {_COLUMNS}
"""
_ADD = f"""
INSERT INTO files (organization_id, {_COLUMNS}, sent, used)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $9, $9)
"""
_HOLD = "UPDATE blobs SET files = files WHERE organization_id = $1 AND checksum = $2"
_COUNT = """
UPDATE blobs SET files = files + $3 WHERE organization_id = $1 AND checksum = $2
RETURNING files, key
"""
_SHOW = f"""
SELECT {_COLUMNS}, (SELECT key FROM blobs WHERE blobs.organization_id = files.organization_id
    AND blobs.checksum = files.checksum) AS key
FROM files WHERE organization_id = $1
"""
_NAME = f"""
UPDATE files SET named = named + $3, used = $4 WHERE organization_id = $1 AND id = $2
RETURNING {_COLUMNS}, (SELECT key FROM blobs WHERE blobs.organization_id = files.organization_id
    AND blobs.checksum = files.checksum) AS key
"""
_UNWANTED = """
SELECT organization_id, checksum, id FROM files WHERE named = 0 AND used < $1
ORDER BY used LIMIT $2
"""
_FORGET = """
DELETE FROM files WHERE organization_id = $1 AND id = $2 AND named = 0 AND used < $3 RETURNING id
"""
_FORGET_BLOB = "DELETE FROM blobs WHERE organization_id = $1 AND checksum = $2 AND files = 0"
_UNREFERENCED = (
    "SELECT organization_id, key FROM unreferenced_blobs WHERE since < $1 ORDER BY since LIMIT $2"
)
_DROP = "DELETE FROM unreferenced_blobs WHERE organization_id = $1 AND key = $2"
_AT_ONCE = 500
ID_BYTES = 16
_DAY = 86_400 * timestamps.SECOND
_DOOMED = 0  # since when a blob is unreferenced that is being removed


class File(NamedTuple):
    """A file as the database knows it, and the key of its bytes in the store."""

    id: bytes
    checksum: bytes
    size: int
    file_type: str
    source: bytes
    source_url: str
    filename: str
    created: int
    key: str

    def shown(self) -> StoredFile:
        return StoredFile(
            id=self.id.hex(),
            blob_key=self.key,
            file_checksum=self.checksum.hex(),
            file_type=self.file_type,
            url_etag_hash=self.source.hex(),
            size=self.size,
        )


def url_etag_hash(source_url: str, etag: str) -> bytes:
    return fingerprint(source_url, etag)


# --- storing ------------------------------------------------------------------------------------


async def begin_upload(database: Database, now: int) -> str:
    """The key to write the bytes under. They are unreferenced until ``keep`` makes them a file's."""
    organization_id = database.organization_id
    key = blobs.new_key(organization_id)

    async def work(transaction: Transaction) -> None:
        await transaction.fetch(_MARK_UNREFERENCED, organization_id, key, now)

    await database.write(work)
    return key


class Upload(NamedTuple):
    """What is known of bytes when all of them have come in."""

    checksum: bytes
    size: int
    file_type: str
    source_url: str
    etag: str
    filename: str


async def keep(database: Database, key: str, upload: Upload, now: int) -> File:
    """Makes the uploaded bytes a file, or finds the file that they already are.

    If the organization has the same bytes under another key, the upload stays unreferenced.
    """
    organization_id = database.organization_id
    source = url_etag_hash(upload.source_url, upload.etag)
    id_ = fingerprint(organization_id, source, upload.checksum)[:ID_BYTES]

    async def work(transaction: Transaction) -> File:
        fetch = transaction.fetch
        [[held]] = await fetch(_HOLD_BLOB, organization_id, upload.checksum, key)
        if held == key and not await fetch(_TAKE, organization_id, key):
            raise Unavailable("The upload took too long; try again")
        known = await fetch(_SENT_AGAIN, organization_id, id_, now)
        if known:
            return File._make((*known[0], held))
        checksum, size, file_type, source_url, _, filename = upload
        columns = (id_, checksum, size, file_type, source, source_url, filename, now)
        await fetch(_ADD, organization_id, *columns)
        await fetch(_COUNT, organization_id, checksum, 1)
        return File(*columns, held)

    return await database.write(work)


# --- finding ------------------------------------------------------------------------------------


async def find(database: Database, file_id: str) -> File:
    if not re.fullmatch(FILE_ID, file_id):
        raise NotFound
    id_ = bytes.fromhex(file_id)
    return _found(await database.read(f"{_SHOW} AND id = $2", database.organization_id, id_))


async def find_by_source(database: Database, source_url: str, etag: str) -> File:
    """The file that was last sent from there."""
    newest = f"{_SHOW} AND source = $2 ORDER BY sent DESC LIMIT 1"
    source = url_etag_hash(source_url, etag)
    return _found(await database.read(newest, database.organization_id, source))


def _found(rows: Sequence[Row]) -> File:
    if not rows:
        raise NotFound
    return File(*rows[0])


# --- in outputs ---------------------------------------------------------------------------------

# In the text of an output a link is only marked, by bytes that no JSON text has: ``blob_url`` by
# one before the id of the file and one where the signature goes, ``file_url`` by one before the id.
SIGNATURE, BLOB_URL, FILE_URL = b"\x01", b"\x02", b"\x03"
ID_LETTERS = 2 * ID_BYTES
_KEY_AND_LINK = re.compile(
    rb'"blob_key":"([^"]*)","blob_url":"%b[0-9a-f]{32}%b"' % (BLOB_URL, SIGNATURE)
)


async def name(locked: group_lock.LockedGroup, changes: Counter[bytes]) -> dict[bytes, File]:
    """Notes by how many outputs more or fewer each file is named, and gives those that exist."""
    rows = await locked.transaction.fetch_many(
        _NAME,
        [(locked.organization_id, id_, changes[id_], locked.now) for id_ in sorted(changes)],
    )
    return {row[0]: File(*row) for row in rows}


def named_in(file_ids: bytes) -> list[bytes]:
    """The single ids."""
    return [file_ids[n : n + ID_BYTES] for n in range(0, len(file_ids), ID_BYTES)]


def keys_and_rest(text: bytes) -> tuple[list[str], list[bytes]]:
    """The keys of the files in the text of outputs, and what stands around their ``blob_url``."""
    pieces = _KEY_AND_LINK.split(text)
    keys = [key.decode() for key in pieces[1::2]]
    starts = [b'"blob_key":"%b","blob_url":"' % key for key in pieces[1::2]]
    rest = [b'"' + piece for piece in pieces[2::2]]
    around = [pieces[0], *rest]
    return keys, [piece + start for piece, start in zip(around, (*starts, b""), strict=True)]


class Named(NamedTuple):
    """A file as an output names it, with all that can be encoded before the database is asked."""

    id: bytes | None
    field: bytes
    about: bytes
    """The client's members of file_metadata, without the braces."""
    theirs: Callable[[int], bytes] | None
    """The whole text of a file that is kept elsewhere, by the moment at which it was named."""


def named(file: FileIn) -> Named:
    if file.id is None:
        return Named(None, b"", b"", partial(_theirs, file))
    given = file.file_metadata or {}
    about = json_text.encode({k: v for k, v in given.items() if k not in ("size", "filename")})[
        1:-1
    ]
    return Named(bytes.fromhex(file.id), json_text.encode(file.field), about, None)


class Texts:
    """Makes the texts of the files of a batch; what only the file decides is encoded once."""

    def __init__(self, files: dict[bytes, File], now: int) -> None:
        self._files, self._now = files, now
        self._encoded: dict[bytes, tuple[bytes, bytes]] = {}

    def of(self, all_named: Sequence[Named]) -> tuple[bytes, bytes]:
        """The files of an output as JSON text, its links marked, and the ids of ours."""
        text = b",".join([self._one(one) for one in all_named])
        return text, b"".join([one.id for one in all_named if one.id is not None])

    def _one(self, one: Named) -> bytes:
        if one.id is None:
            assert one.theirs is not None
            return one.theirs(self._now)
        if one.id not in self._encoded:
            self._encoded[one.id] = _ours(self._files[one.id])
        start, end = self._encoded[one.id]
        about = b"," + one.about if one.about else b""
        return b"".join((start, one.field, end, about, b"}}"))


def _ours(file: File) -> tuple[bytes, bytes]:
    """The text before what the client says of the field, and up to what it says of the file."""
    id_ = file.id.hex()
    start = b'{"id":"%b","field":' % id_.encode()
    end = (
        f',"url_etag_hash":"{file.source.hex()}","blob_key":"{file.key}",'
        f'"blob_url":"\x02{id_}\x01","source_url":'
    ).encode()
    end += json_text.encode(file.source_url)
    end += (
        f',"create_date":"{timestamps.render_moment(file.created)}","file_url":"\x03{id_}",'
        f'"file_type":"{file.file_type}","file_checksum":"{file.checksum.hex()}",'
        f'"file_metadata":{{"size":{file.size},"filename":'
    ).encode()
    return start, end + json_text.encode(file.filename)


def _theirs(named: FileIn, now: int) -> bytes:
    """A file whose bytes the scraper keeps elsewhere."""
    source_url, file_url = named.source_url or "", named.file_url or named.source_url or ""
    return json_text.encode(
        FileOut(
            id=fingerprint(named.field, source_url, file_url)[:ID_BYTES].hex(),
            field=named.field,
            url_etag_hash=url_etag_hash(source_url, "").hex(),
            blob_key="",
            blob_url="",
            source_url=source_url,
            create_date=timestamps.render_moment(now),
            file_url=file_url,
            file_type=named.file_type or "",
            file_checksum=named.file_checksum or "",
            file_metadata=named.file_metadata or {},
        )
    )


# --- collecting ---------------------------------------------------------------------------------


async def collect(engine: Engine, store: blobs.Blobs, before: int, now: int) -> None:
    """Removes files that no output has named since ``before``, and unreferenced blobs.

    It ends with the first failure of the store, which the others would only repeat.
    """
    while unwanted := await engine.for_all_tenants().read(_UNWANTED, before, _AT_ONCE):
        for organization_id, checksum, id_ in unwanted:
            await _forget(engine.for_tenant(organization_id), checksum, id_, before)
        await _remove_all_unreferenced(engine, store, now)
        if len(unwanted) < _AT_ONCE:
            break
    await _remove_all_unreferenced(engine, store, now)


async def _forget(database: Database, checksum: bytes, id_: bytes, before: int) -> None:
    """Forgets a file, if it is still not wanted; a blob that no file has any more is unreferenced."""
    organization_id = database.organization_id
    of_blob = (organization_id, checksum)

    async def work(transaction: Transaction) -> None:
        await transaction.fetch(_HOLD, *of_blob)
        if await transaction.fetch(_FORGET, organization_id, id_, before):
            [[files, key]] = await transaction.fetch(_COUNT, *of_blob, -1)
            if files == 0:
                await transaction.fetch(_FORGET_BLOB, *of_blob)
                await transaction.fetch(_MARK_UNREFERENCED, organization_id, key, _DOOMED)

    await database.write(work)


async def _remove_all_unreferenced(engine: Engine, store: blobs.Blobs, now: int) -> None:
    before = now - _DAY  # no upload takes a day
    while unreferenced := await engine.for_all_tenants().read(_UNREFERENCED, before, _AT_ONCE):
        for organization_id, key in unreferenced:
            await remove_unreferenced(engine.for_tenant(organization_id), store, key)
        if len(unreferenced) < _AT_ONCE:
            return


async def remove_unreferenced(database: Database, store: blobs.Blobs, key: str) -> None:
    """Removes a blob that is still unreferenced from the store, then the note that it is there."""

    async def doom(transaction: Transaction) -> bool:
        return bool(await transaction.fetch(_DOOM, transaction.organization_id, key))

    async def drop(transaction: Transaction) -> None:
        await transaction.fetch(_DROP, transaction.organization_id, key)

    if await database.write(doom):  # else its upload has just been completed
        await store.delete(key)
        await database.write(drop)
