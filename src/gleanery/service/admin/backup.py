"""Backups of a SQLite database and its blobs, made while the service runs."""

from __future__ import annotations

import base64
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

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
from gleanery.service.maintenance import snapshots
from gleanery.service.maintenance.snapshots import Snapshot
from gleanery.service.storage.sqlite.connections import DAMAGED_ERRORS, RESTORE_BACKUP, is_disk_full

_TEMPORARY_PREFIX, _TEMPORARY_SUFFIX = "gleanery-backup-", ".partial"


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
    snapshots.create(settings.sqlite_file, database, progress)
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
