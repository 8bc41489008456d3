"""Result of a measurement, its target, and the table and the charts of all results."""

from __future__ import annotations

import datetime
import importlib.metadata
import math
import os
import platform
import sqlite3
from dataclasses import dataclass
from pathlib import Path

from bench.dataset import LARGE_SIZE
from bench.load_generator import ROUNDS, SECONDS
from bench.servers import PEER_PROGRAMS
from gleanery import __version__

LEAST_OF_BASELINE = 0.95
_BEGIN, _END = "<!-- measured -->", "<!-- end -->"


@dataclass(frozen=True)
class Target:
    """Lower or upper bound of a ratio."""

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
class Result:
    """One row of the table. The target is optional; a ratio is None if it was not measured."""

    label: str
    target: Target | None
    ratio: float | None
    details: str
    of_baseline: float | None = None
    """The speed as a share of the baseline's."""

    @property
    def is_missed(self) -> bool:
        return self.target is not None and not (
            self.ratio is None or self.target.is_met(self.ratio)
        )

    @property
    def is_worse(self) -> bool:
        """True if the baseline is noticeably faster."""
        return self.of_baseline is not None and self.of_baseline < LEAST_OF_BASELINE

    @property
    def cells(self) -> tuple[str, ...]:
        details = " ".join(self.details.replace("|", "/").split())  # fits into a table cell
        target = str(self.target or "–")
        if self.ratio is None:
            return self.label, target, "not measured", "–", f"–: {details}"
        of_baseline = "–" if self.of_baseline is None else f"{self.of_baseline:.2f}"
        met = "–" if self.target is None else "yes" if self.target.is_met(self.ratio) else "**no**"
        return self.label, target, f"{self.ratio:.2f}", of_baseline, f"{met}: {details}"


def table(results: list[Result]) -> str:
    """Return the results as a Markdown table."""
    head = ("measurement", "target", "ratio", "of the baseline", "met")
    rows = [head, ("---",) * len(head), *(result.cells for result in results)]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def regressions(results: list[Result]) -> str:
    """Return a sentence and a list of the rows in which the baseline is noticeably faster."""
    compared = [result for result in results if result.of_baseline is not None]
    worse = sorted((r for r in compared if r.is_worse), key=lambda r: r.of_baseline or 0)
    least = 100 - round(100 * LEAST_OF_BASELINE)
    if not worse:
        return f"None of {len(compared)} rows is worse than the baseline by more than {least} %."
    lines = [f"{len(worse)} of {len(compared)} rows are worse than the baseline by more than "]
    lines[0] += f"{least} %:"
    lines += ["", *(f"- {result.label}: {result.of_baseline:.2f}" for result in worse)]
    return "\n".join(lines)


def describe_run() -> str:
    """Return the size of the run, the versions and the machine."""
    packages = ("uvicorn", "uvloop", "httptools", "apsw", "asyncpg")
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in packages)
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    return (
        f"Measured on {today} over {LARGE_SIZE:,} outputs, best of {ROUNDS} rounds of {SECONDS} s: "
        f"Gleanery {__version__}, Python {platform.python_version()}, {versions}; the peers "
        f"{_peer_versions()}, SQLite {sqlite3.sqlite_version}; {os.cpu_count()} cores "
        f"({platform.machine()}), {platform.system()} {platform.release().split('-')[0]}."
    )


def _peer_versions() -> str:
    path = [str(folder) for folder in PEER_PROGRAMS.parent.glob("lib/python*/site-packages")]
    installed = importlib.metadata.distributions(path=path)
    versions = {package.name.lower().replace("_", "-"): package.version for package in installed}
    names = ("FastAPI", "SQLAlchemy", "Datasette", "Kinto", "apify-client")
    return ", ".join(f"{name} {versions.get(name.lower(), 'not installed')}" for name in names)


def bar_chart(rates: dict[str, float]) -> str:
    """Return an SVG bar chart of requests per second on a logarithmic scale."""
    width, row_height, left = 760, 26, 250
    largest = max(rates.values())
    bars = []
    for number, (name, rate) in enumerate(rates.items()):
        length = (width - left - 90) * math.log10(max(rate, 1)) / math.log10(largest)
        y = 14 + number * row_height
        color = "#2a6f4e" if name.startswith("Gleanery") else "#9aa5a0"
        bars.append(
            f'<text x="{left - 8}" y="{y + 12}" text-anchor="end">{name}</text>'
            f'<rect x="{left}" y="{y}" width="{length:.0f}" height="16" fill="{color}"/>'
            f'<text x="{left + length + 6:.0f}" y="{y + 12}">{rate:,.0f}</text>'
        )
    height = 24 + len(rates) * row_height
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'font-family="sans-serif" font-size="13" fill="#222">{"".join(bars)}</svg>\n'
    )


def write(document: Path, results: list[Result], rates: dict[str, dict[str, float]]) -> None:
    """Write the table into the document, and the charts into files beside it."""
    text = document.read_text()
    lines = [_BEGIN, "", describe_run(), "", table(results), "", regressions(results), ""]
    for title, chart_rates in rates.items():
        if chart_rates:
            name = f"performance-{title.split()[0]}.svg"
            document.with_name(name).write_text(bar_chart(chart_rates))
            lines += [f"{title}, requests per second (logarithmic):", ""]
            lines += [f"![{title}]({name})", ""]
    before, _, rest = text.partition(_BEGIN)
    document.write_text(before + "\n".join(lines) + _END + rest.partition(_END)[2])
