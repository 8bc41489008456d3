"""File format of a backup: a tar archive of blobs, secret keys, database and manifest.

The manifest is the last member, so an archive without it is incomplete. The database contains the
checksums of the blobs, the manifest the checksum of the database.

Each member is a regular file with a header of one block. No other tar feature is accepted: a sparse
member would write more than the archive contains, a link would leave the folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Protocol

import msgspec

from gleanery.service.foundation.values import timestamps

FORMAT = 1
READ_BYTES = 1024 * 1024
DATABASE, KEYS, MANIFEST = "gleanery.sqlite", "secret.key", "manifest.json"
BLOB_KEY = re.compile(r"[0-9]{1,19}/[0-9a-f]{2}/[0-9a-f]{32}")
BLOB_PREFIX = "blobs/"
MAX_MANIFEST_BYTES = 64 * 1024 * 1024
"""Room for the names of more than a million lost blobs."""
_MAX_BYTES = {MANIFEST: MAX_MANIFEST_BYTES, KEYS: 64 * 1024}
_BLOCK_BYTES = tarfile.BLOCKSIZE
_REGULAR_FILES = (tarfile.REGTYPE, tarfile.AREGTYPE)
_GZIP = b"\x1f\x8b"
_END = bytes(2 * _BLOCK_BYTES)
_DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class DamagedArchive(Exception):
    """The file is not a complete backup; the message says why."""


class NewerFormat(Exception):
    """A newer version of the program has made the backup."""


def _matching(pattern: str) -> Any:
    return msgspec.Meta(pattern=rf"\A(?:{pattern})\Z")


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Description of the backup, and the checksum of its database."""

    format: Annotated[int, msgspec.Meta(ge=FORMAT, le=FORMAT)]
    program: str
    made: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
    database: Annotated[str, _matching("[0-9a-f]{64}")]
    files: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] | None
    """None if the blobs are in a bucket, which keeps its own copies."""
    lost: list[Annotated[str, _matching(BLOB_KEY.pattern)]]
    """Keys of blobs that files need, but that are missing or damaged."""
    key: Annotated[str, _matching("([0-9a-f]{8})?")]
    """Fingerprint of the active key; empty if there is none."""


class _Version(msgspec.Struct):
    format: int


class Output(Protocol):
    """Receiver of the bytes of an archive."""

    def write(self, content: bytes, /) -> object:
        """Write all bytes."""


# --- writing ------------------------------------------------------------------------------------


def add_file(output: Output, name: str, file: BinaryIO) -> bytes:
    """Add a file and return its checksum."""
    size = os.fstat(file.fileno()).st_size
    digest, position = hashlib.sha256(), 0
    output.write(_header(name, size))
    while position < size:
        chunk = _read(file, min(size - position, READ_BYTES))
        digest.update(chunk)
        output.write(chunk)
        position += len(chunk)
    output.write(_padding(size))
    return digest.digest()


def _read(file: BinaryIO, size: int) -> bytes:
    """Read some bytes. An error names the file, unlike an error of the output."""
    try:
        chunk = file.read(size)
    except OSError as error:
        raise OSError(error.errno, error.strerror, file.name) from None
    if not chunk:
        raise OSError(None, "became shorter while it was copied", file.name)
    return chunk


def add_bytes(output: Output, name: str, content: bytes) -> None:
    output.write(_header(name, len(content)) + content + _padding(len(content)))


def end(output: Output) -> None:
    """Write the end mark of a tar archive."""
    output.write(_END)


def _header(name: str, size: int) -> bytes:
    header = tarfile.TarInfo(name)
    header.size, header.mode = size, 0o600
    header.mtime = timestamps.now() // timestamps.SECOND
    # This format needs no second header for a file of more than 8 GiB.
    return header.tobuf(tarfile.GNU_FORMAT)


def _padding(size: int) -> bytes:
    return bytes(-size % _BLOCK_BYTES)


# --- reading ------------------------------------------------------------------------------------


class MemberReader:
    """Content of one member of an archive."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file, self.size = file, size

    def chunks(self) -> Iterator[bytes]:
        left = self.size
        while left:
            chunk = self._file.read(min(left, READ_BYTES))
            if not chunk:
                raise DamagedArchive("its end is missing")
            left -= len(chunk)
            yield chunk
        self._file.read(len(_padding(self.size)))

    def read(self) -> bytes:
        return b"".join(self.chunks())


def read_members(file: BinaryIO) -> Iterator[tuple[str, MemberReader]]:
    """Yield the name and the content of each member. The caller reads the whole content.

    It only reads forward, so the file may be a pipe.
    """
    while (header := _read_header(file)) is not None:
        yield header.name, MemberReader(file, header.size)
    file.read(tarfile.RECORDSIZE)  # a program that writes into a pipe can write its padding


def _read_header(file: BinaryIO) -> tarfile.TarInfo | None:
    """Read the next header, or return None at the end of the archive."""
    block = file.read(_BLOCK_BYTES)
    if not block.strip(b"\0"):
        return None
    try:
        header = tarfile.TarInfo.frombuf(block, "ascii", "surrogateescape")
    except tarfile.HeaderError:
        if block.startswith(_GZIP):
            raise DamagedArchive("it is compressed with gzip; decompress it first") from None
        raise DamagedArchive("it is not a tar archive, or a part is missing") from None
    if header.type not in _REGULAR_FILES or header.size < 0:
        raise DamagedArchive("it contains something that is not a regular file")
    if header.size > _MAX_BYTES.get(header.name, header.size):
        raise DamagedArchive(f"its {header.name} is too large")
    return header


def parse_manifest(content: bytes) -> Manifest:
    try:
        version = msgspec.json.decode(content, type=_Version).format
        if version > FORMAT:
            raise NewerFormat
        manifest = msgspec.json.decode(content, type=Manifest)
    except _DECODE_ERRORS:
        raise DamagedArchive("its manifest is not valid") from None
    _reject_duplicates(content)
    return manifest


def _reject_duplicates(content: bytes) -> None:
    """Reject a manifest whose meaning depends on the parser."""
    names = [name for name, _ in json.loads(content, object_pairs_hook=list)]
    if len(names) != len(set(names)):
        raise DamagedArchive("its manifest contains a member twice")


def checksum(path: Path) -> str | None:
    """Return the SHA-256 of a file in hex, or None if there is no such file."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return None


# --- files --------------------------------------------------------------------------------------


def create_private_file(path: Path) -> BinaryIO:
    """Create a file that only its owner can read. Raises FileExistsError."""
    return open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


def sync_folder(folder: Path) -> None:
    """Make the entries of a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
