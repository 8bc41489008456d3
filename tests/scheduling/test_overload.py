"""Overload: rejected and admitted requests, connections, rate limits."""

from __future__ import annotations

import json
import re
import select
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest

from gleanery.service.api import rate_limits
from tests.support import raw_http as raw
from tests.support.compression import COMPRESS
from tests.support.metrics import fresh_metrics
from tests.support.process import free_port, gleanery
from tests.support.raw_http import (
    connect,
    read_until_close,
    request_head,
    statuses,
)
from tests.support.service import Client, Service
from tests.support.settings import fresh_settings
from tests.support.waiting import TIMEOUT_SECONDS, wait_until

JSON = "Content-Type: application/json"
ALWAYS_ANSWERED = ("/healthz", "/readyz", "/metrics")
Serving = Callable[..., Service]


@pytest.fixture
def serving(engine: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Serving]:
    """Starts services over one database, with settings of their own."""
    settings = fresh_settings(engine, request, tmp_path)
    running: list[Service] = []

    def start(**changes: Any) -> Service:
        running.append(Service(replace(settings, **changes)))
        return running[-1]

    yield start
    for service in running:
        service.stop()


def known(service: Service) -> Client:
    """A client of an organization that is known to the service and has a group."""
    client = service.client()
    client.store("group", {"job_id": "j", "source_url": "u", "data": {}})
    return client


@contextmanager
def under_way(service: Service, client: Client, path: str = "/v1/cookies") -> Iterator[None]:
    """A request with an incomplete body; it succeeds in the end."""
    with connect(service.url) as connection:
        lines = (JSON, "Content-Length: 2", "Connection: close", "Expect: 100-continue")
        connection.sendall(request_head(client, "POST", path, *lines))
        assert b" 100 Continue" in connection.recv(100)  # so it holds a slot
        yield
        connection.sendall(b"[]")
        assert statuses(read_until_close(connection)) == [b"200"]


@contextmanager
def polling(service: Service, client: Client, cursor: int) -> Iterator[socket.socket]:
    """A long poll that has been begun, though it may not wait yet."""
    with connect(service.url) as connection:
        poll = f"/v1/changes/group?limit=1000&wait=60&cursor={cursor}"
        ahead = request_head(client, "GET", "/healthz")
        connection.sendall(ahead + request_head(client, "GET", poll, "Connection: close"))
        assert statuses(connection.recv(4096))[0] == b"200"
        yield connection


def is_let_in(client: Client) -> bool:
    return client.get("/v1/outputs/group").status_code == 200


def assert_turned_away(answer: httpx2.Response) -> None:
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert answer.headers["x-request-id"]
    fault = answer.json()["detail"][0]  # NDJSON has a second one
    assert (fault["loc"], fault["type"]) == (["server"], "busy")


# --- concurrent requests -------------------------------------------------------------------------


@pytest.mark.thorough
def test_an_organization_at_its_limit_does_not_block_another(serving: Serving) -> None:
    service = serving(max_requests=4)
    crowd, other = known(service), known(service)
    with under_way(service, crowd):
        assert crowd.get("/v1/outputs/group").status_code == 200
        with under_way(service, crowd):
            assert_turned_away(crowd.get("/v1/outputs/group"))
            assert_turned_away(crowd.get("/v1/outputs/group"))  # on the same connection
            assert other.get("/v1/outputs/group").status_code == 200
        assert crowd.get("/v1/outputs/group").status_code == 200


@pytest.mark.thorough
def test_a_full_service_rejects_requests_and_recovers(serving: Serving) -> None:
    service = serving(max_requests=4)
    first, second, third, late = (known(service) for _ in range(4))
    with ExitStack() as house:
        for client in (first, first, second, third):
            house.enter_context(under_way(service, client))
        assert_turned_away(late.get("/v1/outputs/group"))
        assert_turned_away(late.post("/v1/cookies", json=[]))
        assert_turned_away(service.stranger().get("/docs"))
        for path in ALWAYS_ANSWERED:
            assert service.stranger().get(path).status_code == 200
    for client in (first, second, third, late):
        assert client.get("/v1/outputs/group").status_code == 200
    counted = fresh_metrics(late)
    assert re.search(r'_count\{operation="unmatched",status="503"\} 3\.0', counted)


# --- bytes of bodies ------------------------------------------------------------------------------

_LIMIT_BYTES, _HELD_BYTES, _REJECTED_BYTES = 1_000_000, 700_000, 400_000


