"""Backups of a SQLite database and its blobs, made while the service runs.

A backup has a snapshot: a copy of the database as it is at one moment.

See ``docs/explanation/backup-and-restore.md``.
"""

from __future__ import annotations

import base64
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import apsw
import msgspec

from gleanery.common.errors import SettingsError
from gleanery.common.settings import Settings
from gleanery.common.version import __version__
from gleanery.service.admin import archive
from gleanery.service.admin.archive import Manifest, Output
from gleanery.service.foundation.observability.progress import StartProgress
from gleanery.service.foundation.security.vault import KeyFile, fingerprint, keys_from_text
from gleanery.service.foundation.values import timestamps
from gleanery.service.storage import migrations
from gleanery.service.storage.database import SchemaState
from gleanery.service.storage.metadata import KEY_FINGERPRINT
from gleanery.service.storage.sqlite.connections import (
    DAMAGED_ERRORS,
    RESTORE_BACKUP,
    is_disk_full,
    to_sqlite,
)
from gleanery.service.storage.tenancy import ANY_TENANT

_TEMPORARY_PREFIX, _TEMPORARY_SUFFIX = "gleanery-backup-", ".partial"
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


def create(settings: Settings, path: Path, with_key: bool, progress: StartProgress) -> Manifest:
    """Write a backup of the data that is committed at this moment into a new file."""
    _check_target(path)
    folder = path.absolute().parent
    with _temporary_folder(folder) as temporary:
        partial = temporary / "backup.tar"
        with _write_errors(str(path)), archive.create_private_file(partial) as output:
            manifest = _write(settings, output, temporary, with_key, progress)
            output.flush()
            os.fsync(output.fileno())
        _publish(partial, path)
        archive.sync_folder(folder)
    return manifest


def write(settings: Settings, descriptor: int, with_key: bool, progress: StartProgress) -> Manifest:
    """Write the same backup to standard output. The copy of the database is in ``TMPDIR``."""
    with _temporary_folder(None) as temporary, _write_errors("standard output"):
        output = _UnbufferedOutput(descriptor)
        manifest = _write(settings, output, temporary, with_key, progress)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.fsync(descriptor)
    return manifest


