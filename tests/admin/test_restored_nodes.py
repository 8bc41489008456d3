"""``gleanery restored`` on PostgreSQL while nodes run, as after a failover."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from gleanery.settings import Settings
from gleanery.storage.maintenance import restore
from tests.support.outputs import output
from tests.support.postgres_server import PostgresServer
from tests.support.process import database_options, gleanery_in_process, run_successfully
from tests.support.service import SECRET_KEY, Client, Service

pytestmark = pytest.mark.thorough


@pytest.fixture
def settings(postgres: PostgresServer, tmp_path: Path) -> Settings:
    url = postgres.new_database()
    return Settings(data=tmp_path, database=url, secret_key=SECRET_KEY, port=0, log_level="error")


def follow(client: Client, cursor: int) -> tuple[dict[str, int], int]:
    """Follows the changes from a cursor to the end; returns the values of the outputs by URL."""
    found: dict[str, int] = {}
    while True:
        answer = client.get("/v1/changes/group", params={"cursor": cursor})
        assert answer.status_code == 200, answer.text
        page = answer.json()
        for change in page["changes"]:
            found[change["output"]["source_url"]] = change["output"]["data"]["n"]
        cursor = page["cursor"]
        if page["metadata"]["next_cursor"] is None:
            return found, cursor


def write_until(stop: Event, client: Client) -> int:
    """Stores one output after another; returns how many."""
    number = 100
    while not stop.is_set():
        client.store("group", output(number, data={"n": number}))
        number += 1
    return number - 100


def test_nodes_that_run_go_on_and_clients_sync_again(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restore, "_BATCH_SIZE", 5)
    service, stop = Service(settings), Event()
    with service.client() as client, ThreadPoolExecutor(1) as threads:
        client.store("group", *(output(n, data={"n": n}) for n in range(50)))
        _, cursor = follow(client, 0)
        writer = threads.submit(write_until, stop, client)
        try:
            told = run_successfully("restored", "--yes", *database_options(settings))
        finally:
            stop.set()
        written = writer.result()
        assert "Nodes that run need no restart" in told
        assert client.get("/v1/changes/group", params={"cursor": cursor}).status_code == 410
        found, _ = follow(client, 0)
        assert len(found) == 50 + written
        assert found == {one["source_url"]: one["data"]["n"] for one in client.items("group")}
    service.stop()


def test_the_help_says_when_nodes_may_run() -> None:
    shown = " ".join(gleanery_in_process("restored", "--help").stdout.split())
    assert "On SQLite, stop the service first." in shown
    assert (
        "On PostgreSQL, run it before the nodes start, or after a failover while they run" in shown
    )
