"""A run of a job that ends while the service is killed, for the faults of runs and monitors."""

from __future__ import annotations

import random
import threading
import time
from contextlib import suppress
from typing import Any

import httpx2

from faults.service import Service

_JOB = "shop"
_BATCH = 400


def send(http: httpx2.Client, group: str, numbers: range) -> str:
    """Start a run, and store the outputs with these numbers."""
    started = http.post(f"/v1/runs/{group}", json={"job_id": _JOB}).raise_for_status()
    run_id = str(started.json()["run_id"])
    for start in range(numbers.start, numbers.stop, _BATCH):
        batch = [
            {"job_id": _JOB, "source_url": f"https://shop.example/{n}", "data": {"number": n}}
            for n in range(start, min(start + _BATCH, numbers.stop))
        ]
        parameters = {"run_id": run_id}
        http.post(f"/v1/outputs/{group}", json=batch, params=parameters).raise_for_status()
    return run_id


def finish(http: httpx2.Client, group: str, run_id: str) -> None:
    url = f"/v1/runs/{group}/{run_id}/finish"
    http.post(url, json={"status": "complete"}).raise_for_status()


def finish_with_a_kill(
    service: Service, http: httpx2.Client, group: str, run_id: str, max_seconds: float
) -> bool:
    """End a run, and kill the service within this time. Return True if the response was lost.

    The service runs again, and the run has ended.
    """
    request = threading.Thread(target=_try_to_finish, args=(service, group, run_id))
    request.start()
    time.sleep(random.uniform(0, max_seconds))
    is_interrupted = request.is_alive()
    service.kill()
    service.start()
    request.join()
    finish(http, group, run_id)
    return is_interrupted


def _try_to_finish(service: Service, group: str, run_id: str) -> None:
    with service.client() as http, suppress(httpx2.TransportError):  # the response is lost
        finish(http, group, run_id)


def read(http: httpx2.Client, group: str, run_id: str) -> dict[str, Any]:
    run: dict[str, Any] = http.get(f"/v1/runs/{group}/{run_id}").json()
    return run
