"""Temporary files of exports: a lock marks those in use, and the next export deletes the others."""

from __future__ import annotations

import errno
import os
import re
import secrets
from contextlib import suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows: files of killed processes stay
    fcntl = None  # type: ignore[assignment]

_NAME_CHARACTERS = 50  # of the file's name in a temporary name; file systems allow 255 bytes
NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)
"""Errors of a file system without locks, such as some network drives."""
_END = re.compile(r"[0-9a-f]{12}\.part")


class TemporaryFile:
    """A file that this process uses, until it is released or deleted."""

    def __init__(self, path: Path, lock: int | None) -> None:
        self.path = path
        self._lock = lock

    def release(self) -> None:
        """End the lock. The file has got its name, or is deleted."""
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)

    def delete(self) -> None:
        with suppress(OSError):
            self.path.unlink(missing_ok=True)
        self.release()


def create_file(folder: Path, name: str, mode: int = 0o666) -> TemporaryFile:
    """Create an empty file beside the one that gets its content."""
    while True:
        path = folder / f"{_start(name)}{secrets.token_hex(6)}.part"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode)
        if fcntl is None:  # nobody could rename a file that is open
            os.close(descriptor)
            return TemporaryFile(path, None)
        if _lock_if_possible(descriptor) and path.exists():
            return TemporaryFile(path, descriptor)
        os.close(descriptor)  # another process has taken it for an abandoned one


def open_locked(path: Path) -> int | None:
    """Open or create a file, and lock it for this process. None: another process uses it."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        if fcntl is None:
            return descriptor
        if not _lock_if_possible(descriptor):
            os.close(descriptor)
            return None
        if path.exists() and os.path.samestat(os.fstat(descriptor), path.stat()):
            return descriptor
        os.close(descriptor)  # another process has renamed or deleted it meanwhile


def delete_abandoned_files(folder: Path, name: str) -> None:
    """Delete the temporary files for this name that no process uses any more."""
    if fcntl is None:
        return
    start = _start(name)
    with suppress(OSError):
        for path in folder.iterdir():
            if path.name.startswith(start) and _END.fullmatch(path.name[len(start) :]):
                _delete_if_abandoned(path)


def _delete_if_abandoned(path: Path) -> None:
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
        try:
            if _lock(descriptor):
                path.unlink()
        finally:
            os.close(descriptor)


def _start(name: str) -> str:
    return f".{name[:_NAME_CHARACTERS]}."


def _lock(descriptor: int) -> bool:
    """Lock a file for this process. Return False if another one uses it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _lock_if_possible(descriptor: int) -> bool:
    """Lock a file, but use it without a lock where there are none."""
    try:
        return _lock(descriptor)
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        return True


def sync_folder(folder: Path) -> None:
    """Make new names in a folder durable. Windows has no such call."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
