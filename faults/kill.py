"""Kills the service, and the PostgreSQL server under it, while clients write."""

from __future__ import annotations

import os
import random
import signal

from faults.environment import Environment
from faults.processes import wait_until
from faults.results import Result
from faults.workload import Findings, let_write, load

DURABLE = "an acknowledged write is durable; a batch is whole or not there"


def kill_the_service(environment: Environment, engine: str, rounds: int) -> Result:
    server = environment.made_server() if engine == "PostgreSQL" else None
    service = environment.service(server.url() if server else None)
    findings = Findings()
    for number in range(rounds):
        with load(service, f"round-{number}") as under_way:
            let_write()
            service.kill()
            service.start()
            let_write()
        under_way.check(findings)
        if server is None:
            findings.unsound = findings.unsound or service.faults_found()
    if server is not None:
        findings.unsound = server.faults_found()
    damage = f"{rounds} × kill -9 of the service on {engine}, under writes"
    return Result(DURABLE, damage, str(findings), findings.is_well)


def kill_a_worker(environment: Environment, rounds: int) -> Result:
    """The other one goes on, on the same file, and must not stumble over what was left there."""
    service = environment.service(None, "--workers", "2")
    findings = Findings()
    for number in range(rounds):
        with load(service, f"round-{number}") as under_way:
            let_write()
            os.kill(random.choice(service.workers()), signal.SIGKILL)
            let_write()
            wait_until(lambda: len(service.workers()) == 2)
        under_way.check(findings)
        findings.unsound = findings.unsound or service.faults_found()
    damage = f"{rounds} × kill -9 of one of two workers on SQLite, under writes"
    return Result(DURABLE, damage, str(findings), findings.is_well)


def kill_the_database(environment: Environment, rounds: int) -> Result:
    server = environment.made_server()
    service = environment.service(server.url())
    findings = Findings()
    for number in range(rounds):
        with load(service, f"round-{number}") as under_way:
            let_write()
            server.kill()
            server.start()
            let_write()
        under_way.check(findings)
    findings.unsound = server.faults_found()
    damage = f"{rounds} × kill -9 of the PostgreSQL server, all its processes, under writes"
    return Result(DURABLE, damage, str(findings), findings.is_well)
