"""An export has every output exactly once, whatever others write meanwhile."""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.client import IncompleteRead
from pathlib import Path
from typing import Any

import apsw
import pytest

from gleanery.common.settings import Settings
from tests.support.databases import run_script
from tests.support.exports import SlowExport
from tests.support.outputs import follow_changes, output, stored_outputs
from tests.support.raw_http import exchange
from tests.support.service import Client, Service
from tests.support.settings import fresh_settings
from tests.support.waiting import wait_until

EXPORT = "/v1/exports/group"
LONG = "x" * 10_000
COUNT = 1500
"""Number of long outputs that fill the buffers between the service and a slow client."""


def exported(client: Client, group: str = "group", **filters: str) -> list[dict[str, Any]]:
    response = client.get(f"/v1/exports/{group}", params=filters)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "application/x-ndjson"
    assert response.headers["transfer-encoding"] == "chunked"
    disposition = "attachment; filename*=UTF-8''group.jsonl"
    assert response.headers["content-disposition"] == disposition
    return [json.loads(line) for line in response.text.splitlines()]


def store_many(client: Client, count: int = COUNT, **members: Any) -> None:
    for start in range(0, count, 500):
        numbers = range(start, min(start + 500, count))
        client.store("group", *(output(n, data={"n": n, "text": LONG}, **members) for n in numbers))


def store_places(client: Client) -> None:
    client.store(
        "group",
        output(1, tags={"country": "Germany", "region": "DE-BY"}),
        output(2, tags={"country": "Germany"}, job_id="other"),
        output(3, tags={"country": "France"}),
        output(4),
    )


@pytest.mark.parametrize(
    "filters",
    [
        {},
        {"job_id": "other"},
        {"url": "https://shop.example/3"},
        {"country": "DE"},
        {"region": "DE-BY"},
        {"created_after": "2020-01-01"},
        {"created_after": "2999-01-01"},
        {"country": "Germany", "job_id": "job"},
    ],
)
def test_an_export_has_the_outputs_of_all_pages(client: Client, filters: dict[str, str]) -> None:
    store_places(client)
    page = client.get("/v1/outputs/group", params=filters).text
    expected = "".join(f"{item}\n" for item in _items(page))
    assert client.get(EXPORT, params=filters).text == expected


def _items(page: str) -> list[str]:
    """The texts of the items of a page."""
    items = page.partition('"items":[')[2].removesuffix("]}\n")
    return items.split(",\n") if items else []


def test_links_of_an_export_work(client: Client, service: Service) -> None:
    file = client.post("/v1/files", content=b"bytes").json()
    client.store("group", output(1, files=[{"field": "pdf", "id": file["id"]}]), output(2))
    [link] = [one["blob_url"] for found in exported(client) for one in found["files"]]
    with service.stranger() as stranger:
        assert stranger.get(link).content == b"bytes"


def test_a_group_without_outputs_is_an_empty_export(client: Client) -> None:
    client.put("/v1/groups/group", json={})
    assert exported(client) == []
    cursor = client.get(EXPORT).headers["gleanery-cursor"]
    assert client.get("/v1/changes/group", params={"cursor": cursor}).status_code == 200


def test_errors_come_before_the_export(client: Client, service: Service) -> None:
    assert client.get("/v1/exports/unknown").status_code == 404
    assert client.get(EXPORT, params={"limit": 1}).status_code == 422
    client.store("group", output(1))
    client.delete("/v1/groups/group")
    assert client.get(EXPORT).status_code == 404
    with service.client(scopes=frozenset({"outputs:write"})) as writer:
        assert writer.get(EXPORT).status_code == 403


def test_head_describes_an_export(client: Client) -> None:
    client.store("group", output(1))
    response = client.head(EXPORT)
    assert (response.status_code, response.content) == (200, b"")
    assert response.headers["gleanery-cursor"] == client.get(EXPORT).headers["gleanery-cursor"]


