"""Runs that open alerts, for the tests of the console."""

from __future__ import annotations

from typing import Any

from tests.support.console import ConsoleClient
from tests.support.console_runs import send_run
from tests.support.outputs import output
from tests.support.service import Client

USUAL_RUNS = 4
"""Complete runs that are needed to know what is usual."""
USUAL = 20
"""Outputs of a usual run."""


def usual_runs(client: Client, group: str, job: str, **members: Any) -> None:
    """Sends as many runs as are needed to know what is usual."""
    for _ in range(USUAL_RUNS):
        run(client, group, job, USUAL, **members)


def run(client: Client, group: str, job: str, count: int, **members: Any) -> dict[str, Any]:
    """Sends a complete run with this number of outputs."""
    outputs = [output(number, job_id=job, **members) for number in range(count)]
    return send_run(client, group, job, outputs)


def few_outputs(client: Client, group: str, job: str, count: int = 5) -> dict[str, Any]:
    """Opens an alert about a run with few outputs. Returns the alert."""
    usual_runs(client, group, job)
    run(client, group, job, count)
    return find_alert(client, group, job)


def empty_field(client: Client, group: str, job: str) -> dict[str, Any]:
    """Opens an alert about two fields that are empty. Returns the alert."""
    usual_runs(client, group, job, data={"price": 5, "name": "Mug", "stock": 1})
    run(client, group, job, USUAL, data={"price": None, "name": "", "stock": 1})
    return find_alert(client, group, job)


def find_alert(client: Client, group: str, job: str) -> dict[str, Any]:
    answer = client.get("/v1/alerts", params={"group_id": group, "job_id": job})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()["alerts"][0]
    return found


def change(client: Client | ConsoleClient, alert: dict[str, Any], **body: Any) -> dict[str, Any]:
    """Says something about an alert. Returns it as it is now."""
    answer = client.post(f"/v1/alerts/{alert['alert_id']}", json=body)
    assert answer.status_code == 200, answer.text
    changed: dict[str, Any] = answer.json()
    return changed
