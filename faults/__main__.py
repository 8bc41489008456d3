"""Command ``make faults``: injects one fault after the other and prints a table of the outcomes."""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
from collections.abc import Callable
from functools import partial

from faults import (
    client_kill,
    crlf_connections,
    database_outage,
    deployments,
    disk_full,
    failover,
    kill,
    leases,
    log_stalled,
    lost_folder,
    monitors,
    power_loss,
    results,
    runs,
    scale_out,
    slow_readers,
    tls,
    views,
    webhooks,
)
from faults.environment import ROOT, Environment, open_environment
from faults.processes import end_children_with_this_process
from faults.programs import MissingProgram
from faults.results import Result

ROUNDS = int(os.environ.get("GLEANERY_FAULT_ROUNDS", "100"))
_FEWER_ROUNDS = max(1, ROUNDS // 10)  # of faults that take longer or depend less on the timing
_LEASE_ROUNDS = _CLIENT_ROUNDS = _VIEW_ROUNDS = max(1, ROUNDS // 4)
_WEBHOOKS = {"rounds": _FEWER_ROUNDS, "causes": 200}  # 2,000 causes make 100,000 deliveries
_SLOW_READERS = {"readers": 120, "seconds": 45}  # longer than a page waits for memory
_STOPPED_SECONDS = 20
_CRLF_SECONDS = 30
_FROZEN_SECONDS = 120  # much longer than every limit of the service

FAULTS: dict[str, Callable[[Environment], Result]] = {
    "kill-service-sqlite": partial(kill.kill_service, engine="SQLite", rounds=ROUNDS),
    "kill-service-postgres": partial(kill.kill_service, engine="PostgreSQL", rounds=ROUNDS),
    "kill-database": partial(kill.kill_database, rounds=ROUNDS),
    "kill-worker": partial(kill.kill_worker, rounds=_FEWER_ROUNDS),
    "power-loss-sqlite": partial(power_loss.cut_power, engine="SQLite", rounds=_FEWER_ROUNDS),
    "power-loss-postgres": partial(power_loss.cut_power, engine="PostgreSQL", rounds=_FEWER_ROUNDS),
    "disk-full-sqlite": partial(disk_full.fill_disk, engine="SQLite", rounds=_FEWER_ROUNDS),
    "disk-full-postgres": partial(disk_full.fill_disk, engine="PostgreSQL", rounds=_FEWER_ROUNDS),
    "folder-deleted": partial(lost_folder.delete_folder, rounds=_FEWER_ROUNDS),
    "folder-replaced": partial(lost_folder.replace_folder, rounds=_FEWER_ROUNDS),
    "database-stopped": partial(database_outage.stop_database, seconds=_STOPPED_SECONDS),
    "database-frozen": partial(
        database_outage.freeze_database, seconds=_FROZEN_SECONDS, rounds=_FEWER_ROUNDS
    ),
    "pool-exhausted": database_outage.exhaust_pool,
    "lock-held": partial(database_outage.hold_lock, writers=6),
    "worker-without-database": partial(
        database_outage.kill_worker_without_database, rounds=_FEWER_ROUNDS
    ),
    "leases-sqlite": partial(leases.kill_service, engine="SQLite", rounds=_LEASE_ROUNDS),
    "leases-postgres": partial(leases.kill_service, engine="PostgreSQL", rounds=_LEASE_ROUNDS),
    "views-sqlite": partial(views.kill_service, engine="SQLite", rounds=_VIEW_ROUNDS),
    "views-postgres": partial(views.kill_service, engine="PostgreSQL", rounds=_VIEW_ROUNDS),
    "runs-sqlite": partial(runs.kill_service, engine="SQLite", rounds=_LEASE_ROUNDS),
    "runs-postgres": partial(runs.kill_service, engine="PostgreSQL", rounds=_LEASE_ROUNDS),
    "monitors-sqlite": partial(monitors.kill_service, engine="SQLite", rounds=_FEWER_ROUNDS),
    "monitors-postgres": partial(monitors.kill_service, engine="PostgreSQL", rounds=_FEWER_ROUNDS),
    **{
        name: partial(webhooks.deliver, deploy=deploy, **_WEBHOOKS)
        for name, deploy in deployments.OF_WEBHOOKS.items()
    },
    **{
        f"{task.name}-{engine}": partial(
            client_kill.kill_during, task=task, engine=name, rounds=_CLIENT_ROUNDS
        )
        for task in (client_kill.Push, client_kill.Pull, client_kill.Export)
        for engine, name in (("sqlite", "SQLite"), ("postgres", "PostgreSQL"))
    },
    "log-stalled": log_stalled.stall_log,
    "crlf-connections": partial(crlf_connections.send_empty_lines, seconds=_CRLF_SECONDS),
    "slow-readers": partial(slow_readers.read_slowly, engine="SQLite", **_SLOW_READERS),
    "slow-readers-postgres": partial(
        slow_readers.read_slowly, engine="PostgreSQL", **_SLOW_READERS
    ),
    "tls-descriptors": tls.exhaust_descriptors,
    "certificate-replaced": partial(tls.replace_certificate, rounds=_FEWER_ROUNDS),
    "failover": partial(failover.fail_over, rounds=_FEWER_ROUNDS),
    "failover-silent": partial(
        failover.fail_over, rounds=max(1, _FEWER_ROUNDS // 5), is_silent=True
    ),
    **{
        name: partial(scale_out.kill_parts, deploy=deploy, rounds=_VIEW_ROUNDS)
        for name, deploy in deployments.ALL.items()
    },
}


def main() -> int:
    arguments = _parse_arguments()
    end_children_with_this_process()
    start = time.monotonic()
    must_run = bool(arguments.faults) or arguments.write
    found = [_inject(name, must_run) for name in arguments.faults or FAULTS]
    outcomes = [result for result in found if result is not None]
    print(results.table(outcomes))
    if arguments.write:
        minutes = (time.monotonic() - start) / 60
        results.write(ROOT / "docs" / "reliability.md", outcomes, minutes)
    return sum(not result.holds for result in outcomes)


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m faults",
        description="Inject faults into the service and print a table of the outcomes.",
    )
    parser.add_argument(
        "faults", nargs="*", help=f"faults to inject: {', '.join(FAULTS)} (default: all)"
    )
    parser.add_argument(
        "--write", action="store_true", help="write the table to docs/reliability.md"
    )
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.faults if name not in FAULTS]:
        parser.error(f"unknown fault: {', '.join(unknown)}; choose from {', '.join(FAULTS)}")
    if arguments.write and arguments.faults:
        parser.error("--write requires all faults: name none")
    return arguments


def _inject(name: str, must_run: bool) -> Result | None:
    """Inject one fault and return its result. An exception does not end the run.

    Return None if the fault needs a program that is not installed, and may be left out.
    """
    start = time.monotonic()
    try:
        with open_environment() as environment:
            result = FAULTS[name](environment)
    except Exception as error:
        if isinstance(error, MissingProgram) and not must_run:
            print(f"{name}: left out: {error}", file=sys.stderr, flush=True)
            return None
        traceback.print_exc()
        result = Result(name, "not completed", f"{type(error).__name__}: {error}", False)
    verdict = "holds" if result.holds else "BROKEN"
    seconds = time.monotonic() - start
    # With its outcome: a run takes long, and its table is lost if it is interrupted.
    print(f"{name}: {verdict} ({seconds:.0f} s): {result.outcome}", file=sys.stderr, flush=True)
    return result


if __name__ == "__main__":
    sys.exit(main())
