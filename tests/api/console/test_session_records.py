"""Session records in the console: lists without values, and audited values, on both engines."""

from __future__ import annotations

import re
from typing import Any

import httpx2
import pytest

from gleanery.service.resources.sessions import console
from tests.support.console import PERSON, ConsoleClient
from tests.support.service import Client, Service

SECRET = "s3cret-välue"
COOKIE = {"domain": ".shop.example", "name": "sid", "value": SECRET, "path": "/account"}


@pytest.fixture
def signed_in(service: Service, client: Client) -> ConsoleClient:
    """A console session of the organization of ``client``."""
    assert client.token is not None
    return ConsoleClient(service.url, client.token)


def fill(client: Client) -> None:
    cookie = COOKIE | {"secure": True, "http_only": True, "sameSite": "Lax", "expires": 1893456000}
    assert client.post("/v1/cookies", json=[cookie]).status_code == 200
    entry = {"domain": "shop.example", "key": "cart", "value": SECRET}
    assert client.post("/v1/local-storage", json=[entry]).status_code == 200


def records(signed_in: httpx2.Client, kind: str = "cookies", **query: Any) -> dict[str, Any]:
    """A page of records. No list has a value."""
    query = {"domain": "shop.example", "kind": kind} | query
    answer = signed_in.get("/console/api/session-records", params=query)
    assert answer.status_code == 200, answer.text
    assert SECRET not in answer.text
    page: dict[str, Any] = answer.json()
    return page


def reveal(signed_in: httpx2.Client, id_: int, kind: str = "cookies") -> httpx2.Response:
    return signed_in.post("/console/api/reveal", json={"kind": kind, "id": id_})


def reveals(client: Client) -> list[dict[str, Any]]:
    entries = client.get("/v1/audit").json()["entries"]
    return [entry["about"] for entry in entries if entry["action"] == "reveal_value"]


def test_a_record_is_listed_without_its_value(client: Client, signed_in: ConsoleClient) -> None:
    fill(client)
    page = records(signed_in)
    [cookie] = page["records"]
    assert page["next_cursor"] is None
    assert re.fullmatch(r"\d{4}-.*Z", cookie.pop("update_date"))
    assert isinstance(cookie.pop("id"), int)
    assert cookie == {
        "domain": ".shop.example",
        "name": ["s", "sid"],
        "path": ["s", "/account"],
        "value_bytes": len(SECRET.encode()),
        "expires": "2030-01-01T00:00:00Z",
        "secure": True,
        "http_only": True,
        "host_only": False,
        "same_site": "Lax",
        "partition_site": None,
        "origin": None,
        "group_id": None,
    }
    [entry] = records(signed_in, "local_storage")["records"]
    assert (entry["name"], entry["group_id"]) == (["s", "cart"], 0)
    assert not reveals(client)


def test_pages_follow_each_other(client: Client, signed_in: ConsoleClient) -> None:
    names = [f"c{number}" for number in range(5)]
    client.post("/v1/cookies", json=[COOKIE | {"name": name} for name in names])
    client.post("/v1/cookies", json=[COOKIE | {"domain": "other.example"}])
    found, cursor = [], 0
    while cursor is not None:
        page = records(signed_in, limit=2, cursor=cursor)
        assert len(page["records"]) <= 2
        found += [record["name"][1] for record in page["records"]]
        cursor = page["next_cursor"]
    assert found == names


def test_a_profile_has_its_own_records(client: Client, signed_in: ConsoleClient) -> None:
    state = {"cookies": [COOKIE | {"name": "second"}], "origins": []}
    client.post("/v1/sessions/import", params={"profile": "b"}, json=state)
    assert records(signed_in)["records"] == []
    [record] = records(signed_in, profile="b")["records"]
    assert record["name"] == ["s", "second"]


def test_a_long_name_is_truncated(client: Client, signed_in: ConsoleClient) -> None:
    name = "ä" * 2000
    client.post("/v1/local-storage", json=[{"domain": "shop.example", "key": name, "value": "v"}])
    [record] = records(signed_in, "local_storage")["records"]
    assert record["name"] == ["s", "ä" * console.MAX_TEXT, 2000]


@pytest.mark.parametrize("kind", ["cookies", "local_storage"])
def test_a_revealed_value_is_audited(client: Client, signed_in: ConsoleClient, kind: str) -> None:
    fill(client)
    [record] = records(signed_in, kind)["records"]
    answer = reveal(signed_in, record["id"], kind)
    assert answer.json() == {"value": SECRET, "length": len(SECRET), "is_truncated": False}
    assert answer.headers["cache-control"] == "no-store"
    domain = record["domain"]
    about = {"records": 1, "domains": [domain], "profile": "default", "person": PERSON}
    assert reveals(client) == [about]


def test_a_long_value_is_truncated(client: Client, signed_in: ConsoleClient) -> None:
    value = "ab" * 50_000
    client.post("/v1/local-storage", json=[{"domain": "shop.example", "key": "k", "value": value}])
    [record] = records(signed_in, "local_storage")["records"]
    answer = reveal(signed_in, record["id"], "local_storage").json()
    assert answer == {"value": value[:65_536], "length": 100_000, "is_truncated": True}


def test_a_reveal_that_fails_is_audited(
    client: Client, signed_in: ConsoleClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(client)
    [record] = records(signed_in)["records"]

    def fail(*arguments: Any) -> Any:
        raise OSError("cannot decrypt")

    monkeypatch.setattr(console, "decrypter", fail)
    assert reveal(signed_in, record["id"]).status_code == 500
    assert len(reveals(client)) == 1


def test_another_organization_finds_nothing(
    service: Service, client: Client, signed_in: ConsoleClient
) -> None:
    fill(client)
    [record] = records(signed_in)["records"]
    stranger = ConsoleClient(service.url, service.token())
    assert records(stranger)["records"] == []
    answer = reveal(stranger, record["id"])
    assert answer.status_code == 404
    assert answer.json() == reveal(stranger, 2**40).json()
    assert not reveals(client)


def test_the_scope_is_needed(service: Service) -> None:
    signed_in = ConsoleClient(service.url, service.token(scopes=frozenset({"session:write"})))
    query = {"domain": "shop.example", "kind": "cookies"}
    assert signed_in.get("/console/api/session-records", params=query).status_code == 403
    assert reveal(signed_in, 1).status_code == 403


def test_a_token_alone_reveals_nothing(client: Client) -> None:
    assert reveal(client, 1).status_code == 401
    query = {"domain": "shop.example", "kind": "cookies"}
    assert client.get("/console/api/session-records", params=query).status_code == 401
