"""Measurement of page cost by position in a group and by group size."""

from __future__ import annotations

from functools import partial

from bench import dataset
from bench.deployments import Deployment
from bench.environment import Environment
from bench.measurement import Comparison, Report
from bench.results import at_most

_FIRST, _LAST = "first tenth", "last tenth"
_LARGE, _SMALL = f"group of {dataset.LARGE_SIZE:,}", f"group of {dataset.SMALL_SIZE:,}"


def measure(environment: Environment) -> None:
    for engine, deployment in environment.filled_deployments().items():
        _add_ratios(environment.report, engine, _compare(deployment))


def _compare(deployment: Deployment) -> Comparison:
    count = len(deployment.cursors(dataset.LARGE_GROUP, 10))
    paths = {
        _FIRST: deployment.page_paths(dataset.LARGE_GROUP, 10, slice(count // 10)),
        _LAST: deployment.page_paths(dataset.LARGE_GROUP, 10, slice(-count // 10, None)),
        _LARGE: deployment.page_paths(dataset.LARGE_GROUP, 10),
        _SMALL: deployment.page_paths(dataset.SMALL_GROUP, 10),
    }
    with deployment.serve() as service:
        return Comparison(
            {name: partial(service.measure_reads, paths[name]) for name in paths}
        ).run()


def _add_ratios(report: Report, engine: str, comparison: Comparison) -> None:
    label = f"page in the {_LAST} of {dataset.LARGE_SIZE:,} outputs, {engine}"
    report.add_ratio(
        f"{label}: slowdown against the {_FIRST}", at_most(1.2), comparison, _FIRST, _LAST
    )
    label = f"page of a {_LARGE} outputs, {engine}"
    report.add_ratio(
        f"{label}: slowdown against a {_SMALL}", at_most(1.2), comparison, _SMALL, _LARGE
    )
