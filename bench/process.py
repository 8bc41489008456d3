"""Figures of the process itself: how soon it is ready, and how much memory it takes."""

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

_MEBIBYTES = 150


def start(environment: Environment) -> None:
    deployment = environment.empty("start")
    body = deployment.folder / "body"
    body.write_bytes(b"{}")
    _seconds(deployment.serving)  # makes the database
    ours = min(_seconds(lambda: servers.gleanery(deployment.folder)) for _ in range(ROUNDS))
    bare = min(_seconds(lambda: servers.bare_asgi(body)) for _ in range(ROUNDS))
    work, words = "start until /readyz answers, of a bare uvicorn", f"{ours:.2f} s and {bare:.2f} s"
    environment.notes.figure(work, at_most(3), ours / bare, words)


def _seconds(serving: Callable[[], AbstractContextManager[Any]]) -> float:
    began = time.perf_counter()
    with serving():
        return time.perf_counter() - began


def memory(environment: Environment) -> None:
    with environment.empty("memory").serving() as service:
        service.fill(dataset.LARGE_GROUP, dataset.outputs(dataset.LARGE_SIZE))
        _read_all(service)
        status = Path(f"/proc/{service.pid}/status").read_text()
    # Its own: the database's file, which it reads where the system holds it, is the system's.
    used = int(status.split("RssAnon:")[1].split()[0]) / 1024
    work = (
        f"memory of a worker after {dataset.LARGE_SIZE:,} outputs in and out, of {_MEBIBYTES} MiB"
    )
    environment.notes.figure(work, at_most(1), used / _MEBIBYTES, f"{used:.0f} MiB")


def _read_all(service: Service) -> None:
    connection = HTTPConnection("127.0.0.1", urlsplit(service.url).port)
    headers = {"Authorization": f"Bearer {service.token}"}
    cursor: int | None = 0
    while cursor is not None:
        path = f"/v1/outputs/{dataset.LARGE_GROUP}?limit=1000&cursor={cursor}"
        connection.request("GET", path, headers=headers)
        cursor = json.load(connection.getresponse())["metadata"]["next_cursor"]
    connection.close()
