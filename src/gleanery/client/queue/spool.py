"""The spool: batches on disk that could not be sent, in their order.

Each run has a folder, and a locked file next to it. The next run takes the folders of ended runs.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO, NamedTuple

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

logger = logging.getLogger(__name__)

_LOCK = ".lock"
_BATCH = ".jsonl"
_UNFINISHED = ".tmp"
_UNREADABLE = ".bad"


class _LockedFolder(NamedTuple):
    """Folder of a run, and the file that keeps it for this process."""

    folder: Path
    lock: BinaryIO


def spool_folder(folder: Path, *target: str) -> Path:
    """Return the folder for items of one target: a service, a group and a job."""
    digest = sha256("\0".join(target).encode()).hexdigest()[:12]
    name = "".join(c if c.isalnum() or c in "-_." else "_" for c in target[-1])[:60]
    return folder / f"{name}-{digest}"


class Spool:
    """Batches on disk, oldest first. The name of each is the time at which it was written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._writing = threading.Lock()
        self._locked: list[_LockedFolder] = []
        self._own: Path | None = None
        self._batches: deque[Path] = deque()
        self._counts: dict[Path, int] = {}
        """Number of items in each batch of this run."""
        self.earlier = 0
        """Number of batches that are left of earlier runs. They are the first ones."""
        self._last = 0
        self._take_earlier()

    def __len__(self) -> int:
        return len(self._batches)

    def items(self) -> int:
        """Return the number of items. It reads batches of earlier runs, so it is for the end."""
        return sum(self._counts.get(path) or _count_lines(path) for path in self._batches)

    def count_first(self) -> int:
        """Return the number of items in the first batch; 0 if it is left of an earlier run."""
        return self._counts.get(self._batches[0], 0)

    def read_first(self) -> list[bytes] | None:
        """Return the lines of the first batch; None if it cannot be read, and is left out."""
        path = self._batches[0]
        try:
            return path.read_bytes().splitlines()
        except OSError as error:
            self._leave_out(path, error)
            return None

    def remove_first(self) -> None:
        """Remove the first batch, because it is stored."""
        with self._writing:
            self._take_first().unlink(missing_ok=True)

    def append(self, lines: Iterable[bytes]) -> None:
        """Write a batch. It is on the disk, or not there at all. Raise OSError if it fails."""
        entries = [*lines]
        with self._writing:
            try:
                self._append(entries)
            except FileNotFoundError:  # somebody has removed the folder of this run
                self._own = None
                self._append(entries)

    def close(self) -> None:
        """Unlock the folders, and remove the empty ones."""
        for folder, lock in self._locked:
            for unfinished in folder.glob(f"*{_UNFINISHED}"):  # of a run that was killed
                unfinished.unlink(missing_ok=True)
            is_removed = _remove_folder(folder)
            lock.close()  # first, because Windows removes no open file
            if is_removed:
                Path(lock.name).unlink(missing_ok=True)
        self._locked.clear()
        _remove_folder(self.folder)

    def _append(self, lines: list[bytes]) -> None:
        own = self._own or self._create_folder()
        self._last = max(time.time_ns(), self._last + 1)
        path = own / f"{self._last:020}{_BATCH}"
        _write(path, b"\n".join(lines))
        self._counts[path] = len(lines)
        self._batches.append(path)

    def _leave_out(self, path: Path, error: OSError) -> None:
        """Go on with the next batch. Otherwise this one would stop all others for ever."""
        aside = path.with_suffix(_UNREADABLE)
        with suppress(OSError):
            path.rename(aside)
        logger.error(
            "Items in %s cannot be read: %s. If you can repair the file, name it %s again, and "
            "the next run sends it",
            aside,
            error,
            path.name,
        )
        self._take_first()

    def _take_first(self) -> Path:
        self.earlier = max(self.earlier - 1, 0)
        path = self._batches.popleft()
        self._counts.pop(path, None)
        return path

    def _take_earlier(self) -> None:
        paths = [
            path
            for folder in _list(self.folder)
            if folder.is_dir() and self._try_lock(folder)
            for path in folder.glob(f"*{_BATCH}")
            if path.stem.isdecimal()
        ]
        self._batches.extend(sorted(paths, key=lambda path: path.name))
        self.earlier = len(self._batches)
        if self._batches:
            self._last = int(self._batches[-1].stem)

    def _create_folder(self) -> Path:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = self.folder / f"{time.time_ns():020}-{os.getpid()}"
        lock = _lock(folder)  # before there is a folder that another run can take
        if lock is None:
            raise OSError(f"{folder} belongs to another run")
        folder.mkdir(mode=0o700)
        _sync_folder(self.folder)
        self._locked.append(_LockedFolder(folder, lock))
        self._own = folder
        return folder

    def _try_lock(self, folder: Path) -> bool:
        """Lock a folder. Return False if its run has not ended, or has removed it."""
        try:
            lock = _lock(folder)
        except FileNotFoundError:
            return False
        if lock is None:
            return False
        if not folder.is_dir():
            lock.close()
            Path(lock.name).unlink(missing_ok=True)
            return False
        self._locked.append(_LockedFolder(folder, lock))
        return True


def _list(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _count_lines(path: Path) -> int:
    try:
        return len(path.read_bytes().splitlines())
    except OSError:  # the next run leaves it out, and says so
        return 0


def _lock(folder: Path) -> BinaryIO | None:
    """Return the locked file of a folder, or None if another run has locked it."""
    path = folder.with_name(f"{folder.name}{_LOCK}")
    file = path.open("ab")
    if fcntl is not None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return None
    if not _is_file(file, path):  # another run has locked and removed it since it was opened
        file.close()
        return None
    return file


def _is_file(file: BinaryIO, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _write(path: Path, content: bytes) -> None:
    temporary = path.with_suffix(_UNFINISHED)
    try:
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        _sync_folder(path.parent)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def _sync_folder(folder: Path) -> None:
    """Write the names in a folder to the disk, so that a new file survives a power failure."""
    if not hasattr(os, "O_DIRECTORY"):  # Windows
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove_folder(folder: Path) -> bool:
    """Remove an empty folder. Return False if it has files."""
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
