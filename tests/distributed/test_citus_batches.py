"""Statements for many rows on Citus: one statement for a batch, with the result of one per row."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from gleanery.common.settings import Settings
from tests.support.citus import citus_server
from tests.support.outputs import output, read_changes
from tests.support.service import SECRET_KEY, Client, Service

pytestmark = pytest.mark.extended

COUNT = 150
COUNTRIES = ("Germany", "France", "Japan", "Brazil", "Canada", "India", "Iceland", "Norway")
MAX_SINGLE = 3
"""Rows that remain after statements with several rows."""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder: Path = tmp_path_factory.mktemp("data")
    with citus_server(workers=2) as citus:
        url = citus.new_database()
        running = Service(Settings(data=folder, database=url, secret_key=SECRET_KEY, port=0))
        yield running
        running.stop()


@pytest.fixture
def client(service: Service) -> Iterator[Client]:
    with service.client() as made:
        yield made


@pytest.fixture
def repeated(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, str]]:
    """Statements that ran once per set of values, with the number of sets."""
    found: list[tuple[int, str]] = []
    for name in ("executemany", "fetchmany"):
        method = getattr(asyncpg.Connection, name)

        def record(self: Any, sql: str, sets: Any, method: Any = method, **options: Any) -> Any:
            found.append((len(sets), sql))
            return method(self, sql, sets, **options)

        monkeypatch.setattr(asyncpg.Connection, name, record)
    return found


def outputs(client: Client, **changes: Any) -> list[dict[str, Any]]:
    """Outputs of many jobs and several countries, each with a file of its own."""
    made = []
    for number in range(COUNT):
        upload = {"source_url": f"https://a.example/{number}"}
        file = client.post("/v1/files", params=upload, content=b"%d" % number).json()
        tags = {"country": COUNTRIES[number % len(COUNTRIES)]}
        files = [{"field": "a field", "id": file["id"]}]
        made.append(output(number, job_id=f"job {number}", tags=tags, files=files))
    return made


def test_no_statement_runs_once_per_output(client: Client, repeated: list[tuple[int, str]]) -> None:
    sent = outputs(client)
    repeated.clear()
    assert client.store("group", *sent)["created"] == COUNT
    for number in range(COUNT):
        client.post("/v1/reviews/group", json={"job_id": f"job {number}", "status": "approved"})
    changed = [one | {"data": {"changed": True}} for one in sent]
    assert client.store("group", *changed)["updated"] == COUNT
    assert client.store("group", *changed)["unchanged"] == COUNT
    feed = read_changes(client, limit=1000, view="approved")["changes"]
    assert len({change["output_id"] for change in feed}) == COUNT
    assert client.delete("/v1/groups/group").json() == {"deleted": COUNT}
    assert repeated, "the statements are recorded"
    assert [one for one in repeated if one[0] > MAX_SINGLE] == []


def test_deletions_are_in_the_order_of_the_outputs(client: Client) -> None:
    sent = [output(number) for number in range(COUNT)]
    client.store("group", *reversed(sent))
    stored = [item["output_id"] for item in client.items("group")]
    assert client.delete("/v1/groups/group").json() == {"deleted": COUNT}
    deleted = read_changes(client, limit=1000)["changes"]
    assert [change["output_id"] for change in deleted] == stored


def test_many_cookies_are_stored_by_few_statements(
    client: Client, repeated: list[tuple[int, str]]
) -> None:
    cookies = [
        {"domain": "a.example", "name": f"name {number}", "value": "1"} for number in range(COUNT)
    ]
    answer = client.post("/v1/cookies", json=cookies)
    assert answer.status_code == 200, answer.text
    listed = client.get("/v1/cookies", params={"limit": 1000}).json()
    assert [cookie["name"] for cookie in listed] == [cookie["name"] for cookie in cookies]
    assert repeated, "the statements are recorded"
    assert [one for one in repeated if one[0] > MAX_SINGLE] == []
