"""Connection fault: many connections that send CR and LF in turns, and never a request."""

from __future__ import annotations

import random
import socket
import threading
import time
from contextlib import suppress
from itertools import count

import httpx2

from faults.environment import Environment
from faults.processes import wait_until
from faults.results import Result
from faults.service import Service
from faults.workload import Findings, run_workload

PROMISE = (
    "clients that send no request hold no connection: at `--max-connections` others are served, "
    "and `/healthz`, `/readyz` and `/metrics` are always answered"
)
_CONNECTIONS = 300
_LIMIT = 50
_PAUSE = 1.0  # seconds between two bytes of a connection
_CHECKS = ("/healthz", "/readyz", "/metrics")
_MAX_SECONDS = 10.0  # until a new client is served, with some attempts
_EVENT = "the connection limit is reached"


class _Attack(threading.Thread):
    """Connections that send CR and LF in turns. Each is opened again when it is closed."""

    def __init__(self, service: Service) -> None:
        super().__init__()
        self._port = service.port
        self._sockets: list[socket.socket | None] = [None] * _CONNECTIONS
        self.opened = 0
        self.stopping = threading.Event()

    def run(self) -> None:
        for turn in count():
            for position in random.sample(range(_CONNECTIONS), _CONNECTIONS):
                if self.stopping.is_set():
                    self._close()
                    return
                self._send(position, b"\r\n"[turn % 2 :][:1])
                time.sleep(_PAUSE / _CONNECTIONS)

    def _send(self, position: int, byte: bytes) -> None:
        connection = self._sockets[position]
        try:
            if connection is None:
                connection = socket.create_connection(("127.0.0.1", self._port), timeout=1)
                self._sockets[position] = connection
                self.opened += 1
                byte = b"\r"
            connection.sendall(byte)
        except OSError:
            if connection is not None:
                connection.close()
            self._sockets[position] = None

    def _close(self) -> None:
        for connection in self._sockets:
            if connection is not None:
                connection.close()


def send_empty_lines(environment: Environment, seconds: float) -> Result:
    """Attack for this long, while clients write, read, connect and check the health."""
    service = environment.start_service(None, "--max-connections", str(_LIMIT))
    findings, attack = Findings(), _Attack(service)
    token = service.token  # created before the limit is reached
    checks = failed = clients = 0
    slowest = 0.0
    with run_workload(service, "group") as workload:
        workload.wait_for_writes(1)
        attack.start()
        wait_until(lambda: attack.opened > _CONNECTIONS)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for path in _CHECKS:
                checks += 1
                failed += service.status(path) != 200
            clients += 1
            slowest = max(slowest, wait_until(lambda: _is_served(service, token), 60))
            workload.wait_for_writes(1)
        attack.stopping.set()
        attack.join()
    workload.check(findings)
    is_logged = _EVENT in service.log.read_text()
    outcome = (
        f"{attack.opened:,} connections opened, and {failed} of {checks} health checks failed; "
        f"{clients} new clients were served, after {slowest:.1f} s at most; the log "
        f"{'tells' if is_logged else 'does not tell'} that the limit is reached; {findings}"
    )
    fault = (
        f"{_CONNECTIONS} connections that send CR and LF in turns for {seconds:g} s, with "
        f"`--max-connections {_LIMIT}`, during writes"
    )
    holds = not failed and slowest <= _MAX_SECONDS and is_logged and findings.is_ok
    return Result(PROMISE, fault, outcome, holds)


def _is_served(service: Service, token: str) -> bool:
    """Read a page on a new connection. A client that gets 503 tries again."""
    with suppress(httpx2.TransportError):
        headers = {"Authorization": f"Bearer {token}"}
        with httpx2.Client(base_url=service.url, headers=headers, verify=False) as http:
            return http.get("/v1/outputs/group?limit=10").status_code == 200
    return False
