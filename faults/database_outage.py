"""Database outages: PostgreSQL, its connections or its locks are not available for some time."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import NamedTuple

from faults.environment import Environment
from faults.postgres_server import PostgresServer
from faults.processes import wait_until
from faults.results import Result
from faults.service import CLIENT_TIMEOUT, Service
from faults.workload import (
    Client,
    Findings,
    Reader,
    RequestRecord,
    Workload,
    Writer,
    format_counts,
    run_workload,
)

OUTAGE = (
    "without its database the service responds 503 with `Retry-After` at once, `/healthz` stays "
    "200, `/readyz` becomes 503, and the service recovers within 5 s"
)
WORKER_REPLACED = (
    "a worker that ends without its database is replaced, and the service recovers within 5 s"
)
NO_HANGING = "no request hangs"
POOL_EXHAUSTED = "without a free connection a request gets 503 within 5 s"
_AT_ONCE = 2.0  # seconds, for a busy machine; the result states the real time
_RECOVERY_LIMIT = 5.0
SILENT_SERVER_TIMEOUT = 33.0
"""Seconds after the last answer of a server, as docs/operations/run-on-postgresql.md says."""
_LONG_POLL = 1.0  # of the follower
_FROZEN_AT_ONCE = 5
_ACQUIRE_TIMEOUT = 5.0
_QUEUE_TIMEOUT, _LOCK_TIMEOUT = 20.0, 10.0
_TOLERANCE = 2.0  # seconds, for a busy machine
_WRITES_BEFORE_OUTAGE = 100
_COUNT_LOCK_WAITS = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
_READY_SECONDS = 1.0
_END_MARGIN = 1.0  # requests in the last second may already see the database again


class HealthReading(NamedTuple):
    """Statuses of the two health endpoints at one time."""

    time: float
    healthz: int | None
    readyz: int | None


class HealthMonitor(threading.Thread):
    """Reads the health endpoints of the service twice a second."""

    def __init__(self, service: Service) -> None:
        super().__init__()
        self._service = service
        self.stopping = threading.Event()
        self.readings: list[HealthReading] = []

    def run(self) -> None:
        while not self.stopping.wait(0.5):
            now, status = time.monotonic(), self._service.status
            self.readings.append(HealthReading(now, status("/healthz"), status("/readyz")))

    def statuses(self, start: float, end: float) -> set[tuple[int | None, int | None]]:
        """Return the different pairs of statuses between the two times.

        `/readyz` may repeat its last response for a second, so that second does not count.
        """
        start += _READY_SECONDS
        return {(r.healthz, r.readyz) for r in self.readings if start < r.time < end}


def stop_database(environment: Environment, seconds: float) -> Result:
    server = environment.start_server()
    service = environment.start_service(server.url())
    findings = Findings()
    with run_workload(service, "group") as workload, _monitor_health(service) as health:
        workload.wait_for_writes(_WRITES_BEFORE_OUTAGE)
        server.stop()
        start = time.monotonic()
        time.sleep(seconds)
        wait_until(lambda: _is_observed(workload, health, start))
        end = time.monotonic()
        server.start()
        recovery = _recovery_seconds(workload, service)
    workload.check(findings)
    findings.integrity_errors = server.integrity_errors()
    fault = f"PostgreSQL stopped for {seconds:g} s, during writes"
    window = (start, end - _END_MARGIN)
    return _outage_result(workload, health, findings, window, recovery, fault)


@contextmanager
def _monitor_health(service: Service) -> Iterator[HealthMonitor]:
    monitor = HealthMonitor(service)
    monitor.start()
    try:
        yield monitor
    finally:
        monitor.stopping.set()
        monitor.join()


def _is_observed(workload: Workload, health: HealthMonitor, start: float) -> bool:
    """Return True if there are a health reading and a request in the window that counts."""
    end = time.monotonic() - _END_MARGIN
    requests = _requests_started(workload.clients, start, end)
    return bool(health.statuses(start, end)) and any(requests)


def _outage_result(
    workload: Workload,
    health: HealthMonitor,
    findings: Findings,
    window: tuple[float, float],
    recovery: float,
    fault: str,
) -> Result:
    records = list(_requests_started(workload.clients, *window))
    statuses = Counter(record.status for record in records)
    slowest_in_outage = max(record.seconds for record in records)
    slowest = max(client.log.slowest for client in workload.clients)
    without_retry_after = sum(client.log.without_retry_after for client in workload.clients)
    health_statuses = health.statuses(*window)
    outcome = (
        f"during the outage {format_counts(statuses)}, {without_retry_after} of them without "
        f"`Retry-After`, the slowest after {slowest_in_outage:.2f} s; `/healthz` and `/readyz` "
        f"returned {sorted(health_statuses, key=str)}; recovery after {recovery:.1f} s; the "
        f"slowest request of all took {slowest:.1f} s; {findings}"
    )
    holds = (
        set(statuses) == {"503"}
        and not without_retry_after
        and slowest_in_outage < _AT_ONCE
        and slowest < _RECOVERY_LIMIT
        and health_statuses == {(200, 503)}
        and recovery < _RECOVERY_LIMIT
        and findings.is_ok
    )
    return Result(OUTAGE, fault, outcome, holds)


def kill_worker_without_database(environment: Environment, rounds: int) -> Result:
    """Kill one of two workers while PostgreSQL is stopped. Its replacement starts without it."""
    server = environment.start_server()
    service = environment.start_service(server.url(), "--workers", "2", "--log-level", "info")
    findings, longest, statuses = Findings(), 0.0, Counter[tuple[int | None, int | None]]()
    for number in range(rounds):
        with run_workload(service, f"round-{number}") as workload:
            wait_until(lambda: len(service.workers()) == 2)
            workload.wait_for_writes(1)
            server.stop()
            statuses += _replace_worker(service)
            server.start()
            longest = max(longest, _recovery_seconds(workload, service))
            wait_until(lambda: _are_all_ready(service))
        workload.check(findings)
    findings.integrity_errors = server.integrity_errors()
    fault = f"{rounds} × kill -9 of one of two workers while PostgreSQL is stopped"
    outcome = (
        f"`/healthz` and `/readyz` returned {sorted(statuses, key=str)} from both workers; "
        f"recovery after at most {longest:.1f} s; {findings}"
    )
    holds = set(statuses) == {(200, 503)} and longest < _RECOVERY_LIMIT and findings.is_ok
    return Result(WORKER_REPLACED, fault, outcome, holds)


def _replace_worker(service: Service) -> Counter[tuple[int | None, int | None]]:
    """Kill a worker, wait for the next one, and count what new connections get."""
    before = service.workers()
    served = _serving_lines(service)
    os.kill(before[0], signal.SIGKILL)
    wait_until(lambda: _serving_lines(service) > served)
    time.sleep(_READY_SECONDS)  # `/readyz` of the other worker may repeat its last response
    pairs = [(service.status("/healthz"), service.status("/readyz")) for _ in range(20)]
    return Counter(pairs)


def _are_all_ready(service: Service) -> bool:
    """Return True if every worker is ready: each of many connections may reach any of them."""
    return all(service.status("/readyz") == 200 for _ in range(20))


def _serving_lines(service: Service) -> int:
    return service.log.read_text().count("a worker process serves")


def freeze_database(environment: Environment, seconds: float, rounds: int) -> Result:
    """Freeze a server per round, so that it neither responds nor closes its connections.

    A network that drops all packets has the same effect. Nearly all of the time is spent waiting,
    so several servers are frozen at the same time, each with a service and clients of its own.
    """
    starting = threading.Lock()
    freeze = partial(_freeze_once, environment, seconds, starting)
    with ThreadPoolExecutor(_FROZEN_AT_ONCE) as threads:
        outcomes = list(threads.map(freeze, range(rounds)))
    findings = sum((outcome.findings for outcome in outcomes), Findings())
    statuses = sum((outcome.statuses for outcome in outcomes), Counter[str]())
    slowest = max(outcome.slowest for outcome in outcomes)
    recovery = max(outcome.recovery for outcome in outcomes)
    without_retry_after = sum(outcome.without_retry_after for outcome in outcomes)
    limit = min(seconds, SILENT_SERVER_TIMEOUT) + _LONG_POLL + _TOLERANCE
    outcome = (
        f"{format_counts(statuses)}, {without_retry_after} of them without `Retry-After`; the "
        f"slowest request of all took {slowest:.1f} s; every writer continued at most "
        f"{recovery:.1f} s afterwards; {findings}"
    )
    is_in_time = slowest < limit and recovery < _RECOVERY_LIMIT
    holds = is_in_time and not without_retry_after and findings.is_ok
    fault = f"{rounds} × PostgreSQL frozen for {seconds:g} s, during writes to two workers"
    return Result(NO_HANGING, fault, outcome, holds)


class _Outage(NamedTuple):
    """What the clients of one service saw."""

    statuses: Counter[str]
    without_retry_after: int
    slowest: float
    recovery: float
    findings: Findings


def _freeze_once(
    environment: Environment, seconds: float, starting: threading.Lock, number: int
) -> _Outage:
    with ExitStack() as stack:
        with starting:  # one after the other, so that they are not resumed at the same time
            server = environment.start_server()
            service = environment.start_service(server.url(), "--workers", "2")
            wait_until(lambda: _are_all_ready(service))
            workload = stack.enter_context(run_workload(service, f"round-{number}"))
            wait_until(lambda: all(writer.log.statuses["200"] for writer in workload.writers))
            server.freeze()
        time.sleep(seconds)
        server.resume()
        recovery = wait_until(partial(_have_all_continued, workload, time.monotonic()))
    findings = Findings()
    workload.check(findings)
    service.kill()
    findings.integrity_errors = server.integrity_errors()
    logs = [client.log for client in workload.clients]
    return _Outage(
        sum((log.statuses for log in logs), Counter[str]()),
        sum(log.without_retry_after for log in logs),
        max(log.slowest for log in logs),
        recovery,
        findings,
    )


def _have_all_continued(workload: Workload, since: float) -> bool:
    """Return True if each writer has sent a batch since then that was acknowledged."""
    return all(
        any(r.started > since and r.status == "200" for r in writer.log.records[-20:])
        for writer in workload.writers
    )


def exhaust_pool(environment: Environment) -> Result:
    """Hold the locks of two groups, so that writers occupy every connection of the organization.

    Of a pool of two, one organization gets one connection. The other one is left for others.
    """
    server = environment.start_server()
    service = environment.start_service(server.url(), "--pool-size", "2")
    groups = ("one", "two")
    _write_once(service, groups)
    reader = Reader(service, "one")
    with _group_locks_held(server) as release, _writes(service, groups):
        wait_until(lambda: int(server.run(_COUNT_LOCK_WAITS)) >= 1)
        reader.step()
        healthz = service.status("/healthz")
        release()
    [record] = reader.log.records
    outcome = f"a read got {record.status} after {record.seconds:.1f} s; `/healthz` {healthz}"
    in_time = record.seconds < _ACQUIRE_TIMEOUT + _TOLERANCE
    holds = (record.status, healthz) == ("503", 200) and in_time
    fault = "every connection that an organization may use waits for a lock"
    return Result(POOL_EXHAUSTED, fault, outcome, holds)


def hold_lock(environment: Environment, writers: int) -> Result:
    """Hold the lock of a group, so that its writers queue."""
    server = environment.start_server()
    service = environment.start_service(server.url())
    _write_once(service, ("one",))
    with _group_locks_held(server), _writes(service, ("one",) * writers) as clients:
        pass
    records = [client.log.records[0] for client in clients]
    statuses = Counter(record.status for record in records)
    slowest = max(record.seconds for record in records)
    outcome = f"{format_counts(statuses)}, the slowest after {slowest:.1f} s"
    holds = set(statuses) == {"503"} and slowest < _QUEUE_TIMEOUT + _LOCK_TIMEOUT + _TOLERANCE
    fault = f"the lock of a group held by another transaction while {writers} writers queue"
    return Result(NO_HANGING, fault, outcome, holds)


def _write_once(service: Service, groups: Iterable[str]) -> None:
    with _writes(service, groups):
        pass


@contextmanager
def _writes(service: Service, groups: Iterable[str]) -> Iterator[list[Writer]]:
    """Store one batch per group. The context ends when all writers have their response."""
    writers = [Writer(service, group, f"w{number}") for number, group in enumerate(groups)]
    threads = [threading.Thread(target=writer.step) for writer in writers]
    for thread in threads:
        thread.start()
    try:
        yield writers
    finally:
        for thread in threads:
            thread.join()


@contextmanager
def _group_locks_held(server: PostgresServer) -> Iterator[Callable[[], object]]:
    """Lock the rows of all groups in another transaction, and yield a function that ends it."""
    lock = "SELECT 1 FROM groups FOR UPDATE; SELECT pg_sleep(300)"
    end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"

    def hold() -> None:
        with suppress(RuntimeError):  # psql fails because its backend is terminated
            server.run(lock, "gleanery")

    holder = threading.Thread(target=hold)
    holder.start()
    wait_until(lambda: server.run("SELECT 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep'"))
    try:
        yield lambda: server.run(end)
    finally:
        server.run(end)
        holder.join()


def _requests_started(
    clients: Iterable[Client], start: float, end: float
) -> Iterator[RequestRecord]:
    """Generate the finished requests that started between the two times."""
    for client in clients:
        for record in client.log.records:
            if start < record.started < end:
                yield record


def _recovery_seconds(workload: Workload, service: Service) -> float:
    """Return the seconds until a write is acknowledged and the service is ready."""
    before = workload.acknowledged()
    return wait_until(
        lambda: workload.acknowledged() > before and service.status("/readyz") == 200,
        CLIENT_TIMEOUT,
    )
