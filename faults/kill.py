"""Kill faults: the service, one of its workers, or the PostgreSQL server, during writes."""

from __future__ import annotations

import os
import random
import signal

from faults.environment import Environment
from faults.processes import wait_until
from faults.results import Result
from faults.workload import WRITES_AFTER_FAULT, Findings, run_workload, vary_timing

DURABLE = "an acknowledged write is durable; a batch is stored completely or not at all"


def kill_service(environment: Environment, engine: str, rounds: int) -> Result:
    server = environment.start_server() if engine == "PostgreSQL" else None
    service = environment.start_service(server.url() if server else None)
    findings = Findings()
    for number in range(rounds):
        with run_workload(service, f"round-{number}") as workload:
            workload.wait_for_writes(1)
            vary_timing()
            service.kill()
            service.start()
            workload.wait_for_writes(WRITES_AFTER_FAULT)
        workload.check(findings)
        if server is None:
            findings.integrity_errors = findings.integrity_errors or service.integrity_errors()
    if server is not None:
        findings.integrity_errors = server.integrity_errors()
    fault = f"{rounds} × kill -9 of the service on {engine}, during writes"
    return Result(DURABLE, fault, str(findings), findings.is_ok)


def kill_worker(environment: Environment, rounds: int) -> Result:
    """Kill one of two workers. The other must not fail on the state that it left in the file."""
    service = environment.start_service(None, "--workers", "2")
    findings = Findings()
    for number in range(rounds):
        with run_workload(service, f"round-{number}") as workload:
            wait_until(lambda: len(service.workers()) == 2)
            workload.wait_for_writes(1)
            vary_timing()
            os.kill(random.choice(service.workers()), signal.SIGKILL)
            workload.wait_for_writes(WRITES_AFTER_FAULT)
        workload.check(findings)
        findings.integrity_errors = findings.integrity_errors or service.integrity_errors()
    fault = f"{rounds} × kill -9 of one of two workers on SQLite, during writes"
    return Result(DURABLE, fault, str(findings), findings.is_ok)


def kill_database(environment: Environment, rounds: int) -> Result:
    server = environment.start_server()
    service = environment.start_service(server.url())
    findings = Findings()
    for number in range(rounds):
        with run_workload(service, f"round-{number}") as workload:
            workload.wait_for_writes(1)
            vary_timing()
            server.kill()
            server.start()
            workload.wait_for_writes(WRITES_AFTER_FAULT)
        workload.check(findings)
    findings.integrity_errors = server.integrity_errors()
    fault = f"{rounds} × kill -9 of all processes of the PostgreSQL server, during writes"
    return Result(DURABLE, fault, str(findings), findings.is_ok)
