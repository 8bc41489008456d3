"""Outputs that an export to a file has read: two hidden files beside the destination."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import msgspec

from gleanery.cli.data.command import UserError
from gleanery.cli.data.segments import short_name
from gleanery.tables.destinations import open_locked
from gleanery.tables.writer import ExportWriter, continue_lines

if TYPE_CHECKING:
    from gleanery.tables.destinations import Destination

_LINES_AT_ONCE = 1000
_SAVE_SECONDS = 5.0


class Position(msgspec.Struct, kw_only=True):
    """How far an export has read."""

    source: dict[str, Any]
    """The service, the group, the filters and the limit: another export cannot continue it."""
    start: int
    """Position of the group at the start of the export, where the changes after it begin."""
    cursor: int
    """Position after the pages that are kept."""
    rows: int
    bytes: int
    """Size of the kept outputs. After them the file may have a part of a page."""
    is_complete: bool


class KeptOutputs:
    """The outputs as JSON lines in one file, and the position in another.

    The position is stored after the outputs before it are on the disk. So a process that is killed
    leaves a state that another one can continue.
    """

    def __init__(self, target: str) -> None:
        path = Path(os.path.realpath(target))
        name = short_name(path.name)
        self.path = path.with_name(f".{name}.outputs.jsonl")
        self._position = path.with_name(f".{name}.position.json")
        self._temporary = self._position.with_name(f"{self._position.name}.tmp")
        self._next_save = 0.0

    def __enter__(self) -> Self:
        """Keep other exports to the same destination out."""
        file = open_locked(self.path)
        if file is None:
            raise UserError(
                "Another export writes this file: wait until it ends, or choose another name"
            )
        self._descriptor: int | None = file
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Remove outputs without a position, which nothing can continue."""
        with suppress(OSError):
            self._temporary.unlink(missing_ok=True)
            if not self._position.exists():
                self.path.unlink(missing_ok=True)
        self._close()

    def load(self, source: dict[str, Any]) -> Position:
        """Return the position of the export that was stopped."""
        try:
            position = msgspec.json.decode(self._position.read_bytes(), type=Position)
        except (FileNotFoundError, msgspec.MsgspecError):
            position = None
        if position is None or self.path.stat().st_size < position.bytes:
            raise UserError("There is nothing to continue: leave out --resume")
        if position.source != source:
            raise UserError(
                "The export that was stopped had another service, group, filter or limit: leave "
                "out --resume to start again"
            )
        return position

    def open(self, position: Position) -> ExportWriter:
        """Continue the outputs after the position; a new one has none."""
        if not position.bytes:
            self._position.unlink(missing_ok=True)
        writer = continue_lines(self.path, position.bytes)
        writer.rows, writer.item_bytes = position.rows, position.bytes
        return writer

    def save_sometimes(self, position: Position) -> None:
        """Save the position every few seconds."""
        if time.monotonic() >= self._next_save:
            self.save(position)
            self._next_save = time.monotonic() + _SAVE_SECONDS

    def save(self, position: Position) -> None:
        """Store the position, after the outputs before it are on the disk."""
        try:
            os.truncate(self.path, position.bytes)  # makes room for the position on a full disk
            if self._descriptor is not None:
                os.fsync(self._descriptor)
            self._temporary.write_bytes(msgspec.json.encode(position))
            self._temporary.replace(self._position)
        except OSError as error:  # the error of a write has no name
            raise OSError(error.errno, error.strerror, str(self._position)) from None

    def pages(self) -> Iterator[list[bytes]]:
        """Iterate over the outputs, in lists."""
        with self.path.open("rb") as file:
            while lines := [line.rstrip(b"\n") for line in islice(file, _LINES_AT_ONCE)]:
                yield lines

    def move_to(self, destination: Destination) -> None:
        """Make the file of outputs the content of a destination."""
        if os.name == "nt":  # nobody can rename a file that is open
            self._close()
        destination.adopt(self.path)

    def remove(self) -> None:
        self._position.unlink(missing_ok=True)
        self.path.unlink(missing_ok=True)

    def _close(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)
