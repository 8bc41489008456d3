"""Writes that wait for the lock on a group: their dates, and the concurrent requests."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from gleanery.storage.postgres.database import PostgresDatabase
from gleanery.storage.sqlite.database import SqliteDatabase
from gleanery.values import timestamps
from tests.support.calls import note_calls
from tests.support.locks import LockHolder
from tests.support.outputs import output
from tests.support.service import Clock, Service
from tests.support.waiting import wait_until

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
