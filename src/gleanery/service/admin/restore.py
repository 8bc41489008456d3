"""Restore of a backup, completely or not at all."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple

import apsw

from gleanery.common.errors import SettingsError
from gleanery.common.settings import Settings
from gleanery.service.admin import archive
from gleanery.service.admin.archive import DamagedArchive, Manifest, MemberReader
from gleanery.service.admin.backup import BlobRecord, Snapshot
from gleanery.service.foundation.errors import Unavailable
from gleanery.service.foundation.folders import create_private_folder
from gleanery.service.foundation.observability.progress import StartProgress
from gleanery.service.foundation.security.vault import fingerprint, keys_from_text
from gleanery.service.foundation.values import timestamps
from gleanery.service.maintenance import restore as restored_database
from gleanery.service.storage.engines import open_engine
from gleanery.service.storage.sqlite.connections import (
    RESTORE_FOLDER,
    TEMPORARY_ERRORS,
    lock_folder,
)


class Restored(NamedTuple):
    """Result of a restore."""

    outputs: int
    files: int | None
    lost: list[str]
    key: str
    has_key: bool


def restore(settings: Settings, file: BinaryIO, name: str, progress: StartProgress) -> Restored:
    """Restore a backup into a data folder without a database; messages call the backup ``name``."""
    new_folders = create_private_folder(settings.data)
    try:
        return _restore_into(settings, file, name, progress)
    except SettingsError:
        with suppress(OSError):  # a restore that did not end keeps its folder
            for folder in reversed(new_folders):
                folder.rmdir()
        raise


def _restore_into(
    settings: Settings, file: BinaryIO, name: str, progress: StartProgress
) -> Restored:
    """Restore into an existing folder."""
    staging = _StagingArea(settings)
    with _exclusive(settings.data), _clear_messages(settings.data, name):
        staging.check_target()
        try:
            outputs, manifest = _restore(settings, file, staging, progress)
        except (SettingsError, DamagedArchive):  # it is rejected, and everything is as before
            staging.remove()
            raise
        except BaseException:  # the folder stays, so that no service starts without the data
            staging.clear()
            raise
        staging.remove()
    return Restored(outputs, manifest.files, manifest.lost, manifest.key, settings.has_secret_key)


@contextmanager
def _clear_messages(folder: Path, name: str) -> Iterator[None]:
    """Say what to do after an error of the archive, the disk or SQLite."""
    try:
        yield
    except DamagedArchive as error:
        raise SettingsError(f"{name} is not a complete backup, or is damaged: {error}") from None
    except (OSError, Unavailable, *TEMPORARY_ERRORS) as error:
        raise SettingsError(
            f"Cannot restore into {folder.absolute()}: {error.__cause__ or error}. Correct the "
            "cause, and run gleanery restore again"
        ) from None


def _restore(
    settings: Settings, file: BinaryIO, staging: _StagingArea, progress: StartProgress
) -> tuple[int, Manifest]:
    """Prepare and publish the restore; return the number of outputs and the manifest."""
    staging.create()
    manifest = _unpack(file, staging, progress)
    if manifest.files and settings.blobs_folder is None:
        raise SettingsError("This backup contains files: give --blobs a folder")
    _verify(staging, manifest, progress)
    outputs = asyncio.run(_finish_database(staging.settings, progress))
    staging.publish()
    return outputs, manifest


@contextmanager
def _exclusive(folder: Path) -> Iterator[None]:
    """Hold the lock of a data folder, which a running service holds too."""
    descriptor = lock_folder(folder, exclusive=True)
    try:
        yield
    finally:
        os.close(descriptor)


# --- staging ------------------------------------------------------------------------------------


class _StagingArea:
    """Folders in which a restore is prepared, before a few renames publish it.

    Each staging folder is inside its target folder, which may be a separate disk.
    """

    def __init__(self, settings: Settings) -> None:
        self._target = settings
        self._folder = settings.data / RESTORE_FOLDER
        self.settings = Settings(data=self._folder)
        self.database, self.key = self.settings.sqlite_file, self.settings.key_file
        self._target_blobs = settings.blobs_folder or settings.data / "blobs"
        self.blobs = self._target_blobs / "restoring-files"
        self._publishing = self._folder / "placing"  # names the target folder of the blobs
        self._created_target_blobs = False

    def check_target(self) -> None:
        """Reject a target that already contains data."""
        # SQLite would apply an old -wal file to the restored database.
        if any(self._target.data.glob(f"{self._target.sqlite_file.name}*")):
            raise SettingsError(
                f"There is a database in {self._target.data.absolute()}: give --data another "
                "folder, or move that database away, with all files whose names start with "
                f"{self._target.sqlite_file.name}"
            )
        if self._published_blobs() and not self._is_half_published():
            raise SettingsError(
                f"There are files in {self._target_blobs.absolute()}: move them away, or give "
                "--blobs another folder"
            )

    def _published_blobs(self) -> list[Path]:
        if not self._target_blobs.is_dir():
            return []
        return [entry for entry in self._target_blobs.iterdir() if entry != self.blobs]

    def _is_half_published(self) -> bool:
        """Detect a restore that was killed between its renames: its blobs are already there."""
        return (
            self.database.exists()
            and self._publishing.exists()
            and self._publishing.read_bytes() == os.fsencode(self._target_blobs.absolute())
        )

    def create(self) -> None:
        """Create the folders. From now until ``remove``, no service uses the data folder."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        archive.sync_folder(self._target.data)
        self.clear()  # leftover of a restore that was killed
        self._created_target_blobs = not self._target_blobs.exists()
        for folder in (self._folder, self._target_blobs, self.blobs):
            create_private_folder(folder)

    def path_of(self, name: str) -> Path:
        """Return the path of a member of the archive; create the folder of a blob."""
        if name == archive.DATABASE:
            return self.database
        if name == archive.KEYS:
            return self.key
        key = name.removeprefix(archive.BLOB_PREFIX)
        if key == name or not archive.BLOB_KEY.fullmatch(key):
            raise DamagedArchive(f"{name!a} is not a member of a backup")
        target = self.blobs / key
        for folder in (target.parent.parent, target.parent):  # each one private, also the first
            folder.mkdir(mode=0o700, exist_ok=True)
        return target

    def publish(self) -> None:
        """Publish all files by renames. The database is last: it makes the restore visible."""
        self._publish_key()
        self._publishing.write_bytes(os.fsencode(self._target_blobs.absolute()))
        os.sync()
        for entry in list(self.blobs.iterdir()):
            entry.replace(self._target_blobs / entry.name)
        for folder in (self._target_blobs, self._target_blobs.parent):
            archive.sync_folder(folder)
        self.database.replace(self._target.sqlite_file)
        archive.sync_folder(self._target.data)

    def _publish_key(self) -> None:
        if not self.key.exists():
            return
        target = self._target.key_file
        if target.exists() and target.read_bytes() != self.key.read_bytes():
            raise SettingsError(f"{target} is not the key of the backup: move it away")
        self.key.replace(target)

    def clear(self) -> None:
        """Remove everything except a published restore and the staging folder itself."""
        half_published = self._published_blobs() if self._is_half_published() else []
        for folder in (*half_published, self.blobs):
            shutil.rmtree(folder, ignore_errors=True)
        for file in self._folder.iterdir() if self._folder.is_dir() else ():
            file.unlink()
        if self._created_target_blobs:
            with suppress(OSError):  # the folder contains the published blobs
                self._target_blobs.rmdir()

    def remove(self) -> None:
        """Remove everything except a published restore."""
        self.clear()
        shutil.rmtree(self._folder, ignore_errors=True)


