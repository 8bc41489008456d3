"""The spool: batches on disk that could not be sent, in their order.

A run has a folder of its own, which it locks. The next run takes the folders of ended runs.
"""

from __future__ import annotations

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

_LOCK = "lock"
_SUFFIX = ".jsonl"
_UNFINISHED = ".tmp"


class SpooledBatch(NamedTuple):
    """Batch on disk. Its name is the time at which it was written."""

    path: Path

    def read(self) -> list[bytes]:
        return self.path.read_bytes().splitlines()


def spool_folder(folder: Path, *target: str) -> Path:
    """Return the folder for items of one target: a service, a group and a job."""
    digest = sha256("\0".join(target).encode()).hexdigest()[:12]
    name = "".join(c if c.isalnum() or c in "-_." else "_" for c in target[-1])[:60]
    return folder / f"{name}-{digest}"


class Spool:
    """Batches on disk, oldest first."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = threading.Lock()
        self._locked: list[BinaryIO] = []
        self._own: Path | None = None
        self._batches: deque[SpooledBatch] = deque()
        self._last = 0
        self._take_earlier()

    def __len__(self) -> int:
        return len(self._batches)

    def first(self) -> SpooledBatch:
        return self._batches[0]

    def append(self, lines: Iterable[bytes]) -> None:
        """Write a batch. It is on the disk, or not there at all. Raise OSError if it fails."""
        with self._lock:
            own = self._own or self._create_folder()
            self._last = max(time.time_ns(), self._last + 1)
            path = own / f"{self._last:020}{_SUFFIX}"
            _write(path, b"\n".join(lines))
            self._batches.append(SpooledBatch(path))

    def remove_first(self) -> None:
        """Remove the first batch, because it is stored."""
        with self._lock:
            self._batches.popleft().path.unlink(missing_ok=True)

    def close(self) -> None:
        """Unlock the folders, and remove the empty ones."""
        for lock in self._locked:
            folder = Path(lock.name).parent
            for unfinished in folder.glob(f"*{_UNFINISHED}"):  # of a run that was killed
                unfinished.unlink(missing_ok=True)
            if not any(folder.glob(f"*{_SUFFIX}")):
                Path(lock.name).unlink(missing_ok=True)
                _remove_folder(folder)
            lock.close()
        self._locked.clear()
        _remove_folder(self.folder)

    def _take_earlier(self) -> None:
        folders = sorted(self.folder.iterdir()) if self.folder.is_dir() else []
        paths = [
            path
            for folder in folders
            if folder.is_dir() and self._try_lock(folder)
            for path in folder.glob(f"*{_SUFFIX}")
            if path.stem.isdecimal()
        ]
        for path in sorted(paths, key=lambda path: path.name):
            self._batches.append(SpooledBatch(path))
            self._last = int(path.stem)

    def _create_folder(self) -> Path:
        folder = self.folder / f"{time.time_ns():020}-{os.getpid()}"
        folder.mkdir(mode=0o700, parents=True)
        self._try_lock(folder)
        self._own = folder
        return folder

    def _try_lock(self, folder: Path) -> bool:
        """Lock a folder. Return False if the run of this folder has not ended."""
        try:
            file = (folder / _LOCK).open("ab")
        except FileNotFoundError:  # its run has just ended, and has removed it
            return False
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                file.close()
                return False
        self._locked.append(file)
        return True


def _write(path: Path, content: bytes) -> None:
    temporary = path.with_suffix(_UNFINISHED)
    try:
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def _remove_folder(folder: Path) -> None:
    with suppress(OSError):  # it is missing, or has files of another run
        folder.rmdir()
