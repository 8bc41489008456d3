"""Runs as tests use them over HTTP."""

from __future__ import annotations

from typing import Any

from tests.support.outputs import output
from tests.support.service import Client

COUNTS = ("created", "updated", "unchanged", "rejected", "missing", "removed")


def start(client: Client, job: str = "job", **members: Any) -> str:
    response = client.post("/v1/runs/group", json={"job_id": job, **members})
    assert response.status_code == 200, response.text
    run_id: str = response.json()["run_id"]
    return run_id


def push(client: Client, run_id: str, *numbers: int, **members: Any) -> dict[str, Any]:
    response = client.post(
        f"/v1/outputs/group?run_id={run_id}", json=[output(n, **members) for n in numbers]
    )
    assert response.status_code == 200, response.text
    stored: dict[str, Any] = response.json()
    return stored


def finish(client: Client, run_id: str, status: str = "complete", **members: Any) -> dict[str, Any]:
    response = client.post(f"/v1/runs/group/{run_id}/finish", json={"status": status, **members})
    assert response.status_code == 200, response.text
    run: dict[str, Any] = response.json()
    return run


def complete(client: Client, *numbers: int, **members: Any) -> dict[str, Any]:
    """A complete run that sends these outputs."""
    run_id = start(client, **members)
    if numbers:
        push(client, run_id, *numbers, **({"job_id": members["job"]} if members else {}))
    return finish(client, run_id)


def show(client: Client, run_id: str) -> dict[str, Any]:
    run: dict[str, Any] = client.get(f"/v1/runs/group/{run_id}").json()
    return run


def runs(client: Client, **query: Any) -> list[dict[str, Any]]:
    page = client.get("/v1/runs/group", params=query).json()
    found: list[dict[str, Any]] = page["runs"]
    return found


def counts(run: dict[str, Any]) -> dict[str, int]:
    """The counts of a run that are not 0."""
    assert tuple(run["counts"]) == COUNTS
    return {name: count for name, count in run["counts"].items() if count}


def missing(client: Client, **query: Any) -> set[str]:
    """The keys of the outputs that are missing."""
    return {item["source_url"][-1] for item in client.items("group", missing="true", **query)}


def remove_after(client: Client, runs: int, max_share: float = 1.0) -> None:
    settings = {"missing": {"after_runs": runs, "max_share": max_share}}
    assert client.put("/v1/groups/group", json=settings).status_code == 200
