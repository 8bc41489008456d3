"""The services of both sizes, and the rows that compare them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from http.client import HTTPConnection
from typing import NamedTuple
from urllib.parse import urlsplit

from bench.deployments import Service
from bench.growth import dataset
from bench.growth.fill import Filled
from bench.growth.positions import Positions
from bench.load_generator import measure_tenants
from bench.measurement import Comparison, MeasureRate, Report
from bench.results import Target

SMALL, LARGE = f"{dataset.SMALL:,} outputs", f"{dataset.LARGE:,} outputs"

TenantRequest = tuple[str, str]
"""A token and a path."""


class Running(NamedTuple):
    """A filled deployment and its service."""

    filled: Filled
    service: Service
    positions: Positions

    def client(self, group: int) -> Service:
        return self.filled.client(self.service, group)

    def request(self, group: int, path: str) -> TenantRequest:
        return self.filled.token_of(group), path

    def read_once(self, requests: list[TenantRequest]) -> None:
        connection = HTTPConnection("127.0.0.1", urlsplit(self.service.url).port)
        for token, path in requests:
            connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
            connection.getresponse().read()
        connection.close()

    def prepare_reads(self, requests: list[TenantRequest], connections: int = 16) -> MeasureRate:
        return partial(measure_tenants, self.service.url, requests, connections)


Both = dict[str, Running]
"""The two sizes, by name."""


def compare(both: Both, prepare: Callable[[Running], MeasureRate]) -> Comparison:
    """Measure both sizes in alternating rounds."""
    comparison = Comparison()
    for name, running in both.items():
        comparison.add(name, partial(prepare, running))
    return comparison.run()


def add_cost(
    report: Report, label: str, target: Target | None, comparison: Comparison, suffix: str = ""
) -> None:
    """Add the cost at the large size, as a ratio to the cost at the small size."""
    label = f"{label}: cost at {LARGE}, ratio to {SMALL}"
    report.add_ratio(label, target, comparison, SMALL, LARGE, suffix)
