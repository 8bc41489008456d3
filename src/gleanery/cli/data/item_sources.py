"""Where the items of a push come from: a file or a pipe, read piece by piece.

A file has JSON lines, a JSON array or CSV, and can be compressed. The writer of a pipe can be slow
or die, so a thread reads ahead, and what was read is sent soon.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import os
import re
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from math import inf
from pathlib import Path
from typing import Any, BinaryIO

from gleanery.cli.data.command import UserError
from gleanery.cli.data.stop_signals import StopSignals, blocked_in_new_threads
from gleanery.client.items import FLUSH, InvalidItem
from gleanery.client.queue.batches import MAX_ITEMS, Batch, BatchQueue

FORMATS = ("jsonl", "json", "csv")
MAX_ITEM_BYTES = 64 * 1024 * 1024
_BUFFER_BYTES = 256 * 1024
AUTO = "auto"
"""The first bytes say the format."""
_FORMATS_BY_ENDING = {
    "": AUTO,
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".jl": "jsonl",
    ".json": "json",
    ".csv": "csv",
}
_COMPRESSED_ENDINGS = (".gz", ".zst")
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_ZSTD_MODULES = ("compression.zstd", "backports.zstd")  # the first one is new in Python 3.14
_CSV_HEADER = re.compile(rb'"?[\w .-]+"?(,"?[\w .-]+"?)+[\r\n]')
_BREAKS = re.compile(r"[\r\n]+")
_BLANK = re.compile(r"[ \t\r\n]*")
FLUSH_SECONDS = 5.0
"""Time after which an item is sent, even if its batch is not full."""
_LAST_SECONDS = 1.0
"""Time after a signal in which items are read that the writer sent before."""
_LOOK_SECONDS = 0.1
_MAX_BATCHES = 2
"""Number of full batches that are read ahead."""


# --- files --------------------------------------------------------------------------------------


def detect_format(file: str) -> str:
    """Return the format for the ending of a name. Without an ending it is recognised later."""
    path = Path(file)
    ending = path.suffix.lower()
    if ending in _COMPRESSED_ENDINGS:
        ending = Path(path.stem).suffix.lower()
    if ending not in _FORMATS_BY_ENDING:
        raise UserError(f"The ending of {file} is unknown: give --format {' or '.join(FORMATS)}")
    return _FORMATS_BY_ENDING[ending]


class ItemFile:
    """Items of one format. Iterate over it once."""

    unit = "line"
    """What messages count."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError

    def number(self, index: int) -> int:
        """Return the number of an item in the file, from 1."""
        return index + 1

    def forget_before(self, index: int) -> None:
        """Forget the numbers of items that are done."""


class _JsonLines(ItemFile):
    """One item per line. A line is not parsed."""

    def __iter__(self) -> Iterator[bytes]:
        number = 0
        while line := self.file.readline(MAX_ITEM_BYTES + 1):
            number += 1
            if len(line) > MAX_ITEM_BYTES:
                raise UserError(f"Line {number} is too long: are the items in lines? See --format")
            yield line if number > 1 else _check_first_line(line)


def _check_first_line(line: bytes) -> bytes:
    line = _without_mark(line)
    if line.lstrip().startswith(b"["):
        raise UserError("The file is a JSON array: give --format json")
    return line


def _without_mark(start: bytes) -> bytes:
    """Remove the byte order mark of UTF-8."""
    if start.startswith(_UTF_16):
        raise UserError("The file is in UTF-16: save it as UTF-8")
    return start.removeprefix(codecs.BOM_UTF8)


# --- CSV ----------------------------------------------------------------------------------------


