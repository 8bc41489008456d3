"""Measurement of pages and ingest on Citus, with one worker and with two, beside PostgreSQL."""

from __future__ import annotations

import http.client
import itertools
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from urllib.parse import urlsplit

import pytest

from bench import dataset, servers
from bench.deployments import Deployment, Service
from bench.environment import Environment
from bench.load_generator import measure_tenants
from bench.measurement import Comparison, MeasureRate, Report
from tests.support.citus import citus_programs, citus_server
from tests.support.postgres_versions import server_of_programs

_PLAIN, _ONE, _TWO = "PostgreSQL", "Citus with one worker", "Citus with two workers"
# The tests run their servers without these, and a commit would cost too little.
_DURABLE = ("fsync=on", "full_page_writes=on")
_ORGANIZATIONS = 8  # so that both workers have some
_OUTPUTS = 2000  # of each organization
_BATCHES = {1: 100, 100: 20, 1000: 5}
"""Batches in a round, by the number of outputs in a batch."""


def measure(environment: Environment) -> None:
    try:
        with ExitStack() as stack:
            deployments = _start_databases(environment, stack)
            _measure(environment.report, deployments, stack)
    except pytest.skip.Exception as skipped:  # there is no Citus
        environment.report.add("Citus: ratio to PostgreSQL", None, None, str(skipped))


def _start_databases(environment: Environment, stack: ExitStack) -> dict[str, Deployment]:
    """Start a server without Citus and two with it, all of the same version."""
    programs = citus_programs()
    with _all_cores():
        plain = stack.enter_context(server_of_programs(programs, *_DURABLE))
        one = stack.enter_context(citus_server(1, *_DURABLE))
        two = stack.enter_context(citus_server(2, *_DURABLE))
    urls = {_PLAIN: plain.new_database(), _ONE: one.new_database(), _TWO: two.new_database()}
    return {
        name: Deployment(environment.new_folder(f"citus-{number}"), url)
        for number, (name, url) in enumerate(urls.items())
    }


@contextmanager
def _all_cores() -> Iterator[None]:
    """Let the servers that are started meanwhile use any core."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, range(os.cpu_count() or 1))
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def _measure(report: Report, deployments: dict[str, Deployment], stack: ExitStack) -> None:
    tenants = {name: _tenants(of, stack) for name, of in deployments.items()}
    pages = {
        name: _pages(deployments[name], services[:_ORGANIZATIONS])
        for name, services in tenants.items()
    }
    _add_ratios(report, "10-item page", Comparison(pages).run())
    for size in _BATCHES:
        stores: dict[str, MeasureRate] = {
            name: _store_batches(services[0], size) for name, services in tenants.items()
        }
        _add_ratios(report, f"ingest in batches of {size}", Comparison(stores).run())


def _tenants(deployment: Deployment, stack: ExitStack) -> list[Service]:
    """Start the service, and fill a group of each organization."""
    service = stack.enter_context(deployment.serve())
    tokens = [
        servers.create_token(deployment.folder, deployment.database, organization=f"bench {number}")
        for number in range(_ORGANIZATIONS)
    ]
    services = [service._replace(token=token) for token in tokens]
    for number, of_tenant in enumerate(services):
        of_tenant.store_outputs(f"shop-{number}", dataset.outputs(_OUTPUTS))
    deployment.flush()
    return services


def _pages(deployment: Deployment, services: list[Service]) -> MeasureRate:
    requests = [
        (service.token, path)
        for number, service in enumerate(services)
        for path in deployment.page_paths(f"shop-{number}", 10)
    ]
    return partial(measure_tenants, services[0].url, requests)


def _store_batches(service: Service, size: int) -> Callable[[], float]:
    """Return a round, in which one client stores new outputs in a new group, one after another."""
    count = _BATCHES[size]
    outputs = dataset.outputs(size * count)
    bodies = [json.dumps([*itertools.islice(outputs, size)]).encode() for _ in range(count)]
    groups = itertools.count()

    def store() -> float:
        group = f"batches-{size}-{next(groups)}"
        seconds = _post_all(service, f"/v1/outputs/{group}", bodies)
        return size * count / seconds

    return store


def _post_all(service: Service, path: str, bodies: list[bytes]) -> float:
    """Return the time for all requests on one connection."""
    connection = http.client.HTTPConnection(urlsplit(service.url).netloc, timeout=600)
    headers = {"Authorization": f"Bearer {service.token}", "Content-Type": "application/json"}
    try:
        start = time.perf_counter()
        for body in bodies:
            connection.request("POST", path, body, headers)
            response = connection.getresponse()
            answer = response.read()
            assert response.status == 200, answer
        return time.perf_counter() - start
    finally:
        connection.close()


def _add_ratios(report: Report, label: str, comparison: Comparison) -> None:
    for name in (_ONE, _TWO):
        report.add_ratio(f"{label}, {name}: ratio to {_PLAIN}", None, comparison, name, _PLAIN)
