"""Folder of a pull: files with consecutive changes of one group.

The name of a file has the positions before its first and after its last change. A file that has
its name is complete and on the disk.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import IO, NamedTuple, Self
from urllib.parse import quote

from msgspec import Raw

from gleanery.cli.data.command import UserError
from gleanery.tables.destinations import NO_LOCKS, sync_folder

_DIGITS = 19  # of the largest position, so that names sort as positions do
_LONGEST_NAME = 100
_LOCK_NAME = ".gleanery-lock"


class Segment(NamedTuple):
    """File of changes between two positions."""

    path: Path
    first: int
    last: int


class SegmentFolder:
    """The segments of one group in a folder."""

    def __init__(self, folder: Path, group: str) -> None:
        self.folder = folder
        self._name = file_name(group)
        self._pattern = re.compile(
            rf"{re.escape(self._name)}-([0-9]{{{_DIGITS}}})-([0-9]{{{_DIGITS}}})\.jsonl"
        )

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other pulls out of the folder, and remove what a killed one has left."""
        is_new = not self.folder.exists()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except FileExistsError:
            raise UserError(f"{self.folder} is not a folder: choose another name") from None
        try:
            with _lock(self.folder / _LOCK_NAME):
                self._part.unlink(missing_ok=True)
                yield
        except BaseException:
            if is_new:
                self._remove_if_unused()
            raise

    def _remove_if_unused(self) -> None:
        """Remove the folder of a pull that has stored nothing."""
        if [path.name for path in self.folder.iterdir()] == [_LOCK_NAME]:
            with suppress(OSError):
                (self.folder / _LOCK_NAME).unlink()
                self.folder.rmdir()

    @contextmanager
    def named_errors(self) -> Iterator[None]:
        """Name the folder in errors of a write, such as that of a full disk: they have no name."""
        try:
            yield
        except OSError as error:
            name = error.filename or str(self.folder)
            raise OSError(error.errno, error.strerror, name) from None

    def segments(self) -> list[Segment]:
        """Return the segments, in the order of their positions."""
        matches = ((path, self._pattern.fullmatch(path.name)) for path in self.folder.iterdir())
        found = [Segment(path, int(name[1]), int(name[2])) for path, name in matches if name]
        return sorted(found, key=lambda segment: (segment.first, segment.last))

    def end_of(self, cursor: int) -> int:
        """Return the position after the segments that continue at this position.

        A pull that was killed has not stored the position after its last segment.
        """
        for segment in self.segments():
            if segment.first == cursor:
                cursor = segment.last
        return cursor

    def write(self, first: int) -> SegmentWriter:
        return SegmentWriter(self, first)

    def move_away(self) -> Path | None:
        """Move all segments into a new folder beside them, and return it."""
        segments = self.segments()
        if not segments:
            return None
        target = self._unused_folder()
        target.mkdir()
        for segment in segments:
            segment.path.rename(target / segment.path.name)
        sync_folder(self.folder)
        return target

    def _unused_folder(self) -> Path:
        number = 1
        while (self.folder / f"expired-{number}").exists():
            number += 1
        return self.folder / f"expired-{number}"

    @property
    def _part(self) -> Path:
        """Path of the segment that is being written."""
        return self.folder / f".{self._name}.part"

    def path_of(self, first: int, last: int) -> Path:
        return self.folder / f"{self._name}-{first:0{_DIGITS}}-{last:0{_DIGITS}}.jsonl"

    def open_part(self) -> IO[bytes]:
        return self._part.open("wb")

    def publish_part(self, first: int, last: int) -> Segment:
        """Give the written file its name."""
        path = self.path_of(first, last)
        self._part.replace(path)
        sync_folder(self.folder)
        return Segment(path, first, last)

    def discard_part(self) -> None:
        with suppress(OSError):
            self._part.unlink(missing_ok=True)


class SegmentWriter:
    """Writer of one segment. A file exists from the first change on."""

    def __init__(self, folder: SegmentFolder, first: int) -> None:
        self._folder = folder
        self._file: IO[bytes] | None = None
        self.first = first
        self.last = first
        self.bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None:
            self._discard()

    def write(self, changes: Sequence[Raw], last: int) -> int:
        """Write changes as lines, and return the number of bytes. ``last`` is their position."""
        if self._file is None:
            self._file = self._folder.open_part()
        lines = b"\n".join([*changes, b""])
        self._file.write(lines)
        self.last = last
        self.bytes += len(lines)
        return len(lines)

    def finish(self) -> Segment | None:
        """Complete the segment. Return None if it has no change."""
        if self._file is None:
            return None
        with self._file:
            self._file.flush()
            os.fsync(self._file.fileno())
        return self._folder.publish_part(self.first, self.last)

    def _discard(self) -> None:
        if self._file is not None:
            with suppress(OSError):  # a full disk
                self._file.close()
            self._folder.discard_part()


def file_name(group: str) -> str:
    """Return a name for the group that is safe on every file system."""
    name = quote(group, safe="")
    if name.startswith("."):
        name = f"%2E{name[1:]}"
    return short_name(name)


def short_name(name: str) -> str:
    """Return a name that leaves room for more, in the 255 bytes of a file name."""
    encoded = os.fsencode(name)
    if len(encoded) <= _LONGEST_NAME:
        return name
    digest = hashlib.sha256(encoded).hexdigest()[:16]
    return f"{encoded[: _LONGEST_NAME - len(digest) - 1].decode(errors='ignore')}-{digest}"


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Hold a lock that ends with the process."""
    with path.open("ab") as file:
        try:
            _acquire(file)
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise UserError(
                    f"Another gleanery pull writes to {path.parent}: wait until it ends, or choose "
                    "another folder"
                ) from None
        yield


def _acquire(file: IO[bytes]) -> None:
    if os.name == "nt":
        import msvcrt

        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
    else:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
