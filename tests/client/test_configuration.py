"""The address of the service and the token: where they come from, and which are accepted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gleanery import Client
from gleanery.client import Invalid, NotConfigured
from gleanery.client.configuration import credentials_file, is_loopback
from tests.support.faulty_server import PAGE, faulty_server

URL = "https://gleanery.example"


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An environment without an address, a token and a login."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("GLEANERY_URL", raising=False)
    monkeypatch.delenv("GLEANERY_TOKEN", raising=False)
    return tmp_path


def log_in(url: str, token: str) -> None:
    path = credentials_file()
    path.parent.mkdir()
    path.write_text(json.dumps({"url": url, "token": token}))


def test_the_client_says_what_is_missing() -> None:
    with pytest.raises(NotConfigured, match=r"address .* unknown: run gleanery login"):
        Client()
    with pytest.raises(NotConfigured, match="no token: run gleanery login"):
        Client(URL)


def test_empty_variables_count_as_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLEANERY_URL", "")
    monkeypatch.setenv("GLEANERY_TOKEN", "")
    with pytest.raises(NotConfigured, match="address"):
        Client()
    log_in(URL, "stored")
    assert URL in repr(Client())


def test_the_token_of_a_login_is_sent_only_to_its_service() -> None:
    with faulty_server(PAGE) as server:
        log_in(server.url, "stored")
        with Client() as client, Client(f"{server.url}/v1/") as same:
            assert [*client.outputs("g"), *same.outputs("g")] == []
        assert all("authorization: Bearer stored" in head for head in server.heads)
    with pytest.raises(NotConfigured, match="no token"):
        Client("https://other.example")


def test_a_damaged_login_is_reported(folder: Path) -> None:
    log_in(URL, "stored")
    credentials_file().write_text("{")
    with pytest.raises(NotConfigured, match=r"credentials\.json cannot be read"):
        Client()


@pytest.mark.parametrize(
    "url",
    [
        "",
        "gleanery.example",
        "ftp://gleanery.example",
        "http://",
        "http://a:99999",
        "http://a:b",
        "http://[::1",
        "http://a..b",
        "https://user:secret@a",
        "https://a?x=1",
    ],
)
def test_wrong_addresses_are_rejected(url: str) -> None:
    with pytest.raises(NotConfigured, match="address of the service must") as raised:
        Client(url, "t")
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("token", ["", " ", "a b", "a\nb", "tökén", "\x00"])
def test_wrong_tokens_are_rejected(token: str) -> None:
    with pytest.raises(NotConfigured, match="token is empty or contains"):
        Client(URL, token)


@pytest.mark.parametrize(
    "base", ["", "/", "/v1", "/data/gleanery", "/data/gleanery/v1/", "/with space"]
)
def test_requests_go_below_the_address(base: str) -> None:
    with faulty_server(PAGE) as server:
        with Client(server.url + base, "t") as client:
            list(client.outputs("g", page_size=1))
        prefix = base.rstrip("/").removesuffix("/v1").replace(" ", "%20")
        assert server.heads[0].startswith(f"GET {prefix}/v1/outputs/g?cursor=0&limit=1 HTTP/1.1")


@pytest.mark.parametrize("url", ["http://[::1]:8000", "http://127.1.2.3", "http://LOCALHOST:1"])
def test_addresses_of_this_machine_are_recognized(url: str) -> None:
    assert is_loopback(url)
    Client(url, "t")


@pytest.mark.parametrize(
    ("name", "segment"),
    [
        ("a/b", "a%2Fb"),
        ("a b", "a%20b"),
        ("50%", "50%25"),
        ("%2e%2e", "%252e%252e"),
        ("ü", "%C3%BC"),
        ("a?b#c", "a%3Fb%23c"),
        ("...", "..."),
        (".a", ".a"),
    ],
)
def test_a_name_can_contain_any_character(name: str, segment: str) -> None:
    with faulty_server(PAGE) as server, Client(server.url, "t") as client:
        list(client.outputs(name))
        assert server.heads[0].startswith(f"GET /v1/outputs/{segment}?")


@pytest.mark.parametrize("name", ["", ".", "..", "\ud800"])
def test_names_that_would_change_the_route_are_rejected(name: str) -> None:
    with Client(URL, "t") as client, pytest.raises(Invalid, match="A name must be text"):
        list(client.outputs(name))
