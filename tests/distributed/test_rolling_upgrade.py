"""A rolling upgrade of two nodes on PostgreSQL: two versions side by side, under load."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from gleanery.service.storage import migrations
from tests.api.test_many_clients import without_scrape_date
from tests.support.migration_rules import not_additive
from tests.support.outputs import apply_changes, output, stored_outputs
from tests.support.process import Running, free_port
from tests.support.program_copies import this_program, with_migration
from tests.support.service import NO_TLS, Client
from tests.support.settings import fresh_settings
from tests.support.versions import Version
from tests.support.waiting import TIMEOUT_SECONDS, wait_until

pytestmark = pytest.mark.extended

WRITERS, FOLLOWERS = 3, 3
KEYS = 40  # of each writer; it updates and deletes its outputs again and again
ADDITIONS = """
CREATE TABLE notes (organization_id BIGINT NOT NULL PRIMARY KEY, note TEXT NOT NULL);
ALTER TABLE outputs ADD COLUMN quality INTEGER;
ALTER TABLE outputs ADD COLUMN origin TEXT NOT NULL DEFAULT 'scraper';
CREATE INDEX outputs_by_quality ON outputs (organization_id, quality);
"""


class Cluster:
    """Nodes behind a load balancer, which tries the next node if one refuses connections."""

    def __init__(self, ports: list[int]) -> None:
        self.ports = ports
        self._turns = itertools.count()
        self.statuses: Counter[int] = Counter()
        self.by_port: Counter[int] = Counter()
        self.refused = self.cut_off = 0

    def send(self, token: str, method: str, path: str, **options: Any) -> httpx2.Response:
        """Sends until a node responds. A request that was cut off is sent again."""
        while True:
            port = self.ports[next(self._turns) % len(self.ports)]
            try:
                with Client(f"http://127.0.0.1:{port}", token) as client:
                    answer = client.request(method, path, **options)
            except httpx2.ConnectError:
                self.refused += 1
                time.sleep(0.05)
                continue
            except httpx2.TransportError:
                self.cut_off += 1
                continue
            self.statuses[answer.status_code] += 1
            self.by_port[port] += 1
            return answer


class Load:
    """Writers that create, update and delete, and followers of the change feed."""

    def __init__(self, cluster: Cluster, token: str) -> None:
        self._cluster, self._token = cluster, token
        self._is_writing, self._is_reading = threading.Event(), threading.Event()
        self._is_writing.set()
        self._is_reading.set()
        self.failures: list[str] = []
        self.acknowledged: dict[int, int | None] = {}
        """Value of each key; None if it was deleted."""
        self.copies: list[dict[str, Any]] = [{} for _ in range(FOLLOWERS)]
        self._store(-1, 0)  # creates the group
        self._writers = [self._thread(self._write, number) for number in range(WRITERS)]
        self._followers = [self._thread(self._follow, copy) for copy in self.copies]

    def _thread(self, work: Callable[[Any], None], argument: object) -> threading.Thread:
        def run() -> None:
            try:
                work(argument)
            except Exception as error:
                self.failures.append(repr(error))

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    def wait_for_requests(self) -> None:
        """Returns when every node has answered many further requests."""
        before = self._cluster.by_port.copy()

        def have_answered() -> bool:
            ports, now = self._cluster.ports, self._cluster.by_port
            return all(now[port] >= before[port] + 50 for port in ports)

        wait_until(lambda: self.failures or have_answered())

    def stop_writing(self) -> None:
        self._is_writing.clear()
        for thread in self._writers:
            thread.join(TIMEOUT_SECONDS)

    def stop(self) -> None:
        self.stop_writing()
        self._is_reading.clear()
        for thread in self._followers:
            thread.join(TIMEOUT_SECONDS)

    def _send(self, method: str, path: str, **options: Any) -> httpx2.Response:
        return self._cluster.send(self._token, method, path, **options)

    def _store(self, key: int, value: int) -> str:
        item = output(key, data={"number": key, "value": value})
        answer = self._send("POST", "/v1/outputs/group", json=[item])
        assert answer.status_code == 200, answer.text
        self.acknowledged[key] = value
        return str(answer.json()["results"][0]["output_id"])

    def _write(self, writer: int) -> None:
        for turn in itertools.count():
            if not self._is_writing.is_set():
                return
            key = writer * KEYS + turn % KEYS
            id_ = self._store(key, turn)
            if turn % 5 == 0:
                self._delete(key, id_)

    def _delete(self, key: int, id_: str) -> None:
        cut_off = self._cluster.cut_off
        answer = self._send("DELETE", f"/v1/outputs/group/{id_}")
        # A deletion whose response was cut off may have been carried out.
        is_repeated = self._cluster.cut_off > cut_off
        assert answer.status_code == 200 or (is_repeated and answer.status_code == 404)
        self.acknowledged[key] = None

    def _follow(self, copy: dict[str, Any]) -> None:
        cursor = 0
        while True:
            is_last = not self._is_reading.is_set()
            query = {"cursor": cursor, "limit": 20, "wait": 0 if is_last else 2}
            answer = self._send("GET", "/v1/changes/group", params=query)
            assert answer.status_code == 200, answer.text
            page = answer.json()
            apply_changes(copy, page["changes"])
            cursor = page["cursor"]
            if is_last and page["metadata"]["next_cursor"] is None:
                return


@contextmanager
def load_on(cluster: Cluster, token: str) -> Iterator[Load]:
    load = Load(cluster, token)
    try:
        load.wait_for_requests()
        yield load
    finally:
        load.stop()


def warning_of(port: int) -> str | None:
    answer = httpx2.get(f"http://127.0.0.1:{port}/readyz", verify=NO_TLS)
    assert answer.status_code == 200
    warning: str | None = answer.json().get("warning")
    return warning


def replace_node(nodes: dict[int, Running], port: int, version: Version) -> None:
    """Stops a node in order, and starts this version in its place."""
    assert nodes[port].stop() == 0
    nodes[port] = version.start(port)


def test_nodes_are_replaced_one_by_one_beside_a_compatible_migration(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    assert not_additive(ADDITIONS) == []
    settings = fresh_settings("postgres", request, tmp_path / "data")
    old = Version(this_program(), settings)
    new = Version(with_migration(tmp_path / "new", ADDITIONS, is_compatible=True), settings)
    cluster = Cluster([free_port(), free_port()])
    first, second = cluster.ports
    nodes: dict[int, Running] = {}
    with ExitStack() as stack:
        stack.callback(lambda: [node.stop() for node in nodes.values()])
        for port in cluster.ports:
            nodes[port] = old.start(port)
        token = old.new_token()
        with load_on(cluster, token) as load:
            new.run("migrate")
            load.wait_for_requests()
            for port in cluster.ports:
                wait_until(lambda port=port: warning_of(port) is not None)
            assert f"has schema {migrations.newest('postgres') + 1}" in str(warning_of(first))
            replace_node(nodes, first, old)  # an old node can restart meanwhile
            load.wait_for_requests()
            replace_node(nodes, first, new)
            assert warning_of(first) is None
            load.wait_for_requests()  # both versions write and read
            replace_node(nodes, second, new)
            load.wait_for_requests()
        assert not load.failures, load.failures[:3]
        with Client(f"http://127.0.0.1:{first}", token) as client:
            stored = stored_outputs(client)
    assert set(cluster.statuses) <= {200, 404}
    assert cluster.statuses[404] <= cluster.cut_off
    values = {item["data"]["number"]: item["data"]["value"] for item in stored.values()}
    assert values == {k: v for k, v in load.acknowledged.items() if v is not None}
    final = without_scrape_date(stored)
    assert all(without_scrape_date(copy) == final for copy in load.copies)
    print(f"{cluster.statuses[200]} responses, {cluster.refused} connections refused, ", end="")
    print(f"{cluster.cut_off} cut off")


def test_an_old_node_stays_ready_while_a_compatible_migration_takes_long(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    settings = fresh_settings("postgres", request, tmp_path / "data")
    old = Version(this_program(), settings)
    slow = "CREATE TABLE notes (organization_id BIGINT NOT NULL PRIMARY KEY); SELECT pg_sleep(8);"
    new = Version(with_migration(tmp_path / "new", slow, is_compatible=True), settings)
    port = free_port()
    node = old.start(port, workers=1)
    statuses: Counter[tuple[str, int]] = Counter()
    with (
        ThreadPoolExecutor(1) as threads,
        Client(f"http://127.0.0.1:{port}", old.new_token()) as client,
    ):
        client.store("group", output(1))
        migration = threads.submit(new.run, "migrate")
        while not migration.done():
            for path in ("/readyz", "/v1/groups"):
                statuses[path, client.get(path).status_code] += 1
            time.sleep(0.2)
        migration.result()
        wait_until(lambda: warning_of(port) is not None)
        client.store("group", output(2))
    assert node.stop() == 0
    assert set(statuses) == {("/readyz", 200), ("/v1/groups", 200)}
    assert statuses["/readyz", 200] > 10
