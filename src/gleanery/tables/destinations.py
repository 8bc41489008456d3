"""Destinations of an export: a local file, standard output, or an object in S3.

A local file and an object appear whole and at the end, or not at all. Until then, a file has a
temporary name. A lock marks the temporary files in use, and the next export deletes the others.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import IO, Protocol

from gleanery.tables.export import ExportFailed, InvalidExport, already_exists

try:
    import fcntl
except ImportError:  # Windows: files of killed processes stay
    fcntl = None  # type: ignore[assignment]

STANDARD_OUTPUT = ("-", "/dev/stdout")
_COPY_BYTES = 1024 * 1024
# Some file systems have no hard links.
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)

_NAME_CHARACTERS = 50  # of the file's name in a temporary name; file systems allow 255 bytes
NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)
"""Errors of a file system without locks, such as some network drives."""
_NAME_END = re.compile(r"[0-9a-f]{12}\.part")


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
        path = folder / f"{_name_start(name)}{secrets.token_hex(6)}.part"
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
    start = _name_start(name)
    with suppress(OSError):
        for path in folder.iterdir():
            if path.name.startswith(start) and _NAME_END.fullmatch(path.name[len(start) :]):
                _delete_if_abandoned(path)


def _delete_if_abandoned(path: Path) -> None:
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
        try:
            if _lock(descriptor):
                path.unlink()
        finally:
            os.close(descriptor)


def _name_start(name: str) -> str:
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


class Sink(Protocol):
    """Where the bytes of the file go."""

    name: str
    """What the messages call the destination."""

    def write(self, data: bytes) -> None: ...

    def adopt(self, path: Path) -> None:
        """Take the content of a temporary file, before anything else is written."""

    def publish(self) -> None:
        """Complete the destination."""

    def discard(self) -> None:
        """Leave the destination as it was. It may be called at any time, and again."""


class Destination:
    """A sink, its temporary files, and the number of bytes that it got."""

    def __init__(self, sink: Sink, folder: Path | None, name: str) -> None:
        self._sink = sink
        self._name = name
        self._temporary_folder = folder or Path(tempfile.gettempdir())
        self._mode = 0o600 if folder is None else 0o666  # all users share the other folder
        self._temporary: dict[Path, TemporaryFile] = {}
        self.bytes = 0

    def write(self, data: bytes) -> None:
        with _as_failure(self._sink.name):
            self._sink.write(data)
        self.bytes += len(data)

    def create_temporary_file(self) -> Path:
        """Create a file on the disk of the destination, or else in the folder for such files."""
        if not self._temporary:
            delete_abandoned_files(self._temporary_folder, self._name)
        with _as_failure(self._sink.name):
            file = create_file(self._temporary_folder, self._name, self._mode)
        self._temporary[file.path] = file
        return file.path

    def failures(self) -> AbstractContextManager[None]:
        """Raise ExportFailed if the system cannot write a file of this export."""
        return _as_failure(self._sink.name)

    def delete_temporary_file(self, path: Path) -> None:
        self._temporary.pop(path).delete()

    @property
    def is_readable(self) -> bool:
        """Return True if ``read_back`` works."""
        return isinstance(self._sink, _File | _KeptFile)

    def read_back(self, start: int) -> Iterator[bytes]:
        """Read whole lines of a local file from this byte on, while it is being written."""
        assert isinstance(self._sink, _File | _KeptFile)
        with _as_failure(self._sink.name):
            yield from self._sink.read_back(start)

    def adopt(self, path: Path) -> None:
        """Use a temporary file as the content."""
        self.bytes += path.stat().st_size
        with _as_failure(self._sink.name):
            self._sink.adopt(path)

    def publish(self) -> None:
        with _as_failure(self._sink.name):
            self._sink.publish()
        self._delete_temporary_files()

    def discard(self) -> None:
        """Remove everything that was written."""
        try:
            self._sink.discard()
        finally:
            self._delete_temporary_files()

    def _delete_temporary_files(self) -> None:
        for path in [*self._temporary]:
            self.delete_temporary_file(path)


def open_destination(target: str, overwrite: bool, is_private: bool = False) -> Destination:
    """Open ``-`` (standard output), ``s3://bucket/key`` or the path of a file.

    Only its owner can read a private file.
    """
    if target in STANDARD_OUTPUT:
        return Destination(_Stream(sys.stdout.buffer, "standard output"), None, "standard-output")
    if target.startswith("s3://"):
        from gleanery.tables.s3 import open_object

        return Destination(open_object(target, overwrite), None, target.rpartition("/")[2])
    if is_device(target):
        stream = Path(target).open("wb", buffering=0)  # noqa: SIM115
        return Destination(_Stream(stream, target), None, Path(target).name)
    path = Path(os.path.realpath(target))  # a symbolic link stays one
    _check_path(path, overwrite)
    return Destination(_File(path, overwrite, is_private), path.parent, path.name)


def continue_file(path: Path, size: int) -> Destination:
    """Open a file that stays also after a failure, and continue it after its first bytes."""
    destination = Destination(_KeptFile(path, size), path.parent, path.name)
    destination.bytes = size
    return destination


class _Stream:
    """Standard output, a pipe or a device, which get the bytes at once."""

    def __init__(self, stream: IO[bytes], name: str) -> None:
        self._stream = stream
        self.name = name

    def write(self, data: bytes) -> None:
        _write_all(self._stream, data)

    def adopt(self, path: Path) -> None:
        _copy(path, self)

    def publish(self) -> None:
        self._stream.flush()

    def discard(self) -> None:
        pass


class _File:
    """A local file under a temporary name, which is renamed at the end."""

    def __init__(self, path: Path, overwrite: bool, is_private: bool) -> None:
        self.name = str(path)
        self._path = path
        self._overwrite = overwrite
        self._is_private = is_private
        delete_abandoned_files(path.parent, path.name)
        with _as_failure(self.name):
            self._file = create_file(path.parent, path.name, 0o600 if is_private else 0o666)
        self._part = self._file.path
        self._stream: IO[bytes] = self._part.open("wb", buffering=0)

    def write(self, data: bytes) -> None:
        _write_all(self._stream, data)

    def read_back(self, start: int) -> Iterator[bytes]:
        return _read_lines(self._part, start)

    def adopt(self, path: Path) -> None:
        self._stream.close()
        path.replace(self._part)
        self._stream = self._part.open("ab")

    def publish(self) -> None:
        os.fsync(self._stream.fileno())
        self._stream.close()
        if self._overwrite:
            if not self._is_private:
                _keep_permissions(self._path, self._part)
            self._part.replace(self._path)
        else:
            _rename_to_new(self._part, self._path)
        self._file.release()
        sync_folder(self._path.parent)

    def discard(self) -> None:
        self._stream.close()
        self._file.delete()


class _KeptFile:
    """A local file that has its name from the start. Nothing that was written is removed."""

    def __init__(self, path: Path, size: int) -> None:
        self.name = str(path)
        self._path = path
        with _as_failure(self.name):
            self._stream: IO[bytes] = path.open("r+b", buffering=0)
            self._stream.truncate(size)
            self._stream.seek(size)

    def write(self, data: bytes) -> None:
        _write_all(self._stream, data)

    def read_back(self, start: int) -> Iterator[bytes]:
        return _read_lines(self._path, start)

    def adopt(self, path: Path) -> None:
        _copy(path, self)

    def publish(self) -> None:
        os.fsync(self._stream.fileno())
        self._stream.close()

    def discard(self) -> None:
        self._stream.close()


def _read_lines(path: Path, start: int) -> Iterator[bytes]:
    with path.open("rb") as stream:
        stream.seek(start)
        while lines := stream.read(_COPY_BYTES):
            yield lines + stream.readline()


def _write_all(stream: IO[bytes], data: bytes) -> None:
    view = memoryview(data)
    while view:  # an unbuffered stream may take a part only
        view = view[stream.write(view) :]


def _copy(path: Path, sink: Sink) -> None:
    with path.open("rb") as stream:
        while data := stream.read(_COPY_BYTES):
            sink.write(data)


def is_device(target: str) -> bool:
    """Return whether the path is a pipe or a device such as /dev/null, which cannot be renamed."""
    try:
        mode = os.stat(target).st_mode
    except OSError:
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def _check_path(path: Path, overwrite: bool) -> None:
    if path.is_dir():
        raise InvalidExport(f"{path} is a folder. Give the name of a file in it")
    if not path.parent.is_dir():
        raise InvalidExport(f"The folder {path.parent} does not exist. Create it first")
    if path.exists() and not overwrite:
        raise already_exists(str(path))


def _keep_permissions(old: Path, new: Path) -> None:
    """Give a file that replaces another one the same permissions."""
    with suppress(FileNotFoundError):
        new.chmod(stat.S_IMODE(old.stat().st_mode))


def _rename_to_new(part: Path, path: Path) -> None:
    """Rename, but never replace a file that somebody else has written meanwhile."""
    try:
        os.link(part, path)
    except FileExistsError:
        raise already_exists(str(path)) from None
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        _check_path(path, overwrite=False)
        part.rename(path)
    else:
        part.unlink()


@contextmanager
def _as_failure(name: str) -> Iterator[None]:
    """Raise ExportFailed with the reason that the system gives."""
    try:
        yield
    except BrokenPipeError:  # the reader of standard output has enough
        raise
    except OSError as error:
        raise ExportFailed(f"Cannot write {name}: {error.strerror or error}") from error