def test_a_client_of_http_1_0_is_told_to_use_http_1_1(client: Client) -> None:
    client.store("group", output(1))
    token = f"Authorization: Bearer {client.token}"
    request = f"GET {EXPORT} HTTP/1.0\r\nHost: x\r\n{token}\r\n\r\n"
    response = exchange(str(client.base_url), request.encode())
    assert response.status == 505
    assert b"HTTP/1.1" in response.body


def test_the_changes_after_an_export_lead_to_the_current_state(client: Client) -> None:
    client.store("group", *(output(n) for n in range(5)))
    response = client.get(EXPORT)
    copy = {found["output_id"]: found for found in map(json.loads, response.text.splitlines())}
    client.store("group", output(1, data={"new": True}), output(6))
    client.delete(f"/v1/outputs/group/{next(iter(copy))}")
    follow_changes(client, copy, int(response.headers["gleanery-cursor"]))
    assert copy == stored_outputs(client)


@pytest.mark.thorough
def test_outputs_of_any_size_are_exported(client: Client) -> None:
    sizes = [1, 5_000_000, 10, 60_000, 1_200_000, *[30_000] * 50, *[10] * 3000, 2_000_000]
    sent = [output(n, data={"n": n, "text": "x" * size}) for n, size in enumerate(sizes)]
    for start in range(0, len(sent), 1000):
        client.store("group", *sent[start : start + 1000])
    found = exported(client)
    assert [one["data"] for one in found] == [one["data"] for one in sent]


@pytest.mark.thorough
def test_a_search_with_several_filters_goes_on_after_a_step_without_outputs(
    client: Client,
) -> None:
    """No output has both values, until after more than 5000 outputs with one of them."""
    kinds: list[dict[str, Any]] = [{"job_id": "other"}, {"tags": {"country": "Germany"}}]
    for start in range(0, 6000, 1000):
        client.store("group", *(output(n, **kinds[n % 2]) for n in range(start, start + 1000)))
    client.store("group", output(7000, job_id="other", tags={"country": "Germany"}))
    found = exported(client, job_id="other", country="DE")
    assert [one["source_url"] for one in found] == ["https://shop.example/7000"]


# --- while others write ---------------------------------------------------------------------------


@pytest.mark.thorough
def test_an_output_that_changes_during_an_export_is_in_it_once(client: Client) -> None:
    """Outputs change that are already sent, and others that are not yet sent."""
    store_many(client)
    before = stored_outputs(client)
    export = SlowExport(client)
    changed = [*range(0, 300), *range(COUNT - 300, COUNT)]
    client.store("group", *(output(n, data={"n": n, "new": True}) for n in changed))
    client.store("group", *(output(n, data={"n": n}) for n in range(COUNT, COUNT + 100)))
    found = export.read_rest()
    assert Counter(one["output_id"] for one in found) == Counter(before.keys())
    versions = [one["data"].get("new", False) for one in found]
    assert 300 <= sum(versions) < 600, "the test changed no output that was already sent"
    copy = {one["output_id"]: one for one in found}
    follow_changes(client, copy, export.cursor, limit=1000)
    assert copy == stored_outputs(client)


@pytest.mark.thorough
def test_deleted_outputs_and_a_deleted_group_end_an_export_normally(client: Client) -> None:
    store_many(client)
    export = SlowExport(client)
    client.delete("/v1/groups/group")
    found = export.read_rest()
    assert 0 < len(found) < COUNT
    copy = {one["output_id"]: one for one in found}
    follow_changes(client, copy, export.cursor, limit=1000)
    assert copy == {}


