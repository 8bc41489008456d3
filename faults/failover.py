"""Failover fault: kills or freezes the primary PostgreSQL server and promotes its standby."""

from __future__ import annotations

import time
from collections.abc import Callable

from faults.database_outage import SILENT_SERVER_TIMEOUT
from faults.environment import Environment
from faults.postgres_server import PostgresServer
from faults.processes import wait_until
from faults.results import Result
from faults.service import CLIENT_TIMEOUT
from faults.workload import WRITES_AFTER_FAULT, Findings, run_workload

PROMISE = "a failover loses no acknowledged write, and no reader of the change feed misses a change"
_WRITES_BEFORE_KILL = 100
_KILLED = "kill -9 of the primary of two PostgreSQL servers"
_LIMIT = SILENT_SERVER_TIMEOUT + 7.0  # seconds: a new connection, a long poll, a busy machine


def fail_over(environment: Environment, rounds: int, is_silent: bool = False) -> Result:
    """Fail over repeatedly. After each round the old primary becomes the new standby.

    A silent primary is frozen: it keeps its connections, and does not respond.
    """
    primary, standby = environment.start_server(), environment.new_server()
    url = (
        f"postgresql://postgres@{primary.address},{standby.address}/gleanery"
        "?target_session_attrs=read-write"
    )
    service = environment.start_service(url)
    findings, longest, slowest = Findings(), 0.0, 0.0
    fail = PostgresServer.freeze if is_silent else PostgresServer.kill
    for number in range(rounds):
        _start_replication(primary, standby)
        with run_workload(service, f"round-{number}") as workload:
            workload.wait_for_writes(_WRITES_BEFORE_KILL)
            fail(primary)
            longest = max(longest, _fail_over_once(standby, workload.acknowledged))
            primary.kill()
            workload.wait_for_writes(WRITES_AFTER_FAULT)
        workload.check(findings)
        slowest = max(slowest, *(client.log.slowest for client in workload.clients))
        primary, standby = standby, primary
    findings.integrity_errors = primary.integrity_errors()
    what = "the primary of two PostgreSQL servers frozen" if is_silent else _KILLED
    fault = f"{rounds} × {what}, during writes; its synchronous standby promoted"
    outcome = (
        f"writes succeed at most {longest:.1f} s afterwards; the slowest request of all took "
        f"{slowest:.1f} s; {findings}"
    )
    return Result(PROMISE, fault, outcome, slowest < _LIMIT and findings.is_ok)


def _fail_over_once(standby: PostgresServer, acknowledged: Callable[[], int]) -> float:
    """Return the seconds from the failure until the next acknowledged write."""
    failed, before = time.monotonic(), acknowledged()
    standby.promote()
    wait_until(lambda: acknowledged() > before, CLIENT_TIMEOUT)
    return time.monotonic() - failed


def _start_replication(primary: PostgresServer, standby: PostgresServer) -> None:
    """Start the standby. From then on the primary waits for it before it acknowledges a write."""
    standby.start_as_standby_of(primary)
    primary.run("ALTER SYSTEM SET synchronous_standby_names = '*'")
    primary.run("SELECT pg_reload_conf()")
    wait_until(lambda: primary.run("SELECT sync_state FROM pg_stat_replication") == "sync")
