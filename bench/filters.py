"""Measurement of filters: each alone, each pair, pairs without a match, and ``created_after``."""

from __future__ import annotations

import json
from functools import partial
from itertools import combinations, permutations
from urllib.parse import quote

from bench import dataset
from bench.deployments import Deployment, Service, cursor_timestamp
from bench.environment import Environment
from bench.load_generator import NotMeasured
from bench.measurement import Comparison, MeasureRate, Report
from bench.results import at_most

_RARE = {
    "job_id": "rare",
    "url": "https://shop.example/rare",
    "country": "Iceland",
    "region": "IS-1",
}
_COMMON = {"job_id": "catalogue-1", "country": "Germany", "region": "DE-BY"}
_NEWEST = 100
NO_FILTER = "no filter"


def measure(environment: Environment) -> None:
    report = environment.report
    for engine, deployment in environment.filled_deployments().items():
        with deployment.serve() as service:
            label = f"each filter and each pair of filters, {engine}"
            add_slowest(report, label, _compare_matching(deployment, service))
            label = f"a common and a rare value without a common match, {engine}"
            add_slowest(report, label, _compare_without_match(deployment, service))
            comparison = _compare_newest(deployment, service)
        label = f"created_after for the newest {_NEWEST} outputs, {engine}: slowdown against"
        report.add_ratio(f"{label} {NO_FILTER}", at_most(2), comparison, NO_FILTER, "created_after")


def _compare_matching(deployment: Deployment, service: Service) -> Comparison:
    paths = deployment.page_paths(dataset.LARGE_GROUP, 10)
    comparison = Comparison({NO_FILTER: partial(service.measure_reads, paths)})
    for name, queries in _matching_queries(deployment.cursors(dataset.LARGE_GROUP, 10)).items():
        comparison.add(name, partial(_prepare, service, queries, 10))
    return comparison.run()


def _matching_queries(cursors: list[int]) -> dict[str, list[str]]:
    """Return the queries by name of their filters. Each query matches at least ten outputs.

    The rare outputs are far apart. A cursor before the first of them keeps all ten in the result
    and makes the search as long as possible.
    """
    early = _before_rare_outputs(cursors)
    single = {name: _parameter(name, value) for name, value in _RARE.items()}
    single["approved"] = _parameter("approved", "false")  # of all outputs of the dataset
    pairs = {f"{a} and {b}": f"{single[a]}&{single[b]}" for a, b in combinations(single, 2)}
    return {
        **{name: _with_cursors(early, query) for name, query in (single | pairs).items()},
        "created_after": _created_after(cursors),
        **{
            f"{name} and created_after": [f"{query}&{since}" for since in _created_after(early)]
            for name, query in single.items()
        },
    }


def _before_rare_outputs(cursors: list[int]) -> list[int]:
    return cursors[: len(cursors) // (4 * dataset.RARE_MATCHES)]


def _with_cursors(cursors: list[int], query: str) -> list[str]:
    """Repeat the query with different cursors, as a client that reads page after page does."""
    return [f"{query}&cursor={cursor}" for cursor in cursors]


def _created_after(cursors: list[int]) -> list[str]:
    return [f"created_after={cursor_timestamp(cursor)}" for cursor in cursors]


def _compare_without_match(deployment: Deployment, service: Service) -> Comparison:
    """Compare pairs for which a search by the common value is slow.

    One connection is enough, because a request may take long.
    """
    cursors = _before_rare_outputs(deployment.cursors(dataset.LARGE_GROUP, 10))
    paths = deployment.page_paths(dataset.LARGE_GROUP, 10)
    comparison = Comparison({NO_FILTER: partial(service.measure_reads, paths, 1)})
    for common, rare in permutations(_RARE, 2):
        if common in _COMMON:
            query = f"{_parameter(common, _COMMON[common])}&{_parameter(rare, _RARE[rare])}"
            queries = _with_cursors(cursors, query)
            prepare = partial(_prepare, service, queries, 10, expected=0, connections=1)
            comparison.add(f"common {common} and rare {rare}", prepare)
    return comparison.run()


def _compare_newest(deployment: Deployment, service: Service) -> Comparison:
    paths = deployment.page_paths(dataset.LARGE_GROUP, _NEWEST)
    comparison = Comparison({NO_FILTER: partial(service.measure_reads, paths)})
    [since] = _created_after([deployment.sequence_numbers(dataset.LARGE_GROUP)[-_NEWEST]])
    # The cursors are older than that timestamp: they change the request, not the response.
    queries = _with_cursors(deployment.cursors(dataset.LARGE_GROUP, _NEWEST), since)
    comparison.add("created_after", partial(_prepare, service, queries, _NEWEST))
    return comparison.run()


def _parameter(name: str, value: str) -> str:
    return f"{name}={quote(value, safe='')}"


def _prepare(
    service: Service,
    queries: list[str],
    limit: int,
    expected: int | None = None,
    connections: int = 16,
) -> MeasureRate:
    """Check that the queries find the expected number of outputs; by default a full page.

    A page with fewer outputs would be cheaper and would falsify the comparison.
    """
    paths = [f"/v1/outputs/{dataset.LARGE_GROUP}?limit={limit}&{query}" for query in queries]
    expected = limit if expected is None else expected
    for path in (paths[0], paths[-1]):
        items = json.loads(service.get(path))["items"]
        if len(items) != expected:
            raise NotMeasured(f"the query finds {len(items)} outputs instead of {expected}")
    return partial(service.measure_reads, paths, connections)


def add_slowest(report: Report, label: str, comparison: Comparison) -> None:
    label = f"{label}: largest slowdown against {NO_FILTER}"
    if reasons := comparison.failure_reasons(comparison.failures):
        report.add(label, at_most(3), None, reasons)
        return
    filters = {name: rate for name, rate in comparison.best.items() if name != NO_FILTER}
    slowest = min(filters, key=lambda name: filters[name])
    suffix = f" (slowest of {len(filters)})"
    report.add_ratio(label, at_most(3), comparison, NO_FILTER, slowest, suffix)