class Writer(threading.Thread):
    """Changes, creates, deletes and approves outputs, until it is stopped."""

    def __init__(self, client: Client, seed: int, stable: range) -> None:
        super().__init__()
        self._client, self._random, self._stable = client, random.Random(seed), stable
        self.is_stopped = False
        self.writes = 0
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.is_stopped:
                self._write()
                self.writes += 1
        except BaseException as error:
            self.error = error

    def _write(self) -> None:
        """Deletes only outputs outside the stable ones."""
        number = self._random.choice(self._stable)
        data = {"n": number, "text": LONG, "version": self._random.random()}
        changed = [output(number, data=data)]
        changed += [output(self._random.randrange(5000, 5100)) for _ in range(3)]
        [_, *others] = self._client.store("group", *changed)["results"]
        if self._random.random() < 0.3:
            self._client.delete(f"/v1/outputs/group/{others[0]['output_id']}")
        if self._random.random() < 0.1:
            status = self._random.choice(["approved", "rejected"])
            self._client.post("/v1/reviews/group", json={"job_id": "job", "status": status})


@contextmanager
def writers(service: Service, client: Client, stable: range, count: int = 3) -> Iterator[None]:
    threads = [Writer(service.client(client.token), seed, stable) for seed in range(count)]
    for thread in threads:
        thread.start()
    yield
    for thread in threads:
        thread.is_stopped = True
    for thread in threads:
        thread.join()
        assert thread.error is None
        assert thread.writes


@pytest.mark.thorough
def test_exports_are_exact_while_others_write(service: Service, client: Client) -> None:
    store_many(client, 800)
    stable = {one["output_id"] for one in stored_outputs(client).values()}
    results = []
    with writers(service, client, range(800)):
        for _ in range(4):
            export = SlowExport(client)
            results.append((export.cursor, export.read_rest()))
    now = stored_outputs(client)
    for cursor, found in results:
        counts = Counter(one["output_id"] for one in found)
        assert set(counts.values()) == {1}
        assert stable <= counts.keys()
        copy = {one["output_id"]: one for one in found}
        follow_changes(client, copy, cursor, limit=1000)
        assert _without_scrape_dates(copy) == _without_scrape_dates(now)


def _without_scrape_dates(outputs: dict[str, Any]) -> dict[str, Any]:
    """A scrape without a change is not in the change feed."""
    return {id_: one | {"last_scraped_date": None} for id_, one in outputs.items()}


# --- a slow client, and failures ------------------------------------------------------------------


@pytest.fixture
def start(
    engine: str, request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[Callable[..., Service]]:
    """Starts a service with other settings over a new database."""
    running: list[Service] = []

    def start(**changed: Any) -> Service:
        settings: Settings = replace(fresh_settings(engine, request, tmp_path), **changed)
        running.append(Service(settings))
        return running[-1]

    yield start
    for service in running:
        service.stop()


def is_log_emptied(file: Path) -> bool:
    connection = apsw.Connection(str(file))
    [(busy, *_)] = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    connection.close()
    return not busy


@pytest.mark.thorough
def test_a_slow_export_holds_only_a_slot_of_a_transfer(start: Callable[..., Service]) -> None:
    service = start(max_transfers=1, pool_size=1)
    with service.client() as client, service.client() as other:
        store_many(client)
        export = SlowExport(client)
        for _ in range(3):
            assert client.get("/v1/outputs/group").status_code == 200
        refused = other.get("/v1/exports/unknown")
        assert refused.status_code == 503
        if service.settings.database is None:
            # Not while the export reads a page; it must not prevent it while it waits.
            wait_until(lambda: is_log_emptied(service.settings.sqlite_file))
        assert len(export.read_rest()) == COUNT
        assert client.get(EXPORT).status_code == 200


@pytest.mark.thorough
def test_an_export_that_fails_is_visibly_incomplete(start: Callable[..., Service]) -> None:
    service = start()
    with service.client() as client:
        store_many(client)
        export = SlowExport(client)
        run_script(service.settings, "ALTER TABLE outputs RENAME TO renamed")
        with pytest.raises((IncompleteRead, ConnectionError)):
            export.read_rest()


@pytest.mark.thorough
def test_an_export_that_a_stop_ends_is_visibly_incomplete(start: Callable[..., Service]) -> None:
    service = start(shutdown_seconds=0)
    with service.client() as client:
        store_many(client)
        export = SlowExport(client)
        service.stop()
        with pytest.raises((IncompleteRead, ConnectionError)):
            export.read_rest()
