"""Measurement of reads in both sizes: pages, pages of the feed, and every filter."""

from __future__ import annotations

import json
from functools import partial
from itertools import combinations, permutations
from urllib.parse import quote

from bench.deployments import cursor_timestamp
from bench.filters import NO_FILTER, add_slowest
from bench.growth import dataset
from bench.growth.positions import PAGE, Cursors
from bench.growth.running import Both, Running, TenantRequest, add_cost, compare
from bench.load_generator import NotMeasured
from bench.measurement import Comparison, MeasureRate, Report
from bench.results import at_most

_UNKNOWN = {
    "job_id": "unknown",
    "url": "https://shop.example/unknown",
    "country": "Fiji",
    "region": "FJ-R",
    "created_after": "2099-01-01",
}
_PAGE_PATH, _FEED_PATH = "/v1/outputs/{}?limit=10", "/v1/changes/{}?limit=10"
_APPROVED, _NOT_APPROVED, _VIEW = "approved=true", "approved=false", "view=approved"


def measure(report: Report, engine: str, both: Both) -> None:
    for kind in ("first", "last", "random"):
        comparison = compare(both, partial(_prepare_pages, kind=kind, path=_PAGE_PATH))
        add_cost(report, f"page of ten, {kind} of a group, {engine}", at_most(1.2), comparison)
    comparison = compare(both, partial(_prepare_pages, kind="random", path=_FEED_PATH))
    add_cost(report, f"page of ten changes, {engine}", None, comparison)
    for name, running in both.items():
        _measure_filters(report, f"{engine}, {name}", running)


def _prepare_pages(running: Running, kind: str, path: str) -> MeasureRate:
    """Read each page once, so that both databases are read from the page cache of the system."""
    cursors: Cursors = getattr(running.positions, kind)
    requests = _with_cursors(running, cursors, path)
    running.read_once(requests)
    return _prepare(running, requests, PAGE)


def _with_cursors(
    running: Running, cursors: Cursors, path: str, name: str = "cursor"
) -> list[TenantRequest]:
    """Return a request for each position; ``created_after`` gives it as a time."""
    value = cursor_timestamp if name == "created_after" else str
    return [
        running.request(group, f"{path.format(dataset.group_name(group))}&{name}={value(cursor)}")
        for group, cursor in cursors
    ]


def _prepare(
    running: Running, requests: list[TenantRequest], expected: int, connections: int = 16
) -> MeasureRate:
    """Check that the requests find the expected number of outputs."""
    for token, path in (requests[0], requests[-1]):
        page = json.loads(running.service._replace(token=token).get(path))
        found = len(page["items"] if "items" in page else page["changes"])
        if found != expected:
            raise NotMeasured(f"{path} finds {found} outputs instead of {expected}")
    return running.prepare_reads(requests, connections)


# --- filters ------------------------------------------------------------------------------------


def _measure_filters(report: Report, label: str, running: Running) -> None:
    matching = _Filters(running, PAGE, connections=16)
    for name, query in _matching_queries().items():
        matching.add(name, query)
    for name, query in {"": "", **_single_queries()}.items():
        matching.add(f"{name} and created_after".removeprefix(" and "), query, "created_after")
    add_slowest(report, f"each filter and each pair of filters, {label}", matching.run())
    empty = _Filters(running, 0, connections=1)
    for name, query in _queries_without_match().items():
        empty.add(name, query)
    add_slowest(report, f"filters without a match, {label}", empty.run())


class _Filters:
    """A comparison of filters with pages without a filter in the same database."""

    def __init__(self, running: Running, expected: int, connections: int) -> None:
        self._running, self._expected, self._connections = running, expected, connections
        self._comparison = Comparison()
        pages = _with_cursors(running, running.positions.random, _PAGE_PATH)
        self._comparison.add(NO_FILTER, partial(_prepare, running, pages, PAGE, connections))

    def add(self, name: str, query: str, position: str = "cursor") -> None:
        path = _PAGE_PATH + (f"&{query}" if query else "")
        requests = _with_cursors(self._running, self._running.positions.early, path, position)
        prepare = partial(_prepare, self._running, requests, self._expected, self._connections)
        self._comparison.add(name, prepare)

    def run(self) -> Comparison:
        return self._comparison.run()


def _single_queries() -> dict[str, str]:
    rare = {name: _parameter(name, value) for name, value in dataset.RARE.items()}
    return {**rare, "approved": _APPROVED, "view": _VIEW}


def _matching_queries() -> dict[str, str]:
    """Return the queries by name of their filters. Each matches ten outputs or more."""
    rare = {name: _parameter(name, value) for name, value in dataset.RARE.items()}
    reviewed = {name: _parameter(name, value) for name, value in dataset.REVIEWED.items()}
    common = {name: _parameter(name, value) for name, value in dataset.COMMON.items()}
    return {
        **_single_queries(),
        **{f"common {name}": query for name, query in common.items()},
        "not approved": _NOT_APPROVED,
        **{f"{a} and {b}": f"{rare[a]}&{rare[b]}" for a, b in combinations(rare, 2)},
        **{f"{name} and not approved": f"{query}&{_NOT_APPROVED}" for name, query in rare.items()},
        **{f"{name} and approved": f"{query}&{_APPROVED}" for name, query in reviewed.items()},
        **{f"{name} and view": f"{query}&{_VIEW}" for name, query in reviewed.items()},
    }


def _queries_without_match() -> dict[str, str]:
    """Return values that no output has, and pairs of values that no output has together."""
    queries = {f"unknown {name}": _parameter(name, value) for name, value in _UNKNOWN.items()}
    for common, rare in permutations(dataset.RARE, 2):
        if common in dataset.COMMON:
            query = _parameter(common, dataset.COMMON[common])
            query += "&" + _parameter(rare, dataset.RARE[rare])
            queries[f"common {common} and rare {rare}"] = query
    for name, value in dataset.RARE.items():
        queries[f"rare {name} and approved"] = f"{_parameter(name, value)}&{_APPROVED}"
        queries[f"rare {name} and view"] = f"{_parameter(name, value)}&{_VIEW}"
    return queries


def _parameter(name: str, value: str) -> str:
    return f"{name}={quote(value, safe='')}"