class _Csv(ItemFile):
    """Rows under a header. Each item has all columns, and each value is text as it is there."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(file)
        self._line = 0
        self._numbers: dict[int, int] = {}

    def __iter__(self) -> Iterator[dict[str, str] | InvalidItem]:
        csv.field_size_limit(MAX_ITEM_BYTES)
        rows = csv.reader(self._lines(), strict=True)
        try:
            header = _check_header(next(rows, []))
            start = rows.line_num + 1
            for index, row in enumerate(row for row in rows if row):
                self._numbers[index] = start
                start = rows.line_num + 1
                yield _to_item(header, row)
        except csv.Error as error:
            raise UserError(f"Line {self._line} is not CSV: {error}") from None

    def _lines(self) -> Iterator[str]:
        while line := self.file.readline(MAX_ITEM_BYTES + 1):
            self._line += 1
            try:
                yield (_without_mark(line) if self._line == 1 else line).decode("utf-8")
            except UnicodeDecodeError:
                raise UserError(
                    f"Line {self._line} is not in UTF-8: save the file as UTF-8"
                ) from None

    def number(self, index: int) -> int:
        return self._numbers.get(index, self._line)

    def forget_before(self, index: int) -> None:
        for done in [n for n in list(self._numbers) if n < index]:  # a thread may add others
            del self._numbers[done]


def _check_header(names: list[str]) -> list[str]:
    if not names:
        raise UserError("The file has no header: its first line must be the names of the columns")
    if len(names) == 1 and re.search(r"[;\t|]", names[0]):
        raise UserError("The header has one column only: the columns must be separated by commas")
    if "" in names or len(set(names)) < len(names):
        raise UserError("The header has a column without a name, or a name twice")
    return names


def _to_item(header: list[str], row: list[str]) -> dict[str, str] | InvalidItem:
    if len(row) != len(header):
        return InvalidItem(f"has {len(row)} values, and the header has {len(header)}")
    return dict(zip(header, row, strict=True))


# --- JSON arrays --------------------------------------------------------------------------------


class _JsonArray(ItemFile):
    """Elements of one array. Only one element is in memory, and its text is sent as it is."""

    unit = "item"

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(file)
        self._text = ""
        self._at = 0
        self._count = 0
        self._decode = codecs.getincrementaldecoder("utf-8-sig")().decode
        # Numbers stay text, so that none is too long.
        self._scanner = json.JSONDecoder(parse_int=str, parse_float=str)

    def __iter__(self) -> Iterator[bytes]:
        if self._next_character() != "[":
            raise UserError("The file is not a JSON array: for one item per line, --format jsonl")
        self._at += 1
        separator = self._next_character()
        if separator == "]":
            self._at += 1
        else:
            separator = ","
        while separator == ",":
            yield self._next_element()
            separator = self._next_character()
            self._at += 1
        if separator != "]" or self._next_character():
            raise self._invalid()

    def _next_character(self) -> str:
        """Skip white space, and return the next character; empty at the end of the file."""
        while True:
            found = _BLANK.match(self._text, self._at)
            assert found is not None
            self._at = found.end()
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._read_more():
                return ""

    def _next_element(self) -> bytes:
        self._next_character()
        while True:
            try:
                _, end = self._scanner.raw_decode(self._text, self._at)
            except (ValueError, RecursionError):
                end = len(self._text)
            if end < len(self._text):
                element, self._at = self._text[self._at : end], end
                self._count += 1
                return _BREAKS.sub(" ", element).encode("utf-8")  # outside strings only
            if len(self._text) - self._at > MAX_ITEM_BYTES or not self._read_more():
                raise self._invalid()

    def _read_more(self) -> bool:
        """Read as much again, so that a long element is not scanned too often."""
        rest = self._text[self._at :]
        piece = self.file.read(max(len(rest), _BUFFER_BYTES))
        try:
            self._text = rest + self._decode(piece, final=not piece)
        except UnicodeDecodeError:
            raise UserError("The file is not in UTF-8: save it as UTF-8") from None
        self._at = 0
        return bool(piece)

    def _invalid(self) -> UserError:
        return UserError(f"The text after item {self._count} of the array is not JSON")


# --- opening ------------------------------------------------------------------------------------

_KINDS: dict[str, type[ItemFile]] = {"jsonl": _JsonLines, "json": _JsonArray, "csv": _Csv}


class Input(io.RawIOBase):
    """The bytes of a file or of standard input, before decompression."""

    def __init__(self, file: io.FileIO, name: str) -> None:
        self._file = file
        self._name = name
        self.position = 0
        status = os.fstat(file.fileno())
        self.size = status.st_size if stat.S_ISREG(status.st_mode) else None
        """None for a pipe."""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            count = self._file.readinto(buffer) or 0
        except OSError as error:
            raise OSError(error.errno, error.strerror, self._name) from None
        self.position += count
        return count


@contextmanager
def open_input(file: str) -> Iterator[Input]:
    """Open a file; ``-`` is standard input."""
    name = "standard input" if file == "-" else file
    source: str | int = sys.stdin.fileno() if file == "-" else file
    with io.FileIO(source, closefd=file != "-") as opened:
        yield Input(opened, name)


class _Decompressed(io.RawIOBase):
    """The bytes of a compressed file."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            return int(self._file.readinto(buffer))
        except EOFError:
            raise UserError("The compressed file ends too early: it is not complete") from None
        except Exception as error:  # each library has its own
            if isinstance(error, OSError) and error.errno is not None:
                raise
            raise UserError("The compressed file is damaged") from None


