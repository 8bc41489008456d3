"""Backups of the embedded database: one file with a copy of it and of the bytes of its files.

The file is a tar archive: the bytes of files under their keys, the secret keys if they are asked
for, the database, and at last a manifest, without which it is not whole. The database itself holds
the checksums of files, the manifest that of the database.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import os
import re
import shutil
import tarfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import apsw

from gleanery import __version__
from gleanery.errors import SettingsError
from gleanery.observability.progress import Begin
from gleanery.security.key_files import fingerprint, keys_from_text
from gleanery.settings import Settings
from gleanery.storage.engines import opened
from gleanery.storage.maintenance import restore as restore_steps
from gleanery.storage.maintenance import snapshots
from gleanery.storage.maintenance.snapshots import Snapshot
from gleanery.storage.sqlite.database import hold_folder
from gleanery.values import timestamps

_FORMAT = 1
_READ_BYTES = 1024 * 1024
_BUFFERS: Any = {"bufsize": _READ_BYTES, "copybufsize": _READ_BYTES}
_DATABASE, _KEY, _MANIFEST = "gleanery.sqlite", "secret.key", "manifest.json"
_TOLD = {"made", "database", "files", "lost", "key"}
_BLOB = re.compile(r"blobs/([0-9]+/[0-9a-f]{2}/[0-9a-f]{32})")


class _Hashed:
    """A file that is hashed as it is read."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._hash = file, hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        piece = self._file.read(size)
        self._hash.update(piece)
        return piece

    @property
    def checksum(self) -> bytes:
        return self._hash.digest()


# --- making -------------------------------------------------------------------------------------


class Made(NamedTuple):
    """What is in a backup."""

    files: int | None
    """None if they are in a bucket, which keeps its own copies."""
    lost: list[str]
    """Keys of blobs that the store has lost or damaged, though files need them."""
    key: str
    """The fingerprint of the key without which session values are lost."""


def make(settings: Settings, path: Path, with_key: bool, begin: Begin) -> Made:
    """Writes a backup of what is committed at this moment; the service may go on."""
    if path.exists():
        raise SettingsError(f"{path} is already there: choose another name")
    draft, copied = path.with_name(f"{path.name}.partial"), path.with_name(f"{path.name}.database")
    with ExitStack() as stack:
        for one in (draft, copied):
            one.unlink(missing_ok=True)
            one.touch(mode=0o600, exist_ok=False)  # nobody else's, though all may write here
            stack.callback(one.unlink, missing_ok=True)
        keys = _key_lines(settings) if with_key else ""
        name = _copy(settings.sqlite_file, copied, begin)
        if with_key:  # a change of keys may have begun or ended meanwhile: then both are needed
            keys = "".join(dict.fromkeys((_key_lines(settings) + keys).splitlines(keepends=True)))
            _check_keys(keys, name)
        with draft.open("wb") as file:
            made = _write(settings, file, copied, keys, begin)
            file.flush()
            os.fsync(file.fileno())
        draft.rename(path)
        _sync_folder(path.absolute().parent)
    return made


def _copy(database: Path, to: Path, begin: Begin) -> str:
    """The fingerprint of the key that encrypts in what was copied."""
    try:
        snapshots.take(database, to, begin)
        with closing(Snapshot(to)) as copy:
            return copy.key()
    except apsw.Error as error:
        raise SettingsError(
            f"Can't copy {database} to {to.absolute().parent}: {type(error).__name__}, {error}; "
            "is there room for it twice, and may this user read it?"
        ) from None


def _key_lines(settings: Settings) -> str:
    text = settings.secret_key or settings.key_file.read_text()
    return "".join(f"{key}\n" for key in text.split())


def _check_keys(lines: str, sealing: str) -> None:
    """A backup with the key of another database would be found out on the day it is needed."""
    if sealing and sealing not in {fingerprint(key).hex() for key in keys_from_text(lines)}:
        raise SettingsError(
            f"The secret key at hand is not {sealing}, with which this database's values are "
            "encrypted: give the GLEANERY_SECRET_KEY that the service has, or the right secret.key"
        )


def _write(settings: Settings, file: BinaryIO, copied: Path, keys: str, begin: Begin) -> Made:
    with tarfile.open(fileobj=file, mode="w|", **_BUFFERS) as archive:
        with closing(Snapshot(copied)) as copy:
            made = _add_blobs(archive, copy, settings.blobs_folder, begin)
        if keys:
            _add_text(archive, _KEY, keys)
        with copied.open("rb") as database:
            checksum = _add_file(archive, _DATABASE, database)
        about = {"format": _FORMAT, "program": __version__, "made": timestamps.now()}
        manifest = {**about, "database": checksum.hex(), **made._asdict()}
        _add_text(archive, _MANIFEST, json.dumps(manifest))
    return made


