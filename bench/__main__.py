"""Command ``make bench``: runs the parts of the benchmark and prints one table of ratios."""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Callable

from bench import (
    asgi_adapter,
    citus,
    client,
    commits,
    compression,
    depth,
    exports,
    files,
    filters,
    growth,
    history,
    ingest,
    monitors,
    pages,
    process,
    results,
    runs,
    scrapy_items,
    short,
    stages,
    webhooks,
)
from bench.environment import ROOT, Environment, open_environment
from bench.load_generator import LOAD_CORE

PARTS: dict[str, Callable[[Environment], None]] = {
    "start": process.measure_startup,
    "ingest": ingest.measure,
    "runs": runs.measure,
    "webhooks": webhooks.measure,
    "monitors": monitors.measure,
    "history": history.measure,
    "commits": commits.measure,
    "files": files.measure,
    "pages": pages.measure,
    "workers": pages.measure_workers,
    "asgi": asgi_adapter.measure,
    "depth": depth.measure,
    "filters": filters.measure,
    "compression": compression.measure,
    "exports": exports.measure,
    "memory": process.measure_memory,
    "client": client.measure,
    "scrapy": scrapy_items.measure,
    "citus": citus.measure,
    "growth": growth.measure,
    "stages": stages.measure,
}
_ON_REQUEST = {"growth", "stages"}
"""Parts that run only if they are named: one takes long and needs 40 GB, one has no ratios."""


def main() -> int:
    arguments = _parse_arguments()
    with open_environment() as environment:
        os.sched_setaffinity(
            0, {LOAD_CORE}
        )  # after the start of PostgreSQL, which may use any core
        if arguments.short:
            return _run_short(environment)
        parts = arguments.parts or [name for name in PARTS if name not in _ON_REQUEST]
        failed = [name for name in parts if not _run_part(name, environment)]
        report = environment.report
        print(results.table(report.results))
        print(f"\n{results.regressions(report.results)}")
        if arguments.write:
            results.write(ROOT / "docs" / "performance.md", report.results, report.rates)
    return len(failed)


def _run_short(environment: Environment) -> int:
    short.measure(environment)
    print(results.table(environment.report.results))
    return sum(result.is_missed for result in environment.report.results)


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measure the service and print one table of ratios.",
    )
    parser.add_argument(
        "parts",
        nargs="*",
        help=f"parts: {', '.join(PARTS)} (default: all but {', '.join(sorted(_ON_REQUEST))})",
    )
    parser.add_argument(
        "--write", action="store_true", help="write the table to docs/performance.md"
    )
    parser.add_argument(
        "--short",
        action="store_true",
        help="measure only three rows beside the baseline, and fail if one is 25 %% worse",
    )
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.parts if name not in PARTS]:
        parser.error(f"unknown part: {', '.join(unknown)}; choose from {', '.join(PARTS)}")
    if arguments.parts and (arguments.write or arguments.short):
        parser.error("--write and --short require the default parts: name none")
    return arguments


def _run_part(name: str, environment: Environment) -> bool:
    """Run one part and return True on success. A failure does not end the run."""
    try:
        PARTS[name](environment)
    except Exception as error:
        traceback.print_exc()
        reason = f"{type(error).__name__}: {error}"
        environment.report.add(f"remaining rows of {name}", None, None, reason)
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
