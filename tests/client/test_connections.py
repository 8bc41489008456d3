"""Connections of the client: given HTTP clients, threads, forks, event loops, closing."""

from __future__ import annotations

import asyncio
import json
import os
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import pytest

from gleanery import AsyncClient, Client
from gleanery.client import ClientError, ConnectionFailed, NotConfigured
from tests.support.certificates import write_certificate
from tests.support.faulty_server import EMPTY_PAGE, PAGE, Step, faulty_server, respond
from tests.support.service import Client as HttpClient
from tests.support.service import Service
from tests.support.waiting import wait_until


def test_a_given_http_client_provides_only_connections() -> None:
    with faulty_server(PAGE) as server, faulty_server(PAGE) as other:
        given = httpx2.Client(
            base_url=other.url,
            auth=("user", "password"),
            headers={"authorization": "Basic other", "content-type": "text/plain"},
            params={"x": "1"},
            cookies={"a": "b"},
            verify=False,
        )
        with Client(server.url, "token", http_client=given) as client:
            assert list(client.outputs("g")) == []
        assert not given.is_closed
        assert other.heads == []
        head = server.heads[0].lower()
        assert head.startswith("get /v1/outputs/g?cursor=0&limit=1000 ")
        assert "authorization: bearer token" in head
        assert not any(word in head for word in ("basic", "cookie", "text/plain"))
        given.close()
        with pytest.raises(ClientError, match="HTTP client that was given is closed"):
            list(Client(server.url, "token", http_client=given).outputs("g"))


def test_a_given_http_client_has_the_right_kind() -> None:
    with pytest.raises(TypeError, match=r"must be an httpx2\.AsyncClient"):
        AsyncClient("http://a", "t", http_client=httpx2.Client(verify=False))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"must be an httpx2\.Client"):
        Client("http://a", "t", http_client=httpx2.AsyncClient(verify=False))  # type: ignore[arg-type]


def test_requests_share_a_connection_until_the_service_closes_it() -> None:
    with faulty_server(PAGE, PAGE, PAGE._replace(then="close"), PAGE) as server:
        with Client(server.url, "token", max_retries=0) as client:
            for _ in range(3):
                assert list(client.outputs("g")) == []
            assert server.connections == 1
            wait_until(lambda: server.closed == 1)
            assert list(client.outputs("g")) == []
        assert server.connections == 2


def test_a_response_without_a_length_is_an_error() -> None:
    """Nobody could tell whether it is complete."""
    response = Step(b"HTTP/1.1 200 OK\r\n\r\n" + json.dumps(EMPTY_PAGE).encode())
    with faulty_server(response) as server, pytest.raises(ConnectionFailed):
        list(Client(server.url, "token", max_retries=0).outputs("g"))


