"""Takes PostgreSQL, or its connections, away from the service under load, and gives them back."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress

from faults.environment import Environment
from faults.postgres_server import PostgresServer
from faults.processes import wait_until
from faults.results import Result
from faults.service import LONGEST, Service
from faults.workload import Client, Findings, Load, Moment, Reader, Writer, in_words, load

AWAY = (
    "without its database it answers 503 with `Retry-After` at once, `/healthz` stays fine, "
    "`/readyz` does not, and it is back within 5 s"
)
NO_HANGING = "no request hangs"
EXHAUSTED = "without a free connection a request gets 503 within 5 s"
_AT_ONCE = 2.0  # on a busy machine; the result says what it was
_BACK_WITHIN = 5.0
_STATEMENT_SECONDS = 30.0
_ACQUIRE_SECONDS = 5.0
_LINE_SECONDS, _LOCK_SECONDS = 20.0, 10.0
_SLACK = 2.0  # for a busy machine


class Health(threading.Thread):
    """Asks after the service's health twice a second."""

    def __init__(self, service: Service) -> None:
        super().__init__()
        self._service = service
        self.stopping = threading.Event()
        self.seen: list[tuple[float, int | None, int | None]] = []

    def run(self) -> None:
        while not self.stopping.wait(0.5):
            asked = time.monotonic()
            status = self._service.status
            self.seen.append((asked, status("/healthz"), status("/readyz")))


def stop_the_database(environment: Environment, seconds: float) -> Result:
    server = environment.made_server()
    service = environment.service(server.url())
    findings = Findings()
    health = Health(service)
    with load(service, "group") as under_way:
        wait_until(under_way.acknowledged)
        health.start()
        time.sleep(1)
        server.stop()
        began = time.monotonic()
        time.sleep(seconds)
        ended = time.monotonic()
        server.start()
        back = _seconds_until_back(under_way, service)
    health.stopping.set()
    health.join()
    under_way.check(findings)
    findings.unsound = server.faults_found()
    damage = f"PostgreSQL stopped for {seconds:g} s under load"
    return _judged(under_way, health, findings, (began, ended), back, damage)


def _judged(
    under_way: Load,
    health: Health,
    findings: Findings,
    away: tuple[float, float],
    back: float,
    damage: str,
) -> Result:
    began, ended = away
    told = list(_answers(under_way.clients, began, ended - 1))  # not at the moment of its return
    statuses = Counter(moment.status for moment in told)
    slowest = max(client.tally.slowest for client in under_way.clients)
    slowest_away = max(moment.seconds for moment in told)
    bare = sum(client.tally.without_retry_after for client in under_way.clients)
    seen = {(well, ready) for asked, well, ready in health.seen if began < asked < ended - 1}
    outcome = (
        f"while it was away {in_words(statuses)}, {bare} of them without `Retry-After`, the "
        f"slowest after {slowest_away:.2f} s; `/healthz` and `/readyz` gave "
        f"{sorted(seen, key=str)}; back after {back:.1f} s; the slowest request of all took "
        f"{slowest:.1f} s; {findings}"
    )
    holds = (
        set(statuses) == {"503"}
        and not bare
        and slowest_away < _AT_ONCE
        and slowest < _BACK_WITHIN
        and seen == {(200, 503)}
        and back < _BACK_WITHIN
        and findings.is_well
    )
    return Result(AWAY, damage, outcome, holds)


def freeze_the_database(environment: Environment, seconds: float) -> Result:
    """It neither answers nor goes away, as behind a network that swallows everything."""
    server = environment.made_server()
    service = environment.service(server.url())
    findings = Findings()
    with load(service, "group") as under_way:
        wait_until(under_way.acknowledged)
        server.freeze()
        time.sleep(seconds)
        server.thaw()
        back = _seconds_until_back(under_way, service)
    under_way.check(findings)
    findings.unsound = server.faults_found()
    tallies = [client.tally for client in under_way.clients]
    slowest = max(tally.slowest for tally in tallies)
    statuses = sum((tally.statuses for tally in tallies), Counter[str]())
    longest = min(seconds, _STATEMENT_SECONDS + _ACQUIRE_SECONDS) + _SLACK
    outcome = (
        f"{in_words(statuses)}, the slowest after {slowest:.1f} s; "
        f"back after {back:.1f} s; {findings}"
    )
    holds = slowest < longest and back < _BACK_WITHIN and findings.is_well
    return Result(NO_HANGING, f"PostgreSQL frozen for {seconds:g} s under load", outcome, holds)


