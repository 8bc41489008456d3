"""Snapshots: copies of a SQLite database as it is at one moment, for backups."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from gleanery.common.errors import SettingsError
from gleanery.service.foundation.observability.progress import StartProgress
from gleanery.service.storage import migrations
from gleanery.service.storage.database import SchemaState
from gleanery.service.storage.metadata import KEY_FINGERPRINT
from gleanery.service.storage.sqlite.statements import to_sqlite
from gleanery.service.storage.tenancy import ANY_TENANT

_BLOBS = "SELECT organization_id, checksum, key FROM blobs ORDER BY key"
_KEY_FINGERPRINT = f"SELECT value FROM metadata WHERE name = '{KEY_FINGERPRINT}'"
_DELETE_UNREFERENCED_FILES = """
DELETE FROM files WHERE organization_id = $1 AND checksum = $2 AND reference_count = 0
"""
_COUNT_FILES = "SELECT count(*) FROM files WHERE organization_id = $1 AND checksum = $2"
_SET_FILE_COUNT = "UPDATE blobs SET file_count = $3 WHERE organization_id = $1 AND checksum = $2"
_DELETE_BLOB = "DELETE FROM blobs WHERE organization_id = $1 AND checksum = $2"
_PAGES_PER_STEP = 256
_BUSY_TIMEOUT_MS = 10_000


class BlobRecord(NamedTuple):
    """A blob that the database refers to, and the checksum of its bytes."""

    organization_id: int
    checksum: bytes
    key: str


def create(source: Path, target: Path, progress: StartProgress) -> None:
    """Copy the committed data page by page.

    Writers continue meanwhile. The write-ahead log can grow until the copy is complete.
    """
    with closing(_connect(source)) as reader, closing(apsw.Connection(str(target))) as copy:
        try:
            _begin_snapshot(reader)
        except (apsw.CantOpenError, apsw.ReadOnlyError):
            _copy_closed(source, copy, progress)
        else:
            _copy_pages(reader, copy, progress)


def _connect(source: Path) -> apsw.Connection:
    connection = apsw.Connection(str(source), flags=apsw.SQLITE_OPEN_READWRITE)
    connection.set_busy_timeout(_BUSY_TIMEOUT_MS)  # a service locks at start and stop
    return connection


def _begin_snapshot(reader: apsw.Connection) -> None:
    """Start the transaction whose view of the data is copied: its first read decides."""
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM sqlite_schema").fetchall()


def _copy_pages(reader: apsw.Connection, copy: apsw.Connection, progress: StartProgress) -> None:
    _check_schema(reader)
    copy.pragma("synchronous", "OFF")
    advance = progress("Copying the database", reader.pragma("page_count"))
    with copy.backup("main", reader, "main") as backup:
        while not backup.step(_PAGES_PER_STEP):
            advance(_PAGES_PER_STEP)
    reader.execute("COMMIT")
    copy.pragma("journal_mode", "delete")


def _copy_closed(source: Path, copy: apsw.Connection, progress: StartProgress) -> None:
    """Copy a database in a read-only folder, where SQLite cannot create its lock file.

    A running service has created that file, so no service was running when this function is
    called. It copies without locks. One that starts meanwhile changes the file at a checkpoint.
    """
    before = _version(source)
    _reject_unclosed(source)
    uri = f"{source.absolute().as_uri()}?immutable=1"
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    with closing(apsw.Connection(uri, flags=flags)) as reader:
        _begin_snapshot(reader)
        _copy_pages(reader, copy, progress)
    if _version(source) != before:
        raise SettingsError(f"A service has changed {source} during the copy: run the backup again")


def _reject_unclosed(source: Path) -> None:
    """Raise SettingsError if committed data is outside the file, where it would be missed."""
    others = [source.with_name(f"{source.name}-{end}") for end in ("wal", "journal")]
    for other in others:
        if other.exists() and other.stat().st_size:
            raise SettingsError(
                f"SQLite cannot read {other}, which contains the newest data. If a service runs, "
                "run the backup as its user. If none runs, copy the whole folder to a disk that "
                "can be written, and back up the copy"
            )


def _version(path: Path) -> tuple[int, ...]:
    status = path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns


def _check_schema(reader: apsw.Connection) -> None:
    """Raise SettingsError unless the schema is this program's."""
    tables = reader.execute("SELECT 1 FROM sqlite_schema WHERE name = 'migrations'").fetchall()
    applied = reader.execute(migrations.NEWEST_APPLIED).get if tables else 0
    migrations.check("sqlite", SchemaState(applied, applied), accept_compatible=False)


class Snapshot:
    """A copied database that no service uses."""

    def __init__(self, path: Path) -> None:
        self._connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)

    def close(self) -> None:
        """Close the database and remove its write-ahead log: one file has all data."""
        self._connection.pragma("journal_mode", "delete")
        self._connection.close()

    def integrity_error(self) -> str | None:
        """Return the first error that SQLite's integrity check finds."""
        result = self._connection.execute("PRAGMA integrity_check(1)").get
        return None if result == "ok" else " ".join(str(result).split())

    def key_fingerprint(self) -> str:
        """Return the fingerprint of the active key; empty if there is none."""
        return str(self._connection.execute(_KEY_FINGERPRINT).get or "")

    def blobs(self) -> list[BlobRecord]:
        rows: list[Any] = self._connection.execute(_BLOBS).fetchall()
        return [BlobRecord(*row) for row in rows]

    def delete_if_unreferenced(self, blob: BlobRecord) -> bool:
        """Delete a blob's record unless outputs reference its files. Return True if deleted."""
        key = (blob.organization_id, blob.checksum)
        self._execute(_DELETE_UNREFERENCED_FILES, key)
        file_count = self._execute(_COUNT_FILES, key).get
        if file_count:
            self._execute(_SET_FILE_COUNT, (*key, file_count))
        else:
            self._execute(_DELETE_BLOB, key)
        return not file_count

    def _execute(self, sql: str, values: tuple[Any, ...]) -> apsw.Cursor:
        return self._connection.execute(to_sqlite(sql, ANY_TENANT), values)
