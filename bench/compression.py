"""Measurement of compressed pages: their bytes, and the processor time of the service."""

from __future__ import annotations

from http.client import HTTPConnection
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from bench import dataset
from bench.deployments import Service
from bench.environment import Environment
from bench.load_generator import ROUNDS
from bench.results import at_most

_CODINGS = ("identity", "zstd", "gzip")
_MAX_BYTES = {"zstd": 0.20, "gzip": 0.25}
_MAX_MILLISECONDS = {"zstd": 4.0, "gzip": 7.0}
_PAGES = {10: 200, 1000: 20}
"""Pages of one short round, by their number of items."""
_SHORT_ROUNDS = 8
"""Short rounds in a round. Many of them alternate, because other programs disturb some."""
_NANOSECONDS_PER_MILLISECOND = 1_000_000


class _Cost(NamedTuple):
    """Average of a page."""

    size: float
    milliseconds: float


def measure(environment: Environment) -> None:
    deployment = environment.new_deployment("compression")
    with deployment.serve() as service:
        service.store_outputs(dataset.SMALL_GROUP, dataset.outputs(dataset.SMALL_SIZE))
        for limit, count in _PAGES.items():
            paths = deployment.page_paths(dataset.SMALL_GROUP, limit)[:count]
            costs = _compare(service, [paths[n % len(paths)] for n in range(count)])
            for coding in _CODINGS[1:]:
                _add_rows(environment, limit, coding, costs["identity"], costs[coding])


def _compare(service: Service, paths: list[str]) -> dict[str, _Cost]:
    """Measures the codings in alternating rounds. The round with the least time counts."""
    costs: dict[str, _Cost] = {}
    for _ in range(ROUNDS * _SHORT_ROUNDS):
        for coding in _CODINGS:
            cost = _read(service, paths, coding)
            if coding not in costs or cost.milliseconds < costs[coding].milliseconds:
                costs[coding] = cost
    return costs


def _read(service: Service, paths: list[str], coding: str) -> _Cost:
    connection = HTTPConnection("127.0.0.1", urlsplit(service.url).port)
    headers = {"Authorization": f"Bearer {service.token}", "Accept-Encoding": coding}
    size, before = 0, _milliseconds(service.pid)
    for path in paths:
        connection.request("GET", path, headers=headers)
        size += len(connection.getresponse().read())
    connection.close()
    return _Cost(size / len(paths), (_milliseconds(service.pid) - before) / len(paths))


def _milliseconds(pid: int) -> float:
    """Returns the processor time of a process with all its threads."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return (
        sum(int(thread.read_text().split()[0]) for thread in threads) / _NANOSECONDS_PER_MILLISECOND
    )


def _add_rows(
    environment: Environment, limit: int, coding: str, plain: _Cost, compressed: _Cost
) -> None:
    report, page = environment.report, f"{limit}-item page, SQLite, {coding}"
    details = f"{compressed.size:,.0f} of {plain.size:,.0f} bytes"
    target = at_most(_MAX_BYTES[coding]) if limit == 1000 else None
    report.add(
        f"{page}: bytes, ratio to uncompressed", target, compressed.size / plain.size, details
    )
    more = compressed.milliseconds - plain.milliseconds
    details = f"{compressed.milliseconds:.2f} ms instead of {plain.milliseconds:.2f} ms"
    if limit == 1000:
        most = _MAX_MILLISECONDS[coding]
        label = f"{page}: more processor time, ratio to {most:g} ms"
        report.add(label, at_most(1), more / most, details)
    else:
        ratio = compressed.milliseconds / plain.milliseconds
        report.add(f"{page}: processor time, ratio to uncompressed", None, ratio, details)
