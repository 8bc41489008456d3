"""Measurement of versions and of the approved view: ingest, disk space and pages."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from functools import partial
from itertools import count, islice

from bench import dataset
from bench.deployments import Deployment, Service
from bench.environment import ENGINES, Environment
from bench.load_generator import NotMeasured
from bench.measurement import Comparison, MeasureRate, Report, print_progress
from bench.results import at_least, at_most

_OUTPUTS = min(dataset.LARGE_SIZE, 20_000)
_PAGE_OUTPUTS = min(dataset.LARGE_SIZE, 100_000)
_VERSIONED = int(os.environ.get("GLEANERY_BENCH_VERSIONED", "20000"))
_VERSIONS = 20
_BATCH_SIZE = 1000
_MIB = 1024 * 1024
_PLAIN, _VIEW = "plain page", "page of the approved view"


def measure(environment: Environment) -> None:
    for engine in ENGINES:
        _add_ingest(environment, engine)
        _add_size(environment, engine)
        _add_pages(environment, engine)


# --- ingest -------------------------------------------------------------------------------------


def _add_ingest(environment: Environment, engine: str) -> None:
    deployment = environment.new_deployment("history", engine)
    with deployment.serve() as service:
        service.put("/v1/groups/without", {"keep_versions": 0})
        comparison = Comparison(
            {name: _prepare_changes(service, name) for name in ("with", "without")}
        ).run()
    label = f"ingest of changed outputs with history, {engine}: ratio to keep_versions=0"
    environment.report.add_ratio(label, at_least(0.8), comparison, "with", "without")


def _prepare_changes(service: Service, group: str) -> MeasureRate:
    """Store the first version. Each round stores the next one."""
    versions = count()
    _store(service, group, _bodies(_OUTPUTS, next(versions)))
    return lambda: _store(service, group, _bodies(_OUTPUTS, next(versions)))


def _bodies(number: int, version: int) -> list[bytes]:
    outputs = dataset.changed_outputs(number, version)
    batches = iter(lambda: list(islice(outputs, _BATCH_SIZE)), [])
    return [json.dumps(batch).encode() for batch in batches]


def _store(service: Service, group: str, bodies: Iterable[bytes]) -> float:
    """Return outputs per second."""
    start, stored = time.perf_counter(), 0
    for body in bodies:
        stored += len(service.post(f"/v1/outputs/{group}", body)["results"])
    return stored / (time.perf_counter() - start)


# --- disk space ---------------------------------------------------------------------------------


def _add_size(environment: Environment, engine: str) -> None:
    """Compare the table of versions with copies of the items, without the space of their rows."""
    print_progress(f"Storing {_VERSIONS} versions of {_VERSIONED:,} outputs on {engine} …")
    deployment = environment.new_deployment("versions", engine)
    with deployment.serve() as service:
        for version in range(_VERSIONS + 1):
            service.store_outputs("shop", dataset.changed_outputs(_VERSIONED, version))
            deployment.flush()  # also vacuums, as PostgreSQL does by itself once a minute
    history, items = deployment.table_bytes("output_history"), deployment.item_bytes()
    label = f"disk space of {_VERSIONS} versions of {_VERSIONED:,} outputs, {engine}"
    details = f"{history / _MIB:,.1f} MiB, copies {items * _VERSIONS / _MIB:,.1f} MiB"
    environment.report.add(
        f"{label}: ratio to full copies", at_most(0.1), history / (items * _VERSIONS), details
    )


# --- pages --------------------------------------------------------------------------------------


def _add_pages(environment: Environment, engine: str) -> None:
    print_progress(f"Approving {_PAGE_OUTPUTS:,} outputs on {engine} …")
    deployment = environment.new_deployment("view", engine)
    with deployment.serve() as service:
        for group in ("approved", "replaced"):
            service.store_outputs(group, dataset.changed_outputs(_PAGE_OUTPUTS, 0))
            _approve(service, group)
        service.store_outputs("replaced", dataset.changed_outputs(_PAGE_OUTPUTS, 1))
        deployment.flush()
        for limit in (10, 1000):
            _add_page(environment.report, engine, deployment, service, "approved", limit)
            _add_page(environment.report, engine, deployment, service, "replaced", limit)


def _approve(service: Service, group: str) -> None:
    for job in json.loads(service.get(f"/v1/groups/{group}"))["jobs"]:
        review = {"job_id": job["job_id"], "status": "approved"}
        service.post(f"/v1/reviews/{group}", json.dumps(review).encode())


def _add_page(
    report: Report, engine: str, deployment: Deployment, service: Service, group: str, limit: int
) -> None:
    is_replaced = group == "replaced"
    table = "approved_versions" if is_replaced else "outputs"
    plain = deployment.page_paths(group, limit)
    view = [
        f"/v1/outputs/{group}?limit={limit}&view=approved&cursor={cursor}"
        for cursor in deployment.cursors(group, limit, table)
    ]
    comparison = Comparison()
    comparison.add(_PLAIN, partial(_prepare_pages, service, plain, limit))
    comparison.add(_VIEW, partial(_prepare_pages, service, view, limit))
    comparison.run()
    state = "each with a newer value" if is_replaced else "everything approved"
    label = f"{limit}-item page of the approved view, {state}, {engine}"
    target = at_most(3) if is_replaced else at_most(1.3)
    report.add_ratio(f"{label}: slowdown against a plain page", target, comparison, _PLAIN, _VIEW)


def _prepare_pages(service: Service, paths: list[str], limit: int) -> MeasureRate:
    for path in (paths[0], paths[-1]):
        items = json.loads(service.get(path))["items"]
        if len(items) != limit:
            raise NotMeasured(f"a page has {len(items)} outputs instead of {limit}")
    return partial(service.measure_reads, paths)
