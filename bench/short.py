"""The short form of the benchmark: three rows beside the baseline, for every change."""

from __future__ import annotations

from bench import ingest, pages
from bench.environment import Environment
from bench.measurement import OF_BASELINE, Comparison
from bench.results import at_least

_TARGET = at_least(0.75)
"""A machine that others use as well shows only a large loss reliably."""


def measure(environment: Environment) -> None:
    comparison = ingest.compare(environment, "SQLite")
    _add(environment, "new outputs in batches of 1,000", comparison, ingest.NEW)
    for limit in (10, 1000):
        comparison = pages.compare_versions(environment, limit)
        _add(environment, f"{limit}-item page", comparison, pages.PAGE)


def _add(environment: Environment, what: str, comparison: Comparison, name: str) -> None:
    label = f"{what}, SQLite: ratio to the baseline"
    baseline = name + OF_BASELINE
    if baseline not in comparison.best:
        reason = comparison.failure_reasons((name, baseline)) or "the baseline is not installed"
        environment.report.add(label, _TARGET, None, reason)
        return
    environment.report.add_ratio(label, _TARGET, comparison, name, baseline, baseline=baseline)