@contextmanager
def large_body_under_way(service: Service, client: Client) -> Iterator[socket.socket]:
    """A request whose large body is announced, but has not arrived."""
    with connect(service.url) as connection:
        lines = (JSON, f"Content-Length: {_HELD_BYTES}", "Expect: 100-continue")
        close = "Connection: close"
        connection.sendall(request_head(client, "POST", "/v1/cookies", *lines, close))
        assert b" 100 Continue" in connection.recv(100)
        yield connection


def post_bytes(client: Client, size: int, media_type: str, *, is_chunked: bool) -> httpx2.Response:
    """Posts an output with about so many bytes, in one piece or in chunks."""
    text = json.dumps({"job_id": "j", "source_url": "u", "data": {"text": "x" * size}}).encode()
    body = text if media_type.endswith("ndjson") else b"[" + text + b"]"
    pieces = (body[n : n + 50_000] for n in range(0, len(body), 50_000))
    headers = {"Content-Type": media_type}
    return client.post("/v1/outputs/group", content=pieces if is_chunked else body, headers=headers)


@pytest.mark.thorough
@pytest.mark.parametrize("media_type", ["application/json", "application/x-ndjson"])
@pytest.mark.parametrize("is_chunked", [False, True])
def test_bodies_in_progress_are_limited_per_organization(
    serving: Serving, media_type: str, is_chunked: bool
) -> None:
    service = serving(max_buffered_bytes=_LIMIT_BYTES)
    client, other = known(service), known(service)

    def post(by: Client, size: int = _REJECTED_BYTES) -> httpx2.Response:
        return post_bytes(by, size, media_type, is_chunked=is_chunked)

    assert post(client, 2 * _LIMIT_BYTES).status_code == 200  # alone, any allowed size
    with large_body_under_way(service, client) as connection:
        assert_turned_away(post(client))
        assert post(client, 1000).status_code == 200
        assert post(other).status_code == 200
        connection.sendall(b"[" + b" " * (_HELD_BYTES - 2) + b"]")
        assert statuses(read_until_close(connection)) == [b"200"]
    assert post(client).status_code == 200
    with large_body_under_way(service, client):
        assert_turned_away(post(client))
    wait_until(lambda: post(client).status_code == 200)  # the client has disconnected


@pytest.mark.thorough
@pytest.mark.parametrize("media_type", ["application/json", "application/x-ndjson"])
@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_a_compressed_body_counts_with_its_decompressed_size(
    serving: Serving, media_type: str, coding: str
) -> None:
    service = serving(max_buffered_bytes=_LIMIT_BYTES)
    client = known(service)

    def post(size: int) -> httpx2.Response:
        output = {"job_id": "j", "source_url": "u", "data": {"text": "x" * size}}
        text = json.dumps([output] if media_type == "application/json" else output).encode()
        headers = {"Content-Type": media_type, "Content-Encoding": coding}
        return client.post("/v1/outputs/group", content=COMPRESS[coding](text), headers=headers)

    with large_body_under_way(service, client):
        assert_turned_away(post(_REJECTED_BYTES))
        assert post(1000).status_code == 200
    wait_until(lambda: post(_REJECTED_BYTES).status_code == 200)


@pytest.mark.thorough
def test_a_rejected_request_need_not_send_its_body(serving: Serving) -> None:
    service = serving(max_requests=2)
    client = known(service)
    with under_way(service, client):
        for length in ("Content-Length: 30000000", "Transfer-Encoding: chunked"):
            answer = raw.exchange(
                service.url, request_head(client, "POST", "/v1/cookies", JSON, length)
            )
            assert (answer.status, answer.headers["connection"]) == (503, "close")
        body = b"[]"
        short = (
            request_head(client, "POST", "/v1/cookies", JSON, f"Content-Length: {len(body)}") + body
        )
        last = request_head(client, "GET", "/healthz", "Connection: close")
        with connect(service.url) as connection:
            connection.sendall(short * 2000 + last)  # pipelined
            assert statuses(read_until_close(connection)) == [b"503"] * 2000 + [b"200"]


WAITING_POLLS = 'gleanery_long_polls_in_progress{{worker="1"}} {:.1f}\n'


