"""Runs for the tests of the console."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.support.service import Client


def send_run(
    client: Client,
    group: str,
    job: str,
    outputs: Sequence[Mapping[str, Any]],
    status: str = "complete",
    message: str | None = None,
    labels: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Starts a run, stores outputs in it, and finishes it. An invalid output is rejected."""
    started = client.post(f"/v1/runs/{group}", json={"job_id": job, "labels": labels})
    assert started.status_code == 200, started.text
    run_id = started.json()["run_id"]
    if outputs:
        query = {"run_id": run_id, "on_error": "skip"}
        stored = client.post(f"/v1/outputs/{group}", params=query, json=outputs)
        assert stored.status_code == 200, stored.text
    end = {"status": status, "message": message}
    finished = client.post(f"/v1/runs/{group}/{run_id}/finish", json=end)
    assert finished.status_code == 200, finished.text
    run: dict[str, Any] = finished.json()
    return run