def exhaust_the_pool(environment: Environment) -> Result:
    """Somebody keeps the locks of two groups, and two writers the only two connections."""
    server = environment.made_server()
    service = environment.service(server.url(), "--pool-size", "2")
    groups = ("one", "two")
    _write_once(service, groups)
    reader = Reader(service, "one")
    with _locks_kept(server) as let_go, _writing(service, groups):
        time.sleep(0.5)
        reader.turn()
        healthy = service.status("/healthz")
        let_go()
    [moment] = reader.tally.moments
    outcome = f"a read got {moment.status} after {moment.seconds:.1f} s; `/healthz` {healthy}"
    in_time = moment.seconds < _ACQUIRE_SECONDS + _SLACK
    holds = (moment.status, healthy) == ("503", 200) and in_time
    return Result(EXHAUSTED, "both connections of a pool of two kept waiting", outcome, holds)


def keep_a_lock(environment: Environment, writers: int) -> Result:
    """Somebody keeps the lock of a group, and a queue of writers forms behind it."""
    server = environment.made_server()
    service = environment.service(server.url())
    _write_once(service, ("one",))
    with _locks_kept(server), _writing(service, ("one",) * writers) as clients:
        pass
    moments = [client.tally.moments[0] for client in clients]
    statuses = Counter(moment.status for moment in moments)
    slowest = max(moment.seconds for moment in moments)
    outcome = f"{in_words(statuses)}, the slowest after {slowest:.1f} s"
    holds = set(statuses) == {"503"} and slowest < _LINE_SECONDS + _LOCK_SECONDS + _SLACK
    damage = f"the lock of a group kept from {writers} writers, who stand in line"
    return Result(NO_HANGING, damage, outcome, holds)


def _write_once(service: Service, groups: Iterable[str]) -> None:
    with _writing(service, groups):
        pass


@contextmanager
def _writing(service: Service, groups: Iterable[str]) -> Iterator[list[Writer]]:
    """Each stores one batch; at the end of the context all have their answer."""
    writers = [Writer(service, group, f"w{number}") for number, group in enumerate(groups)]
    threads = [threading.Thread(target=writer.turn) for writer in writers]
    for thread in threads:
        thread.start()
    try:
        yield writers
    finally:
        for thread in threads:
            thread.join()


@contextmanager
def _locks_kept(server: PostgresServer) -> Iterator[Callable[[], object]]:
    """Somebody else's transaction holds the rows of all groups until it is told to let go."""
    taken = "SELECT 1 FROM groups FOR UPDATE; SELECT pg_sleep(300)"
    end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"

    def keep() -> None:
        with suppress(RuntimeError):  # it is ended from outside
            server.run(taken, "gleanery")

    keeper = threading.Thread(target=keep)
    keeper.start()
    wait_until(lambda: server.run("SELECT 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep'"))
    try:
        yield lambda: server.run(end)
    finally:
        server.run(end)
        keeper.join()


def _answers(clients: Iterable[Client], began: float, ended: float) -> Iterator[Moment]:
    """To what was asked in that time, also if they came after it."""
    for client in clients:
        for moment in client.tally.moments:
            if began < moment.when - moment.seconds < ended:
                yield moment


def _seconds_until_back(under_way: Load, service: Service) -> float:
    before = under_way.acknowledged()
    return wait_until(
        lambda: under_way.acknowledged() > before and service.status("/readyz") == 200, LONGEST
    )
