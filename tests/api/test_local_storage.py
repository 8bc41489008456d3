"""Local storage over HTTP, on both engines."""

from __future__ import annotations

import re

import pytest

from tests.support.service import Client, Service

ENTRY = {"domain": "example.com", "key": "auth", "value": '{"token":1}'}
DATE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


def test_an_entry_comes_back_in_the_shape_of_the_contract(client: Client) -> None:
    answer = client.post(
        "/v1/local-storage", json=[ENTRY | {"expires": "2030-01-01T01:00:00+01:00"}]
    )
    assert (answer.status_code, answer.json()) == (
        200,
        {"created": 1, "updated": 0, "unchanged": 0},
    )
    [entry] = client.get("/v1/local-storage").json()
    assert isinstance(entry.pop("organization_id"), int)
    assert isinstance(entry.pop("id"), int)
    created, updated = entry.pop("create_date"), entry.pop("update_date")
    assert DATE.fullmatch(created)
    assert created == updated
    assert entry == {
        "domain": "example.com",
        "key": "auth",
        "value": '{"token":1}',
        "expires": "2030-01-01T00:00:00Z",
        "group_id": 0,
        "path": "/",
    }


def test_the_dates_of_a_returned_entry_are_checked_but_not_stored(client: Client) -> None:
    client.post("/v1/local-storage", json=[ENTRY])
    [entry] = client.get("/v1/local-storage").json()
    entry["create_date"] = "2001-01-01T00:00:00Z"
    assert client.post("/v1/local-storage", json=[entry]).json()["unchanged"] == 1
    assert client.get("/v1/local-storage").json()[0]["create_date"] != entry["create_date"]
    answer = client.post("/v1/local-storage", json=[ENTRY | {"update_date": "yesterday"}])
    assert answer.status_code == 422
    [detail] = answer.json()["detail"]
    assert detail["loc"] == ["body", "0", "update_date"]


def test_an_entry_without_expiry_never_expires(client: Client) -> None:
    never = [{}, {"expires": None}, {"expires": -1}]
    entries = [ENTRY | {"key": str(n)} | end for n, end in enumerate(never)]
    client.post("/v1/local-storage", json=entries)
    assert [entry["expires"] for entry in client.get("/v1/local-storage").json()] == [None] * 3


def test_an_entry_posted_again_replaces_the_old_one(client: Client) -> None:
    client.post("/v1/local-storage", json=[ENTRY, ENTRY | {"key": "b"}])
    before = client.get("/v1/local-storage").json()
    assert client.post("/v1/local-storage", json=[ENTRY]).json()["unchanged"] == 1
    assert client.get("/v1/local-storage").json() == before
    assert client.post("/v1/local-storage", json=[ENTRY | {"value": "v"}]).json()["updated"] == 1
    after = client.get("/v1/local-storage").json()
    assert [entry["id"] for entry in after] == [entry["id"] for entry in before]
    assert after[0]["value"] == "v"


def test_listed_records_can_be_posted_back_unchanged(client: Client) -> None:
    client.post("/v1/local-storage", json=[ENTRY | {"expires": 1}, ENTRY | {"path": "/x"}])
    listed = client.get("/v1/local-storage").json()
    assert client.post("/v1/local-storage", json=listed).json()["unchanged"] == 2


def test_domain_path_and_key_make_the_identity(client: Client) -> None:
    others = [{"domain": "b.com"}, {"path": "/x"}, {"path": ""}, {"key": "AUTH"}]
    entries = [ENTRY, *(ENTRY | other for other in others)]
    assert client.post("/v1/local-storage", json=entries).json()["created"] == 5


@pytest.mark.parametrize(
    ("host", "seen"),
    [("example.com", ["example.com", ".example.com"]), ("www.example.com", [".example.com"])],
)
def test_the_domain_filter_lists_what_a_page_on_that_host_sees(
    client: Client, host: str, seen: list[str]
) -> None:
    stored = ["example.com", ".example.com", "other.com"]
    client.post("/v1/local-storage", json=[ENTRY | {"domain": domain} for domain in stored])
    listed = client.get("/v1/local-storage", params={"domain": host}).json()
    assert [entry["domain"] for entry in listed] == seen


def test_a_value_may_have_line_breaks_and_any_script(client: Client) -> None:
    value = "first\r\nsecond 日本語 😀\t"
    client.post("/v1/local-storage", json=[ENTRY | {"value": value}])
    assert client.get("/v1/local-storage").json()[0]["value"] == value


def test_the_organization_comes_from_the_token(service: Service) -> None:
    with service.client() as one, service.client() as two:
        for client in (one, two):
            client.post("/v1/local-storage", json=[ENTRY | {"organization_id": 1, "id": 1}])
        [mine] = one.get("/v1/local-storage").json()
        [theirs] = two.get("/v1/local-storage").json()
        assert mine["organization_id"] != theirs["organization_id"]
        assert mine["id"] != theirs["id"]


