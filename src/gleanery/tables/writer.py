"""Writing of an export: formats, progress, completion and failure."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path, PurePath
from types import TracebackType
from typing import Any, Literal, Protocol, Self

from gleanery.tables.destinations import Destination, continue_file, open_destination
from gleanery.tables.export import ExportReport, Field, InvalidExport, Item, read_fields

FORMATS = ("jsonl", "csv", "parquet")
DATA_FORMS = ("columns", "json")
FormatName = Literal["jsonl", "csv", "parquet"]
RowsCallback = Callable[[int], None]
_ENDINGS: dict[str, FormatName] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".parquet": "parquet",
}


class Format(Protocol):
    """Writer of one format."""

    def write(self, items: Sequence[Item], are_new: bool) -> int:
        """Write the outputs that were not written before, and return their number.

        ``are_new`` says that the caller knows that none of them was.
        """

    @property
    def row_type(self) -> type[Any] | None:
        """Type of the outputs that ``write_rows`` takes, if the format has rows."""

    def write_rows(self, rows: list[Any]) -> None:
        """Write decoded outputs that were not written before."""

    def finish(self, metadata: dict[str, Any], on_rows: RowsCallback) -> ExportReport:
        """Write the rest. The caller knows the number of rows and bytes.

        A format that goes through all rows again calls ``on_rows`` with their number.
        """

    def close(self) -> None:
        """Close temporary files. It may be called again."""


class ExportWriter:
    """Writes outputs, each once, into one file.

    As a context manager it removes what it wrote if the block raises.
    """

    def __init__(self, destination: Destination, create: Callable[[Destination], Format]) -> None:
        self._destination = destination
        self._is_open = True
        self.rows = 0
        """Outputs so far."""
        self.item_bytes = 0
        """JSON bytes of the outputs so far."""
        self.duplicates = 0
        """Outputs that came again, and were left out."""
        self.metadata: dict[str, Any] = {}
        """What Parquet holds about the whole file: group, filters, cursor. JSON values."""
        try:
            self._format = create(destination)
        except BaseException:
            destination.discard()
            raise

    @property
    def bytes(self) -> int:
        """Size of the file so far. A table gets its content at the end."""
        return self._destination.bytes

    def write(self, items: Sequence[Item], are_new: bool = False) -> None:
        """Write a page of outputs. An output whose id was written before is left out.

        ``are_new`` saves the search for such outputs: the caller knows that there are none.
        """
        with self._destination.failures():
            new = self._format.write(items, are_new) if items else 0
        self.rows += new
        self.duplicates += len(items) - new
        self.item_bytes += sum(map(len, items))

    @property
    def row_type(self) -> type[Any] | None:
        """Type as which outputs can be decoded for ``write_rows``; None if they cannot."""
        return self._format.row_type

    def write_rows(self, rows: list[Any], size: int) -> None:
        """Write decoded outputs that were not written before, and that had so many bytes."""
        with self._destination.failures():
            self._format.write_rows(rows)
        self.rows += len(rows)
        self.item_bytes += size

    def finish(self, on_rows: RowsCallback = lambda _: None) -> ExportReport:
        """Complete the file and give it its name.

        ``on_rows`` is called with numbers of rows, if all of them are written again.
        """
        try:
            with self._destination.failures():
                report = self._format.finish(self.metadata, on_rows)
            self._destination.publish()
        except BaseException:
            self.abort()
            raise
        self._is_open = False
        return replace(
            report, rows=self.rows, bytes=self._destination.bytes, duplicates=self.duplicates
        )

    def abort(self) -> None:
        """Remove what was written. After ``finish`` this does nothing."""
        if self._is_open:
            self._is_open = False
            self._close()
            self._destination.discard()

    def _close(self) -> None:
        """Close the format's files, which Windows does not delete while they are open."""
        with suppress(Exception):
            self._format.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Remove an unfinished file, even if the block forgot to call ``finish``."""
        self.abort()


def available_formats() -> list[str]:
    """Return the formats that can be written here: Parquet needs a library."""
    has_parquet = importlib.util.find_spec("pyarrow") is not None
    return ["csv", "jsonl", *(["parquet"] if has_parquet else [])]


def format_of(target: str) -> FormatName:
    """Return the format that the ending of a name says; JSON lines for standard output."""
    if target == "-":
        return "jsonl"
    ending = PurePath(target).suffix.lower()
    if ending not in _ENDINGS:
        raise InvalidExport(
            f"The format is unknown: give format, or a name that ends with {', '.join(_ENDINGS)}"
        )
    return _ENDINGS[ending]


def open_export(
    target: str,
    format: str | None = None,  # noqa: A002
    *,
    data: str = "columns",
    fields: Sequence[str] | None = None,
    escape_formulas: bool = True,
    overwrite: bool = False,
) -> ExportWriter:
    """Open a file path, ``-`` (standard output) or ``s3://bucket/key`` for outputs.

    ``data`` says whether a table has one column for each key of ``data``, or one with JSON text.
    ``fields`` are members of an output and keys of ``data``; None: all. Without a format, the
    ending of the destination decides.
    """
    format = format_of(target) if format is None else format  # noqa: A001
    _check_choice("format", format, FORMATS)
    _check_choice("data", data, DATA_FORMS)
    chosen = None if fields is None else read_fields(fields)
    create = _creator(format, data == "json", chosen, escape_formulas)
    return ExportWriter(open_destination(target, overwrite), create)


def continue_lines(path: Path, size: int) -> ExportWriter:
    """Continue a file of JSON lines after its first bytes. It stays also after a failure."""
    return ExportWriter(continue_file(path, size), _creator("jsonl", False, None, False))


def _check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise InvalidExport(f"{name} must be one of: {', '.join(choices)}")


def _creator(
    format: str,  # noqa: A002
    data_is_json: bool,
    fields: Sequence[Field] | None,
    escape_formulas: bool,
) -> Callable[[Destination], Format]:
    """Return a function that creates the writer. A missing library is reported at once."""
    if format == "jsonl":
        from gleanery.tables.text import JsonLines

        return lambda destination: JsonLines(destination, fields)
    if format == "csv":
        from gleanery.tables.text import Csv

        return lambda destination: Csv(destination, fields, data_is_json, escape_formulas)
    from gleanery.tables.parquet import Parquet

    return lambda destination: Parquet(destination, fields, data_is_json)
