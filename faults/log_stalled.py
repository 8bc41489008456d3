"""Log fault: the reader of the log stops reading, during writes."""

from __future__ import annotations

import os
import time

from faults.environment import Environment
from faults.results import Result
from faults.workload import Findings, run_workload

PROMISE = "a reader of the log that stalls delays neither requests nor the stop"
_REQUESTS = 2_000  # their lines are larger than any pipe
_STOP_SECONDS = 10.0


def stall_log(environment: Environment) -> Result:
    pipe = environment.new_path("pipe")
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)  # it never reads
    options = ("--workers", "2", "--log-level", "info")
    service = environment.start_service(None, *options, log=pipe)
    findings = Findings()
    with run_workload(service, "group") as workload:
        while sum(len(client.log.records) for client in workload.clients) < _REQUESTS:
            workload.wait_for_writes(1)
    workload.check(findings)
    slowest = max(client.log.slowest for client in workload.clients)
    start = time.monotonic()
    status = service.stop(_STOP_SECONDS)
    seconds = time.monotonic() - start
    os.close(reader)
    outcome = (
        f"the slowest request took {slowest:.1f} s; stop after {seconds:.1f} s with status "
        f"{status}; {findings}"
    )
    return Result(
        PROMISE,
        "the log goes to a pipe that nobody reads, during writes",
        outcome,
        status == 0 and findings.is_ok,
    )
