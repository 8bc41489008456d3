"""Bytes of files: the source of an upload, and the target of a download.

An upload is read in pieces, and read again for each attempt. A download goes to a file that appears
whole at the end, or to one that the caller opened. The part of a file that has arrived is kept
under a hidden name. The next download of the same file continues there, even in another process.
"""

from __future__ import annotations

import hashlib
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from errno import EISDIR
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol

from gleanery.client.errors import ClientError, InvalidResponse

if TYPE_CHECKING:
    from gleanery.client.models import StoredFile

_SENT_BYTES = 256 * 1024
_UNKNOWN_TYPE = "application/octet-stream"

FileSource = Path | str | bytes | BinaryIO
"""Path of a file, its bytes, or a file that is open for reading and can be read again."""


class FileChanged(ClientError):
    """The file changed while it was read."""

    def __init__(self) -> None:
        super().__init__("The file changed while it was uploaded: upload it again")


@contextmanager
def open_source(source: FileSource) -> Iterator[Source]:
    """Open a file for an upload. A file that the caller has opened stays open."""
    if isinstance(source, str | Path):
        with Path(source).open("rb") as file:
            yield Source(file, Path(source).name)
    elif isinstance(source, bytes | bytearray | memoryview):
        yield Source(io.BytesIO(source), None)
    else:
        yield Source(_require_seekable(source), None)


def _require_seekable(file: BinaryIO) -> BinaryIO:
    if isinstance(file, io.TextIOBase) or not file.seekable():
        raise ValueError(
            "An upload needs a binary file that can be read again: write a stream to a file first"
        )
    return file


def guess_type(filename: str | None) -> str:
    """Return the media type for the ending of a name. The service also looks at the bytes."""
    from mimetypes import guess_type

    media_type, coding = guess_type(filename or "")
    return media_type if media_type is not None and coding is None else _UNKNOWN_TYPE


class Source:
    """A file, from the position that it has at the start."""

    def __init__(self, file: BinaryIO, name: str | None) -> None:
        self._file = file
        self._start = file.tell()
        self.name = name
        self.size = file.seek(0, os.SEEK_END) - self._start
        self._version = self._read_version()
        self._hash = hashlib.sha256()
        self._count = 0

    def rewind(self) -> None:
        """Begin again at the start."""
        self._file.seek(self._start)
        self._hash = hashlib.sha256()
        self._count = 0

    def read(self) -> bytes:
        """Return the next piece; empty at the end. Raise FileChanged."""
        piece = self._file.read(min(_SENT_BYTES, self.size - self._count))
        self._hash.update(piece)
        self._count += len(piece)
        if not piece and self._count != self.size:  # the file is shorter now
            raise FileChanged
        return piece

    def is_same(self, stored: StoredFile) -> bool:
        """Return True if the stored file has the same bytes."""
        if stored.size != self.size:
            return False
        self.rewind()
        while self.read():
            pass
        return self._hash.hexdigest() == stored.file_checksum

    def check_unchanged(self, stored_checksum: str) -> None:
        """Raise FileChanged unless the file is still what was sent and stored."""
        is_same = self._hash.hexdigest() == stored_checksum
        if not is_same or self._read_version() != self._version:
            raise FileChanged

    def _read_version(self) -> tuple[int, int] | None:
        try:
            status = os.fstat(self._file.fileno())
        except OSError:  # it is in memory
            return None
        return status.st_size, status.st_mtime_ns


_READ_BYTES = 1024 * 1024
_O_BINARY = getattr(os, "O_BINARY", 0)  # Windows

FileDestination = Path | str | BinaryIO
"""Path of a file, or a file that is open for writing."""


class Target(Protocol):
    """Receives the bytes of a download in order."""

    position: int
    """Number of bytes that have arrived."""

    def write(self, piece: bytes) -> None: ...
    def restart(self) -> None:
        """Forget what has arrived."""

    def finish(self, checksum: str) -> None:
        """Complete the file. Raise DamagedDownload if it has another SHA-256."""

    def close(self) -> None: ...


def open_target(destination: FileDestination, file_id: str) -> Target:
    """Open the destination of a download. It reads the part that an earlier one has left."""
    if isinstance(destination, str | Path):
        return _PartFile(Path(destination), file_id)
    return _OpenFile(destination)


class DamagedDownload(InvalidResponse):
    """The bytes that have arrived have another checksum than the file."""

    def __init__(self) -> None:
        super().__init__("The checksum of the download is wrong: download it again")


class _OpenFile:
    """File that the caller has opened. It cannot be started again."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._hash = hashlib.sha256()
        self.position = 0

    def write(self, piece: bytes) -> None:
        rest = memoryview(piece)
        while rest:  # a file without a buffer can take a part only
            rest = rest[self._file.write(rest) :]
        self._hash.update(piece)
        self.position += len(piece)

    def restart(self) -> None:
        raise InvalidResponse("The file has changed during the download: download it again")

    def finish(self, checksum: str) -> None:
        if self._hash.hexdigest() != checksum:
            raise DamagedDownload

    def close(self) -> None:
        """Leave the file open: it belongs to the caller."""


class _PartFile:
    """File under a hidden name, which gets its own name at the end."""

    def __init__(self, destination: Path, file_id: str) -> None:
        if destination.is_dir():
            raise IsADirectoryError(EISDIR, "Give the name of the file", str(destination))
        self._destination = destination
        self._path = destination.with_name(f".{destination.name}.{file_id}.part")
        self._file = _open_part(self._path)
        self._hash = hashlib.sha256()
        self._is_complete = False
        self.position = 0
        self._read_last_part()

    def _read_last_part(self) -> None:
        """Continue after the bytes that are there.

        The last one is requested again: the service rejects a range of no bytes.
        """
        size = max(0, self._file.seek(0, os.SEEK_END) - 1)
        self._file.seek(0)
        while self.position < size:
            piece = self._file.read(min(_READ_BYTES, size - self.position))
            self._hash.update(piece)
            self.position += len(piece)
        self._file.seek(size)

    def write(self, piece: bytes) -> None:
        self._file.write(piece)
        self._hash.update(piece)
        self.position += len(piece)

    def restart(self) -> None:
        self._file.seek(0)
        self._file.truncate()
        self._hash = hashlib.sha256()
        self.position = 0

    def finish(self, checksum: str) -> None:
        if self._hash.hexdigest() != checksum:
            self.restart()
            raise DamagedDownload
        self._file.truncate()
        self._file.flush()
        os.fsync(self._file.fileno())
        if sys.platform == "win32":  # there, an open file cannot be renamed
            self._file.close()
        self._path.replace(self._destination)
        self._is_complete = True

    def close(self) -> None:
        """Keep the part for the next download, unless it is empty."""
        if self.position or self._is_complete:
            self._file.close()
            return
        with suppress(OSError):  # Windows keeps open files
            self._path.unlink()
        self._file.close()


def _open_part(path: Path) -> BinaryIO:
    """Open the part of a file. Raise ClientError if another process writes it."""
    while True:
        file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | _O_BINARY, 0o666), "r+b")
        if not _lock(file):
            file.close()
            raise ClientError(f"Another process downloads to {path}: wait for its end")
        if _is_at(file, path):
            return file
        file.close()  # the other process has completed it meanwhile


def _lock(file: BinaryIO) -> bool:
    """Lock a file until it is closed. Return False if another process has locked it."""
    if sys.platform == "win32":  # there, an open file cannot be renamed
        return True
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _is_at(file: BinaryIO, path: Path) -> bool:
    """Return True if the path is still the name of the open file."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False
