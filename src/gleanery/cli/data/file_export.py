"""Export to a file that can be stopped: it keeps what it has read, and another run continues.

The outputs that it has read are in two hidden files next to the destination.
"""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import msgspec

from gleanery.cli.data.command import (
    USER_ERROR,
    CommandFailed,
    UserError,
    join_sentences,
    to_failure,
)
from gleanery.cli.data.progress import Progress
from gleanery.cli.data.segments import short_name
from gleanery.cli.data.stop_signals import Stopped, StopSignals
from gleanery.client.errors import ClientError, CursorExpired
from gleanery.client.requests import OutputFilters, describe_filters
from gleanery.tables import ExportReport, open_export
from gleanery.tables.destinations import open_destination, open_locked
from gleanery.tables.writer import ExportWriter, continue_lines

if TYPE_CHECKING:
    from gleanery.client import Client
    from gleanery.tables.destinations import Destination

_PAGE_SIZE = 1000
_LINES_AT_ONCE = 1000
_SAVE_SECONDS = 5.0
_VERBS = {
    "csv": ("Checked", "Wrote"),  # all columns are known before the first line
    "parquet": ("Wrote", "Merged"),
    "jsonl": ("Wrote", "Wrote"),
}
"""Words for the two steps after the outputs are read. Not every file needs the last one."""


class FileExport:
    """Reads the outputs into a hidden file, and then writes them in their format."""

    def __init__(
        self,
        client: Client,
        group: str,
        target: str,
        filters: OutputFilters,
        limit: int | None,
        progress: Progress,
        signals: StopSignals,
    ) -> None:
        self._client = client
        self._group = group
        self._target = target
        self._filters = filters
        self._limit = limit
        self._progress = progress
        self._signals = signals
        self._outputs = KeptOutputs(target)
        self._rows = 0
        self._kept_rows = 0

    def run(self, form: dict[str, Any], resume: bool) -> ExportReport:
        """Write the file. Raise CommandFailed with the command that continues."""
        is_plain = form["format"] == "jsonl" and form["fields"] is None
        try:
            if is_plain:
                return self._write_lines(form["overwrite"], resume)
            return self._write_table(form, resume)
        except Stopped as stop:
            raise self._with_advice(CommandFailed("interrupted", stop.status)) from None
        except CursorExpired:
            raise CommandFailed(
                "The export began too long ago to continue: leave out --resume to start again"
            ) from None
        except ClientError as error:
            if not self._kept_rows:
                raise
            raise self._with_advice(to_failure(error)) from None

    def _write_lines(self, overwrite: bool, resume: bool) -> ExportReport:
        """Write JSON lines: the hidden file gets the name of the destination."""
        destination = open_destination(self._target, overwrite)
        try:
            with self._outputs:
                position, report = self._read(resume)
                self._outputs.move_to(destination)
                destination.publish()
                self._outputs.remove()
        except BaseException:
            destination.discard()
            raise
        return report.with_cursor(self._changes_cursor(position))

    def _write_table(self, form: dict[str, Any], resume: bool) -> ExportReport:
        with open_export(self._target, **form) as writer, self._outputs:
            self._progress.verb = "Read"
            position, read = self._read(resume)
            verb, last_verb = _VERBS[form["format"]]
            self._progress.start_again(verb, read.rows)
            with self._signals.allowed():
                for page in self._outputs.pages():
                    self._write(writer, page, are_new=True)
                self._progress.start_again(last_verb, read.rows)
                writer.metadata = {
                    "group": self._group,
                    "filters": describe_filters(self._filters),
                    "cursor": self._changes_cursor(position),
                }
                report = writer.finish(self._progress.advance)
            self._outputs.remove()
        return report.with_cursor(self._changes_cursor(position))

    def _changes_cursor(self, position: Position) -> int | None:
        """Return where the changes continue, if the export has all outputs."""
        return position.start if self._limit is None else None

    def _read(self, resume: bool) -> tuple[Position, ExportReport]:
        """Read the outputs that another run has not read. Keep them if they are not all."""
        source = {
            "url": self._client.base_url,
            "group": self._group,
            "filters": describe_filters(self._filters),
            "limit": self._limit,
        }
        with self._signals.allowed():
            position = self._outputs.load(source) if resume else self._start(source)
        with self._outputs.open(position) as writer:
            self._rows = position.rows
            try:
                self._read_pages(writer, position)
            except (Stopped, ClientError):
                self._keep(position)
                raise
            report = writer.finish()
            self._keep(position)
            return position, report

    def _keep(self, position: Position) -> None:
        if position.rows:
            self._outputs.save(position)
            self._kept_rows = position.rows

    def _start(self, source: dict[str, Any]) -> Position:
        start = self._client.export_pages(self._group).start
        return Position(source=source, start=start, cursor=0, rows=0, bytes=0, is_complete=False)

    def _read_pages(self, writer: ExportWriter, position: Position) -> None:
        pages = iter(
            self._client.export_pages(
                self._group,
                start=position.start,
                cursor=position.cursor,
                page_size=self._page_size(),
                **self._filters,
            )
        )
        while not position.is_complete:
            with self._signals.allowed():
                page = next(pages, None)
            if page is not None:
                self._write(writer, page.items[: self._missing()], page.are_new)
                position.rows, position.bytes = writer.rows, writer.bytes
                position.cursor = page.cursor or position.cursor
            position.is_complete = page is None or page.cursor is None or self._missing() == 0
            del page  # it is free before the next one is decoded
            if not position.is_complete:
                self._outputs.save_sometimes(position)

    def _page_size(self) -> int:
        return _PAGE_SIZE if self._limit is None else max(1, min(self._limit, _PAGE_SIZE))

    def _missing(self) -> int | None:
        """Return the number of outputs up to the limit, if there is one."""
        return None if self._limit is None else self._limit - self._rows

    def _write(self, writer: ExportWriter, page: Sequence[Any], are_new: bool = False) -> None:
        writer.write(page, are_new)
        self._rows = writer.rows
        self._progress.advance(
            writer.rows - self._progress.items, writer.item_bytes - self._progress.bytes
        )

    def _with_advice(self, failure: CommandFailed) -> CommandFailed:
        """Return the failure with the command that continues."""
        if failure.status == USER_ERROR:
            return failure
        arguments = [argument for argument in sys.argv[1:] if argument != "--resume"]
        again = ["--resume"] if self._kept_rows else []
        command = shlex.join(["gleanery", *arguments, *again])
        kept = f"The outputs so far ({self._kept_rows:,}) are kept in {self._outputs.path}"
        sentences = [kept] if self._kept_rows else []
        message = join_sentences(str(failure), *sentences, f"To continue, run: {command}")
        return CommandFailed(message, failure.status)


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
