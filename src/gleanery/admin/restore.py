"""Restore of a backup, completely or not at all."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import tarfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from gleanery.admin import archive
from gleanery.errors import SettingsError
from gleanery.folders import create_private
from gleanery.observability.progress import StartProgress
from gleanery.settings import Settings
from gleanery.storage.engines import open_engine
from gleanery.storage.maintenance import restore as restored_database
from gleanery.storage.maintenance.snapshots import Snapshot
from gleanery.storage.sqlite.connections import RESTORE_FOLDER, lock_folder
from gleanery.values import timestamps

Manifest = dict[str, Any]


class Restored(NamedTuple):
    """Result of a restore."""

    outputs: int
    files: int | None
    lost: list[str]
    key: str
    has_key: bool


def restore(settings: Settings, path: Path, progress: StartProgress) -> Restored:
    """Restore a backup into a data folder without a database."""
    path.open("rb").close()  # nothing changes if there is no such file
    create_private(settings.data)
    staging = _StagingArea(settings)
    with _exclusive(settings.data):
        staging.check_target()
        try:
            outputs, manifest = _restore(settings, path, staging, progress)
        except SettingsError:  # the backup is rejected, and everything is as before
            staging.remove()
            raise
        except BaseException:  # the folder stays, so that no service starts without the data
            staging.clear()
            raise
        staging.remove()
    return Restored(
        outputs, manifest["files"], manifest["lost"], manifest["key"], settings.has_secret_key
    )


def _restore(
    settings: Settings, path: Path, staging: _StagingArea, progress: StartProgress
) -> tuple[int, Manifest]:
    """Prepare and publish the restore; return the number of outputs and the manifest."""
    staging.create()
    manifest = _unpack(path, staging, progress)
    if manifest["files"] and settings.blobs_folder is None:
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
            and self._publishing.read_text() == str(self._target_blobs.absolute())
        )

    def create(self) -> None:
        """Create the folders. From now until ``remove``, no service uses the data folder."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        archive.sync_folder(self._target.data)
        self.clear()  # leftover of a restore that was killed
        self._created_target_blobs = not self._target_blobs.exists()
        for folder in (self._folder, self._target_blobs, self.blobs):
            create_private(folder)

    def publish(self) -> None:
        """Publish all files by renames. The database is last: it makes the restore visible."""
        self._publish_key()
        self._publishing.write_text(str(self._target_blobs.absolute()))
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
        if target.exists() and target.read_text() != self.key.read_text():
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


def _unpack(path: Path, staging: _StagingArea, progress: StartProgress) -> Manifest:
    """Extract the known members of a backup, and return its manifest."""
    try:
        manifest = _extract_members(path, staging, progress)
    except (tarfile.TarError, EOFError, ValueError) as error:
        raise _damaged(path, str(error)) from None
    if manifest is None:
        raise _damaged(path, "its end is missing")
    if manifest.get("format") != archive.FORMAT:
        raise SettingsError(f"{path} was made by a newer version of Gleanery: upgrade first")
    if archive.checksum(staging.database) != manifest["database"]:
        raise _damaged(path, "the checksum of the database is wrong")
    if manifest["made"] > timestamps.now():
        raise SettingsError("The backup is from the future: correct the clock of this machine")
    return manifest


def _extract_members(path: Path, staging: _StagingArea, progress: StartProgress) -> Manifest | None:
    advance, position = progress("Unpacking", path.stat().st_size), 0
    manifest = None
    with path.open("rb") as file, archive.open_for_reading(file) as tar:
        for member in tar:
            content = tar.extractfile(member)
            if content is not None and member.name == archive.MANIFEST:
                manifest = _read_manifest(content)
            elif content is not None:
                _extract(content, staging, member.name)
            archive.clear_members(tar)
            advance(file.tell() - position)
            position = file.tell()
    return manifest


def _read_manifest(content: Any) -> Manifest:
    manifest = json.load(content)
    if not isinstance(manifest, dict):
        raise ValueError("its manifest is not an object")
    is_known = manifest.get("format") == archive.FORMAT
    if is_known and not manifest.keys() >= archive.MANIFEST_MEMBERS:
        raise ValueError("its manifest is incomplete")
    return manifest


def _extract(content: Any, staging: _StagingArea, name: str) -> None:
    blob = archive.BLOB.fullmatch(name)
    if blob is not None:
        target = staging.blobs / blob[1]
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    elif name in (archive.DATABASE, archive.KEYS):
        target = staging.database if name == archive.DATABASE else staging.key
    else:
        raise ValueError(f"{name} is not a member of a backup")
    with open(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        shutil.copyfileobj(content, file, archive.READ_BYTES)


# --- verification -------------------------------------------------------------------------------


def _verify(staging: _StagingArea, manifest: Manifest, progress: StartProgress) -> None:
    """Check the database, and the checksum of every blob that it references."""
    try:
        with closing(Snapshot(staging.database)) as snapshot:
            fault, blobs = snapshot.integrity_error(), snapshot.blobs()
    except apsw.Error as error:
        fault, blobs = str(error), []
    if fault is not None:
        raise _damaged(staging.database, fault)
    if manifest["files"] is None:
        return
    advance, lost = progress("Checking files", len(blobs)), set(manifest["lost"])
    for blob in blobs:
        path = staging.blobs / blob.key
        if blob.key not in lost and archive.checksum(path) != blob.checksum.hex():
            raise _damaged(path, "its checksum is wrong")
        advance(1)


async def _finish_database(settings: Settings, progress: StartProgress) -> int:
    """Migrate the restored database and make clients sync again; return the number of outputs."""
    async with open_engine(settings) as database:
        await database.migrate()
        outputs = await restored_database.complete_restore(database, timestamps.now, progress)
    Snapshot(settings.sqlite_file).close()
    return outputs


def _damaged(path: Path, reason: str) -> SettingsError:
    return SettingsError(f"{path} is not a complete backup, or is damaged: {reason}")
