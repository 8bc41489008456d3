"""``gleanery restored`` on PostgreSQL while nodes run, as after a failover."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from gleanery.common.settings import Settings
from tests.support.outputs import output
from tests.support.postgres_server import PostgresServer
from tests.support.process import database_options, gleanery, gleanery_in_process
from tests.support.service import SECRET_KEY, Client, Service
from tests.support.waiting import wait_until

pytestmark = pytest.mark.thorough

COUNT = 2000


@pytest.fixture
def service(postgres: PostgresServer, tmp_path: Path) -> Iterator[Service]:
    url = postgres.new_database()
    running = Service(
        Settings(data=tmp_path, database=url, secret_key=SECRET_KEY, port=0, log_level="error")
    )
    yield running
    running.stop()


def follow(client: Client, cursor: int, copy: dict[str, int]) -> int:
    """Applies the changes after a cursor to a copy of the group; returns the last cursor."""
    while True:
        answer = client.get("/v1/changes/group", params={"cursor": cursor})
        assert answer.status_code == 200, answer.text
        page = answer.json()
        for change in page["changes"]:
            if change["change"] == "delete":
                copy.pop(change["output_id"], None)
            else:
                copy[change["output_id"]] = change["output"]["data"]["number"]
        cursor = page["cursor"]
        if page["metadata"]["next_cursor"] is None:
            return int(cursor)


def use_until(stop: Event, client: Client) -> set[int]:
    """Deletes the outputs of the job and stores others, again and again; returns the statuses."""
    statuses, number = set(), COUNT
    while not stop.is_set():
        stored = client.post("/v1/outputs/group", json=[output(number, job_id="other")])
        deleted = client.delete("/v1/groups/group/jobs/job")
        statuses |= {stored.status_code, deleted.status_code}
        number += 1
    return statuses


def test_nodes_that_run_pause_and_clients_sync_again(service: Service) -> None:
    with service.client() as client, ThreadPoolExecutor(2) as threads:
        client.store("group", *(output(n) for n in range(COUNT)))
        old_cursor, copy, stop = follow(client, 0, {}), dict[str, int](), Event()
        restored = threads.submit(
            gleanery, "restored", "--yes", *database_options(service.settings)
        )
        wait_until(lambda: client.get("/v1/outputs/group").status_code == 503)
        assert "gleanery restored has not ended" in client.get("/readyz").text
        user = threads.submit(use_until, stop, client)
        try:
            assert f"Clients will receive {COUNT} outputs again" in restored.result().stdout
            wait_until(lambda: client.get("/readyz").status_code == 200)
            cursor = follow(client, 0, copy)
            wait_until(lambda: client.delete("/v1/groups/group/jobs/job").status_code == 404)
        finally:
            stop.set()
        assert user.result() == {200, 404, 503}
        follow(client, cursor, copy)
        items = client.items("group", limit=1000)
        assert {item["root_job_id"] for item in items} == {"other"}
        assert sorted(copy.values()) == sorted(item["data"]["number"] for item in items)
        old = client.get("/v1/changes/group", params={"cursor": old_cursor})
        assert old.status_code == 410


def test_the_help_says_when_nodes_may_run() -> None:
    shown = " ".join(gleanery_in_process("restored", "--help").stdout.split())
    assert "On SQLite, stop the service first." in shown
    assert "they answer 503 until the command has ended" in shown
