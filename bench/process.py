"""Measurement of the service process: time until it is ready, and memory use."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bench import dataset, servers
from bench.deployments import Deployment, Service
from bench.environment import Environment
from bench.load_generator import ROUNDS
from bench.measurement import OF_BASELINE
from bench.results import at_most

_MEMORY_LIMIT = 62
"""Mebibytes."""


def measure_startup(environment: Environment) -> None:
    deployments = environment.versions("start")
    body = deployments[""].folder / "body"
    body.write_bytes(b"{}")
    seconds = dict[str, list[float]]()
    for number in range(ROUNDS + 1):
        for suffix, deployment in deployments.items():
            second = _startup_seconds(deployment.serve)
            if number:  # the first start creates the database and a token
                seconds.setdefault(f"Gleanery{suffix}", []).append(second)
        seconds.setdefault("bare uvicorn", []).append(
            _startup_seconds(lambda: servers.bare_asgi(body))
        )
    best = {name: min(measured) for name, measured in seconds.items()}
    label = "time from start until /readyz responds, SQLite: ratio to a bare uvicorn"
    details = ", ".join(f"{name} {value:.2f} s" for name, value in best.items())
    ratio = best["Gleanery"] / best["bare uvicorn"]
    before = best.get(f"Gleanery{OF_BASELINE}")
    of_baseline = None if before is None else before / best["Gleanery"]
    environment.report.add(label, at_most(2.3), ratio, details, of_baseline)


def _startup_seconds(serve: Callable[[], AbstractContextManager[Any]]) -> float:
    start = time.perf_counter()
    with serve():
        return time.perf_counter() - start


def measure_memory(environment: Environment) -> None:
    used = {
        suffix: _memory_after_all(deployment)
        for suffix, deployment in environment.versions("memory").items()
    }
    label = f"memory of a worker after {dataset.LARGE_SIZE:,} outputs written and read, SQLite"
    label += f": ratio to {_MEMORY_LIMIT} MiB"
    details = ", ".join(f"Gleanery{suffix} {size:.0f} MiB" for suffix, size in used.items())
    of_baseline = used[OF_BASELINE] / used[""] if OF_BASELINE in used else None
    ratio = used[""] / _MEMORY_LIMIT
    environment.report.add(label, at_most(1), ratio, details, of_baseline)


def _memory_after_all(deployment: Deployment) -> float:
    """Return the mebibytes of a worker that has stored and sent many outputs."""
    with deployment.serve() as service:
        service.store_outputs(dataset.LARGE_GROUP, dataset.outputs(dataset.LARGE_SIZE))
        _read_all(service)
        status = Path(f"/proc/{service.pid}/status").read_text()
    # Anonymous memory only: the mapped database file is in the page cache of the system.
    return int(status.split("RssAnon:")[1].split()[0]) / 1024


def _read_all(service: Service) -> None:
    connection = HTTPConnection("127.0.0.1", urlsplit(service.url).port)
    headers = {"Authorization": f"Bearer {service.token}"}
    cursor: int | None = 0
    while cursor is not None:
        path = f"/v1/outputs/{dataset.LARGE_GROUP}?limit=1000&cursor={cursor}"
        connection.request("GET", path, headers=headers)
        cursor = json.load(connection.getresponse())["metadata"]["next_cursor"]
    connection.close()