def test_entries_are_deleted_by_domain_and_key(client: Client) -> None:
    stored = [
        ENTRY | {"domain": domain, "key": each} for domain in ("a.com", ".a.com") for each in "xyz"
    ]
    client.post("/v1/local-storage", json=stored)
    answer = client.delete("/v1/local-storage", params={"domain": "A.com", "key": "x"})
    assert (answer.status_code, answer.json()) == (200, {"deleted": 1})
    assert client.delete("/v1/local-storage", params={"domain": ".a.com"}).json() == {"deleted": 3}
    left = [(one["domain"], one["key"]) for one in client.get("/v1/local-storage").json()]
    assert left == [("a.com", "y"), ("a.com", "z")]
    assert client.delete("/v1/local-storage", params={"domain": "b.com"}).json() == {"deleted": 0}
    assert client.post("/v1/local-storage", json=stored[:1]).json()["created"] == 1


def test_deleting_needs_a_domain(client: Client) -> None:
    answer = client.delete("/v1/local-storage", params={"key": "x"})
    assert answer.status_code == 422
    assert answer.json()["detail"][0]["loc"] == ["query", "domain"]


# --- the spellings of browsers ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("origin", "domain"),
    [
        ("https://shop.example", "shop.example"),
        ("http://Shop.example:8080", "shop.example"),
        ("https://shop.example/", "shop.example"),
        ("https://büro.example", "xn--bro-hoa.example"),
        ("http://[::1]:8080", "[::1]"),
    ],
)
def test_name_and_origin_are_understood(client: Client, origin: str, domain: str) -> None:
    entry = {"origin": origin, "name": "auth", "value": "v"}
    assert client.post("/v1/local-storage", json=[entry]).json()["created"] == 1
    [listed] = client.get("/v1/local-storage").json()
    assert (listed["domain"], listed["key"]) == (domain, "auth")


@pytest.mark.parametrize("domain", ["www.shop.example", ".shop.example", ".www.shop.example"])
def test_two_spellings_that_agree_are_accepted(client: Client, domain: str) -> None:
    entry = ENTRY | {"domain": domain, "origin": "https://www.shop.example", "name": "auth"}
    assert client.post("/v1/local-storage", json=[entry]).json()["created"] == 1
    assert client.get("/v1/local-storage").json()[0]["domain"] == domain


@pytest.mark.parametrize(
    ("members", "wrong"),
    [
        ({"name": "other"}, "name"),
        ({"origin": "https://www.example.com"}, "origin"),
        ({"domain": ".example.com", "origin": "https://badexample.com"}, "origin"),
        ({"origin": "https://example.com/page"}, "origin"),
        ({"origin": "example.com"}, "origin"),
        ({"origin": "https://user@example.com"}, "origin"),
        ({"origin": "https://.example.com"}, "origin"),
        ({"origin": "ftp://example.com"}, "origin"),
        ({"key": None}, "key"),
        ({"domain": None}, "domain"),
        ({"id": "1"}, "id"),
    ],
)
def test_contradictions_and_wrong_types_are_rejected(
    client: Client, members: dict[str, object], wrong: str
) -> None:
    answer = client.post("/v1/local-storage", json=[ENTRY, ENTRY | members])
    assert answer.status_code == 422
    assert [one["loc"] for one in answer.json()["detail"]] == [["body", "1", wrong]]
    assert client.get("/v1/local-storage").json() == []


# --- origins, which the list does not show ------------------------------------------------------


@pytest.mark.parametrize(
    "origins",
    [
        [None, "http://a.com:8080"],
        ["http://a.com:8080", "https://a.com"],
        ["http://a.com:8080", "http://a.com", None],
        ["http://a.com:8080", "http://a.com"],
    ],
)
def test_a_list_with_origins_can_be_posted_back(client: Client, origins: list[str | None]) -> None:
    for number, origin in enumerate(origins):
        entry = {"domain": "a.com", "key": "k", "value": str(number), "origin": origin}
        client.post("/v1/local-storage", json=[entry | ({"domain": None} if origin else {})])
    listed = client.get("/v1/local-storage").json()
    exported = client.get("/v1/sessions/export").json()
    assert len(listed) == len(origins)
    answer = client.post("/v1/local-storage", json=listed)
    assert answer.json() == {"created": 0, "updated": 0, "unchanged": len(listed)}
    assert client.get("/v1/sessions/export").json() == exported


def test_of_two_equal_entries_with_the_usual_origin_the_last_wins(client: Client) -> None:
    entry = {"origin": "https://a.com", "key": "k", "value": "1"}
    client.post("/v1/local-storage", json=[entry])
    twice = [{"domain": "a.com", "key": "k", "value": value} for value in "23"]
    assert client.post("/v1/local-storage", json=twice).json()["updated"] == 1
    assert client.get("/v1/local-storage").json()[0]["value"] == "3"
