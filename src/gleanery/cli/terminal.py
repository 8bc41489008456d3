"""Terminal output: tables, a line of progress that is drawn again and again, and counts.

A width is a number of cells: a Chinese character takes two, an accent that joins a letter none.
"""

from __future__ import annotations

import os
import sys
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TextIO

_DEFAULT_WIDTH = 80
_LEAST_COLUMN = 4  # cells; a narrower column is not readable
_GAP = "  "
_BAR_WIDTH = 20
_BAR_SECONDS = 0.1
_ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"
_BOLD, _PLAIN = "\x1b[1m", "\x1b[0m"
_HIDE_CURSOR, _SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"
_ERASE_LINE = "\r\x1b[K"


# --- text ---------------------------------------------------------------------------------------


def pluralize(count: int, noun: str) -> str:
    """Return a count with its noun, such as "1 file" or "2 files"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def duration(seconds: float) -> str:
    """Return a time for people, such as ``3.1 s`` or ``2:05:00``."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def printable(text: str) -> str:
    """Return the text with escape sequences for characters that could control a terminal."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )


def width_of(text: str) -> int:
    """Return the number of cells that the text takes."""
    return len(text) if text.isascii() else sum(map(_cells, text))


def _cells(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def wrap(text: str, width: int) -> list[str]:
    """Return the lines of a text. Only a word that is longer than a line is divided."""
    lines = [""]
    for word in text.split(" "):
        longer = f"{lines[-1]} {word}" if lines[-1] else word
        if width_of(longer) <= width:
            lines[-1] = longer
            continue
        rest = word
        if not lines[-1]:
            lines.pop()
        while width_of(rest) > width:
            start = _start(rest, width)
            lines.append(start)
            rest = rest[len(start) :]
        lines.append(rest)
    return lines


def _start(text: str, width: int) -> str:
    """Return the longest start of a text that fits, and one character at least."""
    cells = 0
    for position, character in enumerate(text):
        cells += _cells(character)
        if cells > width and position:
            return text[:position]
    return text


def _shorten(text: str, width: int) -> str:
    return text if width_of(text) <= width else _start(text, width - 1) + _ELLIPSIS


# --- terminals ----------------------------------------------------------------------------------


def terminal_width(stream: TextIO) -> int:
    """Return the width of the terminal of a stream; the variable COLUMNS overrides it."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns):
        return int(columns)
    try:
        return os.get_terminal_size(stream.fileno()).columns or _DEFAULT_WIDTH
    except (OSError, ValueError):  # it is no terminal
        return _DEFAULT_WIDTH


def understands_escapes(stream: TextIO) -> bool:
    """Return True for a terminal that can draw a line again. Old consoles of Windows cannot."""
    if not stream.isatty() or os.environ.get("TERM") in ("dumb", "unknown"):
        return False
    return sys.platform != "win32" or "WT_SESSION" in os.environ


# --- tables -------------------------------------------------------------------------------------


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], unbroken: Sequence[str] = ()
) -> None:
    """Print a table. A narrow terminal breaks the lines of columns, except those unbroken.

    A pipe gets lines of any length, so that other programs can read them.
    """
    cells = [tuple(columns), *(tuple(map(printable, row)) for row in rows)]
    widths = [max(map(width_of, column)) for column in zip(*cells, strict=True)]
    if sys.stdout.isatty():
        fixed = [number for number, name in enumerate(columns) if name in unbroken]
        words = [max(map(_widest_word, column)) for column in zip(*cells, strict=True)]
        for least in (words, [_LEAST_COLUMN] * len(widths)):  # words stay whole, if possible
            widths = _narrowed(widths, least, fixed, terminal_width(sys.stdout))
    header, *others = ("\n".join(_lines(row, widths)) for row in cells)
    if understands_escapes(sys.stdout):
        header = f"{_BOLD}{header}{_PLAIN}"
    sys.stdout.write("\n".join([header, *others]) + "\n")


def _widest_word(text: str) -> int:
    return max(map(width_of, text.split(" ")))


