"""View fault: the service is killed while readers follow the approved view of a group."""

from __future__ import annotations

from faults.environment import Environment
from faults.results import Result
from faults.review_load import Findings, Size, run_workload
from faults.workload import vary_timing

EXACT = "a reader of the approved view ends with the exact approved state"
_SIZE = Size(writers=8, reviewers=2, view_readers=4, feed_readers=1, page_readers=1)
_KILLS_PER_GROUP = 5
_REVIEWS_AFTER_KILL = 10


def kill_service(
    environment: Environment, engine: str, rounds: int, damaged: bool = False
) -> Result:
    """Kill the service. If ``damaged``, readers and reviewers lose what they have."""
    server = environment.start_server() if engine == "PostgreSQL" else None
    service = environment.start_service(server.url() if server else None)
    findings = Findings()
    for first in range(0, max(rounds, 1), _KILLS_PER_GROUP):
        with run_workload(service, f"group-{first}", _SIZE) as workload:
            for _ in range(min(_KILLS_PER_GROUP, rounds - first)):
                workload.wait_for_reviews(_REVIEWS_AFTER_KILL)
                vary_timing()
                service.kill()
                service.start()
            workload.wait_for_reviews(_REVIEWS_AFTER_KILL)
        if damaged:
            workload.damage()
        workload.check(findings)
    findings.integrity_errors = (server or service).integrity_errors()
    fault = (
        f"{rounds} × kill -9 of the service on {engine}, while {_SIZE.view_readers} readers follow "
        f"the view, {_SIZE.writers} writers change outputs and {_SIZE.reviewers} reviewers approve "
        "and reject"
    )
    return Result(EXACT, fault, str(findings), findings.is_ok)