@pytest.mark.thorough
def test_a_waiting_long_poll_uses_no_request_slot(serving: Serving) -> None:
    # An organization gets two request slots. One may still be in use by the request before.
    service = serving(max_requests=4, max_connections=4, max_wait_seconds=20)
    client = known(service)
    cursor = client.get("/v1/changes/group").json()["cursor"]
    with ExitStack() as polls:
        waiting = []
        for sample in (WAITING_POLLS.format(1), WAITING_POLLS.format(2)):
            waiting.append(polls.enter_context(polling(service, client, cursor)))
            wait_until(lambda sample=sample: sample in client.get("/metrics").text)
            wait_until(lambda: is_let_in(client))  # it has released its request slot
        third = client.get("/v1/changes/group", params={"cursor": cursor, "wait": 1})
        assert_turned_away(third)  # it would leave too little to others
        assert is_let_in(client)
        client.store("group", {"job_id": "j", "source_url": "u", "data": {"is": "new"}})
        for connection in waiting:
            assert read_until_close(connection).count(b'"is":"new"') == 1
    assert is_let_in(client)


@pytest.mark.thorough
def test_long_polls_that_respond_at_once_block_nobody(serving: Serving) -> None:
    """Many responses that clients do not read do not block other requests."""
    service = serving(max_requests=2, max_wait_seconds=20)
    client, other = known(service), known(service)
    cursor = client.get("/v1/changes/group").json()["cursor"]
    large = [{"job_id": "j", "source_url": str(n), "data": {"x": "x" * 900_000}} for n in range(20)]
    with ExitStack() as polls:
        waiting = []
        for _ in range(4):
            waiting.append(polls.enter_context(polling(service, client, cursor)))
            wait_until(lambda: is_let_in(client))
        client.store("group", *large)
        for connection in waiting:
            assert connection.recv(1)  # its response is in progress
        assert is_let_in(other)


# --- files ---------------------------------------------------------------------------------------


def test_concurrent_uploads_have_a_limit(serving: Serving) -> None:
    service = serving(max_requests=2, max_transfers=2)
    client, other = known(service), known(service)
    with under_way(service, client, "/v1/files"):
        assert_turned_away(client.post("/v1/files", content=b"bytes"))
        assert client.get("/v1/outputs/group").status_code == 200
        assert other.post("/v1/files", content=b"bytes").status_code == 200
    assert client.post("/v1/files", content=b"bytes").status_code == 200


@pytest.mark.thorough
def test_concurrent_downloads_have_a_limit(serving: Serving) -> None:
    service = serving(max_requests=2, max_transfers=2)
    client = known(service)
    large = client.post("/v1/files", content=b"x" * 30_000_000).json()
    path = f"/v1/files/{large['id']}"
    with connect(service.url) as connection:
        connection.sendall(request_head(client, "GET", path, "Connection: close"))
        assert connection.recv(1)
        assert_turned_away(client.get(path))
        assert client.head(path).status_code == 200  # has no bytes
        assert client.get("/v1/outputs/group").status_code == 200
        assert len(read_until_close(connection)) > 30_000_000
    assert client.get(path).status_code == 200


# --- connections ---------------------------------------------------------------------------------


@pytest.mark.thorough
def test_a_new_connection_replaces_an_idle_one(serving: Serving) -> None:
    service = serving(max_connections=2)
    with connect(service.url) as older, connect(service.url) as newer:
        for connection in (older, newer):
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            assert statuses(connection.recv(4096)) == [b"200"]
        wait_until(lambda: raw.get(service.url, "/").status == 307)  # when one has been idle
        assert older.recv(1) == b""
        newer.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert statuses(newer.recv(4096)) == [b"200"]


def test_a_connection_above_the_limit_is_rejected(serving: Serving) -> None:
    service = serving(max_connections=2)
    client = known(service)
    token = client.token
    client.close()
    client = Client(service.url, token)
    with under_way(service, client), under_way(service, client):
        for method, path in (("GET", "/v1/outputs/group"), ("POST", "/v1/cookies"), ("GET", "/")):
            with Client(service.url, token) as one_too_many:
                assert_turned_away(one_too_many.request(method, path))
        for path in ALWAYS_ANSWERED:
            with Client(service.url, None) as checking:
                answer = checking.get(path)
            assert (answer.status_code, answer.headers["connection"]) == (200, "close")
    assert client.get("/v1/outputs/group").status_code == 200
    refused, evicted = (
        re.search(rf"^gleanery_connections_{name}_total (\d+)\.0$", fresh_metrics(client), re.M)
        for name in ("refused", "evicted")
    )
    assert refused is not None
    assert evicted is not None
    assert int(refused[1]) == 6


# --- rate limits ---------------------------------------------------------------------------------


