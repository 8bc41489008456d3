"""Responses that clients have not read take a bounded part of the memory.

One client requests a large page and reads nothing. It then holds what its organization may hold,
except for a little. The system's buffers take some megabytes, so the page is larger than that. The
receive buffer of the client has a fixed size: large enough to read the page soon, when a test does.
"""

from __future__ import annotations

import gzip
import json
import re
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import httpx2
import pytest

from gleanery.service.foundation.observability import metrics, telemetry
from gleanery.service.foundation.scheduling import byte_limits
from tests.support.files import upload
from tests.support.metrics import fresh_metrics
from tests.support.outputs import output
from tests.support.raw_http import connect, read_until_close, request_head, statuses
from tests.support.service import Client, Service
from tests.support.settings import fresh_settings
from tests.support.waiting import wait_until

pytestmark = pytest.mark.thorough

MIB = 2**20
TEXT = "x" * MIB
PAGE_BYTES = 12 * MIB
RECEIVE_BUFFER_BYTES = MIB // 4
PAGE = "/v1/outputs/large?limit=100"
REST = 66_000  # bytes that the organization has left

RESPONSES = {
    "a page in parts": PAGE,
    "a page at once": "/v1/outputs/medium?limit=60",
    "a feed in parts": "/v1/changes/large",
    "a feed at once": "/v1/changes/medium",
    "an output": "/v1/outputs/single/{output_id}",
    "the history of an output": "/v1/outputs/single/{output_id}/history",
    "cookies": "/v1/cookies",
    "local storage": "/v1/local-storage",
    "a session": "/v1/sessions/export?format=playwright",
    "reviews": "/v1/reviews/medium?history=true",
    "groups": "/v1/groups",
    "a group": "/v1/groups/jobs",
    "an export of large outputs": "/v1/exports/huge",
}


