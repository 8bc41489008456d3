"""Requests that repeat the header block of the previous request."""

from __future__ import annotations

import re
from typing import Any

import pytest

from gleanery.service.http.parser import HeaderCache, RequestParser, parse_head
from tests.http.server import Client, Server, head

TOKEN = "Authorization: Bearer secret"
NO_TRANSPORT: Any = None  # a request that nobody answers needs none


def uses(client: Client, request: bytes) -> int:
    """Number of consecutive requests that have shared this header block."""
    count = client.exchange(request).description["uses_of_headers"]
    assert isinstance(count, int)
    return count


def repeated(server: Server, request: bytes) -> bytes:
    """All that the server sends to a client that has sent the same headers before."""
    with Client(server) as client:
        client.exchange(head("GET", "/echo", TOKEN))
        return comparable(client, request)


def fresh(server: Server, request: bytes) -> bytes:
    """All that the server sends to a client that has sent nothing before."""
    with Client(server) as client:
        return comparable(client, request)


def comparable(client: Client, request: bytes) -> bytes:
    client.send(request)
    client.half_close()
    # The server may answer before or after it notices that the client sends nothing more.
    varying = rb'date: [^\r]*\r\n|connection: close\r\n|"uses_of_headers": \d'
    return re.sub(varying, b"", client.receive_all())


def test_requests_with_the_same_headers_share_them(client: Client) -> None:
    for number in range(1, 5):
        response = client.exchange(head("GET", f"/echo/{number}?cursor={number}", TOKEN))
        assert response.description["uses_of_headers"] == number
        assert response.description["path"] == f"/echo/{number}"
        assert response.description["query"] == f"cursor={number}"
        assert response.description["headers"] == {"host": "x", "authorization": "Bearer secret"}


def test_other_headers_are_not_shared(client: Client) -> None:
    assert uses(client, head("GET", "/echo", TOKEN)) == 1
    assert uses(client, head("GET", "/echo", TOKEN)) == 2
    assert uses(client, head("GET", "/echo", f"{TOKEN}2")) == 1
    assert uses(client, head("GET", "/echo", f"{TOKEN}2", "X: y")) == 1
    assert uses(client, head("GET", "/echo")) == 1


def test_a_body_has_headers_of_its_own(client: Client) -> None:
    posted = head("POST", "/echo", "Content-Length: 2") + b"ab"
    assert uses(client, posted) == 1
    assert uses(client, posted) == 1
    with_length = head("GET", "/echo", "Content-Length: 0")
    assert uses(client, with_length) == 1
    assert uses(client, with_length) == 1


@pytest.mark.parametrize("place", ["/?", "/echo?a?b"])
def test_any_byte_in_a_target_is_treated_as_without_the_cache(server: Server, place: str) -> None:
    for byte in range(256):
        request = head("GET", place, TOKEN).replace(b"?", b"?a" + bytes([byte]) + b"b")
        assert repeated(server, request) == fresh(server, request), byte


@pytest.mark.parametrize(
    "request_bytes",
    [
        head("GET", "/echo?1", TOKEN) + head("GET", "/echo?2", TOKEN),
        b"\r\n" + head("GET", "/echo?1", TOKEN),
        head("GET", "/echo?1", TOKEN).replace(b"GET ", b"GET  "),
        head("GET", "/echo?1", TOKEN).replace(b"GET ", b"get "),
        head("GET", "/echo?1", TOKEN).replace(b"/echo", b"echo"),
        head("GET", "/echo?1", TOKEN).replace(b"/echo", b"http://h/echo"),
        head("GET", "/echo?1", TOKEN).replace(b" HTTP/1.1\r\n", b" HTTP/1.1\r\nX: y\r\n"),
        b"GET /echo?1 HTTP/1.1\r\nX: y HTTP/1.1\r\n" + head("GET", "/", TOKEN)[16:],
        head("GET", "", TOKEN),
        head("GET", "/" + "x" * 70_000, TOKEN),
        head("DELETE", "/echo", TOKEN),
        b"17",
    ],
)
def test_bytes_that_only_look_like_a_repeat(server: Server, request_bytes: bytes) -> None:
    assert repeated(server, request_bytes) == fresh(server, request_bytes)


def test_the_cache_takes_nothing_but_a_whole_get_request() -> None:
    whole = head("GET", "/a", TOKEN)
    for stored in (
        head("HEAD", "/a", TOKEN),
        whole.replace(b"HTTP/1.1", b"HTTP/1.0"),
        head("GET", "/a", TOKEN, f"X: {'x' * 5000}"),
        head("GET", "/a", TOKEN, "Content-Length: 0"),
        head("GET", "/a", TOKEN, "Transfer-Encoding: chunked"),
        head("GET", "/a", TOKEN, "Expect: 100-continue"),
        head("GET", "/a", TOKEN, "Connection: close"),
    ):
        cache = HeaderCache()
        cache.store(stored, parse_head(stored))
        assert cache.target_in(stored) is None
    cache = HeaderCache()
    assert cache.target_in(whole) is None
    parsed = parse_head(whole)
    cache.store(whole, parsed)
    assert (cache.target_in(whole), cache.block) == (b"/a", parsed.block)
    assert cache.target_in(head("GET", "/b?c", TOKEN)) == b"/b?c"
    assert cache.target_in(whole[1:]) is None
    assert cache.target_in(whole[:-1]) is None
    assert cache.target_in(whole + whole) is None


@pytest.mark.parametrize("following", ["GET", "POST"])
def test_a_repeated_request_in_two_packets_is_followed_by_a_short_one(following: str) -> None:
    parser = RequestParser(NO_TRANSPORT, max_head_bytes=65536)
    long = head("GET", "/long", TOKEN, f"X: {'x' * 1000}")
    packets = (long, long[:-2], long[-2:], head(following, "/short"))
    paths = []
    for packet in packets:
        parser.add(packet)
        found = parser.next_request()
        paths.append(found and found.path)
    assert paths == [b"/long", None, b"/long", b"/short"]


def test_empty_lines_before_a_repeated_request_count_for_this_request_only() -> None:
    parser = RequestParser(NO_TRANSPORT, max_head_bytes=65536)
    request = head("GET", "/", TOKEN)
    for _ in range(3):
        parser.add(b"\r\n" * 10)
        assert parser.next_request() is None
        parser.add(request)
        found = parser.next_request()
        assert found is not None
        assert found.path == b"/"
