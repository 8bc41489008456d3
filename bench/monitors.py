"""Measurement of monitors: for how long the judgement of a run keeps the event loop busy.

A service stores the outputs of a large job with many fields, in several runs. Then this process
judges the last run as a worker does, with rules of all kinds, and watches its own event loop.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

import uvloop

from bench import dataset
from bench.deployments import Deployment, Service
from bench.environment import ENGINES, Environment
from bench.results import at_most
from gleanery.common.settings import Settings
from gleanery.service.foundation.scheduling.fair_shares import FairThread
from gleanery.service.foundation.values import timestamps
from gleanery.service.resources.monitors.evaluation import Monitors
from gleanery.service.resources.monitors.rules import KINDS
from gleanery.service.storage.engines import open_engine

_OUTPUTS = min(dataset.LARGE_SIZE, 1_000_000)
_OF_A_RUN = min(_OUTPUTS, 2000)
"""Outputs of an earlier run. Its numbers are as long as those of a run of all outputs."""
_FIELDS, _FIELDS_OF_AN_OUTPUT = 200, 20
_EARLIER_RUNS = 10
_BATCH_SIZE = 1000
_ROUNDS = 5
_MAX_SECONDS = 0.05
_GROUP, _JOB = "large", "shop"
_LABELS = {"part": "few"}
"""Of the earlier runs and of the one that is judged, so that it is compared with them."""
_LAST_RUN = "SELECT organization_id, job_id, max(id) FROM runs GROUP BY organization_id, job_id"
_MARK = "UPDATE runs SET monitoring = 'pending', is_open = TRUE WHERE id = {}"


class _Work(NamedTuple):
    """What a judgement has cost the event loop."""

    seconds: float
    """Processor time of its thread."""
    longest: float
    """The longest time for which nothing else could run."""
    total: float
    """Seconds until the result was stored."""


def measure(environment: Environment) -> None:
    for engine in ENGINES:
        deployment = environment.new_deployment("monitors", engine)
        with deployment.serve() as service:
            _fill(service)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            works = runner.run(_judge(deployment))
        best = min(works)
        label = (
            f"event-loop time of the judgement of a run of a job with {_OUTPUTS:,} outputs and "
            f"{_FIELDS} fields, {engine}: ratio to {1000 * _MAX_SECONDS:.0f} ms"
        )
        details = (
            f"{1000 * best.seconds:.1f} ms in {1000 * best.total:.0f} ms; at most "
            f"{1000 * best.longest:.1f} ms without a pause"
        )
        environment.report.add(label, at_most(1), best.seconds / _MAX_SECONDS, details)


def _fill(service: Service) -> None:
    _run(service, _OUTPUTS, {})
    rules = [{"kind": kind} for kind in KINDS]
    service.put(f"/v1/monitors/{_GROUP}", rules)
    for _ in range(_EARLIER_RUNS + 1):
        _run(service, _OF_A_RUN, _LABELS)


def _run(service: Service, count: int, labels: dict[str, str]) -> None:
    """Send outputs in a complete run, and wait until it was compared."""
    run = _post(service, f"/v1/runs/{_GROUP}", {"job_id": _JOB, "labels": labels})
    outputs = _outputs(count)
    while batch := [*islice(outputs, _BATCH_SIZE)]:
        _post(service, f"/v1/outputs/{_GROUP}?run_id={run['run_id']}", batch)
    path = f"/v1/runs/{_GROUP}/{run['run_id']}"
    run = _post(service, f"{path}/finish", {"status": "complete"})
    while run["comparison"] == "pending":
        time.sleep(0.1)
        run = json.loads(service.get(path))


def _post(service: Service, path: str, body: Any) -> Any:
    return service.post(path, json.dumps(body).encode())


def _outputs(count: int) -> Iterator[dict[str, Any]]:
    """Each output has some of the fields: one half are numbers."""
    for number in range(count):
        fields = [(number + part * 10) % _FIELDS for part in range(_FIELDS_OF_AN_OUTPUT)]
        data = {f"field {one}": one + 0.5 if one % 2 else f"value {number}" for one in fields}
        yield {"job_id": _JOB, "source_url": f"https://shop.example/{number}", "data": data}


async def _judge(deployment: Deployment) -> list[_Work]:
    settings = Settings(data=deployment.folder, database=deployment.database)
    monitors = Monitors(FairThread(), timestamps.now)
    works = []
    async with open_engine(settings) as engine:
        [[organization_id, job_id, run]] = await asyncio.to_thread(deployment.execute, _LAST_RUN)
        database = engine.for_tenant(organization_id)
        for _ in range(_ROUNDS):
            await asyncio.to_thread(deployment.execute, _MARK.format(run))
            watch = asyncio.create_task(_longest_pause())
            await asyncio.sleep(0)
            used, start = time.thread_time(), time.perf_counter()
            await monitors.judge_runs(database, _GROUP, job_id)
            used, total = time.thread_time() - used, time.perf_counter() - start
            watch.cancel()
            works.append(_Work(used, await watch, total))
    return works


async def _longest_pause() -> float:
    """Return the longest time between two turns of the event loop, when the task is cancelled."""
    longest, before = 0.0, time.perf_counter()
    try:
        while True:
            await asyncio.sleep(0.001)
            now = time.perf_counter()
            longest, before = max(longest, now - before - 0.001), now
    except asyncio.CancelledError:
        return longest
