"""Export to a file that can be stopped: it keeps what it has read, and another run continues."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from gleanery.cli.data.failures import (
    USER_ERROR,
    CommandFailed,
    UserError,
    join_sentences,
    to_failure,
)
from gleanery.cli.data.progress import Progress
from gleanery.cli.data.stop_signals import Stopped, StopSignals
from gleanery.client.errors import ClientError
from gleanery.client.exports import ExportReport, ExportWriter, open_export
from gleanery.client.exports.destinations import open_destination
from gleanery.client.filters import OutputFilters, describe

if TYPE_CHECKING:
    from gleanery.client import Client

_PAGE_SIZE = 1000


class Position(msgspec.Struct, kw_only=True):
    """How far an export has read."""

    source: dict[str, Any]
    """The service, the group and the filters: another export cannot continue this one."""
    start: int
    """Position of the group at the start of the export, where the changes after it begin."""
    cursor: int = 0
    is_complete: bool = False


class ReadOutputs:
    """Two hidden files beside the destination: the outputs as JSON lines, and the position."""

    def __init__(self, target: str) -> None:
        path = Path(os.path.realpath(target))
        self.path = path.with_name(f".{path.name}.outputs.jsonl")
        self._position = path.with_name(f".{path.name}.position.json")

    def load(self, source: dict[str, Any]) -> Position:
        """Return the position of the export that was stopped."""
        try:
            position = msgspec.json.decode(self._position.read_bytes(), type=Position)
        except (FileNotFoundError, msgspec.MsgspecError):
            position = None
        if position is None or not self.path.exists():
            raise UserError("There is nothing to continue: leave out --resume")
        if position.source != source:
            raise UserError(
                "The export that was stopped had another service, group, filter or limit: leave "
                "out --resume to start again"
            )
        return position

    def save(self, position: Position) -> None:
        temporary = self._position.with_name(f"{self._position.name}.tmp")
        temporary.write_bytes(msgspec.json.encode(position))
        temporary.replace(self._position)

    def pages(self) -> Iterator[list[bytes]]:
        """Iterate over the outputs, in lists."""
        with self.path.open("rb") as file:
            while lines := [line.rstrip(b"\n") for line in islice(file, _PAGE_SIZE)]:
                yield lines

    def remove(self) -> None:
        self._position.unlink(missing_ok=True)
        self.path.unlink(missing_ok=True)


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
        self._outputs = ReadOutputs(target)
        self._rows = 0

    def run(self, form: dict[str, Any], resume: bool) -> ExportReport:
        """Write the file. Raise CommandFailed with the command that continues."""
        is_plain = form["format"] == "jsonl" and form["fields"] is None
        try:
            if is_plain:
                return self._write_lines(form["overwrite"], resume)
            return self._write_table(form, resume)
        except Stopped as stop:
            raise self._with_advice(CommandFailed("interrupted", stop.status)) from None
        except ClientError as error:
            if not self._rows:
                raise
            raise self._with_advice(to_failure(error)) from None

    def _write_lines(self, overwrite: bool, resume: bool) -> ExportReport:
        """Write JSON lines: the hidden file gets the name of the destination."""
        destination = open_destination(self._target, overwrite)
        try:
            position, report = self._read(resume)
            destination.adopt(self._outputs.path)
            destination.publish()
        except BaseException:
            destination.discard()
            raise
        self._outputs.remove()
        return report.with_cursor(self._changes_cursor(position))

    def _write_table(self, form: dict[str, Any], resume: bool) -> ExportReport:
        with open_export(self._target, **form) as writer:
            position, read = self._read(resume)
            self._progress.start_again("Exported", read.rows)
            with self._signals.allowed():
                for page in self._outputs.pages():
                    self._write(writer, page, are_new=True)
                writer.metadata = {
                    "group": self._group,
                    "filters": describe(self._filters),
                    "cursor": self._changes_cursor(position),
                }
                report = writer.finish()
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
            "filters": describe(self._filters),
            "limit": self._limit,
        }
        with self._signals.allowed():
            position = self._outputs.load(source) if resume else self._start(source)
        with open_export(str(self._outputs.path), "jsonl", overwrite=True) as writer:
            try:
                self._read_pages(writer, position, resume)
            except (Stopped, ClientError):
                if writer.rows:
                    self._keep(writer, position)
                raise
            return position, self._keep(writer, position)

    def _keep(self, writer: ExportWriter, position: Position) -> ExportReport:
        report = writer.finish()
        self._outputs.save(position)
        return report

    def _start(self, source: dict[str, Any]) -> Position:
        return Position(source=source, start=self._client.export_pages(self._group).start)

    def _read_pages(self, writer: ExportWriter, position: Position, resume: bool) -> None:
        if resume:
            for lines in self._outputs.pages():
                self._write(writer, lines)
        pages = self._client.export_pages(
            self._group,
            start=position.start,
            cursor=position.cursor,
            page_size=self._page_size(),
            **self._filters,
        )
        following = iter(pages)
        try:
            while not position.is_complete:
                with self._signals.allowed():
                    page = next(following, None)
                if page is not None:
                    self._write(writer, page.items[: self._missing()], page.are_new)
                position.is_complete = page is None or self._missing() == 0
                del page  # it is free before the next one is decoded
        finally:
            position.cursor = pages.cursor  # after the last page that is written

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
        again = ["--resume"] if self._rows else []
        command = shlex.join(["gleanery", *arguments, *again])
        sentences = [f"Outputs that are kept: {self._rows:,}"] if self._rows else []
        message = join_sentences(str(failure), *sentences, f"To continue, run: {command}")
        return CommandFailed(message, failure.status)
