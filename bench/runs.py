"""Measurement of runs: batches with a run, and how long a run that ends locks its group."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from statistics import median
from typing import Any, NamedTuple

import asyncpg

from bench import dataset
from bench.deployments import Deployment, Service
from bench.environment import ENGINES, Environment
from bench.measurement import Comparison
from bench.results import at_least, at_most

_STORED = min(dataset.LARGE_SIZE, 30_000)
_LARGE_JOB = min(dataset.LARGE_SIZE, 1_000_000)
_BATCH_SIZE = 1000
_MAX_SECONDS = 0.05  # for which a transaction may hold the lock of the group
_PAUSE_SECONDS = 0.01  # a wait for a lock that nobody holds shows a pause of the server
_WITH, _WITHOUT = "with a run", "without a run"
_JOB = "shop"
_LOCK = "SELECT id FROM groups WHERE name = $1 FOR NO KEY UPDATE"


def measure(environment: Environment) -> None:
    for engine in ENGINES:
        deployment = environment.new_deployment("runs", engine)
        with deployment.serve() as service:
            _measure_batches(environment, service, engine)
            _measure_end(environment, deployment, service, engine)


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


def _measure_end(
    environment: Environment, deployment: Deployment, service: Service, engine: str
) -> None:
    """End a complete run that has sent half of the outputs, while others need the lock."""
    for batch in _batches(_LARGE_JOB):
        service.post("/v1/outputs/large", batch)
    run_id = _start(service, "large")
    for batch in _batches(_LARGE_JOB // 2):
        service.post(f"/v1/outputs/large?run_id={run_id}", batch)
    subject, waits = "batch of one output", {"large": _store_one(service, "large")}
    if engine == "PostgreSQL":  # a batch waits for the disk as well, whoever has the lock
        subject = "wait for the lock of the group"
        _store_one(service, "other")()
        # The lock of another group shows how long the server itself pauses.
        assert deployment.database is not None
        waits = {name: _lock_once(deployment.database, name) for name in ("large", "other")}
    before = _waits(waits["large"], threading.Event(), 200)
    is_done = threading.Event()
    measured: dict[str, list[_Wait]] = {}
    others = [
        threading.Thread(
            target=lambda name=name: measured.update({name: _waits(waits[name], is_done)})
        )
        for name in waits
    ]
    for other in others:
        other.start()
    start = time.perf_counter()
    run = _request(service, f"/v1/runs/large/{run_id}/finish", {"status": "complete"})
    while run["comparison"] == "pending":
        time.sleep(0.1)
        run = json.loads(service.get(f"/v1/runs/large/{run_id}"))
    seconds = time.perf_counter() - start
    is_done.set()
    for other in others:
        other.join()
    label = (
        f"longest {subject} while a run of {_LARGE_JOB:,} outputs ends, {engine}: "
        f"ratio to {1000 * _MAX_SECONDS:.0f} ms"
    )
    found = measured["large"]
    longest = max(found, key=_Wait.seconds)
    details = (
        f"{_milliseconds(found)}; without the run {_milliseconds(before)}; "
        f"{run['counts']['missing']:,} missing found in {seconds:.1f} s"
    )
    if "other" in measured:
        others_waits = measured["other"]
        longest = max(found, key=lambda wait: wait.without(others_waits))
        details += f"; lock of another group meanwhile {_milliseconds(others_waits)}"
    ratio = longest.without(measured.get("other", ())) / _MAX_SECONDS
    environment.report.add(label, at_most(1), ratio, details)


class _Wait(NamedTuple):
    """The beginning and the end of an action."""

    start: float
    end: float

    def seconds(self) -> float:
        return self.end - self.start

    def without(self, pauses: Iterable[_Wait]) -> float:
        """Return its seconds without those in which another lock made its user wait."""
        overlaps = (
            min(self.end, pause.end) - max(self.start, pause.start)
            for pause in pauses
            if pause.seconds() > _PAUSE_SECONDS
        )
        return self.seconds() - sum(overlap for overlap in overlaps if overlap > 0)


def _waits(
    action: Callable[[], None], is_done: threading.Event, count: int | None = None
) -> list[_Wait]:
    """Repeat an action. Return when it began and ended each time."""
    found: list[_Wait] = []
    while not is_done.is_set() and len(found) != count:
        start = time.perf_counter()
        action()
        found.append(_Wait(start, time.perf_counter()))
    return found


def _milliseconds(waits: Sequence[_Wait]) -> str:
    durations = [wait.seconds() for wait in waits]
    long = sum(duration > _MAX_SECONDS for duration in durations)
    return (
        f"longest {1000 * max(durations):.0f} ms, median {1000 * median(durations):.0f} ms, "
        f"{long} of {len(waits):,} longer than {1000 * _MAX_SECONDS:.0f} ms"
    )


def _store_one(service: Service, group: str) -> Callable[[], None]:
    """Return a function that stores another output each time."""
    numbers = iter(range(2**31))

    def store() -> None:
        url = f"https://a.example/{next(numbers)}"
        body = {"job_id": "other", "source_url": url, "data": {}}
        service.post(f"/v1/outputs/{group}", json.dumps([body]).encode())

    return store


def _lock_once(database: str, group: str) -> Callable[[], None]:
    """Return a function that takes the lock of a group, as another node would, and ends."""
    loop = asyncio.new_event_loop()
    connection = loop.run_until_complete(asyncpg.connect(database))

    async def lock() -> None:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute(_LOCK, group)
        await transaction.rollback()

    return lambda: loop.run_until_complete(lock())


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
