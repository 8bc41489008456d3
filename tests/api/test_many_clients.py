"""Writers, feed readers, deletions and broken requests at once, through two worker processes."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.support.outputs import follow_changes, stored_outputs
from tests.support.process import join_readers_after_writers, served
from tests.support.service import Client
from tests.support.settings import fresh_settings

pytestmark = pytest.mark.thorough

WRITERS, READERS, REQUESTS = 8, 4, 15


@pytest.fixture
def workers(
    engine: str, request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[tuple[str, str]]:
    """The address of a service with two workers, and a token."""
    with served(fresh_settings(engine, request, tmp_path), "--workers", "2") as service:
        yield service.url, service.token
        assert service.running.stop() == 0


def write(url: str, token: str, number: int, failures: list[str]) -> None:
    choice = random.Random(number)
    for turn in range(REQUESTS):
        with Client(url, token) as client:  # a new connection each time, to any worker
            batch = [
                {
                    "job_id": f"job {choice.randrange(3)}",
                    "source_url": f"https://a/{choice.randrange(150)}",
                    "data": {"by": number, "turn": turn, "n": n},
                }
                for n in range(choice.randrange(1, 8))
            ]
            answer = client.post("/v1/outputs/group", json=batch)
            if answer.status_code != 200:
                failures.append(answer.text)
            elif turn % 5 == 1:
                gone = choice.choice(answer.json()["results"])["output_id"]
                client.delete(f"/v1/outputs/group/{gone}")  # another writer may have deleted it
            elif turn % 9 == 2:
                status = choice.choice(["approved", "rejected"])
                review = {"job_id": batch[0]["job_id"], "status": status}
                client.post("/v1/reviews/group", json=review)
            elif turn % 7 == 3:
                break_off(url, token)


def break_off(url: str, token: str) -> None:
    """Sends half a request and disconnects."""
    port = int(url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(
            f"POST /v1/outputs/group HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
            "Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n"
            '[{"job_id": "broken", '.encode()
        )


class Reader(threading.Thread):
    def __init__(self, url: str, token: str, writing: threading.Event) -> None:
        super().__init__()
        self._client, self._writing = Client(url, token), writing
        self.copy: dict[str, Any] = {}

    def run(self) -> None:
        cursor = 0
        while self._writing.is_set():
            cursor = follow_changes(self._client, self.copy, cursor, limit=7)
        follow_changes(self._client, self.copy, cursor, limit=7)


def test_every_reader_ends_with_the_exact_final_state(workers: tuple[str, str]) -> None:
    url, token = workers
    client = Client(url, token)
    client.store("group", {"job_id": "job 0", "source_url": "first", "data": {}})
    writing = threading.Event()
    failures: list[str] = []
    readers = [Reader(url, token, writing) for _ in range(READERS)]
    writers = [
        threading.Thread(target=write, args=(url, token, number, failures))
        for number in range(WRITERS)
    ]
    join_readers_after_writers(writers, readers, writing)
    assert not failures
    final = stored_outputs(client)
    assert len(final) > 50
    assert not any(item["root_job_id"] == "broken" for item in final.values())
    for reader in readers:
        assert without_scrape_date(reader.copy) == without_scrape_date(final)


def without_scrape_date(copy: dict[str, Any]) -> dict[str, Any]:
    """A scrape without changes updates only this date, and does not appear in the feed."""
    return {
        id_: {name: value for name, value in item.items() if name != "last_scraped_date"}
        for id_, item in copy.items()
    }


def test_a_long_poll_sees_a_commit_of_another_process(workers: tuple[str, str]) -> None:
    url, token = workers
    client = Client(url, token)
    client.store("group", {"job_id": "j", "source_url": "first", "data": {}})
    for number in range(5):  # on new connections, so that most pairs use both workers
        cursor = client.get("/v1/changes/group").json()["cursor"]
        with Client(url, token) as waiting, ThreadPoolExecutor() as pool:
            path = f"/v1/changes/group?wait=60&cursor={cursor}"
            poll = pool.submit(waiting.get, path)
            with Client(url, token) as writer:
                writer.store("group", {"job_id": "j", "source_url": str(number), "data": {}})
            changes = poll.result().json()["changes"]  # empty if it got no notification
        assert [change["output"]["source_url"] for change in changes] == [str(number)]