@pytest.mark.parametrize("size", [1000, 17 * 1024 * 1024])
def test_a_body_that_ends_early_is_not_taken_for_a_whole_one(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gleanery.client._sync.requester.sleep", lambda _: None)
    page = respond(200, json.dumps(EMPTY_PAGE).encode().ljust(size))
    with (
        faulty_server(page._replace(sent=page.sent[:-1], then="close"), page, PAGE) as server,
        Client(server.url, "token") as client,
    ):
        assert list(client.outputs("g")) == list(client.outputs("g")) == []
        assert len(server.heads) == 3
        assert server.connections == 2  # the one of the whole body is used again


def test_a_connection_that_was_idle_for_long_is_not_used_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A firewall may have forgotten it without a word, so the request would wait in vain."""
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    with faulty_server(PAGE) as server, Client(server.url, "token") as client:
        for seconds in (0, 20, 20, 60):
            now[0] += seconds
            assert list(client.outputs("g")) == []
        assert server.connections == 2


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "ALL_PROXY"])
def test_a_configured_proxy_is_used(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with faulty_server(PAGE) as proxy:
        monkeypatch.setenv(variable, proxy.url)
        with Client("http://gleanery.example", "token", max_retries=0) as client:
            assert list(client.outputs("g")) == []
        assert proxy.heads[0].startswith("GET http://gleanery.example/v1/outputs/g?")


def test_the_certificate_of_a_service_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, key = write_certificate(tmp_path)
    with faulty_server(PAGE) as server:
        server.use_tls(certificate, key)
        with pytest.raises(NotConfigured, match="certificate"):
            list(Client(server.url, "token", max_retries=0).outputs("g"))
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        with Client(server.url, "token", max_retries=0) as client:
            assert list(client.outputs("g")) == []
            assert list(client.outputs("g")) == []
    assert server.connections == 2


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("SSL_CERT_FILE", "/nonexistent"),
        ("ALL_PROXY", "socks5://user:password@127.0.0.1:9"),
        ("ALL_PROXY", "gopher://user:password@127.0.0.1:9"),
    ],
)
def test_unusable_settings_of_the_environment_are_reported(
    variable: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def check() -> None:
        async with AsyncClient("https://gleanery.invalid", "t", max_retries=0) as client:
            await client.check()

    monkeypatch.setenv(variable, value)
    with pytest.raises(NotConfigured, match=variable) as raised:
        Client("https://gleanery.invalid", "t", max_retries=0).check()
    assert "password" not in "".join(traceback.format_exception(raised.value))
    with pytest.raises(NotConfigured, match=variable):
        asyncio.run(check())


def test_a_closed_client_says_so() -> None:
    client = Client("http://127.0.0.1:9", "t")
    client.close()
    client.close()
    with pytest.raises(ClientError, match="client is closed"):
        list(client.outputs("g"))


def test_threads_share_a_client(service: Service, client: HttpClient) -> None:
    client.store("g", {"job_id": "j", "source_url": "https://a.example", "data": {}})
    with Client(service.url, client.token) as shared, ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: len(list(shared.outputs("g"))), range(40)))
    assert found == [1] * 40


def test_a_client_works_on_both_sides_of_a_fork() -> None:
    with faulty_server(PAGE) as server, Client(server.url, "t") as client:
        list(client.outputs("before"))
        child = os.fork()
        if child == 0:
            list(client.outputs("child"))
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        list(client.outputs("after"))
        groups = [head.split()[1].split("?")[0].split("/")[-1] for head in server.heads]
        assert groups == ["before", "child", "after"]
        assert server.connections == 2  # the child has its own


def test_an_asynchronous_client_works_in_several_event_loops() -> None:
    async def read() -> list[object]:
        return [output async for output in client.outputs("g")]

    async def close() -> None:
        await client.aclose()

    with faulty_server(PAGE) as server:
        client = AsyncClient(server.url, "t")
        assert asyncio.run(read()) == asyncio.run(read()) == []
        asyncio.run(close())


def test_an_iteration_that_ends_early_releases_its_connection(
    service: Service, client: HttpClient
) -> None:
    rows = ({"job_id": "j", "source_url": f"https://a.example/{n}", "data": {}} for n in range(5))
    client.store("g", *rows)
    with httpx2.Client(limits=httpx2.Limits(max_connections=1), verify=False) as given:
        reader = Client(service.url, client.token, http_client=given, timeout=5)
        started = [iter(reader.outputs("g", page_size=2)) for _ in range(3)]
        assert len({next(outputs).id for outputs in started}) == 1


def test_requests_to_this_machine_use_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    async def read() -> list[object]:
        async with AsyncClient(server.url, "t") as client:
            return [output async for output in client.outputs("g")]

    with faulty_server(PAGE) as server, faulty_server(PAGE) as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        with Client(server.url, "t") as client:
            assert list(client.outputs("g")) == asyncio.run(read()) == []
        assert (len(server.heads), len(proxy.heads)) == (2, 0)
        with Client("http://gleanery.invalid", "secret", max_retries=0) as client:
            assert list(client.outputs("g")) == []  # the proxy has responded
        assert len(proxy.heads) == 1


@pytest.mark.parametrize(
    ("url", "address"),
    [("http://[::1]", ("::1", 80)), ("https://127.0.0.1", ("127.0.0.1", 443))],
)
def test_default_ports_are_used(
    url: str, address: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(place: tuple[str, int], *arguments: object, **options: object) -> None:
        places.append(place)
        raise ConnectionRefusedError

    places: list[tuple[str, int]] = []
    monkeypatch.setattr("socket.create_connection", refuse)
    with Client(url, "t", max_retries=0) as client, pytest.raises(ConnectionFailed):
        list(client.outputs("g"))
    assert places == [address]