def _narrowed(
    widths: Sequence[int], least: Sequence[int], fixed: Sequence[int], available: int
) -> list[int]:
    """Return the widths of columns that fit, if possible. The widest ones become narrower."""
    found = [*widths]
    columns = [number for number in range(len(found)) if number not in fixed]
    while sum(found) + len(_GAP) * (len(found) - 1) > available:
        flexible = [number for number in columns if found[number] > least[number]]
        if not flexible:
            break
        found[max(flexible, key=lambda number: found[number])] -= 1
    return found


def _lines(row: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    """Yield the lines of a row."""
    broken = [wrap(cell, width) for cell, width in zip(row, widths, strict=True)]
    for number in range(max(map(len, broken))):
        parts = [lines[number] if number < len(lines) else "" for lines in broken]
        padded = (
            part + " " * (width - width_of(part)) for part, width in zip(parts, widths, strict=True)
        )
        yield _GAP.join(padded).rstrip()


# --- progress -----------------------------------------------------------------------------------


class StatusLine:
    """Line on standard error that is drawn again and again. The cursor is hidden until its end."""

    def __init__(self) -> None:
        self._drawn = ""

    def draw(self, text: str, fraction: float | None) -> None:
        """Show the text, with a bar if a part of the work is known and there is space."""
        width = terminal_width(sys.stderr) - 1  # in the last cell, some terminals begin a line
        if fraction is not None and width_of(text) + _BAR_WIDTH + 3 <= width:
            done = round(_BAR_WIDTH * min(fraction, 1))
            text = f"{text} [{'#' * done}{'.' * (_BAR_WIDTH - done)}]"
        self._write(f"{_HIDE_CURSOR}{_ERASE_LINE}{_shorten(text, width)}")
        self._drawn = text

    def print_above(self, text: str) -> None:
        """Print a text that stays, and show the line below it."""
        drawn = self._drawn and _shorten(self._drawn, terminal_width(sys.stderr) - 1)
        self._write(f"{_ERASE_LINE if drawn else ''}{text}\n{drawn}")

    def keep(self) -> None:
        """Let the line stay. The next one appears below it."""
        if self._drawn:
            self._write(f"{_SHOW_CURSOR}\n")
            self._drawn = ""

    def close(self) -> None:
        """Remove the line."""
        if self._drawn:
            self._write(f"{_ERASE_LINE}{_SHOW_CURSOR}")
            self._drawn = ""

    def _write(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()


class _Bar:
    """Bar of one step of the work. A terminal that is gone does not fail the work."""

    def __init__(self, line: StatusLine, description: str, total: int) -> None:
        self._line = line
        self._description = description
        self._total = total
        self._done = 0
        self._start = time.monotonic()
        self._next = 0.0
        self.advance(0)

    def advance(self, units: int) -> None:
        self._done += units
        now = time.monotonic()
        if now < self._next and self._done < self._total:
            return
        self._next = now + _BAR_SECONDS
        part = self._done / self._total if self._total else 1.0
        left = ""
        if 0 < part < 1:
            left = f", {duration((now - self._start) * (1 - part) / part)} left"
        with suppress(OSError, ValueError):  # ValueError: the stream is closed
            self._line.draw(f"{self._description}: {min(part, 1):.0%}{left}", part)


def _show_nothing(description: str, total: int) -> Callable[[int], object]:
    return lambda _: None


@contextmanager
def progress_bars() -> Iterator[Callable[[str, int], Callable[[int], object]]]:
    """Show a bar for each step of the work on standard error, if that is a terminal.

    Yields a function that takes a description and a total. It returns the function that advances.
    """
    if not understands_escapes(sys.stderr):
        yield _show_nothing
        return
    line = StatusLine()

    def start(description: str, total: int) -> Callable[[int], object]:
        keep()
        return _Bar(line, description, total).advance

    def keep() -> None:
        with suppress(OSError, ValueError):
            line.keep()

    try:
        yield start
    finally:
        keep()