class _UnbufferedOutput:
    """Standard output without a buffer.

    A buffer is written when it is closed. A stopped backup would then wait for a stalled reader.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def write(self, content: bytes) -> None:
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(self._descriptor, rest) :]


# --- files --------------------------------------------------------------------------------------


def _check_target(path: Path) -> None:
    if not path.absolute().parent.is_dir():
        # Not created: it may be the mount point of a disk that is not there.
        raise SettingsError(
            f"The folder {path.absolute().parent} does not exist: create it, or mount its disk"
        )
    if path.is_dir():
        raise SettingsError(f"{path} is a folder: give the name of a new file in it")
    try:
        path.lstat()  # also finds a link to a file that does not exist
    except FileNotFoundError:
        return
    raise SettingsError(f"{path} already exists: choose another name")


@contextmanager
def _temporary_folder(parent: Path | None) -> Iterator[Path]:
    """Create a private folder, and remove it with everything that SQLite has left in it."""
    with TemporaryDirectory(_TEMPORARY_SUFFIX, _TEMPORARY_PREFIX, parent) as folder:
        yield Path(folder)


def _publish(partial: Path, path: Path) -> None:
    """Give the complete backup its name.

    A rename replaces a file that another program has created meanwhile. So this function creates
    the file first: of two backups with one name, only one succeeds.
    """
    try:
        archive.create_private_file(path).close()
    except FileExistsError:
        raise SettingsError(
            f"Another program has created {path} during the backup: choose another name"
        ) from None
    try:
        partial.replace(path)
    except BaseException:
        path.unlink()
        raise


@contextmanager
def _write_errors(target: str) -> Iterator[None]:
    """Name the target in errors of the output. Errors of other files name their file."""
    try:
        yield
    except BrokenPipeError:
        raise SettingsError(
            f"The program that reads {target} has ended: the backup is incomplete"
        ) from None
    except OSError as error:
        if error.filename is not None:
            raise
        raise SettingsError(f"Cannot write the backup to {target}: {error.strerror}") from None


# --- contents -----------------------------------------------------------------------------------


def _write(
    settings: Settings,
    output: Output,
    temporary: Path,
    with_key: bool,
    progress: StartProgress,
) -> Manifest:
    database = temporary / archive.DATABASE
    with _sqlite_errors(settings.sqlite_file, temporary.parent):
        keys = _copy(settings, database, with_key, progress)
        return _write_archive(settings, output, database, keys, progress)


@contextmanager
def _sqlite_errors(source: Path, folder: Path) -> Iterator[None]:
    try:
        yield
    except apsw.BusyError:
        raise SettingsError(
            f"Another program has locked {source}: run the backup again when it has ended"
        ) from None
    except DAMAGED_ERRORS:
        raise SettingsError(f"The database {source} is damaged: {RESTORE_BACKUP}") from None
    except apsw.Error as error:
        advice = "May this user read the database?"
        if is_disk_full(error):
            advice = "Free some space, or write the backup to another disk"
        raise SettingsError(f"Cannot copy {source} to {folder}: {error}. {advice}") from None


def _copy(settings: Settings, database: Path, with_key: bool, progress: StartProgress) -> str:
    """Copy the database, and return the text of the secret keys if they are requested."""
    before = _read_keys(settings) if with_key else []
    copy_database(settings.sqlite_file, database, progress)
    _check_integrity(settings.sqlite_file, database)
    if not with_key:
        return ""
    # A rotation may have started or ended during the copy: then both sets of keys are needed.
    keys = list(dict.fromkeys([*_read_keys(settings), *before]))
    with closing(Snapshot(database)) as snapshot:
        _check_keys(keys, snapshot.key_fingerprint())
    return "".join(base64.b64encode(key).decode() + "\n" for key in keys)


def _check_integrity(source: Path, database: Path) -> None:
    """Reject a copy that a restore would reject, while earlier backups still exist."""
    with closing(Snapshot(database)) as snapshot:
        error = snapshot.integrity_error()
    if error is not None:
        raise SettingsError(
            f"{source} is damaged, and a backup of it could not be restored: {error}. Keep the "
            "earlier backups, and restore one of them"
        )


def _read_keys(settings: Settings) -> Sequence[bytes]:
    if settings.secret_key is not None:
        return keys_from_text(settings.secret_key)
    return KeyFile(settings.key_file).read()


def _check_keys(keys: Sequence[bytes], active_key: str) -> None:
    """Reject the keys of another database, which would be noticed only at a restore."""
    if active_key and active_key not in {fingerprint(key).hex() for key in keys}:
        raise SettingsError(
            f"The secret key {active_key}, which encrypts the values of this database, is not "
            "available: give the service's GLEANERY_SECRET_KEY or secret.key"
        )


def _write_archive(
    settings: Settings, output: Output, database: Path, keys: str, progress: StartProgress
) -> Manifest:
    with closing(Snapshot(database)) as snapshot:
        files, lost = _add_blobs(output, snapshot, settings.blobs_folder, progress)
        active_key = snapshot.key_fingerprint()
    if keys:
        archive.add_bytes(output, archive.KEYS, keys.encode())
    with database.open("rb") as content:
        checksum = archive.add_file(output, archive.DATABASE, content).hex()
    manifest = Manifest(
        archive.FORMAT, __version__, timestamps.now(), checksum, files, lost, active_key
    )
    archive.add_bytes(output, archive.MANIFEST, _encode(manifest))
    archive.end(output)
    return manifest


def _encode(manifest: Manifest) -> bytes:
    content = msgspec.json.encode(manifest)
    if len(content) > archive.MAX_MANIFEST_BYTES:  # a restore would reject it
        raise SettingsError(
            f"{len(manifest.lost)} files are missing or damaged: give the location that the "
            "service uses with --blobs or GLEANERY_BLOBS"
        )
    return content


def _add_blobs(
    output: Output, snapshot: Snapshot, folder: Path | None, progress: StartProgress
) -> tuple[int | None, list[str]]:
    """Add the blobs that the copied database references; return their number and the lost ones.

    A blob that the service has removed since the copy was unreferenced, so it is also removed from
    the copy. A blob that becomes unreferenced now remains in the store for days.
    """
    if folder is None:
        return None, []
    blobs, lost, forgotten = snapshot.blobs(), list[str](), 0
    if blobs and not (folder.is_dir() and any(folder.iterdir())):
        raise SettingsError(
            f"None of {len(blobs)} files is in {folder.absolute()}: give the location that the "
            "service uses with --blobs or GLEANERY_BLOBS"
        )
    advance = progress("Copying files", len(blobs))
    for blob in blobs:
        try:
            with (folder / blob.key).open("rb") as content:
                name = archive.BLOB_PREFIX + blob.key
                if archive.add_file(output, name, content) != blob.checksum:
                    lost.append(blob.key)
        except FileNotFoundError:
            if snapshot.delete_if_unreferenced(blob):
                forgotten += 1
            else:
                lost.append(blob.key)
        advance(1)
    return len(blobs) - forgotten - len(lost), lost


# --- snapshots ----------------------------------------------------------------------------------


class BlobRecord(NamedTuple):
    """A blob that the database refers to, and the checksum of its bytes."""

    organization_id: int
    checksum: bytes
    key: str


def copy_database(source: Path, target: Path, progress: StartProgress) -> None:
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