def open_items(source: Input, format_: str) -> ItemFile:
    """Open the items of an input, and decompress it if it begins like a compressed file."""
    file: Any = io.BufferedReader(source, _BUFFER_BYTES)
    start = file.peek(len(_ZSTD))
    if start.startswith(_GZIP):
        import gzip

        file = io.BufferedReader(_Decompressed(gzip.GzipFile(fileobj=file)), _BUFFER_BYTES)
    elif start.startswith(_ZSTD):
        file = io.BufferedReader(_Decompressed(_zstd().ZstdFile(file)), _BUFFER_BYTES)
    return _KINDS[_recognize(file.peek()) if format_ == AUTO else format_](file)


def _recognize(start: bytes) -> str:
    """Return the format of JSON. CSV is not guessed: a line of a log can look like its header."""
    text = start.removeprefix(codecs.BOM_UTF8).lstrip()
    if _CSV_HEADER.match(text):
        raise UserError("The items look like CSV: give --format csv, or else --format jsonl")
    return "json" if text.startswith(b"[") else "jsonl"


def _zstd() -> Any:
    for name in _ZSTD_MODULES:
        try:
            return import_module(name)
        except ImportError:
            pass
    raise UserError("This Python cannot read zstd: run zstd -dc FILE | gleanery push … instead")


# --- pipes --------------------------------------------------------------------------------------


class PipeItems:
    """Iterates over items that a thread reads ahead. Iterate over it once.

    The first Ctrl-C or SIGTERM ends the items. ``on_stop`` is called before the last ones.
    """

    def __init__(
        self, source: Iterable[Any], signals: StopSignals, on_stop: Callable[[], None]
    ) -> None:
        self._source = source
        self._signals = signals
        self._on_stop = on_stop
        self._last = inf  # time after which nothing more is read
        self._queue: BatchQueue[Any] = BatchQueue(MAX_ITEMS, FLUSH_SECONDS, _MAX_BATCHES)
        self._error: Exception | None = None

    def __iter__(self) -> Iterator[Any]:
        with blocked_in_new_threads():
            threading.Thread(target=self._read, daemon=True).start()
        while (batch := self._take()) is not None:
            yield from batch.entries
            yield FLUSH
        if self._error is not None:
            raise self._error

    def _take(self) -> Batch[Any] | None:
        """Wait for a batch, and return it. Return None at the end."""
        while True:
            self._look_for_signal()
            has_ended = self._queue.is_ending
            batch = self._queue.first(_LOOK_SECONDS)
            if batch is not None:
                self._queue.remove_first()
                return batch
            if has_ended:
                return None

    def _look_for_signal(self) -> None:
        """End the items some time after a signal, even if the writer continues."""
        if self._signals.received is None:
            return
        if self._last == inf:
            self._last = time.monotonic() + _LAST_SECONDS
            self._on_stop()
        if time.monotonic() >= self._last:
            self._queue.end()

    def _read(self) -> None:
        """Read the items. It waits if the others are not taken yet."""
        try:
            for item in self._source:
                if not self._queue.put(item, _line_size(item)):
                    return
        except Exception as error:  # the other thread raises it
            self._error = error
        self._queue.end()


def _line_size(item: Any) -> int:
    """Return the bytes of an item, about as many as its line has."""
    if isinstance(item, dict):
        return sum(len(name) + len(value) + 6 for name, value in item.items())
    return len(item) if isinstance(item, bytes) else 0
