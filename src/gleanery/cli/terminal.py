"""What a terminal shows: tables, progress on long work, and how many there are of something."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from gleanery.observability.progress import Begin, Tell


@contextmanager
def bars() -> Iterator[Begin]:
    """Progress on standard error, if a person is looking."""
    with Progress(console=Console(stderr=True), disable=not sys.stderr.isatty()) as bars:

        def begin(words: str, total: int) -> Tell:
            return partial(bars.advance, bars.add_task(words, total=total))

        yield begin


def show(table: Table) -> None:
    Console(width=None if sys.stdout.isatty() else 200).print(table)


def counted(number: int, what: str) -> str:
    """As "1 file", "2 files"."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
