"""Kills the primary PostgreSQL server and promotes its standby, while clients write and follow."""

from __future__ import annotations

import time
from collections.abc import Callable

from faults.environment import Environment
from faults.postgres_server import PostgresServer
from faults.processes import wait_until
from faults.results import Result
from faults.service import LONGEST
from faults.workload import Findings, load

PROMISE = "a failover loses no acknowledged write, and no reader of the feed misses a change"


def fail_over(environment: Environment, rounds: int) -> Result:
    """After each round the lost server comes back as the standby of the other."""
    primary, standby = environment.made_server(), environment.server()
    url = (
        f"postgresql://postgres@{primary.address},{standby.address}/gleanery"
        "?target_session_attrs=read-write"
    )
    service = environment.service(url)
    findings, longest = Findings(), 0.0
    for number in range(rounds):
        _follow(standby, primary)
        with load(service, f"round-{number}") as under_way:
            wait_until(under_way.acknowledged)
            time.sleep(1)
            longest = max(longest, _fail_over_once(primary, standby, under_way.acknowledged))
            time.sleep(0.5)
        under_way.check(findings)
        primary, standby = standby, primary
    findings.unsound = primary.faults_found()
    damage = (
        f"{rounds} × the primary of two PostgreSQL servers killed (-9) under load, its synchronous "
        "standby promoted"
    )
    outcome = f"writes go on {longest:.1f} s after the kill, at most; {findings}"
    return Result(PROMISE, damage, outcome, findings.is_well)


def _fail_over_once(
    primary: PostgresServer, standby: PostgresServer, acknowledged: Callable[[], int]
) -> float:
    """Seconds from the kill until a write is acknowledged again."""
    primary.kill()
    killed, before = time.monotonic(), acknowledged()
    standby.promote()
    wait_until(lambda: acknowledged() > before, LONGEST)
    return time.monotonic() - killed


def _follow(standby: PostgresServer, primary: PostgresServer) -> None:
    """Makes the standby anew; from then on the primary acknowledges nothing that it lacks."""
    standby.copy_of(primary)
    primary.run("ALTER SYSTEM SET synchronous_standby_names = '*'")
    primary.run("SELECT pg_reload_conf()")
    wait_until(lambda: primary.run("SELECT sync_state FROM pg_stat_replication") == "sync")