def _add_blobs(archive: tarfile.TarFile, copy: Snapshot, folder: Path | None, begin: Begin) -> Made:
    """Adds the bytes that the copied database names.

    What the service has removed since, because no output named it, the copy forgets, too. What an
    output drops now is kept for days.
    """
    if folder is None:
        return Made(None, [], copy.key())
    named, lost, collected = copy.blobs(), list[str](), 0
    if named and not (folder.is_dir() and any(folder.iterdir())):
        raise SettingsError(
            f"None of {len(named)} files is in {folder.absolute()}: give --blobs (or "
            "GLEANERY_BLOBS) the place that serve uses"
        )
    tell = begin("Copying files", len(named))
    for blob in named:
        try:
            with (folder / blob.key).open("rb") as content:
                if _add_file(archive, f"blobs/{blob.key}", content) != blob.checksum:
                    lost.append(blob.key)
        except FileNotFoundError:
            if copy.forget_if_unnamed(blob):
                collected += 1
            else:
                lost.append(blob.key)
        tell(1)
    return Made(len(named) - collected - len(lost), lost, copy.key())


def _add_file(archive: tarfile.TarFile, name: str, file: BinaryIO) -> bytes:
    """The checksum of what was added."""
    about = _about(name, os.fstat(file.fileno()).st_size)
    hashed = _Hashed(file)
    archive.addfile(about, hashed)
    _forget_members(archive)
    return hashed.checksum


def _forget_members(archive: Any) -> None:
    """An archive remembers all that it has met: there may be millions."""
    archive.members.clear()


def _add_text(archive: tarfile.TarFile, name: str, text: str) -> None:
    archive.addfile(_about(name, len(text.encode())), io.BytesIO(text.encode()))


def _about(name: str, size: int) -> tarfile.TarInfo:
    about = tarfile.TarInfo(name)
    about.size, about.mode, about.mtime = size, 0o600, timestamps.now() // timestamps.SECOND
    return about


# --- restoring ----------------------------------------------------------------------------------


class Restored(NamedTuple):
    """What a restore has come to."""

    outputs: int
    files: int | None
    lost: list[str]
    key: str
    has_key: bool


def restore(settings: Settings, path: Path, begin: Begin) -> Restored:
    """Puts a backup in place as a whole, or nothing of it."""
    settings.data.mkdir(mode=0o700, parents=True, exist_ok=True)
    drafts = _Drafts(settings)
    with _held(settings.data):
        drafts.refuse_what_is_there()
        try:
            drafts.make()
            manifest = _unpack(path, drafts, begin)
            if manifest["files"] and settings.blobs_folder is None:
                raise SettingsError("The files of this backup go into a folder: give --blobs one")
            _check(drafts, manifest, begin)
            sent = asyncio.run(_begin_anew(drafts.settings, begin))
            drafts.put_in_place()
        finally:
            drafts.remove()
    has_key = settings.secret_key is not None or settings.key_file.exists()
    return Restored(sent, manifest["files"], manifest["lost"], manifest["key"], has_key)


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    descriptor = hold_folder(folder, alone=True)
    try:
        yield
    finally:
        os.close(descriptor)


