"""Terminal output: tables, progress bars and counts."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

_PIPE_WIDTH = 10_000  # no line is broken, so that other programs can read it


@contextmanager
def progress_bars() -> Iterator[Callable[[str, int], Callable[[int], object]]]:
    """Show progress bars on standard error, if that is a terminal.

    Yields a function that takes a description and a total. It returns the function that advances.
    """
    with Progress(console=Console(stderr=True), disable=not sys.stderr.isatty()) as bars:

        def start(description: str, total: int) -> Callable[[int], object]:
            return partial(bars.advance, bars.add_task(description, total=total))

        yield start


def print_table(table: Table) -> None:
    Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH).print(table)


def pluralize(count: int, noun: str) -> str:
    """Return a count with its noun, such as "1 file" or "2 files"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
