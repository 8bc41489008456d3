"""Output of commands on data: tables for people, JSON for scripts."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

_MAX_SHOWN = 60  # characters of a value
_ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]


def print_json(value: Any) -> None:
    """Print one JSON document. Dates, Structs and dataclasses are allowed in it."""
    import msgspec

    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")


def print_json_array(items: Iterable[bytes]) -> None:
    """Print JSON documents as one array, each in a line."""
    separator = "[\n"
    for item in items:
        sys.stdout.write(separator + item.decode())
        separator = ",\n"
    sys.stdout.write("[]\n" if separator == "[\n" else "\n]\n")


def printable(text: str) -> str:
    """Return the text with escape sequences for characters that could control a terminal."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )


def shorten(value: Any) -> str:
    """Return a value as JSON text, and of a long one only the start."""
    import msgspec

    text = msgspec.json.encode(value).decode()
    return text if len(text) <= _MAX_SHOWN else text[: _MAX_SHOWN - 1] + _ELLIPSIS


def show_date(date: datetime | None) -> str:
    """Return a date for people, in UTC."""
    return "" if date is None else date.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def print_rows(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    empty: str,
    unbroken: Sequence[str] = (),
) -> None:
    """Print a table, or a sentence on standard error if it has no row.

    A narrow terminal breaks the lines of columns, except those that are unbroken.
    """
    from rich.table import Column, Table
    from rich.text import Text

    from gleanery.cli.terminal import print_table

    headers = [  # names and numbers stay whole
        Column(name, overflow="fold", no_wrap=name in unbroken) for name in columns
    ]
    table = Table(*headers, box=None, pad_edge=False, header_style="bold")
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    if table.row_count:
        print_table(table)
    else:
        typer.echo(empty, err=True)
