"""Upgrades of the schema while a service of the version before it is under load."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from gleanery.common.settings import Settings
from tests.support.forwarder import Forwarder
from tests.support.outputs import output
from tests.support.process import free_port
from tests.support.program_copies import this_program, with_migration
from tests.support.service import NO_TLS, Client
from tests.support.settings import fresh_settings
from tests.support.versions import Version
from tests.support.waiting import TIMEOUT_SECONDS, wait_until

pytestmark = pytest.mark.thorough

WRITERS, READERS = 3, 3
ADDITION = "ALTER TABLE outputs ADD COLUMN next_version INTEGER"


class Load:
    """Clients that write and read until they are told to stop, and try again after a 503."""

    def __init__(self, url: str, token: str) -> None:
        self._url, self._token = url, token
        self._stopping = threading.Event()
        self._numbers = itertools.count()
        self.acknowledged: set[int] = set()
        self.statuses: Counter[int] = Counter()
        self.failures: list[str] = []
        assert self._send("POST", json=[output(0)]).status_code == 200  # creates the group
        clients = [self._write] * WRITERS + [self._read] * READERS
        self._threads = [threading.Thread(target=self._run, args=(act,)) for act in clients]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(TIMEOUT_SECONDS)

    def wait_for(self, status: int) -> None:
        """Returns when each of several further requests could have had this status."""
        before = self.statuses[status]
        wait_until(lambda: self.statuses[status] >= before + 20 or self.failures)

    def _run(self, act: Callable[[], None]) -> None:
        try:
            while not self._stopping.is_set():
                act()
        except Exception as error:
            self.failures.append(repr(error))

    def _write(self) -> None:
        number = next(self._numbers)
        while not self._stopping.is_set():
            if self._send("POST", json=[output(number)]).status_code == 200:
                self.acknowledged.add(number)
                return

    def _read(self) -> None:
        self._send("GET")

    def _send(self, method: str, **body: object) -> httpx2.Response:
        """Sends a request on a connection of its own, as a proxy may do."""
        with Client(self._url, self._token) as client:
            answer = client.request(method, "/v1/outputs/group", **body)
        self.statuses[answer.status_code] += 1
        if answer.status_code == 503:
            assert int(answer.headers["retry-after"]) > 0
            time.sleep(0.02)  # a client waits longer; the test needs many requests
        elif answer.status_code != 200:
            self.failures.append(f"{method} {answer.status_code} {answer.text}")
        return answer


@contextmanager
def load_on(url: str, token: str) -> Iterator[Load]:
    load = Load(url, token)
    try:
        load.wait_for(200)
        yield load
    finally:
        load.stop()
    assert not load.failures, load.failures[:3]
    assert set(load.statuses) <= {200, 503}


@pytest.fixture
def settings(engine: str, request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    return fresh_settings(engine, request, tmp_path / "data")


def is_unready(url: str) -> bool:
    return httpx2.get(f"{url}/readyz", verify=NO_TLS).status_code == 503


@pytest.mark.extended
@pytest.mark.parametrize("is_compatible", [True, False], ids=["compatible", "incompatible"])
def test_an_upgrade_under_load_fails_no_request_and_loses_no_write(
    settings: Settings, tmp_path: Path, is_compatible: bool
) -> None:
    """The steps of docs/operations/upgrade.md, with two workers and a proxy."""
    old = Version(this_program(), settings)
    new = Version(with_migration(tmp_path / "new", ADDITION, is_compatible), settings)
    old_port, new_port = free_port(), free_port()
    proxy = Forwarder(("127.0.0.1", old_port))
    url = f"http://127.0.0.1:{proxy.port}"
    proxy.start()
    with old.serve(old_port) as old_service:
        token = old.new_token()
        with load_on(url, token) as load:
            new.run("migrate")
            if is_compatible:
                load.wait_for(200)
            else:
                load.wait_for(503)
                wait_until(lambda: is_unready(url))
            before = len(load.acknowledged)
            with new.serve(new_port):
                proxy.target = ("127.0.0.1", new_port)
                load.wait_for(200)
                assert old_service.stop() == 0
                load.wait_for(200)
                load.stop()
                with Client(url, token) as client:
                    stored = {item["data"]["number"] for item in client.items("group", limit=1000)}
    proxy.stop()
    assert load.acknowledged <= stored
    assert len(load.acknowledged) > before
    assert set(load.statuses) == ({200} if is_compatible else {200, 503})


RENAME = """
ALTER TABLE outputs RENAME COLUMN item TO item_text;
ALTER TABLE tokens RENAME COLUMN digest TO token_digest;
"""


@pytest.mark.extended
def test_an_older_program_meets_an_incompatible_schema_with_503(
    settings: Settings, tmp_path: Path
) -> None:
    old = Version(this_program(), settings)
    new = Version(with_migration(tmp_path / "new", RENAME), settings)
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with old.serve(port):
        token = old.new_token()
        with load_on(url, token) as load, Client(url, token) as client:
            new.run("migrate")
            assert client.get("/v1/outputs/group").status_code == 503
            assert client.post("/v1/outputs/group", json=[output(0)]).status_code == 503
            load.wait_for(503)
