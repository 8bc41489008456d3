"""Monitor fault: the service is killed while a run ends and is judged by the rules of its group."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import httpx2

from faults import ending_runs
from faults.environment import Environment
from faults.processes import wait_until
from faults.results import Result
from faults.service import Service

ONCE = (
    "a run with few outputs opens one alert, and the next one closes it; each webhook gets one "
    "event about that"
)
_GROUP = "monitored"
_USUAL, _FEW = 40, 10
_MAX_SECONDS = 0.1  # in which a run ends and is judged
_EVENTS = ["alert.opened", "alert.closed"]
_FORMATS = ("standard", "slack")
_TARGET = "https://receiver.invalid/"


@dataclass
class Findings:
    """Results of the checks."""

    runs: int = 0
    interrupted: int = 0
    """Requests whose response was lost."""
    wrong_alerts: int = 0
    wrong_events: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def is_ok(self) -> bool:
        return not (self.wrong_alerts or self.wrong_events)

    def __str__(self) -> str:
        return (
            f"{self.runs} runs, {self.interrupted} interrupted; {self.wrong_alerts} wrong alerts, "
            f"{self.wrong_events} wrong events"
            + "".join(f"; {problem}" for problem in self.problems[:3])
        )


def kill_service(environment: Environment, engine: str, rounds: int) -> Result:
    """Kill the service at any time between the start of a finish and the end of the judgement."""
    server = None if engine == "SQLite" else environment.start_server()
    service = environment.start_service(None if server is None else server.url())
    findings = Findings()
    with service.client() as http:
        for _ in range(4):
            run_id = ending_runs.send(http, _GROUP, range(_USUAL))
            ending_runs.finish(http, _GROUP, run_id)
        hooks = [_create_webhook(http, format_) for format_ in _FORMATS]
        for number in range(1, rounds + 1):
            run_id = _finish_with_a_kill(service, http, _FEW, findings)
            _check(http, run_id, number, "open", findings)
            _finish_with_a_kill(service, http, _USUAL, findings)
            _check(http, run_id, number, "closed", findings)
        for webhook in hooks:
            _check_events(http, webhook, rounds, findings)
    fault = f"{2 * rounds} × kill -9 of the service on {engine}, while a run ends"
    return Result(ONCE, fault, str(findings), findings.is_ok)


def _create_webhook(http: httpx2.Client, format_: str) -> str:
    body = {"url": _TARGET, "events": _EVENTS, "format": format_}
    return str(http.post("/v1/webhooks", json=body).raise_for_status().json()["id"])


def _finish_with_a_kill(
    service: Service, http: httpx2.Client, count: int, findings: Findings
) -> str:
    """End a run, and kill the service. After the start, the run is judged."""
    run_id = ending_runs.send(http, _GROUP, range(count))
    findings.interrupted += ending_runs.finish_with_a_kill(
        service, http, _GROUP, run_id, _MAX_SECONDS
    )
    wait_until(lambda: ending_runs.read(http, _GROUP, run_id)["comparison"] == "done")
    findings.runs += 1
    return run_id


def _check(http: httpx2.Client, run_id: str, number: int, state: str, findings: Findings) -> None:
    """There is one alert of each round, and the newest is about this run."""
    found = _alerts(http)
    states = ["closed"] * (number - 1)
    is_right = [alert["state"] for alert in found[1:]] == states and found[0]["state"] == state
    if not is_right or found[0]["run_id"] != run_id or found[0]["runs"] != 1:
        findings.wrong_alerts += 1
        findings.problems.append(f"round {number}: {[alert['state'] for alert in found][:5]}")


def _alerts(http: httpx2.Client) -> list[dict[str, Any]]:
    page = http.get(f"/v1/alerts?group_id={_GROUP}&limit=1000").json()
    found: list[dict[str, Any]] = page["alerts"]
    return found


def _check_events(http: httpx2.Client, webhook: str, rounds: int, findings: Findings) -> None:
    """Deliveries that wait are kept: each is an event that was stored once."""
    found = Counter[str]()
    url: str | None = f"/v1/webhooks/{webhook}/deliveries?limit=1000"
    while url is not None:
        page = http.get(url).json()
        found.update(delivery["event"] for delivery in page["deliveries"])
        url = page["metadata"]["next_url"]
    for event in _EVENTS:
        if found[event] != rounds:
            findings.wrong_events += abs(found[event] - rounds)
            findings.problems.append(f"{found[event]} × {event}")
