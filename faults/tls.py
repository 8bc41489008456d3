"""TLS faults: connections without a handshake, idle clients, and certificates that change."""

from __future__ import annotations

import os
import socket
import time
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path

from faults.environment import Environment
from faults.processes import wait_until
from faults.results import Result
from faults.service import Service
from faults.workload import Findings, format_counts, run_workload
from tests.support.certificates import (
    connect_tls,
    serial_number,
    served_serial_number,
    write_certificate,
)

LIMITED = (
    "TLS connections count from their acceptance: without a handshake, or idle, they use no more "
    "than `--max-connections` and its reserve, and other clients are served"
)
REPLACED = "a replaced certificate is used for new connections, and no connection is dropped"
_LIMIT = 50
_BARE, _IDLE = 1_200, 300
_OTHER_FILES = 450  # of the service, the reserve, and accepted connections that are being closed
_STOP_SECONDS = 10.0


def exhaust_descriptors(environment: Environment) -> Result:
    """Open many connections without a handshake, and then many idle ones with it."""
    options = (*_write_certificate(environment.new_path("tls")), "--max-connections", str(_LIMIT))
    service = environment.start_service(None, *options)
    with ExitStack() as stack:
        for _ in range(_BARE):
            stack.enter_context(socket.create_connection(("127.0.0.1", service.port)))
        bare_files = _open_files(service)
        served_after = wait_until(lambda: service.status("/readyz") == 200)
        for _ in range(_IDLE):
            with suppress(OSError):  # none was idle at that moment
                stack.enter_context(connect_tls(service.port))
        idle_files = _open_files(service)
        served_after = max(served_after, wait_until(lambda: service.status("/readyz") == 200))
        start = time.monotonic()
        status = service.stop(_STOP_SECONDS)
        stopped_after = time.monotonic() - start
    outcome = (
        f"{bare_files} and {idle_files} open files; another client was served after "
        f"{served_after:.1f} s; stop after {stopped_after:.1f} s with status {status}"
    )
    holds = max(bare_files, idle_files) <= _LIMIT + _OTHER_FILES and status == 0
    fault = (
        f"{_BARE:,} connections without a handshake, then {_IDLE} idle ones, with "
        f"`--max-connections {_LIMIT}`"
    )
    return Result(LIMITED, fault, outcome, holds)


def replace_certificate(environment: Environment, rounds: int) -> Result:
    """Replace the certificate again and again, during writes."""
    folder = environment.new_path("tls")
    service = environment.start_service(None, "--workers", "2", *_write_certificate(folder))
    findings, longest = Findings(), 0.0
    with run_workload(service, "group") as workload:
        for _ in range(rounds):
            workload.wait_for_writes(1)
            _write_certificate(folder)
            longest = max(longest, _reload_seconds(service, folder))
            workload.wait_for_writes(1)
    workload.check(findings)
    statuses = sum((client.log.statuses for client in workload.clients), Counter[str]())
    outcome = f"{format_counts(statuses)}; in use after at most {longest:.1f} s; {findings}"
    holds = set(statuses) <= {"200", "404"} and findings.is_ok  # 404 until the first write
    return Result(REPLACED, f"{rounds} × certificate replaced, during writes", outcome, holds)


def _reload_seconds(service: Service, folder: Path) -> float:
    """Return the seconds until new connections to both workers get the certificate."""
    expected = serial_number(folder / "cert.pem")

    def is_in_use() -> bool:
        return all(served_serial_number(service.port) == expected for _ in range(8))

    return wait_until(is_in_use)


def _open_files(service: Service) -> int:
    return len(os.listdir(f"/proc/{service.pid}/fd"))


def _write_certificate(folder: Path) -> tuple[str, ...]:
    """Write a certificate and its key. Return the options of the service."""
    folder.mkdir(exist_ok=True)
    certificate, key = write_certificate(folder)
    return "--tls-cert", str(certificate), "--tls-key", str(key)
