"""``make bench``: measures one part after the other and prints one table of ratios."""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Callable

from bench import commits, depth, files, filters, ingest, pages, process, results
from bench.environment import ROOT, Environment, open_environment
from bench.load_generator import LOAD_CORE

PARTS: dict[str, Callable[[Environment], None]] = {
    "start": process.start,
    "ingest": ingest.measure,
    "commits": commits.measure,
    "files": files.measure,
    "pages": pages.measure,
    "workers": pages.workers,
    "depth": depth.measure,
    "filters": filters.measure,
    "memory": process.memory,
}


def main() -> int:
    asked = _arguments()
    with open_environment() as environment:
        os.sched_setaffinity(0, {LOAD_CORE})  # after PostgreSQL, which may use every core
        failed = [name for name in asked.parts or PARTS if not _is_measured(name, environment)]
        print(results.table(environment.notes.figures))
        if asked.write:
            results.write(
                ROOT / "docs" / "performance.md",
                environment.notes.figures,
                environment.notes.speeds,
            )
    return len(failed)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("parts", nargs="*", help=f"which to measure: {', '.join(PARTS)}; else all")
    parser.add_argument("--write", action="store_true", help="put the table into docs/")
    asked = parser.parse_args()
    if unknown := [name for name in asked.parts if name not in PARTS]:
        parser.error(f"no such part: {', '.join(unknown)}")
    if asked.write and asked.parts:
        parser.error("--write needs all parts")
    return asked


def _is_measured(name: str, environment: Environment) -> bool:
    """What the other parts found must not be lost with one that fails."""
    try:
        PARTS[name](environment)
    except Exception as why:
        traceback.print_exc()
        environment.notes.figure(f"the rest of {name}", None, None, f"{type(why).__name__}: {why}")
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
