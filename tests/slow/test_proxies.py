"""The tables of requests through nginx and HAProxy: all must agree where a request ends.

``make proxies`` installs both and runs these tests. Without them the tests are skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

import pytest

from tests.http.cases import CASES, CHUNKED, TRAILER_BODIES, Case, request
from tests.http.server import Client, Response, Server, head, serving
from tests.support.process import free_port
from tests.support.proxies import running_proxy

PROBE = head("GET", "/probe", "Connection: close")

# Each proxy keeps few connections to the server and gives them to one client after another.
NGINX = """
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    client_header_timeout 1s;
    client_body_timeout 1s;
    lingering_timeout 1s;
    keepalive_requests 100000;
    upstream service {{
        server 127.0.0.1:{service};
        keepalive 1;
    }}
    server {{
        listen 127.0.0.1:{port};
        location / {{
            proxy_pass http://service;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_request_buffering {buffering};
        }}
    }}
}}
"""
HAPROXY = """
global
    nbthread 1
defaults
    mode http
    timeout connect 5s
    timeout server 5s
    timeout client 1s
    timeout http-request 1s
    timeout http-keep-alive 1s
    http-reuse always
frontend clients
    bind 127.0.0.1:{port}
    default_backend service
backend service
    server service 127.0.0.1:{service}
"""
# nginx answers these in HTTP/0.9, and HAProxy in HTTP/2: responses without a head of HTTP/1.1.
OTHER_PROTOCOLS = {"version ''", "HTTP/0.9", "byte 0x0a in a target", "HTTP/2 preface"}


class Program(NamedTuple):
    """How a proxy is run."""

    command: str
    configuration: str
    arguments: tuple[str, ...]
    """Arguments before the configuration file."""
    streams: bool
    """True if the server gets a request before its body is complete."""


PROXIES = {
    "nginx": Program("nginx", NGINX.replace("{buffering}", "on"), ("-c",), False),
    "nginx without buffering": Program("nginx", NGINX.replace("{buffering}", "off"), ("-c",), True),
    "haproxy": Program("haproxy", HAPROXY, ("-db", "-f"), True),
}


class Proxy(NamedTuple):
    """A running proxy, and the server behind it."""

    port: int
    server: Server
    streams: bool


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving() as running:
        yield running
        assert not running.errors


@pytest.fixture(scope="module", params=PROXIES)
def proxy(
    request: pytest.FixtureRequest, server: Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Proxy]:
    program = PROXIES[request.param]
    folder, port = tmp_path_factory.mktemp("proxy"), free_port()
    text = program.configuration.format(folder=folder, port=port, service=server.port)
    with running_proxy(program.command, program.arguments, text, folder, port):
        yield Proxy(port, server, program.streams)


def exchanged(proxy: Proxy, data: bytes) -> list[Response]:
    """Sends the bytes; returns all final responses until the proxy closes the connection."""
    responses = []
    with Client(proxy) as client:
        try:
            client.send(data)
            while not client.is_at_end():
                responses.append(client.receive())
        except ConnectionError:  # the proxy has closed the connection before it read everything
            pass
    return [one for one in responses if one.status != 100]


def paths_received(responses: list[Response]) -> list[str]:
    """Paths of the requests that the server itself has accepted and answered."""
    return [one.description["path"] for one in responses if one.body.startswith(b"{")]


def paths_seen(server: Server) -> list[str]:
    """Paths of the requests that the server has seen."""
    events = server.application.events
    return [event.removeprefix("admit ") for event in events if event.startswith("admit ")]


def assert_same_boundaries(proxy: Proxy, data: bytes, responses: list[Response]) -> None:
    """Every request that the server has seen has one response, and the client has got it.

    A proxy may be more tolerant than the server: it accepts lines that end with LF, for example. It
    then sends requests that the server accepts, or the server rejects what the proxy sends.
    """
    received, seen = paths_received(responses), paths_seen(proxy.server)
    rest = iter(seen)
    assert all(path in rest for path in received), "the responses are in another order"
    failed = [one for one in responses if one.status >= 400]
    assert len(seen) <= len(received) + len(failed), "a response is missing"
    assert len(responses) <= data.count(b"HTTP/") + 1, "a response has no request"
    for path in ("/hidden", "/probe"):
        assert seen.count(path) == received.count(path) <= data.count(path.encode())


def assert_next_client_is_served(proxy: Proxy) -> None:
    """Another client, on the same connection to the server, gets its own response."""
    for number in range(2):
        with Client(proxy) as client:
            response = client.exchange(head("GET", f"/next?{number}"))
        assert (response.status, response.description["query"]) == (200, str(number))


@pytest.mark.parametrize("name", sorted(CASES.keys() - OTHER_PROTOCOLS))
def test_a_proxy_agrees_on_a_case(proxy: Proxy, name: str) -> None:
    proxy.server.application.events.clear()
    case = CASES[name]
    data = case.data + PROBE
    responses = exchanged(proxy, data)
    assert_same_boundaries(proxy, data, responses)
    if all(isinstance(answer, str) for answer in case.answers):
        assert_bodies(case, responses)
    assert_next_client_is_served(proxy)


def assert_bodies(case: Case, responses: list[Response]) -> None:
    """The server has got the bodies that the client has sent, unless the proxy rejects them."""
    bodies = [one.description["body"] for one in responses if one.body.startswith(b"{")]
    for body, answer in zip(bodies, (*case.answers, ""), strict=False):
        assert body == answer


@pytest.mark.parametrize("path", ["/unread", "/later"])
@pytest.mark.parametrize("end", ["", "zz\r\n", "0\r\nX\r\n\r\n", *TRAILER_BODIES])
def test_a_proxy_agrees_after_an_early_response(proxy: Proxy, path: str, end: str) -> None:
    """The rest of the body is no second response for another client."""
    proxy.server.application.events.clear()
    body = TRAILER_BODIES.get(end, b"5\r\nhello\r\n" + end.encode())
    if not proxy.streams:
        pytest.skip("the server gets the request after its body")
    with Client(proxy) as client:
        client.send(request(CHUNKED, start=f"POST {path} HTTP/1.1") + body[:10])
        assert client.receive().status == 200
        with suppress(ConnectionError):  # the proxy may have closed the connection
            client.send(body[10:] + PROBE)
        received = client.receive_all()
    assert received.count(b"HTTP/1.1 ") <= 1
    assert paths_seen(proxy.server).count("/probe") == received.count(b'"/probe"')
    assert paths_seen(proxy.server).count(path) == 1
    assert_next_client_is_served(proxy)
