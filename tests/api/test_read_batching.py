"""Read batching: each client gets its own page, although pages are read together."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator, Sequence
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

import apsw
import pytest

from gleanery.service.storage.sqlite.database import SqliteDatabase
from tests.support.databases import open_sqlite
from tests.support.outputs import output
from tests.support.process import Served, database_options, new_token, served, suspended
from tests.support.raw_http import open_connections
from tests.support.service import Client, Service
from tests.support.settings import fresh_settings

pytestmark = pytest.mark.thorough

OUTPUTS = 30


@pytest.fixture
def clients(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[tuple[Served, Sequence[Client]]]:
    """A service, and clients of two organizations with groups of the same name."""
    settings = fresh_settings("sqlite", request, tmp_path)
    with served(settings) as service:
        tokens = service.token, new_token(database_options(settings), "b")
        with Client(service.url, tokens[0]) as one, Client(service.url, tokens[1]) as other:
            one.store("shop", *(output(n) for n in range(OUTPUTS)))
            other.store("shop", *(output(n + 100) for n in range(OUTPUTS)))
            yield service, (one, other)


def page(client: Client, query: str, group: str = "shop") -> bytes:
    lines = [f"GET /v1/outputs/{group}?{query} HTTP/1.1", "Host: x"]
    return "\r\n".join([*lines, f"Authorization: Bearer {client.token}", "", ""]).encode()


def answer(connection: socket.socket) -> tuple[int, Any]:
    received = HTTPResponse(connection)
    received.begin()
    return received.status, json.loads(received.read())


def asked(connection: socket.socket, request: bytes) -> tuple[int, Any]:
    connection.sendall(request)
    return answer(connection)


def sources(pages: Sequence[tuple[int, Any]]) -> set[str]:
    return {item["source_url"] for _, page in pages for item in page.get("items", ())}


def test_each_client_gets_its_own_page(clients: tuple[Served, Sequence[Client]]) -> None:
    service, both = clients
    requests = []
    for client in both:
        items = client.get("/v1/outputs/shop?limit=1").json()
        place = items["metadata"]["next_cursor"]
        requests += [
            page(client, f"limit={limit}&cursor={place + behind}")
            for limit in (1, 2, 100, 1000)
            for behind in (0, 5, OUTPUTS * 1000)
        ]
        requests += [page(client, f"cursor={place}", group="nowhere")]
        requests += [page(client, f"cursor={place}&country={name}") for name in ("Germany", "x")]
    with open_connections(service.url, len(requests) + 1) as (gone, *held):
        alone = [asked(connection, one) for connection, one in zip(held, requests, strict=True)]
        asked(gone, requests[0])
        with suspended(service):
            gone.sendall(requests[0])
            gone.close()
            for connection, request in zip(held, requests, strict=True):
                connection.sendall(request)
        assert [answer(connection) for connection in held] == alone
    mine, yours = sources(alone[: len(alone) // 2]), sources(alone[len(alone) // 2 :])
    assert len(mine) == len(yours) == OUTPUTS - 1
    assert mine.isdisjoint(yours)


def test_all_pages_of_a_batch_get_an_error_if_the_database_fails(
    clients: tuple[Served, Sequence[Client]], tmp_path: Path
) -> None:
    service, both = clients
    requests = [page(client, "limit=2&cursor=1") for client in both] * 5
    [file] = tmp_path.rglob("gleanery.sqlite")
    database = open_sqlite(file)
    with open_connections(service.url, len(requests)) as held:
        well = [asked(connection, one) for connection, one in zip(held, requests, strict=True)]
        with suspended(service):
            database.execute("ALTER TABLE outputs RENAME TO elsewhere")
            for connection, request in zip(held, requests, strict=True):
                connection.sendall(request)
        assert [answer(connection)[0] for connection in held] == [500] * len(requests)
        database.execute("ALTER TABLE elsewhere RENAME TO outputs")
        with suspended(service):
            for connection, request in zip(held, requests, strict=True):
                connection.sendall(request)
        assert [answer(connection) for connection in held] == well
    database.close()


def test_all_pages_of_a_batch_get_an_error_if_the_disk_fails(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """All requests get a response: the batched and the rejected ones of the same round."""
    settings = fresh_settings("sqlite", request, tmp_path)
    limit, many = 20, 30
    with served(settings, "--max-requests", str(limit)) as service:
        with Client(service.url, service.token) as client:
            client.store("shop", *(output(n) for n in range(OUTPUTS)))
            asked_for = page(client, "limit=2&cursor=1")
        with open_connections(service.url, many) as held:
            assert [asked(connection, asked_for)[0] for connection in held] == [200] * many
            with suspended(service):
                spoil(tmp_path / "gleanery.sqlite")
                for connection in held:
                    connection.sendall(asked_for)
            assert [answer(connection)[0] for connection in held] == [503] * many


def spoil(file: Path) -> None:
    """Truncates the write-ahead log before the last change."""
    database = open_sqlite(file)
    database.execute("UPDATE outputs SET last_scraped_at = last_scraped_at + 1")
    os.truncate(f"{file}-wal", 0)
    database.close()


def test_a_batch_that_cannot_be_read_keeps_nobody_waiting(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each request is answered on the usual path, and the service stops without a delay."""

    def fail(self: SqliteDatabase, reads: object) -> None:
        raise apsw.IOError("the transaction cannot be committed")

    service = Service(fresh_settings("sqlite", request, tmp_path))
    with service.client() as client:
        client.store("shop", *(output(n) for n in range(OUTPUTS)))
        asked_for = page(client, "limit=2&cursor=1")
    with open_connections(service.url, 3) as held:
        well = [asked(connection, asked_for) for connection in held]
        monkeypatch.setattr(SqliteDatabase, "read_pages", fail)
        assert [asked(connection, asked_for) for connection in held] == well
    service.stop()
