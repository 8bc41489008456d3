"""Result of an export: how much was written, and which columns changed their type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace


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

    rows: int = 0
    bytes: int = 0
    """Size of the file."""
    duplicates: int = 0
    """Outputs that came again, because they changed during the export, and were left out."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """Type of each column of a table: null, bool, int64, double, string, timestamp or json."""
    widenings: tuple[Widening, ...] = ()
    missing_fields: tuple[str, ...] = ()
    """Chosen keys of ``data`` that no output has, as the caller gave them."""
    cursor: int | None = None
    """Where ``changes`` continues. None if the outputs are not complete, because of a limit."""

    def with_cursor(self, cursor: int | None) -> ExportReport:
        return replace(self, cursor=cursor)
