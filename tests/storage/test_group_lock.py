"""Writes that wait for the lock on a group: their dates, and the concurrent requests."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from gleanery.service.foundation.values import timestamps
from gleanery.service.storage.postgres.database import PostgresDatabase
from gleanery.service.storage.postgres.transactions import PostgresTransaction
from gleanery.service.storage.sqlite.database import SqliteDatabase
from gleanery.service.storage.sqlite.writer import _SqliteTransaction
from tests.support.calls import note_calls
from tests.support.locks import LockHolder
from tests.support.outputs import output
from tests.support.service import Client, Clock, Service
from tests.support.waiting import wait_until

TRANSACTIONS = {"sqlite": _SqliteTransaction, "postgres": PostgresTransaction}
DATABASES = {"sqlite": SqliteDatabase, "postgres": PostgresDatabase}


@pytest.fixture
def writes(engine: str, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The writes that have begun. Each takes its locks after that."""
    return note_calls(monkeypatch, DATABASES[engine], "write_for")


def test_a_write_that_waited_is_dated_when_it_got_the_lock(
    timed_service: Service, clock: Clock, writes: list[Any]
) -> None:
    """A client that synced in between would miss an output with an earlier date."""
    with timed_service.client() as client, ThreadPoolExecutor() as pool:
        client.store("group", output(1))
        with LockHolder(timed_service) as holder:
            before = len(writes)
            waiting = pool.submit(client.store, "group", output(2))
            wait_until(lambda: len(writes) > before)
            clock.move(seconds=3600)
            synced = timestamps.render_microseconds(clock())
            holder.release()
            waiting.result()
        items = client.items("group", created_after=synced)
        assert [item["data"]["number"] for item in items] == [2]


def test_writers_that_wait_for_a_group_delay_no_other_request(
    timed_service: Service, writes: list[Any]
) -> None:
    with timed_service.client() as crowd, timed_service.client() as other:
        crowd.store("group", output(1))
        other.store("elsewhere", output(1))
        with LockHolder(timed_service) as holder, ThreadPoolExecutor(15) as pool:
            before = len(writes)
            stores = [pool.submit(crowd.store, "group", output(n)) for n in range(15)]
            wait_until(lambda: len(writes) >= before + 15)
            assert other.get("/v1/outputs/elsewhere").status_code == 200
            assert crowd.get("/v1/outputs/group").status_code == 200
            holder.release()
            assert all(store.result()["results"] for store in stores)


def test_new_jobs_are_created_together(
    service: Service, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A statement for each would hold the group's lock and a connection for seconds."""
    with service.client() as client:
        client.store("group", output(0))
        statements = note_calls(monkeypatch, TRANSACTIONS[engine], "fetch")
        few = [output(n, job_id=f"job {n}") for n in range(20)]
        client.store("group", *few)
        needed = len(statements)
        many = [output(n, job_id=f"job {n}") for n in range(10, 500)]
        assert client.store("group", *many)["created"] == 480
        assert len(statements) < needed + 20
        jobs = client.get("/v1/groups/group").json()["jobs"]
        names = [job["job_id"] for job in jobs]
        assert names == ["job", *(f"job {n}" for n in range(500))]
        assert {job["outputs"] for job in jobs} == {1}


def test_concurrent_requests_create_the_same_jobs_once(client: Client) -> None:
    """They name the jobs in opposite orders."""
    jobs = [f"job {n}" for n in range(100)]
    with ThreadPoolExecutor(8) as pool:
        stores = [
            pool.submit(
                client.store,
                "group",
                *(output(number, job_id=job) for job in (jobs if number % 2 else jobs[::-1])),
            )
            for number in range(8)
        ]
        assert all(store.result()["created"] == 100 for store in stores)
    found = client.get("/v1/groups/group").json()["jobs"]
    assert sorted((job["job_id"], job["outputs"]) for job in found) == sorted(
        (job, 8) for job in jobs
    )