class _Drafts:
    """Where a restore builds up what it then puts in place with a few renames.

    Each draft is in the folder that it is for, which may be a disk of its own.
    """

    def __init__(self, settings: Settings) -> None:
        self._to = settings
        self._folder = settings.data / "restoring"
        self.settings = Settings(data=self._folder)
        self.database, self.key = self.settings.sqlite_file, self.settings.key_file
        self._to_blobs = settings.blobs_folder or settings.data / "blobs"
        self.blobs = self._to_blobs / "restoring-files"
        self._placing = self._folder / "placing"  # where files are put, once that has begun
        self._made_folder = False

    def refuse_what_is_there(self) -> None:
        # A log that was left behind would be taken for the restored database's own.
        if any(self._to.data.glob(f"{self._to.sqlite_file.name}*")):
            raise SettingsError(
                f"There is a database in {self._to.data.absolute()}: give --data another folder, "
                f"or move that one away, with all files whose names begin with "
                f"{self._to.sqlite_file.name}"
            )
        if self._placed() and not self._are_half_placed():
            raise SettingsError(
                f"There are files in {self._to_blobs.absolute()}: move them away, or give --blobs "
                "another folder"
            )

    def _placed(self) -> list[Path]:
        if not self._to_blobs.is_dir():
            return []
        return [one for one in self._to_blobs.iterdir() if one != self.blobs]

    def _are_half_placed(self) -> bool:
        """A restore was killed between its renames, and before the last: the files are its own."""
        return (
            self.database.exists()
            and self._placing.exists()
            and self._placing.read_text() == str(self._to_blobs.absolute())
        )

    def make(self) -> None:
        self.remove()  # what a restore that was killed has left
        self._made_folder = not self._to_blobs.exists()
        for folder in (self._folder, self._to_blobs, self.blobs):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def put_in_place(self) -> None:
        """With the database last: before, nothing was restored."""
        if self.key.exists():
            if self._to.key_file.exists() and self._to.key_file.read_text() != self.key.read_text():
                raise SettingsError(
                    f"{self._to.key_file} is not the key of the backup: move it away"
                )
            self.key.replace(self._to.key_file)
        self._placing.write_text(str(self._to_blobs.absolute()))
        os.sync()
        for one in list(self.blobs.iterdir()):
            one.replace(self._to_blobs / one.name)
        for folder in (self._to_blobs, self._to_blobs.parent):
            _sync_folder(folder)
        self.database.replace(self._to.sqlite_file)
        _sync_folder(self._to.data)

    def remove(self) -> None:
        """Everything but what is in place as a whole."""
        half_placed = self._placed() if self._are_half_placed() else []
        for folder in (*half_placed, self._folder, self.blobs):
            shutil.rmtree(folder, ignore_errors=True)
        if self._made_folder:
            with suppress(OSError):  # it holds what is in place
                self._to_blobs.rmdir()


def _unpack(path: Path, drafts: _Drafts, begin: Begin) -> dict[str, Any]:
    """Takes out what a backup may hold and nothing else; gives its manifest."""
    tell, place = begin("Unpacking", path.stat().st_size), 0
    manifest: dict[str, Any] | None = None
    try:
        with path.open("rb") as file, tarfile.open(fileobj=file, mode="r|", **_BUFFERS) as archive:
            for about in archive:
                content = archive.extractfile(about)
                if content is not None and about.name == _MANIFEST:
                    manifest = _manifest(content)
                elif content is not None:
                    _take_out(content, drafts, about.name)
                _forget_members(archive)
                tell(file.tell() - place)
                place = file.tell()
    except (tarfile.TarError, EOFError, ValueError) as error:
        raise _damaged(path, str(error)) from None
    if manifest is None:
        raise _damaged(path, "its end is missing")
    if manifest.get("format") != _FORMAT:
        raise SettingsError(f"{path} was made by a newer Gleanery: upgrade the program")
    if _checksum(drafts.database) != manifest["database"]:
        raise _damaged(path, "the checksum of the database is another")
    if manifest["made"] > timestamps.now():
        raise SettingsError(
            "By this machine's clock the backup is yet to be made: set the clock right first"
        )
    return manifest


def _manifest(content: Any) -> dict[str, Any]:
    manifest = json.load(content)
    if not isinstance(manifest, dict):
        raise ValueError("its manifest is none")
    if manifest.get("format") == _FORMAT and not manifest.keys() >= _TOLD:
        raise ValueError("its manifest lacks something")
    return manifest


def _take_out(content: Any, drafts: _Drafts, name: str) -> None:
    blob = _BLOB.fullmatch(name)
    if blob is not None:
        to = drafts.blobs / blob[1]
        to.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    elif name in (_DATABASE, _KEY):
        to = drafts.database if name == _DATABASE else drafts.key
    else:
        raise ValueError(f"{name} does not belong there")
    with open(os.open(to, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        shutil.copyfileobj(content, file, _READ_BYTES)


def _check(drafts: _Drafts, manifest: dict[str, Any], begin: Begin) -> None:
    """The database is sound, and every file that it names is there with the right bytes."""
    try:
        with closing(Snapshot(drafts.database)) as copy:
            fault, named = copy.fault(), copy.blobs()
    except apsw.Error as error:
        fault, named = str(error), []
    if fault is not None:
        raise _damaged(drafts.database, fault)
    if manifest["files"] is None:
        return
    tell, lost = begin("Checking files", len(named)), set(manifest["lost"])
    for blob in named:
        if blob.key not in lost and _checksum(drafts.blobs / blob.key) != blob.checksum.hex():
            raise _damaged(drafts.blobs / blob.key, "its checksum is another")
        tell(1)


async def _begin_anew(settings: Settings, begin: Begin) -> int:
    async with opened(settings) as database:
        await database.migrate()
        sent = await restore_steps.begin_anew(database, timestamps.now, begin)
    Snapshot(settings.sqlite_file).close()
    return sent


def _checksum(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return None


def _damaged(path: Path, why: str) -> SettingsError:
    return SettingsError(f"{path} is not a whole backup, or is damaged: {why}")


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
