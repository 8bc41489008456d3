"""Backups of a SQLite database and its blobs, made while the service runs."""

from __future__ import annotations

import json
import os
import tarfile
from contextlib import ExitStack, closing
from pathlib import Path
from typing import BinaryIO, NamedTuple

import apsw

from gleanery import __version__
from gleanery.admin import archive
from gleanery.errors import SettingsError
from gleanery.observability.progress import StartProgress
from gleanery.security.key_files import fingerprint, keys_from_text
from gleanery.settings import Settings
from gleanery.storage.maintenance import snapshots
from gleanery.storage.maintenance.snapshots import Snapshot
from gleanery.values import timestamps


class Backup(NamedTuple):
    """Contents of a backup."""

    files: int | None
    """None if the blobs are in a bucket, which keeps its own copies."""
    lost: list[str]
    """Keys of blobs that files need, but that are missing or damaged."""
    key: str
    """Fingerprint of the active key."""


def create(settings: Settings, path: Path, with_key: bool, progress: StartProgress) -> Backup:
    """Write a backup of the data that is committed at this moment."""
    if path.exists():
        raise SettingsError(f"{path} already exists: choose another name")
    if not path.absolute().parent.is_dir():
        # Not created: it may be the mount point of a disk that is not there.
        raise SettingsError(
            f"The folder {path.absolute().parent} does not exist: create it, or mount its disk"
        )
    partial = path.with_name(f"{path.name}.partial")
    database = path.with_name(f"{path.name}.database")
    with ExitStack() as stack:
        for file in (partial, database):
            file.unlink(missing_ok=True)
            file.touch(mode=0o600, exist_ok=False)  # private, even in a world-readable folder
            stack.callback(file.unlink, missing_ok=True)
        keys = _copy(settings, database, with_key, progress)
        result = _write(settings, partial, database, keys, progress)
        partial.rename(path)
        archive.sync_folder(path.absolute().parent)
    return result


def _copy(settings: Settings, database: Path, with_key: bool, progress: StartProgress) -> str:
    """Copy the database, and return the text of the secret keys if they are requested."""
    before = _key_text(settings) if with_key else ""
    active_key = _copy_database(settings.sqlite_file, database, progress)
    if not with_key:
        return ""
    # A rotation may have started or ended during the copy: then both sets of keys are needed.
    lines = (_key_text(settings) + before).splitlines(keepends=True)
    keys = "".join(dict.fromkeys(lines))
    _check_keys(keys, active_key)
    return keys


def _copy_database(source: Path, to: Path, progress: StartProgress) -> str:
    """Copy the database, and return the fingerprint of its active key."""
    try:
        snapshots.create(source, to, progress)
        with closing(Snapshot(to)) as copy:
            return copy.key_fingerprint()
    except apsw.Error as error:
        raise SettingsError(
            f"Cannot copy {source} to {to.absolute().parent}: {type(error).__name__}, {error}. "
            "Is there space for a second copy, and may this user read the database?"
        ) from None


def _key_text(settings: Settings) -> str:
    text = settings.secret_key or settings.key_file.read_text()
    return "".join(f"{key}\n" for key in text.split())


def _check_keys(keys: str, active_key: str) -> None:
    """Reject the keys of another database, which would be noticed only at a restore."""
    if active_key and active_key not in {fingerprint(key).hex() for key in keys_from_text(keys)}:
        raise SettingsError(
            f"The secret key {active_key}, which encrypts the values of this database, is not "
            "available: give the service's GLEANERY_SECRET_KEY or secret.key"
        )


def _write(
    settings: Settings, partial: Path, database: Path, keys: str, progress: StartProgress
) -> Backup:
    with partial.open("wb") as file:
        result = _write_archive(settings, file, database, keys, progress)
        file.flush()
        os.fsync(file.fileno())
    return result


def _write_archive(
    settings: Settings, file: BinaryIO, database: Path, keys: str, progress: StartProgress
) -> Backup:
    with archive.open_for_writing(file) as tar:
        with closing(Snapshot(database)) as snapshot:
            result = _add_blobs(tar, snapshot, settings.blobs_folder, progress)
        if keys:
            archive.add_text(tar, archive.KEYS, keys)
        with database.open("rb") as content:
            checksum = archive.add_file(tar, archive.DATABASE, content)
        archive.add_text(tar, archive.MANIFEST, _manifest(result, checksum))
    return result


def _manifest(result: Backup, database_checksum: bytes) -> str:
    program = {"format": archive.FORMAT, "program": __version__, "made": timestamps.now()}
    return json.dumps({**program, "database": database_checksum.hex(), **result._asdict()})


def _add_blobs(
    tar: tarfile.TarFile, snapshot: Snapshot, folder: Path | None, progress: StartProgress
) -> Backup:
    """Add the blobs that the copied database references.

    A blob that the service has removed since the copy was unreferenced, so it is also removed from
    the copy. A blob that becomes unreferenced now remains in the store for days.
    """
    if folder is None:
        return Backup(None, [], snapshot.key_fingerprint())
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
                if archive.add_file(tar, f"blobs/{blob.key}", content) != blob.checksum:
                    lost.append(blob.key)
        except FileNotFoundError:
            if snapshot.delete_if_unreferenced(blob):
                forgotten += 1
            else:
                lost.append(blob.key)
        advance(1)
    return Backup(len(blobs) - forgotten - len(lost), lost, snapshot.key_fingerprint())
