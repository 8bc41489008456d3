"""Measurement of runs: batches with a run, and how long a run that ends delays other batches."""

from __future__ import annotations

import json
import threading
import time
from itertools import islice
from typing import Any

from bench import dataset
from bench.deployments import Service
from bench.environment import ENGINES, Environment
from bench.measurement import Comparison
from bench.results import at_least, at_most

_STORED = min(dataset.LARGE_SIZE, 30_000)
_LARGE_JOB = min(dataset.LARGE_SIZE, 1_000_000)
_BATCH_SIZE = 1000
_MAX_SECONDS = 0.05  # for which a transaction may hold the lock of the group
_WITH, _WITHOUT = "with a run", "without a run"
_JOB = "shop"


def measure(environment: Environment) -> None:
    for engine in ENGINES:
        deployment = environment.new_deployment("runs", engine)
        with deployment.serve() as service:
            _measure_batches(environment, service, engine)
            _measure_end(environment, service, engine)


def _measure_batches(environment: Environment, service: Service, engine: str) -> None:
    batches = _batches(_STORED)
    groups: list[str] = []

    def store(is_with_run: bool) -> float:
        groups.append(f"group-{len(groups)}")
        group, query = groups[-1], ""
        if is_with_run:
            query = f"?run_id={_start(service, group)}"
        start = time.perf_counter()
        for batch in batches:
            service.post(f"/v1/outputs/{group}{query}", batch)
        return _STORED / (time.perf_counter() - start)

    candidates = {_WITHOUT: lambda: store(False), _WITH: lambda: store(True)}
    comparison = Comparison(candidates).run()
    label = f"ingest in batches of {_BATCH_SIZE} into a run, {engine}: ratio to no run"
    environment.report.add_ratio(label, at_least(0.95), comparison, _WITH, _WITHOUT)


def _measure_end(environment: Environment, service: Service, engine: str) -> None:
    """Ends a complete run that has sent half of the outputs, while another job stores outputs."""
    for batch in _batches(_LARGE_JOB):
        service.post("/v1/outputs/large", batch)
    run_id = _start(service, "large")
    for batch in _batches(_LARGE_JOB // 2):
        service.post(f"/v1/outputs/large?run_id={run_id}", batch)
    before = _slowest_store(service, threading.Event(), 200)
    is_done = threading.Event()
    slowest: list[float] = []
    writer = threading.Thread(target=lambda: slowest.append(_slowest_store(service, is_done)))
    writer.start()
    start = time.perf_counter()
    run = _request(service, f"/v1/runs/large/{run_id}/finish", {"status": "complete"})
    while run["comparison"] == "pending":
        time.sleep(0.1)
        run = json.loads(service.get(f"/v1/runs/large/{run_id}"))
    seconds = time.perf_counter() - start
    is_done.set()
    writer.join()
    label = (
        f"slowest batch of one output while a run of {_LARGE_JOB:,} outputs ends, {engine}: "
        f"ratio to {1000 * _MAX_SECONDS:.0f} ms"
    )
    details = (
        f"{1000 * slowest[0]:.0f} ms, without the run {1000 * before:.0f} ms; "
        f"{run['counts']['missing']:,} missing found in {seconds:.1f} s"
    )
    environment.report.add(label, at_most(1), slowest[0] / _MAX_SECONDS, details)


def _slowest_store(service: Service, is_done: threading.Event, count: int | None = None) -> float:
    """Stores one output after the other. Return the longest time that a request took."""
    slowest, number = 0.0, 0
    while not is_done.is_set() and number != count:
        body = {"job_id": "other", "source_url": f"https://a.example/{number}", "data": {}}
        start = time.perf_counter()
        service.post("/v1/outputs/large", json.dumps([body]).encode())
        slowest, number = max(slowest, time.perf_counter() - start), number + 1
    return slowest


def _start(service: Service, group: str) -> str:
    run_id: str = _request(service, f"/v1/runs/{group}", {"job_id": _JOB})["run_id"]
    return run_id


def _request(service: Service, path: str, body: dict[str, Any]) -> dict[str, Any]:
    response: dict[str, Any] = service.post(path, json.dumps(body).encode())
    return response


def _batches(count: int) -> list[bytes]:
    outputs = ({**output, "job_id": _JOB} for output in dataset.outputs(count))
    batches = iter(lambda: list(islice(outputs, _BATCH_SIZE)), [])
    return [json.dumps(batch).encode() for batch in batches]
