"""Lease fault: the service is killed while workers lease one session and count in a cookie."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle
from typing import Any, NamedTuple

import httpx2

from faults.environment import Environment
from faults.processes import wait_until
from faults.results import Result
from faults.service import Service
from faults.workload import CONNECTION_LOST, REFUSED, Client, format_counts, vary_timing

EXCLUSIVE = "a session has one holder at a time, and no acknowledged change of a holder is lost"
_HOST = "shop.example"
_LEASES = "/v1/sessions/leases"
_WORKERS = 4
_SECONDS = 1  # of a lease: a lease that nobody knows blocks the others for this time
_RETURNS_AFTER_KILL = 5
_LATE_RETURNS = 3  # at least
_LATE_SECONDS = 0.3  # after the end of the lease, so that another worker has the session
_EXPECTED = {"200", "404", "409", "503", REFUSED, CONNECTION_LOST}


class Holding(NamedTuple):
    """Time in which a worker believed to have the session, on the clock of this process."""

    start: float
    """When the worker received the lease."""
    end: float
    """When it sent the return, or when its lease ended by its own count."""


class Worker(Client):
    """Leases the session, adds one to the counter, and returns the session with the change.

    Of four times, it renews its lease once. Once it is late: it returns the session after its lease
    has ended by its own count.
    """

    def __init__(self, service: Service, counted: float) -> None:
        super().__init__(service, _HOST)
        self._counted = counted
        """A worker that counts 2 for each second of its lease uses the session for too long."""
        self._ways = cycle(random.sample(("return", "renew", "return", "late"), 4))
        self.holdings: list[Holding] = []
        self.late = 0
        self.ended_early = 0
        """Leases that ended before their time."""
        self.acknowledged: list[int] = []
        """Values of the counter that the service confirmed."""
        self.unknown = 0
        """Values that were sent and may be stored."""

    def step(self) -> None:
        sent = time.monotonic()
        wanted = {"domain": _HOST, "seconds": _SECONDS}
        response = self.request("POST", _LEASES, json=wanted)
        if response is None or response.status_code != 200:
            return
        start, lease = time.monotonic(), response.json()
        path = f"{_LEASES}/{lease['id']}"
        deadline = self._use(path, self._deadline(sent, response))
        end = min(time.monotonic(), deadline)
        self._give_back(path, deadline, _value(lease["state"]) + 1)
        self.holdings.append(Holding(start, end))

    def _deadline(self, sent: float, response: httpx2.Response) -> float:
        return sent + float(response.json()["seconds"]) * self._counted

    def _use(self, path: str, deadline: float) -> float:
        """Use the session. Return the deadline, which a renewal extends."""
        way = next(self._ways)
        time.sleep(random.uniform(0, 0.05))
        if way == "late":
            time.sleep(max(deadline + _LATE_SECONDS - time.monotonic(), 0))
            self.late += 1
        elif way == "renew":
            sent = time.monotonic()
            response = self._change(path, deadline, {"seconds": _SECONDS})
            if response is not None and response.status_code == 200:
                return self._deadline(sent, response)
        return deadline

    def _give_back(self, path: str, deadline: float, value: int) -> None:
        response = self._change(path, deadline, {"state": _state(value), "release": True})
        if response is not None and response.status_code == 200:
            self.acknowledged.append(value)
        elif response is None or response.status_code == 503:
            self.unknown += 1

    def _change(self, path: str, deadline: float, body: dict[str, Any]) -> httpx2.Response | None:
        response = self.request("PUT", path, json=body)
        has_ended = response is not None and response.status_code == 404
        self.ended_early += has_ended and time.monotonic() < deadline
        return response


def _state(value: int) -> dict[str, Any]:
    cookie = {"name": "count", "value": str(value), "domain": _HOST, "path": "/", "expires": -1}
    flags = {"httpOnly": False, "secure": False, "sameSite": "Lax"}
    return {"cookies": [cookie | flags], "origins": []}


def _value(state: dict[str, Any]) -> int:
    return sum(int(cookie["value"]) for cookie in state["cookies"])


# --- checks -------------------------------------------------------------------------------------


def overlaps(holdings: Sequence[Holding]) -> int:
    """Return how often a worker got the session before the previous one had stopped using it."""
    found, latest_end = 0, 0.0
    for holding in sorted(holdings):
        found += holding.start < latest_end
        latest_end = max(latest_end, holding.end)
    return found


@dataclass
class Findings:
    """Results of the checks."""

    holdings: int
    overlaps: int
    ended_early: int
    acknowledged: int
    lost: int
    """Acknowledged values that another worker overwrote without having read them."""
    is_final_value_right: bool
    statuses: Counter[str]

    @property
    def is_ok(self) -> bool:
        unexpected = self.statuses.keys() - _EXPECTED
        errors = self.overlaps or self.ended_early or self.lost or unexpected
        return self.is_final_value_right and not errors

    def __str__(self) -> str:
        final = "right" if self.is_final_value_right else "wrong"
        return (
            f"{self.holdings:,} leases held, {self.overlaps} overlaps, {self.ended_early} ended "
            f"early; {self.acknowledged:,} changes acknowledged, {self.lost} lost; the final value "
            f"is {final}; "
            f"{format_counts(self.statuses)}"
        )


def check(workers: Sequence[Worker], final_value: int) -> Findings:
    """Check the holdings and the counter.

    Each holder adds one to the value that it read. So two holders that acknowledge the same value
    have read the same one, and one of the changes is lost.
    """
    acknowledged = [value for worker in workers for value in worker.acknowledged]
    unknown = sum(worker.unknown for worker in workers)
    holdings = [holding for worker in workers for holding in worker.holdings]
    statuses = Counter[str]()
    for worker in workers:
        statuses.update(worker.log.statuses)
    return Findings(
        len(holdings),
        overlaps(holdings),
        sum(worker.ended_early for worker in workers),
        len(acknowledged),
        len(acknowledged) - len(set(acknowledged)),
        len(acknowledged) <= final_value <= len(acknowledged) + unknown
        and final_value >= max(acknowledged, default=0),
        statuses,
    )


# --- the fault ----------------------------------------------------------------------------------


def kill_service(environment: Environment, engine: str, rounds: int, counted: float = 1) -> Result:
    """Kill one of two nodes on PostgreSQL, or both workers on SQLite, while sessions are leased."""
    services = list(_start(environment, engine))
    with _run(services, counted) as workers:
        for _, service in zip(range(rounds), cycle(services), strict=False):
            _wait_for_returns(workers, 1)
            vary_timing()
            service.kill()
            service.start()
            _wait_for_returns(workers, _RETURNS_AFTER_KILL)
        wait_until(lambda: sum(worker.late for worker in workers) >= _LATE_RETURNS)
    findings = check(workers, _final_value(services[0]))
    process = "one of two nodes" if len(services) > 1 else "two workers"
    fault = f"{rounds} × kill -9 of {process} on {engine}, while {_WORKERS} workers share a session"
    return Result(EXCLUSIVE, fault, str(findings), findings.is_ok)


def _start(environment: Environment, engine: str) -> Iterator[Service]:
    if engine == "SQLite":
        yield environment.start_service(None, "--workers", "2")
        return
    server = environment.start_server()
    for _ in range(2):
        yield environment.start_service(server.url())


@contextmanager
def _run(services: Sequence[Service], counted: float) -> Iterator[list[Worker]]:
    """Run the workers. The end of the context stops them."""
    chosen = cycle(services)
    workers = [Worker(next(chosen), counted) for _ in range(_WORKERS)]
    for worker in workers:
        worker.start()
    try:
        yield workers
    finally:
        for worker in workers:
            worker.stopping.set()
        for worker in workers:
            worker.join()


def _wait_for_returns(workers: Sequence[Worker], count: int) -> None:
    """Wait until this many more changes are acknowledged."""

    def acknowledged() -> int:
        return sum(len(worker.acknowledged) for worker in workers)

    target = acknowledged() + count
    wait_until(lambda: acknowledged() >= target)


def _final_value(service: Service) -> int:
    with service.client() as http:
        response = http.get("/v1/cookies", params={"domain": _HOST})
        return sum(int(cookie["value"]) for cookie in response.json())