@pytest.fixture(scope="module")
def bounded(
    engine: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    """A service with a low bound, whose metrics are up to date: each test waits for them."""
    settings = fresh_settings(engine, request, tmp_path_factory.mktemp("bounded"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(metrics, "_MAX_AGE_SECONDS", 0.01)
        patch.setattr(telemetry, "_PUBLISH_SECONDS", 0.01)
        running = Service(replace(settings, max_unsent_bytes=2 * PAGE_BYTES + REST))
        yield running
        running.stop()


@pytest.fixture(scope="module")
def caller(bounded: Service) -> Iterator[Client]:
    with bounded.client() as client:
        fill(client)
        yield client


@pytest.fixture(scope="module")
def neighbour(bounded: Service) -> Iterator[Client]:
    with bounded.client() as client:
        store_large(client)
        yield client


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests wait for memory for a moment only."""
    monkeypatch.setattr(byte_limits, "_WAIT_SECONDS", 0.05)


def store_large(client: Client) -> None:
    for number in range(PAGE_BYTES // MIB):
        client.store("large", output(number, data={"text": TEXT}))


def fill(client: Client) -> None:
    """Store something large of each kind."""
    store_large(client)
    client.store("medium", *(output(n, data={"text": "x" * 6000}) for n in range(60)))
    client.store("single", output(0, data={"text": "a" * MIB}))
    client.store("single", output(0, data={"text": "b" * MIB}))
    client.store("huge", output(0, data={"text": TEXT * 3}))
    values = [{"domain": "shop.example", "value": "x" * 4000} for _ in range(80)]
    client.post("/v1/cookies", json=[v | {"name": f"c{n}"} for n, v in enumerate(values)])
    client.post("/v1/local-storage", json=[v | {"key": f"k{n}"} for n, v in enumerate(values)])
    for number in range(6):
        review = {"job_id": "job", "status": "pending", "comment": f"{number}" * 50_000}
        client.post("/v1/reviews/medium", json=review)
    client.store("jobs", *(output(n, job_id=f"{n:03}" * 60) for n in range(900)))
    client.put("/v1/groups/jobs", json={"schema": {"description": "x" * 300_000}})


def unsent_bytes(client: Client) -> float:
    found = re.findall(r'^gleanery_unsent_bytes\{worker="1"\} (\S+)', fresh_metrics(client), re.M)
    return float(found[0])


def requests_in_progress(client: Client) -> float:
    """Return the number of requests; the one that asks holds no slot."""
    pattern = r'^gleanery_requests_in_progress\{worker="1"\} (\S+)'
    return float(re.findall(pattern, fresh_metrics(client), re.M)[0])


@contextmanager
def unread_page(client: Client, *headers: str, count: int = 1) -> Iterator[socket.socket]:
    """Request a large page on a connection, and read nothing of it."""
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        connection.settimeout(120)
        connection.connect((client.base_url.host, client.base_url.port))
        connection.sendall(request_head(client, "GET", PAGE, *headers) * count)
        wait_until(lambda: unsent_bytes(client) > PAGE_BYTES)
        yield connection
    wait_until(lambda: unsent_bytes(client) == 0)


def url_of(client: Client, template: str) -> str:
    items = client.get("/v1/outputs/single").json()["items"]
    return template.format(output_id=items[0]["output_id"])


def assert_no_memory(answer: httpx2.Response) -> None:
    assert answer.status_code == 503
    assert "retry-after" in answer.headers
    assert answer.json()["detail"][0]["type"] == "busy"
    assert "have not read" in answer.json()["detail"][0]["msg"]


# --- beyond the bound ---------------------------------------------------------------------------


def test_large_responses_beyond_the_bound_get_503(
    caller: Client, neighbour: Client, impatient: None
) -> None:
    urls = {kind: url_of(caller, template) for kind, template in RESPONSES.items()}
    expected = {kind: caller.get(url) for kind, url in urls.items()}
    assert {answer.status_code for answer in expected.values()} == {200}
    assert [kind for kind, answer in expected.items() if len(answer.content) <= REST] == []
    with unread_page(caller):
        for url in urls.values():
            assert_no_memory(caller.get(url))
    for kind, url in urls.items():
        assert caller.get(url).content == expected[kind].content


def test_small_responses_files_and_other_organizations_are_served(
    caller: Client, neighbour: Client, impatient: None
) -> None:
    file_id = upload(caller, b"x" * REST * 2)["id"]
    with unread_page(caller):
        assert caller.get("/v1/outputs/medium", params={"limit": 1}).status_code == 200
        assert caller.store("small", output(1))["created"] == 1
        caller.delete("/v1/groups/small")
        assert caller.get("/v1/exports/large").status_code == 200
        answer = caller.get(f"/v1/files/{file_id}")
        assert len(answer.content) == REST * 2
        for _ in range(3):
            assert len(neighbour.get(PAGE).content) > PAGE_BYTES


def test_a_lease_beyond_the_bound_is_not_kept(caller: Client, impatient: None) -> None:
    wanted = {"domain": "shop.example", "seconds": 60}
    with unread_page(caller):
        assert_no_memory(caller.post("/v1/sessions/leases", json=wanted))
        assert caller.get("/v1/sessions/leases").json() == []
    lease = caller.post("/v1/sessions/leases", json=wanted).json()
    assert caller.delete(f"/v1/sessions/leases/{lease['id']}").status_code == 200


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_a_compressed_page_needs_memory_before_it_is_compressed(
    caller: Client, impatient: None, coding: str
) -> None:
    headers = {"Accept-Encoding": coding}
    with unread_page(caller, "Accept-Encoding: identity"):
        assert_no_memory(caller.get(PAGE, headers=headers))
    assert len(caller.get(PAGE, headers=headers).content) > PAGE_BYTES
    wait_until(lambda: unsent_bytes(caller) == 0)


def test_head_holds_memory_only_while_the_page_is_read(caller: Client, impatient: None) -> None:
    with unread_page(caller):
        assert caller.head(PAGE).status_code == 503
    identity = {"Accept-Encoding": "identity"}
    length = int(caller.head(PAGE, headers=identity).headers["content-length"])
    assert length == len(caller.get(PAGE, headers=identity).content)


# --- waiting ------------------------------------------------------------------------------------


def test_a_page_waits_until_another_one_is_read(caller: Client) -> None:
    with (
        ThreadPoolExecutor(1) as thread,
        unread_page(caller, "Connection: close") as connection,
    ):
        waiting = thread.submit(partial(caller.get, PAGE))
        wait_until(lambda: requests_in_progress(caller) == 2)
        assert unsent_bytes(caller) < 2 * PAGE_BYTES
        assert not waiting.done()
        assert len(read_until_close(connection)) > PAGE_BYTES
        assert len(waiting.result().content) > PAGE_BYTES


def test_a_client_that_leaves_does_not_wait(caller: Client) -> None:
    with unread_page(caller):
        with connect(str(caller.base_url)) as leaving:
            leaving.sendall(request_head(caller, "GET", PAGE))
            wait_until(lambda: requests_in_progress(caller) == 2)
        wait_until(lambda: requests_in_progress(caller) == 1)


def test_a_client_that_has_closed_one_direction_gets_the_error(caller: Client) -> None:
    with unread_page(caller), connect(str(caller.base_url)) as half_closed:
        half_closed.sendall(request_head(caller, "GET", PAGE))
        half_closed.shutdown(socket.SHUT_WR)
        assert statuses(read_until_close(half_closed)) == [b"503"]


def test_pipelined_requests_hold_one_page_at_a_time(caller: Client) -> None:
    with unread_page(caller, count=3) as connection:
        wait_until(lambda: requests_in_progress(caller) == 1)
        assert unsent_bytes(caller) < 2 * PAGE_BYTES
        received = b""
        while len(received) < 3 * PAGE_BYTES:
            received += connection.recv(4 * MIB)
        assert statuses(received) == [b"200"] * 3


def test_a_page_of_a_batch_needs_memory(caller: Client, impatient: None) -> None:
    """The second equal request on a connection takes the path of small pages."""
    url = "/v1/outputs/medium?limit=60"
    expected = [caller.get(url).content for _ in range(3)]
    with unread_page(caller):
        assert_no_memory(caller.get(url))
    assert caller.get(url).content == expected[0]


def test_a_compressed_body_has_its_whole_text(caller: Client) -> None:
    answer = caller.get(PAGE, headers={"Accept-Encoding": "gzip"})
    with caller.stream("GET", PAGE, headers={"Accept-Encoding": "gzip"}) as stream:
        raw = b"".join(stream.iter_raw())
    assert json.loads(gzip.decompress(raw)) == answer.json()
