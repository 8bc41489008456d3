"""Concurrent reads of session values: each is audited before its values are sent."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest

from gleanery.service.resources.audit.log import ReadAuditor
from gleanery.service.storage.engines import open_engine
from tests.support.calls import note_calls
from tests.support.locks import LockHolder
from tests.support.service import Client, Service
from tests.support.settings import fresh_settings
from tests.support.waiting import wait_until

READERS = 8
LOCK = "UPDATE audit_positions SET last_id = last_id"
COMMITS = "SELECT count(DISTINCT xmin::text), count(*) FROM audit_log WHERE action = 'get_cookies'"
COOKIE = {"domain": "a.com", "name": "n", "value": "v"}


@pytest.fixture
def crowded(engine: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Service]:
    """A service in which the readers use all slots that one organization gets."""
    settings = fresh_settings(engine, request, tmp_path)
    running = Service(replace(settings, max_requests=2 * READERS))
    yield running
    running.stop()


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The reads that have asked to be audited."""
    return note_calls(monkeypatch, ReadAuditor, "record")


def read(client: Client, name: str) -> httpx2.Response:
    """Reads under its own request id. A reader that gets no slot tries again."""
    while True:
        answer = client.get("/v1/cookies", headers={"X-Request-Id": name})
        if answer.status_code != 503:
            return answer


def begin(
    pool: ThreadPoolExecutor, client: Client, notes: list[Any]
) -> Sequence[Future[httpx2.Response]]:
    """Starts all readers; returns when each waits for its audit entry."""
    reading = [pool.submit(read, client, f"reader-{n}") for n in range(READERS)]
    wait_until(lambda: len(notes) == READERS)
    assert client.get("/v1/outputs/nothing").status_code == 503  # there is no slot left
    return reading


def audited(client: Client) -> list[str]:
    """The request ids of all audited reads, in their order."""
    entries = client.get("/v1/audit").json()["entries"]
    numbers = [entry["id"] for entry in entries]
    assert numbers == sorted(set(numbers))
    return [entry["request_id"] for entry in entries if entry["action"] == "get_cookies"]


def test_no_value_leaves_before_its_read_is_audited(crowded: Service, notes: list[Any]) -> None:
    with crowded.client() as client, ThreadPoolExecutor(READERS) as pool:
        assert client.post("/v1/cookies", json=[COOKIE]).status_code == 200
        with LockHolder(crowded, LOCK) as holder:
            reading = begin(pool, client, notes)
            assert not any(reader.done() for reader in reading)
            holder.release()
            assert {reader.result().status_code for reader in reading} == {200}
        assert sorted(audited(client)) == [f"reader-{n}" for n in range(READERS)]


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
def test_readers_share_a_commit(crowded: Service, notes: list[Any]) -> None:
    """On SQLite the writer commits all waiting writes together."""
    with crowded.client() as client, ThreadPoolExecutor(READERS) as pool:
        assert client.post("/v1/cookies", json=[COOKIE]).status_code == 200
        with LockHolder(crowded, LOCK) as holder:
            reading = begin(pool, client, notes)
            holder.release()
            assert {reader.result().status_code for reader in reading} == {200}
    commits, entries = asyncio.run(counted(crowded))
    assert entries == READERS
    assert commits < READERS


async def counted(service: Service) -> tuple[int, int]:
    async with open_engine(service.settings) as database:
        [[commits, entries]] = await database.for_all_tenants().read(COMMITS)
        return commits, entries