# --- unpacking ----------------------------------------------------------------------------------


def _unpack(file: BinaryIO, staging: _StagingArea, progress: StartProgress) -> Manifest:
    """Extract the known members of a backup, and return its manifest."""
    try:
        manifest = _extract_members(file, staging, progress)
    except archive.NewerFormat:
        raise SettingsError(
            "The backup was made by a newer version of Gleanery: upgrade first"
        ) from None
    if manifest is None:
        raise DamagedArchive("its end is missing")
    if archive.checksum(staging.database) != manifest.database:
        raise DamagedArchive("the checksum of the database is wrong")
    if manifest.made > timestamps.now():
        raise SettingsError("The backup is from the future: correct the clock of this machine")
    return manifest


def _extract_members(
    file: BinaryIO, staging: _StagingArea, progress: StartProgress
) -> Manifest | None:
    advance = progress("Unpacking", os.fstat(file.fileno()).st_size)
    manifest = None
    for name, content in archive.read_members(file):
        if manifest is not None:
            raise DamagedArchive("it continues after its manifest")
        if name == archive.MANIFEST:
            manifest = archive.parse_manifest(content.read())
        else:
            _extract(content, staging.path_of(name))
        advance(content.size)
    return manifest


def _extract(content: MemberReader, target: Path) -> None:
    try:
        file = archive.create_private_file(target)
    except FileExistsError:
        raise DamagedArchive("it contains a member twice") from None
    with file:
        file.writelines(content.chunks())


# --- verification -------------------------------------------------------------------------------


def _verify(staging: _StagingArea, manifest: Manifest, progress: StartProgress) -> None:
    """Check the keys, the database, and the checksum of every blob that it references."""
    if staging.key.exists():
        _verify_keys(staging.key.read_bytes(), manifest.key)
    blobs = _verify_database(staging.database)
    if manifest.files is None:
        return
    advance, lost = progress("Checking files", len(blobs)), set(manifest.lost)
    for blob in blobs:
        _verify_blob(staging.blobs, blob, lost)
        advance(1)


def _verify_keys(text: bytes, active_key: str) -> None:
    try:
        names = {fingerprint(key).hex() for key in keys_from_text(text.decode("ascii"))}
    except (UnicodeDecodeError, SettingsError):
        names = set()
    if not names or (active_key and active_key not in names):
        raise DamagedArchive("its secret key is wrong")


def _verify_database(path: Path) -> list[BlobRecord]:
    """Check the database, and return its blobs."""
    with _sqlite_errors(), closing(Snapshot(path)) as snapshot:
        error = snapshot.integrity_error()
        if error is not None:
            raise DamagedArchive(f"its database is damaged: {error}")
        return snapshot.blobs()


@contextmanager
def _sqlite_errors() -> Iterator[None]:
    """Reject the database after an error of SQLite, unless the disk is the cause."""
    try:
        yield
    except TEMPORARY_ERRORS:
        raise
    except apsw.Error as error:
        raise DamagedArchive(f"its database is damaged: {error}") from None


def _verify_blob(folder: Path, blob: BlobRecord, lost: set[str]) -> None:
    is_valid = isinstance(blob.key, str) and isinstance(blob.checksum, bytes)
    if not (is_valid and archive.BLOB_KEY.fullmatch(blob.key)):
        raise DamagedArchive("its database contains an invalid blob")
    if blob.key not in lost and archive.checksum(folder / blob.key) != blob.checksum.hex():
        raise DamagedArchive(f"the checksum of the file {blob.key} is wrong")


async def _finish_database(settings: Settings, progress: StartProgress) -> int:
    """Migrate the restored database and make clients sync again; return the number of outputs."""
    with _sqlite_errors():
        async with open_engine(settings) as database:
            await database.migrate()
            outputs = await restored_database.complete_restore(database, timestamps.now, progress)
        Snapshot(settings.sqlite_file).close()
    return outputs
