"""Fair queueing: an organization with many requests does not delay another one."""

from __future__ import annotations

import json
import select
import socket
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any

import pytest

from gleanery.service.foundation.json_schema import SchemaValidator
from gleanery.service.storage.postgres.database import PostgresDatabase
from gleanery.service.storage.sqlite.database import SqliteDatabase
from tests.support.calls import note_calls
from tests.support.locks import LockHolder
from tests.support.outputs import output
from tests.support.process import Served, database_options, new_token, served, suspended
from tests.support.raw_http import open_connections, read_until_close
from tests.support.service import Client, Service
from tests.support.settings import fresh_settings
from tests.support.waiting import wait_until

MANY = 60
FEW = 20
LOCK = "UPDATE groups SET name = name WHERE name LIKE 'crowded%'"


def storing(token: str, group: str, number: int, **members: Any) -> bytes:
    """A request that stores one output, after which the connection ends."""
    body = json.dumps([output(number, **members)]).encode()
    lines = [f"POST /v1/outputs/{group} HTTP/1.1", "Host: x", f"Authorization: Bearer {token}"]
    lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, "Connection: close", "", ""]).encode() + body


def crowd_in(calls: list[tuple[Any, ...]]) -> int:
    """Counts the calls for the crowd's organization. Sweeps run at any time, in any service."""
    return max(Counter(arguments[1] for arguments in calls).values(), default=0)


def number_of(connection: socket.socket) -> int:
    """The output's sequence number; the numbers show the order of execution."""
    head, _, body = read_until_close(connection).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), head
    return int(json.loads(body)["results"][0]["id"])


def assert_soon(crowd: Sequence[socket.socket], one: socket.socket) -> None:
    """The last request was among the first to be served."""
    mine = number_of(one)
    assert sum(number_of(connection) < mine for connection in crowd) < FEW


@pytest.fixture
def process(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Served]:
    settings = fresh_settings("sqlite", request, tmp_path)
    with served(settings) as service:
        yield service._replace(
            token=f"{service.token} {new_token(database_options(settings), 'b')}"
        )


@pytest.mark.thorough
def test_a_single_request_starts_before_a_crowd_of_another_organization(process: Served) -> None:
    crowds_token, other_token = process.token.split()
    for token in (crowds_token, other_token):
        with Client(process.url, token) as client:
            client.store("group", output(0))
    with open_connections(process.url, MANY + 1) as (*crowd, one):
        with suspended(process):
            for number, connection in enumerate(crowd, 1):
                connection.sendall(storing(crowds_token, "group", number))
            one.sendall(storing(other_token, "group", 1))
        assert_soon(crowd, one)


@pytest.mark.thorough
def test_a_single_request_gets_a_database_connection_before_a_crowd(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    settings = fresh_settings("postgres", request, tmp_path)
    service = Service(replace(settings, pool_size=2))
    with service.client() as client, service.client() as other:
        for number in range(MANY):
            client.store(f"crowded {number}", output(0))
        other.store("group", output(0))
        with (
            open_connections(service.url, MANY + 1) as (*crowd, one),
            LockHolder(service, LOCK) as holder,
        ):
            for number, connection in enumerate(crowd):
                connection.sendall(storing(str(client.token), f"crowded%20{number}", 1))
            assert client.get("/healthz").status_code == 200  # until then all of them are heard
            one.sendall(storing(str(other.token), "group", 1))
            assert other.get("/healthz").status_code == 200
            holder.release()
            assert_soon(crowd, one)
    service.stop()


@pytest.mark.thorough
def test_an_organization_leaves_database_connections_to_another(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own requests wait for a lock and hold their connections meanwhile."""
    settings = fresh_settings("postgres", request, tmp_path)
    # A request that reads its token again would wait for a connection before it writes.
    service = Service(replace(settings, pool_size=4, token_cache_seconds=600))
    with service.client() as client, service.client() as other:
        for number in range(FEW):
            client.store(f"crowded {number}", output(0))
        with (
            open_connections(service.url, FEW) as crowd,
            LockHolder(service, LOCK) as holder,
        ):
            reads = note_calls(monkeypatch, PostgresDatabase, "read_for")
            writes = note_calls(monkeypatch, PostgresDatabase, "write_for")
            for number, connection in enumerate(crowd):
                connection.sendall(storing(str(client.token), f"crowded%20{number}", 1))
            # Each request reads the rules of its group before it writes. Two writes hold all
            # connections of the organization, so the reads of other requests can wait for them.
            wait_until(lambda: crowd_in(reads) >= FEW and crowd_in(writes) >= 2)
            assert other.get("/healthz").status_code == 200  # until then they have their slots
            other.store("group", output(1))
            assert len(other.items("group")) == 1
            holder.release()
            for connection in crowd:
                assert read_until_close(connection)  # 503, if it waited for too long
    service.stop()


def test_a_single_write_to_sqlite_runs_before_a_crowd(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = Service(fresh_settings("sqlite", request, tmp_path))
    with service.client() as client, service.client() as other:
        for one_of_both in (client, other):
            one_of_both.store("group", output(0))
        with (
            open_connections(service.url, MANY + 1) as (*crowd, one),
            LockHolder(service) as holder,
        ):
            writes = note_calls(monkeypatch, SqliteDatabase, "write_for")
            for number, connection in enumerate(crowd, 1):
                connection.sendall(storing(str(client.token), "group", number))
            wait_until(lambda: crowd_in(writes) >= MANY)
            before = len(writes)
            one.sendall(storing(str(other.token), "group", 1))
            wait_until(lambda: len(writes) > before)
            holder.release()
            assert_soon(crowd, one)
    service.stop()


COSTLY = 5


def costly_schema(number: int) -> dict[str, Any]:
    """A schema whose validation time doubles with each level of the data."""
    twice = {"properties": {"next": {"$ref": "#"}}, "required": ["next"]}
    branches = [{**twice, "minProperties": 1}, {**twice, "maxProperties": 9}]
    return {"description": str(number), "anyOf": branches}


def deep_data() -> dict[str, Any]:
    return reduce(lambda inner, _: {"next": inner}, range(90), {"leaf": True})


def is_stored(client: Client) -> bool:
    """Stores an output; False if a very busy machine needs too long for that."""
    answer = client.post("/v1/outputs/group", json=[output(1)])
    assert answer.status_code in (200, 503), answer.text
    return answer.status_code == 200


@pytest.mark.extended
@pytest.mark.thorough
def test_costly_schemas_do_not_delay_the_schema_of_another_organization(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    with service.client() as client, service.client() as other:
        other.put("/v1/groups/group", json={"schema": {"required": ["number"]}})
        for number in range(COSTLY):
            settings = {"schema": costly_schema(number)}
            assert client.put(f"/v1/groups/costly{number}", json=settings).status_code == 200
        with open_connections(service.url, COSTLY) as crowd:
            started = note_calls(monkeypatch, SchemaValidator, "violations")
            for number, connection in enumerate(crowd):
                request = storing(str(client.token), f"costly{number}", 1, data=deep_data())
                connection.sendall(request)
            wait_until(lambda: len(started) == COSTLY)
            wait_until(lambda: is_stored(other))
            answered, _, _ = select.select(crowd, [], [], 0)
            assert len(answered) < COSTLY  # some are still in progress
