"""Connections of several nodes: they reach the formula of docs/how-to/scale-out.md, and no more."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import httpx2
import pytest

from faults.environment import open_environment
from faults.postgres_server import PostgresServer
from gleanery.common.settings import Settings
from tests.support.outputs import output
from tests.support.process import Served, served
from tests.support.service import Client
from tests.support.waiting import wait_until

pytestmark = pytest.mark.extended

NODES, WORKERS, POOL_SIZE = 2, 2, 3
CLIENTS = 20  # for each node; the kernel gives each connection to any of its workers
SAMPLES = 50
PAGE = Path(__file__).parents[2] / "docs/how-to/scale-out.md"
LOCK = "BEGIN; LOCK TABLE outputs IN ACCESS EXCLUSIVE MODE; SELECT pg_sleep(600)"
LOCKS = "SELECT pid FROM pg_stat_activity WHERE query LIKE '%pg_sleep(600)' AND state = 'active'"
LISTENERS = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'"


def connections(server: PostgresServer) -> int:
    """What the query of the page counts."""
    [query] = re.findall(r'"(SELECT count\(\*\) FROM pg_stat_activity[^"]+)"', PAGE.read_text())
    return int(server.run(query.replace("\\\n", "")))


@contextmanager
def locked_outputs(server: PostgresServer) -> Iterator[None]:
    """Locks the table, on its replica too, so that every read keeps its connection."""

    def hold() -> None:
        with suppress(RuntimeError):  # it is ended
            server.run(LOCK, "gleanery")

    def others() -> str:
        return server.run(f"{LOCKS} AND pid <> pg_backend_pid()")

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        wait_until(others)
        yield
    finally:
        server.run(f"SELECT pg_terminate_backend({others()})")
        thread.join()


@contextmanager
def repeated(nodes: list[Served], path: str) -> Iterator[None]:
    """Many clients of each node, each with a new connection for each request."""
    stopped = threading.Event()

    def read(node: Served) -> None:
        while not stopped.is_set():
            with Client(node.url, node.token) as client, suppress(httpx2.HTTPError):
                client.get(path)

    threads = [threading.Thread(target=read, args=[node]) for node in nodes for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stopped.set()
        for thread in threads:
            thread.join()


def reaches(expected: int, count: Callable[[], int]) -> Callable[[], bool]:
    """Compares a number with its maximum; fails if it is above that."""

    def compare() -> bool:
        found = count()
        assert found <= expected
        return found == expected

    return compare


def test_the_connections_of_nodes_are_those_of_the_formula(tmp_path: Path) -> None:
    with open_environment() as environment, ExitStack() as stack:
        primary, replica = environment.start_server(), environment.new_server()
        replica.start_as_standby_of(primary)
        options = ("--workers", str(WORKERS), "--pool-size", str(POOL_SIZE))
        nodes = [
            stack.enter_context(
                served(
                    Settings(data=tmp_path / str(number), database=primary.url()),
                    *(*options, "--replica", replica.url(), "--max-wait-seconds", "2"),
                )
            )
            for number in range(NODES)
        ]
        with Client(nodes[0].url, nodes[0].token) as client:
            client.store("group", output(1), output(2))
            end = client.get("/v1/changes/group").json()["cursor"]

        with repeated(nodes, f"/v1/changes/group?cursor={end}&wait=2"):
            wait_until(lambda: int(primary.run(LISTENERS)) == NODES * WORKERS)
        of_lock = 1
        most = NODES * WORKERS * (POOL_SIZE + 1) + of_lock
        with locked_outputs(primary), repeated(nodes, "/v1/outputs/group?limit=1"):
            on_primary = reaches(most, lambda: connections(primary))
            on_replica = reaches(NODES * WORKERS * POOL_SIZE, lambda: connections(replica))
            wait_until(on_primary)
            wait_until(on_replica)
            for _ in range(SAMPLES):
                on_primary()
                on_replica()
