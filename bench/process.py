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
from bench.deployments import Service
from bench.environment import Environment
from bench.load_generator import ROUNDS
from bench.results import at_most

_MEMORY_LIMIT = 150
"""Mebibytes."""


def measure_startup(environment: Environment) -> None:
    deployment = environment.new_deployment("start")
    body = deployment.folder / "body"
    body.write_bytes(b"{}")
    _startup_seconds(deployment.serve)  # creates the database
    gleanery = min(
        _startup_seconds(lambda: servers.gleanery(deployment.folder)) for _ in range(ROUNDS)
    )
    bare = min(_startup_seconds(lambda: servers.bare_asgi(body)) for _ in range(ROUNDS))
    label = "time from start until /readyz responds, SQLite: ratio to a bare uvicorn"
    details = f"Gleanery {gleanery:.2f} s, bare uvicorn {bare:.2f} s"
    environment.report.add(label, at_most(3), gleanery / bare, details)


def _startup_seconds(serve: Callable[[], AbstractContextManager[Any]]) -> float:
    start = time.perf_counter()
    with serve():
        return time.perf_counter() - start


def measure_memory(environment: Environment) -> None:
    with environment.new_deployment("memory").serve() as service:
        service.store_outputs(dataset.LARGE_GROUP, dataset.outputs(dataset.LARGE_SIZE))
        _read_all(service)
        status = Path(f"/proc/{service.pid}/status").read_text()
    # Anonymous memory only: the mapped database file is in the page cache of the system.
    used = int(status.split("RssAnon:")[1].split()[0]) / 1024
    label = f"memory of a worker after {dataset.LARGE_SIZE:,} outputs written and read, SQLite"
    label += f": ratio to {_MEMORY_LIMIT} MiB"
    environment.report.add(label, at_most(1), used / _MEMORY_LIMIT, f"{used:.0f} MiB")


def _read_all(service: Service) -> None:
    connection = HTTPConnection("127.0.0.1", urlsplit(service.url).port)
    headers = {"Authorization": f"Bearer {service.token}"}
    cursor: int | None = 0
    while cursor is not None:
        path = f"/v1/outputs/{dataset.LARGE_GROUP}?limit=1000&cursor={cursor}"
        connection.request("GET", path, headers=headers)
        cursor = json.load(connection.getresponse())["metadata"]["next_cursor"]
    connection.close()
