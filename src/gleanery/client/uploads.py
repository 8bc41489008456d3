"""The bytes of an upload: read in pieces, and read again for each attempt."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from gleanery.client.errors import ClientError

if TYPE_CHECKING:
    from gleanery.client.models import StoredFile

_PIECE_BYTES = 256 * 1024
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
        piece = self._file.read(min(_PIECE_BYTES, self.size - self._count))
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
