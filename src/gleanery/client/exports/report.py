"""Result of an export: how much was written, and which columns changed their type."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Widening:
    """A change of a column's type, because a value did not fit the type so far."""

    field: str
    """Name of the column."""
    row: int
    """First row, counted from 1, whose value did not fit."""
    count: int
    """Number of values in the file that do not fit the old type."""
    old_type: str
    new_type: str


@dataclass(frozen=True)
class ExportReport:
    """What an export wrote."""

    rows: int
    bytes: int
    """Size of the file."""
    duplicates: int = 0
    """Outputs that came again, because they changed during the export, and were left out."""
    widenings: tuple[Widening, ...] = ()
    json_columns: tuple[str, ...] = ()
    """Columns whose values are JSON text."""
    missing_fields: tuple[str, ...] = ()
    """Chosen fields that no output has."""
    keys_without_column: int = 0
    """Keys of ``data`` beyond the limit of columns. Their values are in the column ``data``."""
