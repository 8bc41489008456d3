"""A client that pages while others write ends with the correct state, on both engines.

Two nodes serve one database. The reader continues from its last cursor, or from the newest
``update_date`` that it has received. It would miss a change with a sequence number below one that
it has already seen. If the number were taken before the group's
lock instead of under it, this test would fail on both engines.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.process import join_readers_after_writers
from tests.support.service import Client, Service
from tests.support.settings import fresh_settings

pytestmark = pytest.mark.thorough

WRITERS = 6
REQUESTS = 40
READERS = 2


@pytest.fixture
def nodes(
    engine: str, request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[tuple[Service, Service]]:
    settings = fresh_settings(engine, request, tmp_path)
    one, two = Service(settings), Service(settings)
    yield one, two
    one.stop()
    two.stop()


class Reader(threading.Thread):
    """Keeps a copy of the group up to date, only by its cursor."""

    view = "full"

    def __init__(self, client: Client, writing: threading.Event) -> None:
        super().__init__()
        self.copy: dict[str, tuple[str, bool]] = {}
        self.pages = 0
        self._client, self._writing, self._cursor = client, writing, 0

    def run(self) -> None:
        while self._writing.is_set():
            self._catch_up()
        self._catch_up()

    def _catch_up(self) -> None:
        while True:
            query = {"cursor": self._cursor, "limit": 5, "view": self.view}
            page = self._client.get("/v1/outputs/group", params=query).json()
            self.pages += 1
            for item in page["items"]:
                self.copy[item["output_id"]] = (item["value_hash"], item["is_approved"])
            if page["metadata"]["next_cursor"] is None:
                return
            self._cursor = page["metadata"]["next_cursor"]


class ViewReader(Reader):
    """Keeps a copy of the approved view. Its pages do not show what leaves the view."""

    view = "approved"


class DateReader(Reader):
    """Keeps a copy up to date only by the newest ``update_date`` that it has received."""

    def __init__(self, client: Client, writing: threading.Event) -> None:
        super().__init__(client, writing)
        self._newest = "2020-01-01"

    def _catch_up(self) -> None:
        url, query = "/v1/outputs/group", {"created_after": self._newest, "limit": "5"}
        page = self._client.get(url, params=query).json()
        while True:
            self.pages += 1
            for item in page["items"]:
                self.copy[item["output_id"]] = (item["value_hash"], item["is_approved"])
                self._newest = max(self._newest, item["update_date"])
            if page["metadata"]["next_url"] is None:
                return
            page = self._client.get(page["metadata"]["next_url"]).json()


def write(client: Client, writer: int, failures: list[str]) -> None:
    choice = random.Random(writer)
    for turn in range(REQUESTS):
        outputs = [
            {
                "job_id": f"job {choice.randrange(2)}",
                "source_url": f"https://a/{choice.randrange(200)}",
                "data": {"writer": writer, "turn": turn, "n": n},
            }
            for n in range(choice.randrange(1, 6))
        ]
        answer = client.post("/v1/outputs/group", json=outputs)
        if answer.status_code != 200:
            failures.append(answer.text)
        if turn % 20 == 10:
            job = outputs[0]["job_id"]
            status = choice.choice(["approved", "rejected"])
            if job == "job 1":  # so the approved view does not end empty
                status = "approved"
            review = {"job_id": job, "status": status}
            client.post("/v1/reviews/group", json=review)


@pytest.mark.parametrize(
    "kind", [Reader, pytest.param(DateReader, marks=pytest.mark.extended), ViewReader]
)
def test_a_reader_beside_writers_misses_no_change(
    nodes: tuple[Service, Service], kind: type[Reader]
) -> None:
    token = nodes[0].token()
    first = {"job_id": "job 0", "source_url": "https://a/first", "data": {}}
    nodes[0].client(token).store("group", first)
    writing = threading.Event()
    failures: list[str] = []
    readers = [kind(nodes[n % 2].client(token), writing) for n in range(READERS)]
    writers = [
        threading.Thread(target=write, args=(nodes[n % 2].client(token), n, failures))
        for n in range(WRITERS)
    ]
    join_readers_after_writers(writers, readers, writing)
    assert not failures
    truth = {
        item["output_id"]: (item["value_hash"], item["is_approved"])
        for item in nodes[0].client(token).items("group", limit=1000, view=kind.view)
    }
    assert len(truth) > (100 if kind.view == "full" else 10)
    for reader in readers:
        assert reader.pages > 20
        assert truth.items() <= reader.copy.items()
        assert kind.view == "approved" or reader.copy.keys() == truth.keys()
