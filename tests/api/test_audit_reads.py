"""Many read session values at once: each reading is on record before its values leave."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import httpx2
import pytest

from gleanery.storage.engines import opened
from tests.support.locks import LockHolder
from tests.support.service import Client, Service
from tests.support.settings import fresh_settings

READERS = 8
LOCK = "UPDATE audit_positions SET last_id = last_id"
COMMITS = "SELECT count(DISTINCT xmin::text), count(*) FROM audit_log WHERE action = 'get_cookies'"
COOKIE = {"domain": "a.com", "name": "n", "value": "v"}


@pytest.fixture
def crowded(engine: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Service]:
    """A service that the readers fill, as far as one organization can."""
    settings = fresh_settings(engine, request, tmp_path)
    running = Service(replace(settings, max_requests=2 * READERS))
    yield running
    running.stop()


def read(client: Client, name: str) -> httpx2.Response:
    """Under a request id of its own; who finds the house full, which it soon is, asks again."""
    while True:
        answer = client.get("/v1/cookies", headers={"X-Request-Id": name})
        if answer.status_code != 503:
            return answer


def begin(pool: ThreadPoolExecutor, client: Client) -> Sequence[Future[httpx2.Response]]:
    """All readers at once; returns when all are under way, and there is no place for another."""
    reading = [pool.submit(read, client, f"reader-{n}") for n in range(READERS)]
    while client.get("/v1/outputs/nothing").status_code != 503:
        time.sleep(0.01)
    return reading


def on_record(client: Client) -> list[str]:
    """The request ids of all read_auditor, in their order."""
    entries = client.get("/v1/audit").json()["entries"]
    numbers = [entry["id"] for entry in entries]
    assert numbers == sorted(set(numbers))
    return [entry["request_id"] for entry in entries if entry["action"] == "get_cookies"]


def test_no_value_leaves_before_its_reading_is_on_record(crowded: Service) -> None:
    with crowded.client() as client, ThreadPoolExecutor(READERS) as pool:
        assert client.post("/v1/cookies", json=[COOKIE]).status_code == 200
        with LockHolder(crowded, LOCK) as holder:
            reading = begin(pool, client)
            time.sleep(0.3)  # in which one that does not wait would answer
            assert not any(reader.done() for reader in reading)
            holder.release()
            assert {reader.result().status_code for reader in reading} == {200}
        assert sorted(on_record(client)) == [f"reader-{n}" for n in range(READERS)]


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
def test_readers_share_a_commit(crowded: Service) -> None:
    """On SQLite the writer commits together whatever waits."""
    with crowded.client() as client, ThreadPoolExecutor(READERS) as pool:
        assert client.post("/v1/cookies", json=[COOKIE]).status_code == 200
        with LockHolder(crowded, LOCK) as holder:
            reading = begin(pool, client)
            time.sleep(0.3)  # until most of them have got as far as to wait
            holder.release()
            assert {reader.result().status_code for reader in reading} == {200}
    commits, entries = asyncio.run(counted(crowded))
    assert entries == READERS
    assert commits < READERS


async def counted(service: Service) -> tuple[int, int]:
    async with opened(service.settings) as database:
        [[commits, entries]] = await database.for_all_tenants().read(COMMITS)
        return commits, entries
