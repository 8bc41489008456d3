"""Output of commands on data: tables for people, JSON for scripts."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]


def print_json(value: Any) -> None:
    """Print one JSON document. Dates, Structs and dataclasses are allowed in it."""
    import msgspec

    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")


def print_rows(columns: Sequence[str], rows: Iterable[Sequence[str]], empty: str) -> None:
    """Print a table, or a sentence on standard error if it has no row."""
    from rich.table import Table
    from rich.text import Text

    from gleanery.cli.terminal import print_table

    table = Table(*columns, box=None, header_style="bold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    if table.row_count:
        print_table(table)
    else:
        typer.echo(empty, err=True)
