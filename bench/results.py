"""A figure, whether it meets its target, and how a table and a plot of them look."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import sqlite3
from dataclasses import dataclass
from pathlib import Path

from bench.dataset import LARGE_SIZE
from bench.load_generator import ROUNDS, SECONDS
from bench.servers import PEERS
from gleanery import __version__

_BEGIN, _END = "<!-- measured -->", "<!-- end -->"


@dataclass(frozen=True)
class Target:
    bound: float
    is_floor: bool

    def __str__(self) -> str:
        return f"{'>=' if self.is_floor else '<='} {self.bound:g}"

    def is_met(self, value: float) -> bool:
        return value >= self.bound if self.is_floor else value <= self.bound


def at_least(bound: float) -> Target:
    return Target(bound, is_floor=True)


def at_most(bound: float) -> Target:
    return Target(bound, is_floor=False)


@dataclass(frozen=True)
class Figure:
    """One ratio. Some have no target, and one without a value could not be measured."""

    work: str
    target: Target | None
    value: float | None
    words: str

    @property
    def cells(self) -> tuple[str, str, str, str]:
        words = " ".join(self.words.replace("|", "/").split())  # it goes into a table
        if self.value is None:
            return self.work, str(self.target or "–"), "not measured", f"–: {words}"
        met = "–" if self.target is None else "yes" if self.target.is_met(self.value) else "**no**"
        return self.work, str(self.target or "–"), f"{self.value:.2f}", f"{met}: {words}"


def table(figures: list[Figure]) -> str:
    rows = [("work", "target", "ratio", "met"), ("---",) * 4, *(f.cells for f in figures)]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def circumstances() -> str:
    """Of the run: its size, the versions, the machine."""
    ours = ("uvicorn", "uvloop", "httptools", "apsw", "asyncpg")
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ours)
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    return (
        f"Measured on {today} over {LARGE_SIZE:,} outputs, best of {ROUNDS} rounds of {SECONDS} s: "
        f"Gleanery {__version__}, Python {platform.python_version()}, {versions}; the peers "
        f"{_peers()}, SQLite {sqlite3.sqlite_version}; {os.cpu_count()} cores "
        f"({platform.machine()}), {platform.system()} {platform.release().split('-')[0]}."
    )


def _peers() -> str:
    path = [str(found) for found in PEERS.parent.glob("lib/python*/site-packages")]
    installed = importlib.metadata.distributions(path=path)
    versions = {one.name.lower(): one.version for one in installed}
    names = ("FastAPI", "SQLAlchemy", "Datasette", "Kinto")
    return ", ".join(f"{name} {versions.get(name.lower(), 'not installed')}" for name in names)


def plot(speeds: dict[str, float]) -> str:
    """Requests a second as bars on a logarithmic scale, in SVG."""
    import math

    width, row, left = 760, 26, 250
    largest = max(speeds.values())
    bars = []
    for number, (name, speed) in enumerate(speeds.items()):
        length = (width - left - 90) * math.log10(max(speed, 1)) / math.log10(largest)
        y = 14 + number * row
        colour = "#2a6f4e" if name.startswith("Gleanery") else "#9aa5a0"
        bars.append(
            f'<text x="{left - 8}" y="{y + 12}" text-anchor="end">{name}</text>'
            f'<rect x="{left}" y="{y}" width="{length:.0f}" height="16" fill="{colour}"/>'
            f'<text x="{left + length + 6:.0f}" y="{y + 12}">{speed:,.0f}</text>'
        )
    height = 24 + len(speeds) * row
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'font-family="sans-serif" font-size="13" fill="#222">{"".join(bars)}</svg>\n'
    )


def write(document: Path, figures: list[Figure], speeds: dict[str, dict[str, float]]) -> None:
    """Puts the table into the document, and the plots beside it."""
    text = document.read_text()
    lines = [_BEGIN, "", circumstances(), "", table(figures), ""]
    for title, of_title in speeds.items():
        if of_title:
            name = f"performance-{title.split()[0]}.svg"
            document.with_name(name).write_text(plot(of_title))
            lines += [f"{title}, requests a second (logarithmic):", "", f"![{title}]({name})", ""]
    before, _, rest = text.partition(_BEGIN)
    document.write_text(before + "\n".join(lines) + _END + rest.partition(_END)[2])
