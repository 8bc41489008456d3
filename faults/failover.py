"""Failover fault: kills the primary PostgreSQL server and promotes its standby, during writes."""

from __future__ import annotations

import time
from collections.abc import Callable

from faults.environment import Environment
from faults.postgres_server import PostgresServer
from faults.processes import wait_until
from faults.results import Result
from faults.service import CLIENT_TIMEOUT
from faults.workload import WRITES_AFTER_FAULT, Findings, run_workload

PROMISE = "a failover loses no acknowledged write, and no reader of the change feed misses a change"
_WRITES_BEFORE_KILL = 100


def fail_over(environment: Environment, rounds: int) -> Result:
    """Fail over repeatedly. After each round the killed server becomes the new standby."""
    primary, standby = environment.start_server(), environment.new_server()
    url = (
        f"postgresql://postgres@{primary.address},{standby.address}/gleanery"
        "?target_session_attrs=read-write"
    )
    service = environment.start_service(url)
    findings, longest = Findings(), 0.0
    for number in range(rounds):
        _start_replication(primary, standby)
        with run_workload(service, f"round-{number}") as workload:
            workload.wait_for_writes(_WRITES_BEFORE_KILL)
            longest = max(longest, _fail_over_once(primary, standby, workload.acknowledged))
            workload.wait_for_writes(WRITES_AFTER_FAULT)
        workload.check(findings)
        primary, standby = standby, primary
    findings.integrity_errors = primary.integrity_errors()
    fault = (
        f"{rounds} × kill -9 of the primary of two PostgreSQL servers, during writes; its "
        "synchronous standby promoted"
    )
    outcome = f"writes succeed at most {longest:.1f} s after the kill; {findings}"
    return Result(PROMISE, fault, outcome, findings.is_ok)


def _fail_over_once(
    primary: PostgresServer, standby: PostgresServer, acknowledged: Callable[[], int]
) -> float:
    """Return the seconds from the kill until the next acknowledged write."""
    primary.kill()
    killed, before = time.monotonic(), acknowledged()
    standby.promote()
    wait_until(lambda: acknowledged() > before, CLIENT_TIMEOUT)
    return time.monotonic() - killed


def _start_replication(primary: PostgresServer, standby: PostgresServer) -> None:
    """Start the standby. From then on the primary waits for it before it acknowledges a write."""
    standby.start_as_standby_of(primary)
    primary.run("ALTER SYSTEM SET synchronous_standby_names = '*'")
    primary.run("SELECT pg_reload_conf()")
    wait_until(lambda: primary.run("SELECT sync_state FROM pg_stat_replication") == "sync")
