"""File format of a backup: a tar archive of blobs, secret keys, database and manifest.

The manifest is the last member, so an archive without it is incomplete. The database contains the
checksums of the blobs, the manifest the checksum of the database.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import tarfile
from pathlib import Path
from typing import Any, BinaryIO

from gleanery.values import timestamps

FORMAT = 1
READ_BYTES = 1024 * 1024
DATABASE, KEYS, MANIFEST = "gleanery.sqlite", "secret.key", "manifest.json"
MANIFEST_MEMBERS = {"made", "database", "files", "lost", "key"}
BLOB = re.compile(r"blobs/([0-9]+/[0-9a-f]{2}/[0-9a-f]{32})")
_BUFFERS: Any = {"bufsize": READ_BYTES, "copybufsize": READ_BYTES}


class _HashingReader:
    """File that is hashed while it is read."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._hash = file, hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        chunk = self._file.read(size)
        self._hash.update(chunk)
        return chunk

    @property
    def checksum(self) -> bytes:
        return self._hash.digest()


def open_for_writing(file: BinaryIO) -> tarfile.TarFile:
    return tarfile.open(fileobj=file, mode="w|", **_BUFFERS)


def open_for_reading(file: BinaryIO) -> tarfile.TarFile:
    return tarfile.open(fileobj=file, mode="r|", **_BUFFERS)


def add_file(archive: tarfile.TarFile, name: str, file: BinaryIO) -> bytes:
    """Add a file and return its checksum."""
    reader = _HashingReader(file)
    archive.addfile(_header(name, os.fstat(file.fileno()).st_size), reader)
    clear_members(archive)
    return reader.checksum


def add_text(archive: tarfile.TarFile, name: str, text: str) -> None:
    archive.addfile(_header(name, len(text.encode())), io.BytesIO(text.encode()))


def clear_members(archive: Any) -> None:
    """Free the list of members, which a tar file keeps: there may be millions."""
    archive.members.clear()


def _header(name: str, size: int) -> tarfile.TarInfo:
    header = tarfile.TarInfo(name)
    header.size, header.mode = size, 0o600
    header.mtime = timestamps.now() // timestamps.SECOND
    return header


def checksum(path: Path) -> str | None:
    """Return the SHA-256 of a file in hex, or None if there is no such file."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return None


def sync_folder(folder: Path) -> None:
    """Make the entries of a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
