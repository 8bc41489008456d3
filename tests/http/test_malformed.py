"""Input that is not valid HTTP/1.1, or exceeds a limit."""

from __future__ import annotations

import re
from typing import Any

import pytest

from gleanery.service.http import Limits
from gleanery.service.http.parser import REQUEST_LINE, RequestParser
from tests.http.server import Client, Server, head, serving
from tests.support.waiting import wait_until

CHUNKED = "Transfer-Encoding: chunked"
LENGTH = "Content-Length: 5"
NO_TRANSPORT: Any = None  # a request that nobody answers needs none


@pytest.mark.parametrize(
    "rubbish",
    [
        b"\x16\x03\x01 hello\r\n\r\n",
        b"GET /\r\n",
        b"GET / HTTP/1.1\n",
        b"GET / HTTP/1.1\r\nHost: x\n\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
        b"GET / HTTP/1.1\r\nX: a\0b\r\n\r\n",
        b"GET http:// HTTP/1.1\r\n\r\n",
    ],
)
def test_malformed_input_is_rejected(server: Server, client: Client, rubbish: bytes) -> None:
    response = client.exchange(rubbish)
    assert (response.status, response.body) == (400, b"BadRequest")
    assert response.headers["connection"] == "close"
    assert client.receive_all() == b""
    assert server.saw("reject BadRequest")


@pytest.mark.parametrize(
    "headers",
    [
        (LENGTH, CHUNKED),
        (CHUNKED, LENGTH),
        (LENGTH, "Content-Length: 6"),
        ("Content-Length: +5",),
        ("Content-Length : 5",),
        (f"X: y\n{CHUNKED}",),
        (f" {CHUNKED}",),
    ],
)
def test_an_ambiguous_body_is_rejected(client: Client, headers: tuple[str, ...]) -> None:
    """A proxy could take for a body what the server takes for another client's request."""
    client.send(head("POST", "/echo", *headers) + b"0\r\n\r\n" + head("GET", "/echo"))
    assert client.statuses() == [400]


def test_an_error_follows_the_other_responses(client: Client) -> None:
    client.send(head("GET", "/echo") + head("GET", "/later") + b"\x00rubbish\r\n\r\n")
    assert client.statuses() == [200, 200, 400]


def test_an_error_in_a_body_is_raised_in_the_handler(client: Client) -> None:
    client.send(head("POST", "/echo", CHUNKED) + b"2\r\nab\r\nnonsense\r\n")
    response = client.receive()
    assert (response.status, response.body) == (400, b"BadRequest")
    assert client.receive_all() == b""


@pytest.mark.parametrize("piece_size", [None, 100, 4096])
def test_a_head_has_a_limit(server: Server, piece_size: int | None) -> None:
    without = len(head("GET", "/echo", "X-A: "))
    allowed = head("GET", "/echo", f"X-A: {'x' * (64 * 1024 - without)}")
    headers = [f"X-{number}: {'x' * 1000}" for number in range(70)]
    for request, status in (
        (allowed, 200),
        (allowed.replace(b"X-A", b"X-AB"), 431),
        (head("GET", "/echo", *headers), 431),
        (head("GET", "/echo?" + "x" * 70_000), 431),
    ):
        with Client(server) as client:
            size = piece_size or len(request)
            for start in range(0, len(request), size):
                try:
                    client.send(request[start : start + size])
                except ConnectionError:
                    break
            assert client.receive().status == status


@pytest.mark.parametrize(
    "start",
    [
        b"GET / HTTP/1.1\r\nX: ",
        b"GET /",
        head("POST", "/echo", CHUNKED) + b"5;extension=",
        head("POST", "/echo", CHUNKED) + b"0\r\nTrailer: ",
    ],
)
def test_a_head_without_end_is_given_up(server: Server, start: bytes) -> None:
    with Client(server) as client:
        client.send(start)
        client.send_until_refused(b"x" * 65536)
    wait_until(lambda: not server.registry.connections)


def test_trailers_without_end_are_given_up(server: Server) -> None:
    with Client(server) as client:
        client.send(head("POST", "/echo", CHUNKED) + b"0\r\n")
        client.send_until_refused(b"X: " + b"x" * 1000 + b"\r\n")
    wait_until(lambda: not server.registry.connections)


def test_input_is_discarded_so_that_a_rejection_can_be_read() -> None:
    """Closing at once would destroy the response on its way to a client that still sends."""
    with serving(Limits(linger_bytes=1024 * 1024)) as server, Client(server) as client:
        client.send(b"rubbish\r\n\r\n")
        for _ in range(10):
            client.send(b"x" * 65536)
        assert client.receive().status == 400
        client.send_until_refused(b"x" * 65536)
        wait_until(lambda: not server.registry.connections)


class CountingPattern:
    """A pattern that counts its searches."""

    def __init__(self, pattern: re.Pattern[bytes]) -> None:
        self.count = 0
        self._pattern = pattern

    def match(self, data: bytes) -> re.Match[bytes] | None:
        self.count += 1
        return self._pattern.match(data)


def test_a_slow_client_does_not_make_the_server_check_a_line_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counting = CountingPattern(REQUEST_LINE)
    monkeypatch.setattr("gleanery.service.http.parser.REQUEST_LINE", counting)
    parser = RequestParser(NO_TRANSPORT, max_head_bytes=65536)
    for byte in head("GET", "/echo", f"X: {'x' * 1000}"):
        assert parser.next_request() is None
        parser.add(bytes([byte]))
    assert parser.next_request() is not None
    assert counting.count < 10
