"""Run fault: the service is killed while a run ends and the outputs that it misses are removed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx2

from faults import ending_runs
from faults.environment import Environment
from faults.processes import wait_until
from faults.results import Result
from faults.service import Service

EXACT = "the counts of a run are exact, and an output that it misses is removed once"
_GROUP = "vanishing"
_OUTPUTS = 1200
_MISSING = 900  # removed in several steps
_MAX_SECONDS = 0.4  # in which a finish and its removal take place


@dataclass
class Findings:
    """Results of the checks."""

    runs: int = 0
    removed: int = 0
    wrong_counts: int = 0
    wrong_removals: int = 0
    """Outputs that were removed twice or not at all, or that should have stayed."""
    interrupted: int = 0
    """Requests whose response was lost."""
    problems: list[str] = field(default_factory=list)

    @property
    def is_ok(self) -> bool:
        return not (self.wrong_counts or self.wrong_removals)

    def __str__(self) -> str:
        return (
            f"{self.runs} complete runs, {self.interrupted} interrupted; {self.removed:,} outputs "
            f"removed, {self.wrong_removals} wrongly; {self.wrong_counts} wrong counts"
            + "".join(f"; {problem}" for problem in self.problems[:3])
        )


def kill_service(environment: Environment, engine: str, rounds: int) -> Result:
    """Kill the service at any time between the start of a finish and the end of the removal."""
    server = None if engine == "SQLite" else environment.start_server()
    service = environment.start_service(None if server is None else server.url())
    findings = Findings()
    with service.client() as http:
        settings = {"missing": {"after_runs": 1, "max_share": 1}}
        http.put(f"/v1/groups/{_GROUP}", json=settings).raise_for_status()
        for _ in range(rounds):
            _finish_in_peace(http)
            _finish_with_a_kill(service, http, findings)
    fault = f"{rounds} × kill -9 of the service on {engine}, while a run of {_OUTPUTS} outputs ends"
    return Result(EXACT, fault, str(findings), findings.is_ok)


def _finish_in_peace(http: httpx2.Client) -> None:
    """Send all outputs: those that were removed come back."""
    run_id = ending_runs.send(http, _GROUP, range(_OUTPUTS))
    ending_runs.finish(http, _GROUP, run_id)


def _finish_with_a_kill(service: Service, http: httpx2.Client, findings: Findings) -> None:
    """Send some outputs, and kill the service while it removes the others."""
    cursor = http.get(f"/v1/groups/{_GROUP}").json()["cursor"]
    run_id = ending_runs.send(http, _GROUP, range(_MISSING, _OUTPUTS))
    findings.interrupted += ending_runs.finish_with_a_kill(
        service, http, _GROUP, run_id, _MAX_SECONDS
    )
    wait_until(lambda: ending_runs.read(http, _GROUP, run_id)["removal"] == "done")
    findings.runs += 1
    _check_counts(ending_runs.read(http, _GROUP, run_id)["counts"], findings)
    _check_removals(http, cursor, findings)


def _check_counts(counts: dict[str, int], findings: Findings) -> None:
    expected = dict.fromkeys(counts, 0) | {
        "unchanged": _OUTPUTS - _MISSING,
        "missing": _MISSING,
        "removed": _MISSING,
    }
    if counts != expected:
        findings.wrong_counts += 1
        findings.problems.append(f"counts {counts}")


def _check_removals(http: httpx2.Client, cursor: int, findings: Findings) -> None:
    """The feed has each removal once, and the other outputs are still there."""
    removed = Counter[str]()
    for change in _changes(http, cursor):
        if change["change"] != "delete" or change.get("reason") != "missing":
            findings.wrong_removals += 1
            findings.problems.append(f"change {change['change']}")
        removed[change["output_id"]] += 1
    findings.removed += len(removed)
    findings.wrong_removals += abs(len(removed) - _MISSING) + removed.total() - len(removed)
    stored = http.get(f"/v1/groups/{_GROUP}").json()["outputs"]
    findings.wrong_removals += abs(stored - (_OUTPUTS - _MISSING))


def _changes(http: httpx2.Client, cursor: int) -> Iterator[dict[str, Any]]:
    while True:
        parameters = {"cursor": cursor, "limit": 1000}
        page = http.get(f"/v1/changes/{_GROUP}", params=parameters).json()
        yield from page["changes"]
        cursor = page["cursor"]
        if page["metadata"]["next_cursor"] is None:
            return
