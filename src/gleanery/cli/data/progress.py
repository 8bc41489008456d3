"""Progress of long work on standard error: a bar on a terminal, else a line every few seconds."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from types import TracebackType
from typing import Annotated, Protocol, Self

import click

from gleanery.cli.declaration import Option
from gleanery.cli.terminal import StatusLine, duration, understands_escapes

Quiet = Annotated[bool, Option("--quiet", "-q", help="Show no progress and no summary.")]

_LINE_SECONDS = 5.0
_BAR_SECONDS = 0.1
_UNITS = ("bytes", "kB", "MB", "GB", "TB")


class Display(Protocol):
    """A way to show progress."""

    def show(self, progress: Progress, is_last: bool = False) -> None: ...
    def pause(self, progress: Progress) -> None: ...
    def note(self, text: str) -> None: ...
    def close(self) -> None: ...


class Progress:
    """Number of items and bytes that work has done. Its display never fails the work."""

    def __init__(
        self,
        verb: str,
        noun: str,
        total: int | None = None,
        *,
        total_bytes: int | None = None,
        is_quiet: bool = False,
    ) -> None:
        self.verb = verb
        self.noun = noun
        self.total = total
        self.total_bytes = total_bytes
        self.items = 0
        self.bytes = 0
        self._start = self._first_start = time.monotonic()
        self._display: Display | None = None if is_quiet else _new_display()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._attempt(lambda display: display.close())

    def advance(self, items: int, bytes_: int = 0) -> None:
        """Report that more is done."""
        self.items += items
        self.bytes += bytes_
        self._attempt(lambda display: display.show(self))

    def start_again(self, verb: str, total: int) -> None:
        """Show the step that is complete, and count the next one."""
        self._attempt(lambda display: display.show(self, is_last=True))
        self.verb, self.total = verb, total
        self.items = self.bytes = 0
        self._start = time.monotonic()

    def pause(self) -> None:
        """Show the present state on a terminal, because nothing more may be done for long."""
        self._attempt(lambda display: display.pause(self))

    def note(self, text: str) -> None:
        """Show a message, such as that of a retry."""
        self._attempt(lambda display: display.note(text))

    def warn(self, text: str) -> None:
        """Show a message that --quiet does not hide."""
        if self._display is None:
            with suppress(OSError):  # nobody reads standard error
                click.echo(text, err=True)
        else:
            self.note(text)

    def summarize(self, text: str) -> None:
        """Show the result of the work: its number of items and bytes, its time and this text."""
        seconds = time.monotonic() - self._first_start
        self.note(f"{self._counts()} in {duration(seconds)} {text}".rstrip())

    @property
    def seconds(self) -> float:
        return max(time.monotonic() - self._start, 1e-9)

    @property
    def rate(self) -> float:
        """Items per second."""
        return self.items / self.seconds

    @property
    def fraction(self) -> float | None:
        """Part of the work that is done; None if the whole is not known."""
        if self.total:
            return min(self.items / self.total, 1)
        return min(self.bytes / self.total_bytes, 1) if self.total_bytes else None

    @property
    def remaining_seconds(self) -> float | None:
        done = self.fraction
        return self.seconds * (1 - done) / done if done else None

    def sentence(self) -> str:
        """Return the present state in words."""
        of_total = f" of {self.total:,}" if self.total is not None else ""
        remaining = self.remaining_seconds
        left = f", {duration(remaining)} left" if remaining is not None else ""
        return f"{self._counts(of_total)}, {self.rate:,.0f}/s{left}"

    def _counts(self, of_total: str = "") -> str:
        noun = self.noun if self.items == 1 and not of_total else f"{self.noun}s"
        size = f", {size_of(self.bytes)}" if self.bytes else ""
        return f"{self.verb} {self.items:,}{of_total} {noun}{size}"

    def _attempt(self, action: _Action) -> None:
        """Act on the display. A terminal that is gone ends the display, not the work."""
        if self._display is None:
            return
        try:
            action(self._display)
        except (OSError, ValueError):  # ValueError: the stream is closed
            self._display = None


class _Action(Protocol):
    def __call__(self, display: Display, /) -> None: ...


def _new_display() -> Display:
    return _Bar() if understands_escapes(sys.stderr) else _Lines()


class _Lines:
    """Writes a line every few seconds, for logs."""

    def __init__(self) -> None:
        self._next = time.monotonic() + _LINE_SECONDS
        self._has_lines = False  # short work shows its summary only

    def show(self, progress: Progress, is_last: bool = False) -> None:
        if time.monotonic() >= self._next or (is_last and self._has_lines):
            self._next = time.monotonic() + _LINE_SECONDS
            self._has_lines = True
            self.note(progress.sentence())

    def pause(self, progress: Progress) -> None:
        pass

    def note(self, text: str) -> None:
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()

    def close(self) -> None:
        pass


class _Bar:
    """Draws a bar on a terminal. It starts no thread, in which an error would be lost."""

    def __init__(self) -> None:
        self._line = StatusLine()
        self._next = 0.0

    def show(self, progress: Progress, is_last: bool = False) -> None:
        if time.monotonic() >= self._next or is_last:
            self._next = time.monotonic() + _BAR_SECONDS
            self._line.draw(progress.sentence(), progress.fraction)

    def pause(self, progress: Progress) -> None:
        self.show(progress, is_last=True)

    def note(self, text: str) -> None:
        self._line.print_above(text)

    def close(self) -> None:
        self._line.close()


def size_of(bytes_: int) -> str:
    """Return a number of bytes for people, such as ``1.2 MB``."""
    size, unit = float(bytes_), 0
    while size >= 999.95 and unit < len(_UNITS) - 1:
        size, unit = size / 1000, unit + 1
    return f"{size:.1f} {_UNITS[unit]}" if unit else f"{bytes_} bytes"