def standing(answer: httpx2.Response) -> tuple[int, int]:
    """Remaining requests of the rate limit, and the seconds until it resets."""
    found = re.fullmatch(r'"token";r=(\d+);t=(\d+)', answer.headers["ratelimit"])
    assert found, answer.headers
    return int(found[1]), int(found[2])


def test_a_token_has_a_rate_limit(serving: Serving) -> None:
    service = serving(rate_limit="4/hour")
    organization = "two tokens"
    client, other = (service.client(organization=organization) for _ in range(2))
    paths = ("/v1/cookies", "/v1/reviews/nowhere", "/v1/local-storage?for_group=x", "/v1/cookies")
    answers = [client.get(path) for path in paths]
    assert [answer.status_code for answer in answers] == [200, 404, 422, 200]
    assert [standing(answer)[0] for answer in answers] == [3, 2, 1, 0]
    assert {answer.headers["ratelimit-policy"] for answer in answers} == {'"token";q=4;w=3600'}
    refused = client.post("/v1/cookies", json=[{"domain": "a.com", "name": "n", "value": "v"}])
    assert refused.status_code == 429
    assert refused.json()["detail"][0]["type"] == "too_often"
    left, seconds = standing(refused)
    assert (left, int(refused.headers["retry-after"])) == (0, seconds)
    assert 3000 <= seconds <= 3600
    assert other.get("/v1/cookies").json() == []  # a token of its own, and nothing was stored
    assert client.get("/healthz").status_code == 200
    assert "ratelimit" not in service.stranger().get("/v1/cookies").headers


def test_the_rate_limit_comes_before_the_concurrency_limit(serving: Serving) -> None:
    """Otherwise the client would retry too early."""
    service = serving(max_requests=2, rate_limit="2/hour")
    spent, other = (service.client(organization="of two tokens") for _ in range(2))
    assert [spent.get("/v1/cookies").status_code for _ in range(3)] == [200, 200, 429]
    with under_way(service, other):
        assert_turned_away(other.get("/v1/cookies"))
        assert spent.get("/v1/cookies").status_code == 429


class MovableTime:
    """The time module, whose clock the test moves."""

    monotonic = staticmethod(time.monotonic)

    def __init__(self) -> None:
        self.offset = 0

    def time(self) -> float:
        return time.time() + self.offset


def test_a_client_that_waits_for_retry_after_is_admitted(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = MovableTime()
    monkeypatch.setattr(rate_limits, "time", clock)
    client = serving(rate_limit="2/hour").client()
    for _ in range(2):
        answers = [client.get("/v1/cookies") for _ in range(3)]
        assert [answer.status_code for answer in answers] == [200, 200, 429]
        clock.offset += int(answers[-1].headers["retry-after"])


def test_without_a_rate_limit_there_are_no_headers_for_it(client: Client) -> None:
    answer = client.get("/v1/cookies")
    assert not {"ratelimit", "ratelimit-policy", "retry-after"} & set(answer.headers)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("options", "word"),
    [
        (("--rate-limit", "many"), "600/minute"),
        (("--rate-limit", "0/minute"), "600/minute"),
        (("--rate-limit", "1/minute", "--rate-limit-storage", "memcached://x"), "redis://"),
        (("--rate-limit-storage", "redis://x"), "--rate-limit"),
        (("--max-requests", "0"), "--max-requests"),
        (("--max-connections", "0"), "--max-connections"),
        (("--max-transfers", "0"), "--max-transfers"),
    ],
)
def test_an_invalid_limit_ends_the_start(
    options: tuple[str, ...], word: str, tmp_path: Path
) -> None:
    run = gleanery("serve", "--data", str(tmp_path), *options)
    assert run.returncode != 0
    assert word in run.stderr


# --- shared counters -----------------------------------------------------------------------------


class Redis:
    """A server of our own."""

    def __init__(self, program: str, folder: Path) -> None:
        self._program, self._folder, self._port = program, folder, free_port()
        self.url = f"redis://127.0.0.1:{self._port}"
        self.start()

    def start(self) -> None:
        where = ("--bind", "127.0.0.1", "--port", str(self._port), "--dir", str(self._folder))
        self._process = subprocess.Popen(
            [self._program, *where, "--save", ""], stdout=subprocess.DEVNULL
        )
        wait_until(self._listens)

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._port)) == 0

    def size(self) -> int:
        """Number of stored counters."""
        with socket.create_connection(("127.0.0.1", self._port)) as connection:
            connection.sendall(b"DBSIZE\r\n")
            return int(connection.recv(100)[1:])

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(TIMEOUT_SECONDS)


