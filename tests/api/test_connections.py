"""Unusual clients: slow, broken, early, or half closed connections."""

from __future__ import annotations

import json
import re
import socket
import ssl
import time
from collections.abc import Iterator
from dataclasses import replace
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

import apsw
import pytest

from gleanery.service.foundation.values import timestamps
from tests.support import raw_http as raw
from tests.support.certificates import write_certificate
from tests.support.metrics import fresh_metrics
from tests.support.raw_http import (
    connect,
    count_received_bytes,
    read_until_close,
    request_head,
    statuses,
)
from tests.support.service import Client, Clock, Service
from tests.support.settings import fresh_settings
from tests.support.waiting import TIMEOUT_SECONDS, wait_until

LARGE_OUTPUT = {"job_id": "j", "source_url": "u", "data": {"text": "x" * 900_000}}
JSON = "Content-Type: application/json"


@pytest.fixture(scope="module")
def node(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    running = Service(fresh_settings("sqlite", request, tmp_path_factory.mktemp("node")))
    yield running
    running.stop()


@pytest.fixture(scope="module")
def caller(node: Service) -> Iterator[Client]:
    with node.client() as client:
        client.store("group", LARGE_OUTPUT)
        yield client


@pytest.fixture(scope="module")
def strict(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    """A service that soon closes the connections of slow clients."""
    settings = fresh_settings("sqlite", request, tmp_path_factory.mktemp("strict"))
    running = Service(replace(settings, idle_seconds=2, stall_seconds=1))
    yield running
    running.stop()


@pytest.fixture(scope="module")
def slow_caller(strict: Service) -> Iterator[Client]:
    with strict.client() as client:
        client.store("group", LARGE_OUTPUT)
        yield client


def detail_type(received: bytes) -> str:
    body = received.partition(b"\r\n\r\n")[2]
    return str(json.loads(body)["detail"][0]["type"])


# --- invalid or too large input -----------------------------------------------------------------


def test_malformed_http_gets_an_error_response_in_json(node: Service) -> None:
    for rubbish in (b"\x16\x03\x01 hello\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"GET\r\n\r\n"):
        answer = raw.exchange(node.url, rubbish)
        assert (answer.status, answer.headers["connection"]) == (400, "close")
        assert json.loads(answer.body)["detail"][0]["type"] == "bad_request"


@pytest.mark.parametrize(
    ("status", "type_", "request_bytes"),
    [
        (417, "unsupported_expectation", b"GET / HTTP/1.1\r\nHost: x\r\nExpect: more\r\n\r\n"),
        (501, "not_implemented", b"CONNECT x:1 HTTP/1.1\r\nHost: x:1\r\n\r\n"),
        (501, "not_implemented", b"GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n"),
        (505, "unsupported_version", b"GET / HTTP/9.9\r\n\r\n"),
    ],
)
def test_unsupported_http_gets_an_error_response_in_json(
    node: Service, status: int, type_: str, request_bytes: bytes
) -> None:
    answer = raw.exchange(node.url, request_bytes)
    assert (answer.status, answer.headers["connection"]) == (status, "close")
    assert json.loads(answer.body)["detail"][0]["type"] == type_


LENGTH, CHUNKS = "Content-Length: 5", "Transfer-Encoding: chunked"


@pytest.mark.parametrize(
    "headers",
    [
        (LENGTH, CHUNKS),
        (CHUNKS, LENGTH),
        (LENGTH, "Content-Length: 6"),
        ("Content-Length: +5",),
        ("Content-Length : 5",),
        (f"X: y\n{CHUNKS}",),
        (f" {CHUNKS}",),
    ],
)
def test_an_ambiguous_body_length_is_rejected(
    node: Service, caller: Client, headers: tuple[str, ...]
) -> None:
    """Prevents request smuggling through a proxy."""
    hidden = b"0\r\n\r\n" + request_head(caller, "DELETE", "/v1/groups/group")
    with connect(node.url) as connection:
        connection.sendall(request_head(caller, "POST", "/v1/cookies", JSON, *headers) + hidden)
        assert statuses(read_until_close(connection)) == [b"400"]
    assert caller.get("/v1/groups/group").status_code == 200


def test_an_invalid_chunk_is_rejected(node: Service, caller: Client) -> None:
    start = request_head(caller, "POST", "/v1/cookies", "Transfer-Encoding: chunked", JSON)
    answer = raw.exchange(node.url, start + b"2\r\n[]\r\nnonsense\r\n")
    assert answer.status == 400


@pytest.mark.parametrize("at_once", [True, False])
def test_headers_may_have_64_kilobytes(node: Service, caller: Client, at_once: bool) -> None:
    allowed = raw.exchange(
        node.url,
        request_head(caller, "GET", "/v1/cookies", f"X-A: {'x' * 60_000}", "Connection: close"),
    )
    assert allowed.status == 200
    many = [f"X-{n}: {'x' * 1000}" for n in range(70)]
    request = request_head(caller, "GET", "/v1/cookies", *many)
    with connect(node.url) as connection:
        for start in range(0, len(request), len(request) if at_once else 4096):
            connection.sendall(request[start : start + (len(request) if at_once else 4096)])
        received = read_until_close(connection)
    assert (statuses(received), detail_type(received)) == ([b"431"], "too_large")


def test_an_endless_header_is_cut_off(strict: Service) -> None:
    with connect(strict.url) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nX: ")
        assert sent_to(connection, b"x" * 65536, 2000) < 2000


def sent_to(connection: socket.socket, piece: bytes, times: int) -> int:
    """Counts how often it can be sent before the server closes the connection."""
    for number in range(times):
        try:
            connection.sendall(piece)
        except OSError:
            return number
    return times


def test_trailers_do_not_authenticate(node: Service, caller: Client) -> None:
    start = "GET /v1/cookies HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
    trailer = f"0\r\nAuthorization: Bearer {caller.token}\r\nX: y\r\n\r\n"
    chunked = f"{start}Transfer-Encoding: chunked\r\n\r\n"
    assert raw.exchange(node.url, (chunked + trailer).encode()).status == 401
    assert raw.exchange(node.url, f"{start}\r\n".encode()).status == 401


def test_endless_trailers_are_cut_off(strict: Service, slow_caller: Client) -> None:
    with connect(strict.url) as connection:
        connection.sendall(
            request_head(slow_caller, "POST", "/v1/cookies", JSON, "Transfer-Encoding: chunked")
            + b"0\r\n"
        )
        assert sent_to(connection, b"X: " + b"x" * 65536 + b"\r\n", 2000) < 2000


# --- unusual but valid ---------------------------------------------------------------------------


def test_pipelined_requests_are_answered_in_order(node: Service, caller: Client) -> None:
    paths = ("/healthz", "/v1/cookies", "/nowhere", "/v1/outputs/group", "/readyz")
    ahead = b"".join(request_head(caller, "GET", path) for path in paths)
    body = b'[{"domain":"a.com","name":"n","value":"v"}]'
    length = f"Content-Length: {len(body)}"
    ahead += request_head(caller, "POST", "/v1/cookies", JSON, length) + body
    ahead += request_head(caller, "GET", "/healthz", "Connection: close")
    with connect(node.url) as connection:
        connection.sendall(ahead)
        received = read_until_close(connection)
    assert statuses(received) == [b"200", b"200", b"404", b"200", b"200", b"200", b"200"]


@pytest.mark.parametrize("path", ["/healthz", "/v1/outputs/group?limit=1"])
def test_many_requests_may_be_pipelined(node: Service, caller: Client, path: str) -> None:
    ahead = request_head(caller, "GET", path.replace("group", "none"))
    last = request_head(caller, "GET", "/healthz", "Connection: close")
    with connect(node.url) as connection:
        connection.sendall(ahead * 70 + last)
        found = statuses(read_until_close(connection))
    assert found == [b"200" if path == "/healthz" else b"404"] * 70 + [b"200"]


def answers(connection: socket.socket, *requests: bytes) -> list[tuple[int, Any]]:
    """Sends each request after the response before; returns statuses and bodies."""
    found = []
    for request in requests:
        connection.sendall(request)
        answer = HTTPResponse(connection)
        answer.begin()
        found.append((answer.status, json.loads(answer.read())))
    return found


def test_repeated_requests_that_differ_in_their_cursor(node: Service) -> None:
    with node.client() as client, node.client() as other:
        client.store("shop", *({"job_id": "j", "source_url": str(n), "data": {}} for n in range(4)))
        path = "/v1/outputs/shop?limit=1&job_id=j&cursor={}"
        [(_, first)] = answers(connect(node.url), request_head(client, "GET", path.format(0)))
        cursor = first["metadata"]["next_cursor"]
        asked = [
            request_head(client, "GET", path.format(cursor)),
            request_head(client, "GET", path.format(cursor + 1)),
            request_head(client, "GET", path.format(cursor)),
            request_head(client, "GET", path.format("0")),
            request_head(client, "GET", path.format(f"0{cursor}")),
            request_head(client, "GET", path.format("1" * 30)),
            request_head(client, "GET", path.format("")),
            request_head(client, "GET", path.format("-1")),
            request_head(client, "GET", path.format(f"{cursor}&cursor=1")),
            request_head(client, "GET", path.format(f"{cursor}&limit=2").replace("limit=1&", "")),
            request_head(client, "GET", path.format(cursor), "X-Request-Id: 17"),
            request_head(other, "GET", path.format(cursor)),
            request_head(client, "GET", path.format(cursor)),
        ]
        with connect(node.url) as connection:
            together = answers(connection, *asked)
        alone = [answers(connect(node.url), request)[0] for request in asked]
        assert together == alone
        assert [status for status, _ in together] == [200] * 4 + [422] * 5 + [200, 200, 404, 200]
        urls = [[item["source_url"] for item in page.get("items", [])] for _, page in together]
        assert urls == [["1"], ["2"], ["1"], ["0"], *[[]] * 5, ["1", "2"], ["1"], [], ["1"]]


def test_a_repeated_request_sees_the_current_state(node: Service) -> None:
    with node.client() as client, connect(node.url) as connection:
        cookie = {"domain": "a.com", "name": "n", "value": "v"}
        client.post("/v1/cookies", json=[cookie])
        found = []
        for number in range(3):
            client.store("shop", {"job_id": "j", "source_url": str(number), "data": {}})
            page = request_head(client, "GET", "/v1/outputs/shop?job_id=j&limit=9")
            for status, answer in answers(connection, page, page):
                found.append((status, [item["source_url"] for item in answer["items"]]))
        assert found == [(200, urls) for urls in (["0"], ["0", "1"], ["0", "1", "2"]) for _ in "12"]
        removal = request_head(client, "DELETE", "/v1/cookies?domain=a.com")
        removed = answers(connection, removal, removal, removal)
        assert removed == [(200, {"deleted": 1}), (200, {"deleted": 0}), (200, {"deleted": 0})]
        listing = request_head(client, "GET", "/v1/cookies")
        assert answers(connection, listing, listing) == [(200, []), (200, [])]
        client.post("/v1/cookies", json=[cookie])
        [(_, [listed])] = answers(connection, listing)
        assert listed["value"] == "v"
        bad = request_head(client, "GET", "/v1/outputs/shop?limit=x")
        assert [status for status, _ in answers(connection, bad, bad, listing)] == [422, 422, 200]


def test_a_cursor_inside_another_parameter_is_not_the_cursor(node: Service) -> None:
    with node.client() as client, connect(node.url) as connection:
        urls = [f"http://a/?cursor={n}" for n in (7, 8)]
        client.store("shop", *({"job_id": "j", "source_url": url, "data": {}} for url in urls))
        for query in ("url=", "cursor=1&url="):
            asked = [request_head(client, "GET", f"/v1/outputs/shop?{query}{url}") for url in urls]
            pages = [page for _, page in answers(connection, *asked)]
            assert [[item["source_url"] for item in page["items"]] for page in pages] == [
                [url] for url in urls
            ]


@pytest.mark.parametrize("method", ["GET", "PUT"])
def test_digits_after_a_request_are_no_request(node: Service, method: str) -> None:
    with node.client() as client, connect(node.url) as connection:
        path = "/v1/groups/shop" if method == "PUT" else "/v1/outputs/shop"
        body = b"{}" if method == "PUT" else b""
        client.store("shop", {"job_id": "j", "source_url": "u", "data": {}})
        length = f"Content-Length: {len(body)}"
        asked = request_head(client, method, path, JSON, length) + body
        statuses = [status for status, _ in answers(connection, asked, b"17")]
        assert statuses == [200, 400]


@pytest.mark.thorough
def test_pages_larger_than_the_socket_buffers_arrive_complete(node: Service) -> None:
    text = "x" * 900_000
    with node.client() as client:
        client.store(
            "g", *({"job_id": "j", "source_url": str(n), "data": {"t": text}} for n in range(9))
        )
        pages = [request_head(client, "GET", f"/v1/outputs/g?cursor={n}") for n in (1, 2, 3)]
        with connect(node.url) as connection:
            for _, page in answers(connection, *pages):
                assert [item["data"]["t"] for item in page["items"]] == [text] * 9
            connection.sendall(pages[0])
            connection.recv(1)  # then disconnects
        assert client.get("/v1/outputs/g?limit=1").status_code == 200


def test_an_expired_token_is_rejected_on_an_open_connection(
    timed_service: Service, clock: Clock
) -> None:
    ends = clock() + 60 * timestamps.SECOND
    with timed_service.client(expires=ends) as client, connect(timed_service.url) as connection:
        page = request_head(client, "GET", "/v1/outputs/shop?cursor=17")
        assert [status for status, _ in answers(connection, page, page)] == [404, 404]
        clock.move(seconds=61)
        assert [status for status, _ in answers(connection, page, page)] == [401, 401]


def test_invalid_bytes_after_a_request_are_rejected_after_its_response(
    node: Service, caller: Client
) -> None:
    with connect(node.url) as connection:
        connection.sendall(request_head(caller, "GET", "/v1/cookies") + b"\x00\x01rubbish\r\n\r\n")
        assert statuses(read_until_close(connection)) == [b"200", b"400"]


def test_a_half_closed_client_gets_its_response(node: Service, caller: Client) -> None:
    with connect(node.url) as connection:
        connection.sendall(request_head(caller, "GET", "/v1/outputs/group"))
        connection.shutdown(socket.SHUT_WR)
        received = read_until_close(connection)
    assert statuses(received) == [b"200"]
    assert received.endswith(b"]}\n")


def test_expect_100_continue_is_honoured(node: Service, caller: Client) -> None:
    body = b'[{"domain":"a.com","name":"n","value":"v"}]'
    expects = (JSON, f"Content-Length: {len(body)}", "Expect: 100-continue")
    with connect(node.url) as connection:
        connection.sendall(request_head(caller, "POST", "/v1/cookies", *expects))
        assert connection.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(body)
        assert statuses(connection.recv(4096)) == [b"200"]
    with connect(node.url) as connection:  # rejected before the body, so the body is not invited
        connection.sendall(request_head(caller, "POST", "/v1/nowhere", *expects))
        received = read_until_close(connection)
    assert statuses(received) == [b"404"]
    assert b"\r\nconnection: close\r\n" in received


def test_the_body_of_a_rejected_request_is_not_the_next_request(
    node: Service, caller: Client
) -> None:
    body = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n" * 10_000
    refused = f"POST /v1/cookies HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    with connect(node.url) as connection:
        connection.sendall(refused.encode() + body + request_head(caller, "GET", "/healthz"))
        received = read_until_close(connection)
    assert statuses(received) == [b"401"]
    assert b"\r\nconnection: close\r\n" in received


@pytest.mark.parametrize(
    "end", [b"zz\r\n", b"0\r\nno colon\r\n\r\n", b"0\r\nConnection: close\r\n\r\n"]
)
def test_a_response_before_the_end_of_the_body_is_the_last(
    node: Service, caller: Client, end: bytes
) -> None:
    """A second response would go to another client of the same proxy."""
    start = request_head(caller, "POST", "/v1/nowhere", JSON, "Transfer-Encoding: chunked")
    with connect(node.url) as connection:
        connection.sendall(start + b"2\r\n[]\r\n")
        received = connection.recv(65536)
        connection.sendall(end + request_head(caller, "GET", "/healthz"))
        received += read_until_close(connection)
    assert statuses(received) == [b"404"]
    assert b"\r\nconnection: close\r\n" in received


def send_too_large_body(client: Client, connection: socket.socket) -> bytes:
    """Sends everything before it reads the response, as many clients do."""
    size = 33 * 1024 * 1024
    length = f"Content-Length: {size}"
    connection.sendall(request_head(client, "POST", "/v1/cookies", JSON, length))
    for _ in range(size // 65536):
        connection.sendall(b" " * 65536)
    return connection.recv(65536)


def test_a_rejection_of_a_large_body_can_be_read(node: Service, caller: Client) -> None:
    """The client gets a response, not a reset."""
    with connect(node.url) as connection:
        assert statuses(send_too_large_body(caller, connection)) == [b"413"]
        assert connection.recv(1) == b""


def test_a_rejection_of_a_large_body_can_be_read_over_tls(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """TLS cannot close one direction alone."""
    certificate, key = write_certificate(tmp_path)
    settings = fresh_settings("sqlite", request, tmp_path / "data")
    service = Service(replace(settings, tls_cert=certificate, tls_key=key))
    trust = ssl.create_default_context(cafile=certificate)
    try:
        with (
            service.client() as client,
            connect(service.url) as plain,
            trust.wrap_socket(plain, server_hostname="127.0.0.1") as connection,
        ):
            assert statuses(send_too_large_body(client, connection)) == [b"413"]
    finally:
        service.stop()


OFFER = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk")


def test_an_upgrade_header_is_ignored(node: Service, caller: Client) -> None:
    with connect(node.url) as connection:
        request = request_head(caller, "GET", "/v1/cookies", *OFFER)
        assert [status for status, _ in answers(connection, request, request)] == [200, 200]


def test_a_request_that_offers_an_upgrade_keeps_its_body(node: Service) -> None:
    """As curl with --http2 and Java's HttpClient send it."""
    line = b'{"job_id":"j","source_url":"u","data":{"a":1}}\n'
    length, chunked = f"Content-Length: {len(line)}", "Transfer-Encoding: chunked"
    ndjson = "Content-Type: application/x-ndjson"
    with node.client() as client, connect(node.url) as connection:
        [(status, stored)] = answers(
            connection,
            request_head(client, "POST", "/v1/outputs/shop", ndjson, length, *OFFER) + line,
        )
        assert (status, stored["lines"], stored["created"]) == (200, 1, 1)
        chunks = b"3\r\nabc\r\n3\r\ndef\r\n0\r\n\r\n"
        [(status, file)] = answers(
            connection, request_head(client, "POST", "/v1/files", chunked, *OFFER) + chunks
        )
        assert (status, file["size"]) == (200, 6)


def test_http_1_0_and_absolute_urls_are_served(node: Service) -> None:
    assert raw.exchange(node.url, b"GET /healthz HTTP/1.0\r\n\r\n").status == 200
    absolute = f"GET {node.url}/healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    assert raw.exchange(node.url, absolute.encode()).status == 200


def test_options_of_the_server(node: Service) -> None:
    request = b"OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    answer = raw.exchange(node.url, request)
    assert (answer.status, answer.body) == (204, b"")
    assert answer.headers["allow"] == "delete, get, head, options, post, put"
    assert "content-length" not in answer.headers


# --- slow clients --------------------------------------------------------------------------------


def trickle(connection: socket.socket, text: bytes) -> bytes:
    """Sends four bytes a second, too few, until there is a response."""
    connection.settimeout(0.25)
    for byte in text:
        connection.sendall(bytes([byte]))
        try:
            received = connection.recv(65536)
        except TimeoutError:
            continue
        connection.settimeout(TIMEOUT_SECONDS)
        return received + read_until_close(connection)
    raise AssertionError("all of it was taken")


@pytest.mark.thorough
def test_a_slow_head_is_rejected(strict: Service, slow_caller: Client) -> None:
    with connect(strict.url) as connection:
        received = trickle(connection, request_head(slow_caller, "GET", "/v1/cookies"))
    assert (statuses(received), detail_type(received)) == ([b"408"], "too_slow")


@pytest.mark.thorough
@pytest.mark.parametrize("path", ["/v1/cookies", "/v1/outputs/group", "/v1/files"])
def test_a_slow_body_is_rejected(strict: Service, slow_caller: Client, path: str) -> None:
    with connect(strict.url) as connection:
        connection.sendall(request_head(slow_caller, "POST", path, JSON, "Content-Length: 1000"))
        received = trickle(connection, b"[" + b" " * 998 + b"]")
    assert (statuses(received), detail_type(received)) == ([b"408"], "too_slow")


@pytest.mark.thorough
def test_an_idle_connection_is_closed(strict: Service, slow_caller: Client) -> None:
    with connect(strict.url) as connection:
        started = time.monotonic()
        connection.sendall(request_head(slow_caller, "GET", "/healthz"))
        assert statuses(connection.recv(4096)) == [b"200"]
        assert connection.recv(1) == b""
        assert time.monotonic() - started > 1


@pytest.mark.thorough
def test_a_stalled_reader_is_closed_and_delays_nobody(strict: Service, slow_caller: Client) -> None:
    outputs = [
        {"job_id": "j", "source_url": str(n), "data": {"text": "x" * 900_000}} for n in range(20)
    ]
    slow_caller.store("large", *outputs)
    ended = answers_ended(slow_caller)
    with connect(strict.url) as connection:
        connection.sendall(request_head(slow_caller, "GET", "/v1/outputs/large?limit=1000"))
        assert connection.recv(10)
        slow_caller.store("large", *outputs[:1])  # while the other client reads nothing
        assert len(slow_caller.items("large", limit=1000)) == 20
        assert_the_log_is_free(strict.settings.sqlite_file)
        wait_until(lambda: answers_ended(slow_caller) >= ended + 2)  # the stalled one has ended
        assert count_received_bytes(connection) < 20 * 900_000


def answers_ended(slow_caller: Client) -> int:
    """Number of pages of outputs that were sent or abandoned."""
    found = re.search(
        r'_count\{operation="get_outputs",status="200"\} (\d+)', fresh_metrics(slow_caller)
    )
    return 0 if found is None else int(found[1])


def assert_the_log_is_free(path: Path) -> None:
    """The write-ahead log can be checkpointed completely: no reader blocks it."""
    connection = apsw.Connection(str(path))
    [(busy, _, _)] = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    connection.close()
    assert not busy
