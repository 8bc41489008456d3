"""Export of session state over HTTP, on both engines."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gleanery.sessions import FORMATS
from tests.support.service import Client, Clock, Service
from tests.support.session_documents import (
    cookie,
    document,
    export,
    exported,
    imported,
    losses,
    names,
    origin,
)

DOMAIN = "shop.example"
PAGE_BYTES = 16 * 1024 * 1024
NO_RECORD = "No record matches: check domain, url, group_id and profile."


def audited(client: Client) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = client.get("/v1/audit").json()["entries"]
    return [entry["about"] for entry in entries if entry["action"] == "export_session"]


# --- the response -------------------------------------------------------------------------------


def test_the_default_is_the_storage_state_of_playwright(client: Client) -> None:
    state = document(cookie("sid"), origins=(origin("https://shop.example", k="v"),))
    imported(client, state)
    answer = export(client)
    assert answer.json() == state
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["content-disposition"] == 'attachment; filename="storage_state.json"'
    assert losses(answer) == []
    assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("format_", FORMATS)
def test_each_format_says_what_it_cannot_carry(client: Client, format_: str) -> None:
    state = document(
        cookie("sid", ".shop.example", sameSite="Strict", httpOnly=True, secure=True),
        origins=(origin("https://shop.example", k="v"),),
    )
    imported(client, state)
    answer = export(client, format=format_, url="https://shop.example/")
    chosen = FORMATS[format_]
    assert answer.headers["content-type"] == chosen.media_type
    assert chosen.file_name in answer.headers["content-disposition"]
    assert "value-of-sid" in answer.text
    keeps_all = {"same_site", "http_only", "local_storage"} <= chosen.carries
    assert bool(losses(answer)) is not keeps_all
    assert "value-of-sid" not in answer.headers["gleanery-losses"]


def test_a_domain_with_a_leading_dot_includes_its_subdomains(client: Client) -> None:
    below = cookie("sid", "www.shop.example"), cookie("past", "www.shop.example", expires=1)
    entries = origin("https://www.shop.example:8443", k="v")
    imported(client, document(cookie("lang"), *below, origins=(entries,)))
    imported(client, document(cookie("other", "othershop.example")))
    client.post("/v1/local-storage", json=[{"domain": "a.shop.example", "key": "a", "value": "b"}])
    complete = export(client, domain=".shop.example")
    assert names(complete.json()) == ["lang", "sid"]
    assert complete.json()["origins"] == [entries, origin("https://a.shop.example", a="b")]
    assert losses(complete) == ["A cookie is left out, because it has expired (1 cookie)."]
    part = export(client, domain="shop.example")
    assert (names(part.json()), part.json()["origins"]) == (["lang"], [])
    assert [loss.rpartition("(")[2] for loss in losses(part)] == ["1 cookie).", "2 entries)."]
    assert "begin the domain with a dot" in losses(part)[0]
    page = export(client, url="https://shop.example/")
    assert losses(page) == []  # a page never sees them


def test_the_etag_of_a_domain_with_subdomains_changes_with_them(client: Client) -> None:
    imported(client, document(cookie("lang"), cookie("sid", "www.shop.example")))
    tags = {one: export(client, domain=one).headers["etag"] for one in (DOMAIN, f".{DOMAIN}")}
    imported(client, document(cookie("sid", "www.shop.example", value="new")))
    assert export(client, domain=DOMAIN).headers["etag"] == tags[DOMAIN]
    assert export(client, domain=f".{DOMAIN}").headers["etag"] != tags[f".{DOMAIN}"]
    stale = {"If-Match": tags[f".{DOMAIN}"]}
    body = document(cookie("lang", value="stale"))
    refused = client.post("/v1/sessions/import", json=body, headers=stale)
    assert refused.status_code == 412


def test_session_values_are_not_compressed(client: Client) -> None:
    imported(client, document(cookie("sid", value="v" * 5000)))
    answer = client.get("/v1/sessions/export", headers={"Accept-Encoding": "gzip, zstd"})
    assert "content-encoding" not in answer.headers


def test_head_describes_the_document(client: Client) -> None:
    imported(client, document(cookie("sid")))
    answer = client.head("/v1/sessions/export")
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["content-length"] == str(len(export(client).content))


def test_an_export_is_audited_without_names(client: Client) -> None:
    number = client.put("/v1/groups/prices", json={}).json()["id"]
    imported(client, document(cookie("sid"), cookie("b", "b.example")))
    export(client)
    export(client, url="https://www.shop.example/a", profile="buyer", group_id="prices")
    export(client, domain="shop.example")
    about = {"profile": "default", "format": "playwright"}
    assert audited(client) == [
        about | {"records": 2},
        {"records": 0, "domains": ["www.shop.example"], "profile": "buyer", "for_group": number}
        | {"format": "playwright"},
        about | {"records": 1, "domains": ["shop.example"]},
    ]


# --- what is selected ---------------------------------------------------------------------------


def test_a_page_gets_what_a_browser_would_send(client: Client) -> None:
    imported(
        client,
        document(
            cookie("parent", ".shop.example"),
            cookie("parent-only", "shop.example"),
            cookie("own", "www.shop.example"),
            cookie("sibling", "api.shop.example"),
            cookie("path", "www.shop.example", path="/account"),
            cookie("other-path", "www.shop.example", path="/acc"),
            cookie("secure", "www.shop.example", secure=True),
            origins=(
                origin("https://www.shop.example", https="1"),
                origin("http://www.shop.example", http="1"),
                origin("https://www.shop.example:8443", port="1"),
            ),
        ),
    )
    seen = exported(client, url="https://www.shop.example/account/orders")
    assert names(seen) == ["parent", "own", "path", "secure"]
    assert seen["origins"] == [origin("https://www.shop.example", https="1")]
    seen = exported(client, url="http://www.shop.example/")
    assert names(seen) == ["parent", "own"]
    assert seen["origins"] == [origin("http://www.shop.example", http="1")]
    seen = exported(client, domain="www.shop.example")
    assert names(seen) == ["parent", "own", "path", "other-path", "secure"]
    assert [one["origin"] for one in seen["origins"]] == [
        "https://www.shop.example",
        "http://www.shop.example",
        "https://www.shop.example:8443",
    ]
    seen = exported(client, domain="shop.example", url="https://www.shop.example/")
    assert names(seen) == ["parent"]


def test_an_entry_without_origin_belongs_to_every_origin_of_its_host(client: Client) -> None:
    entries = [
        {"domain": "shop.example", "key": "own", "value": "1"},
        {"domain": ".shop.example", "key": "with subdomains", "value": "2"},
    ]
    client.post("/v1/local-storage", json=entries)
    both = {"own": "1", "with subdomains": "2"}
    assert exported(client)["origins"] == [origin("https://shop.example", **both)]
    seen = exported(client, url="http://shop.example:8080/a")
    assert seen["origins"] == [origin("http://shop.example:8080", **both)]
    seen = exported(client, url="https://www.shop.example/")
    assert seen["origins"] == [origin("https://www.shop.example", **{"with subdomains": "2"})]
    seen = exported(client, domain="www.shop.example")
    assert seen["origins"] == [origin("https://www.shop.example", **{"with subdomains": "2"})]


def test_entries_of_a_parent_domain_need_a_leading_dot(client: Client) -> None:
    client.post("/v1/local-storage", json=[{"domain": "shop.example", "key": "k", "value": "v"}])
    assert exported(client, domain="www.shop.example") == document()
    assert exported(client, url="https://www.shop.example/") == document()


def test_an_entry_with_an_origin_wins_over_one_without(client: Client) -> None:
    imported(client, document(origins=(origin("https://shop.example:8443", k="of the port"),)))
    client.post("/v1/local-storage", json=[{"domain": ".shop.example", "key": "k", "value": "any"}])
    seen = exported(client, url="https://shop.example:8443/")
    assert seen["origins"] == [origin("https://shop.example:8443", k="of the port")]
    seen = exported(client, url="https://shop.example/")
    assert seen["origins"] == [origin("https://shop.example", k="any")]


def test_a_group_gets_its_own_entries_before_those_of_every_group(client: Client) -> None:
    shared = document(origins=(origin("https://a.example", k="of all", shared="1"),))
    imported(
        client,
        document(origins=(origin("https://a.example", k="old"),)),
        group_id=group(client, "one"),
    )
    imported(client, shared)
    imported(
        client,
        document(origins=(origin("https://a.example", k="two"),)),
        group_id=group(client, "two"),
    )
    assert exported(client, group_id="one")["origins"][0]["localStorage"][0]["value"] == "old"
    answer = export(client)  # the newest, and the others are reported
    assert answer.json()["origins"] == [origin("https://a.example", k="two", shared="1")]
    assert losses(answer) == [
        "An entry is left out, because a newer one of another group has its origin and key: name "
        "the group (2 entries)."
    ]


def group(client: Client, name: str) -> str:
    client.put(f"/v1/groups/{name}", json={})
    return name


def test_what_a_browser_cannot_have_is_in_losses(client: Client) -> None:
    plain = {"domain": "a.example", "value": "v"}
    client.post(
        "/v1/local-storage",
        json=[
            plain | {"key": "a", "path": "/b"},
            plain | {"key": "b", "expires": "2100-01-01T00:00:00Z"},
        ],
    )
    assert losses(export(client)) == [
        "The path of an entry is left out: local storage has none (1 entry).",
        "The expiry of an entry is lost: local storage has none (1 entry).",
    ]


def test_a_stored_cookie_that_no_browser_can_have_is_in_losses(client: Client) -> None:
    client.post("/v1/cookies", json=[{"domain": "a.example", "name": "", "value": ""}])
    answer = export(client)
    assert answer.json() == document()
    assert losses(answer) == [
        "A stored cookie is left out, because no browser can have it (1 cookie)."
    ]


@pytest.mark.thorough
def test_expired_records_are_left_out(timed: Client, clock: Clock) -> None:
    soon = clock() // 1_000_000 + 60
    imported(timed, document(cookie("soon", expires=soon), cookie("session")))
    entry = {"domain": "shop.example", "key": "soon", "value": "v", "expires": soon}
    timed.post("/v1/local-storage", json=[entry])
    assert (names(exported(timed)), len(exported(timed)["origins"])) == (["soon", "session"], 1)
    clock.move(seconds=61)
    answer = export(timed)
    assert answer.json() == document(cookie("session"))
    expired = [
        "A cookie is left out, because it has expired (1 cookie).",
        "An entry is left out, because it has expired (1 entry).",
    ]
    assert losses(answer) == expired
    assert losses(export(timed, url="https://shop.example/")) == expired
    assert losses(export(timed, domain="other.example")) == [NO_RECORD]
    lease = timed.post("/v1/sessions/leases", json={"domain": "shop.example", "seconds": 60})
    assert lease.json()["losses"] == expired


def test_an_export_without_records_says_so(client: Client) -> None:
    imported(client, document(cookie("sid", path="/account")))
    for query in (
        {"domain": "other.example"},
        {"profile": "other"},
        {"url": "https://shop.example/", "format": "cookie"},
    ):
        assert losses(export(client, **query)) == [NO_RECORD]
    assert losses(export(client)) == []


def test_the_newest_of_cookies_that_are_the_same_for_a_browser_wins(client: Client) -> None:
    plain = {"name": "a", "path": "/"}
    client.post("/v1/cookies", json=[plain | {"domain": ".a.example", "value": "old"}])
    written = {"domain": "a.example", "value": "new", "hostOnly": False}
    client.post("/v1/cookies", json=[plain | written])
    assert exported(client) == document(cookie("a", ".a.example", value="new"))


# --- versions -----------------------------------------------------------------------------------


def test_an_export_that_has_not_changed_gets_304(client: Client) -> None:
    imported(client, document(cookie("sid")))
    query = {"domain": "shop.example"}
    etag = export(client, **query).headers["etag"]
    count = len(audited(client))

    def again() -> int:
        found = client.get("/v1/sessions/export", params=query, headers={"If-None-Match": etag})
        assert found.headers["etag"] == etag or found.status_code == 200
        return found.status_code

    assert again() == 304
    imported(client, document(cookie("sid", "other.example")))
    imported(client, document(cookie("sid", value="other")), profile="other")
    assert again() == 304
    assert len(audited(client)) == count  # a 304 contains no value
    imported(client, document(cookie("sid", value="changed")))
    assert again() == 200


@pytest.mark.thorough
def test_an_export_without_a_cookie_that_has_expired_is_new(timed: Client, clock: Clock) -> None:
    imported(timed, document(cookie("soon", expires=clock() // 1_000_000 + 60)))
    etag = export(timed).headers["etag"]
    clock.move(seconds=61)
    answer = timed.get("/v1/sessions/export", headers={"If-None-Match": etag})
    assert (answer.status_code, answer.json()) == (200, document())


# --- limits and bad input -----------------------------------------------------------------------

BAD = {
    "format": ({"format": "excel"}, ["query", "format"], "session_format"),
    "url": ({"url": "shop.example"}, ["query", "url"], "url"),
    "domain": ({"domain": "https://shop.example"}, ["query", "domain"], "domain"),
    "profile": ({"profile": ""}, ["query", "profile"], "name"),
    "parameter": ({"fromat": "playwright"}, ["query", "fromat"], "unknown_name"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_query_gets_422(client: Client, case: str) -> None:
    query, loc, type_ = BAD[case]
    answer = client.get("/v1/sessions/export", params=query)
    [detail] = answer.json()["detail"]
    assert (answer.status_code, detail["loc"], detail["type"]) == (422, loc, type_)


@pytest.mark.parametrize("format_", [one for one in FORMATS if FORMATS[one].needs_url])
def test_a_format_for_one_page_needs_its_url(client: Client, format_: str) -> None:
    answer = client.get("/v1/sessions/export", params={"format": format_})
    [detail] = answer.json()["detail"]
    assert (answer.status_code, detail["loc"]) == (422, ["query", "url"])


@pytest.mark.thorough
def test_a_state_that_is_too_large_gets_422_and_can_be_read_in_parts(client: Client) -> None:
    value = "v" * 9_000_000
    for domain in ("a.example", "b.example"):
        imported(client, document(origins=(origin(f"https://{domain}", k=value),)))
    answer = client.get("/v1/sessions/export")
    [detail] = answer.json()["detail"]
    assert (answer.status_code, detail["type"]) == (422, "too_large")
    assert f"{PAGE_BYTES} bytes" in detail["msg"]
    assert "domain or url" in detail["msg"]
    assert len(exported(client, domain="a.example")["origins"]) == 1
    # The characters of this value need six bytes each in JSON.
    imported(client, document(origins=(origin("https://c.example", k="\x01" * 4_000_000),)))
    assert client.get("/v1/sessions/export?domain=c.example").status_code == 422


def test_another_organization_gets_nothing(client: Client, service: Service) -> None:
    imported(client, document(cookie("sid")))
    with service.client() as other:
        assert json.loads(export(other, domain="shop.example").text) == document()