@pytest.fixture
def redis(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Redis]:
    monkeypatch.setattr(rate_limits, "_REDIS_TIMEOUT", 60)  # on a busy machine Redis is slow
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("redis-server is missing: apt-get install redis-server")
    server = Redis(program, tmp_path_factory.mktemp("redis"))
    yield server
    server.stop()


@pytest.mark.thorough
def test_nodes_share_the_rate_limit_in_redis(serving: Serving, redis: Redis) -> None:
    limited = {"rate_limit": "4/hour", "rate_limit_storage": redis.url}
    one, two = serving(**limited), serving(**limited)
    token, other = one.token(), one.token()
    with Client(one.url, token) as here, Client(two.url, token) as there:
        answers = [client.get("/v1/cookies") for client in (here, there, here, there, here)]
        assert [answer.status_code for answer in answers] == [200, 200, 200, 200, 429]
        assert [standing(answer)[0] for answer in answers] == [3, 2, 1, 0, 0]
        assert 3000 <= standing(answers[0])[1] <= 3600
    assert two.client(other).get("/v1/cookies").status_code == 200


def test_without_redis_each_worker_counts_by_itself(
    serving: Serving, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rate_limits, "_RETRY_SECONDS", 0.1)
    service = serving(rate_limit="3/hour", rate_limit_storage=redis.url)
    client, other = service.client(), service.client()
    assert standing(client.get("/v1/cookies"))[0] == 2
    redis.stop()
    answers = [client.get("/v1/cookies") for _ in range(4)]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
    assert standing(other.get("/v1/cookies"))[0] == 2
    redis.start()

    def is_counted_there() -> bool:
        service.client().get("/v1/cookies")
        return redis.size() > 0

    wait_until(is_counted_there)


@pytest.mark.thorough
def test_the_log_and_the_metrics_say_when_redis_is_away_and_when_it_is_back(
    serving: Serving,
    redis: Redis,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(rate_limits, "_RETRY_SECONDS", 0.1)
    service = serving(rate_limit="1000/hour", rate_limit_storage=redis.url)
    client = service.client()

    def is_fallback_active() -> bool:
        client.get("/v1/cookies")
        text = fresh_metrics(client)
        [active] = re.findall(r'^gleanery_redis_fallback_active\{worker="1"\} (.*)$', text, re.M)
        return active == "1.0"

    assert not is_fallback_active()
    redis.stop()
    wait_until(is_fallback_active)
    redis.start()
    wait_until(lambda: not is_fallback_active())
    assert "\ngleanery_redis_fallbacks_total 1.0\n" in fresh_metrics(client)
    assert [line for line in caplog.messages if line.startswith("Redis")] == [
        "Redis is not available: each worker counts requests on its own",
        "Redis is available again: all workers count requests together",
    ]


def test_a_redis_that_cannot_be_used_is_logged_at_the_start(
    serving: Serving, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        url = f"redis://127.0.0.1:{reserved.getsockname()[1]}"
    service = serving(rate_limit="3/hour", rate_limit_storage=url)
    wait_until(lambda: service.stranger().get("/readyz").status_code == 200)
    message = "Redis is not available: each worker counts requests on its own"
    assert caplog.messages.count(message) == 1


class SilentRedis:
    """Accepts connections, and never responds."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self._listener.getsockname()[1]}"
        self._taken: list[socket.socket] = []

    def callers(self) -> int:
        """Number of connections so far."""
        while select.select([self._listener], [], [], 0)[0]:
            self._taken.append(self._listener.accept()[0])
        return len(self._taken)

    def close(self) -> None:
        for one in (self._listener, *self._taken):
            one.close()


@pytest.mark.thorough
def test_only_one_request_at_a_time_tries_a_redis_that_does_not_answer(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rate_limits, "_RETRY_SECONDS", 0)  # the next request may try again at once
    redis = SilentRedis()
    limited = {"rate_limit": "1000/hour", "rate_limit_storage": redis.url}
    service = Service(replace(fresh_settings("sqlite", request, tmp_path), **limited))
    with service.client() as client, ThreadPoolExecutor(8) as crowd:

        def ask() -> int:
            return client.get("/v1/cookies").status_code

        assert ask() == 200
        before = redis.callers()
        assert before
        monkeypatch.setattr(rate_limits, "_RETRY_SECONDS", 3600)
        assert set(crowd.map(lambda _: ask(), range(8))) == {200}
        assert redis.callers() == before + 1
    service.stop()
    redis.close()
