"""Import of session state over HTTP, on both engines."""

from __future__ import annotations

import gzip
import json
import os
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gleanery import sessions
from gleanery.sessions import FORMATS, SessionState
from tests.support.service import Client, Service
from tests.support.session_documents import (
    cookie,
    document,
    export,
    exported,
    imported,
    names,
    origin,
    send,
)
from tests.support.session_strategies import URLS, states

SECRET = "value-of-sid"
LOGIN = document(
    cookie(
        "sid", ".shop.example", httpOnly=True, secure=True, sameSite="Lax", expires=1_900_000_000
    ),
    cookie("lang"),
    origins=(origin("https://shop.example:8443", token="a-token"),),
)
NOTHING = {"created": 0, "updated": 0, "unchanged": 0, "deleted": 0}


def counts(**changes: int) -> dict[str, int]:
    return NOTHING | changes


def audited(client: Client) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = client.get("/v1/audit").json()["entries"]
    return [entry for entry in entries if entry["action"] == "import_session"]


# --- what is stored -----------------------------------------------------------------------------


def test_an_import_is_counted_and_contains_no_value(client: Client) -> None:
    answer = send(client, LOGIN)
    assert answer.json() == {
        "format": "playwright",
        "profile": "default",
        "dry_run": False,
        "cookies": counts(created=2),
        "local_storage": counts(created=1),
        "losses": [],
    }
    changed = json.loads(json.dumps(LOGIN))
    changed["cookies"][1]["value"] = "changed"
    again = imported(client, changed)
    assert again["cookies"] == counts(updated=1, unchanged=1)
    assert again["local_storage"] == counts(unchanged=1)


def test_the_fixed_routes_read_what_was_imported(client: Client) -> None:
    imported(client, LOGIN)
    found = {one["name"]: one for one in client.get("/v1/cookies").json()}
    assert found["sid"] == {
        "name": "sid",
        "value": SECRET,
        "url": "https://shop.example/",
        "domain": ".shop.example",
        "path": "/",
        "expires": 1_900_000_000,
        "http_only": True,
        "secure": True,
    }
    assert (found["lang"]["domain"], found["lang"]["expires"]) == ("shop.example", -1)
    [entry] = client.get("/v1/local-storage").json()
    assert (entry["domain"], entry["key"], entry["value"]) == ("shop.example", "token", "a-token")


def test_a_state_survives_the_storage_in_every_attribute(client: Client) -> None:
    state = document(
        cookie("strict", "a.example", sameSite="Strict", path="/account"),
        cookie("lax", ".a.example", sameSite="Lax", httpOnly=True),
        cookie("none", "a.example", sameSite="None", secure=True, expires=1_999_999_999),
        cookie("unknown", "a.example"),
        cookie("both", "a.example", value="host-only"),
        cookie("both", ".a.example", value="domain"),
        cookie("unicode", "xn--mnchen-3ya.example", value='quote"ü€😀'),
        origins=(
            origin("https://a.example", k="1"),
            origin("http://a.example", k="2"),
            origin("https://a.example:8443", k="3", **{"": "empty key", "line\nbreak": "x"}),
        ),
    )
    assert imported(client, state)["losses"] == []
    assert exported(client) == state


def test_a_partitioned_cookie_survives_the_storage(client: Client) -> None:
    partitions: list[Any] = [
        None,
        {"topLevelSite": "https://embedder.example", "hasCrossSiteAncestor": True},
        {"topLevelSite": "https://embedder.example", "hasCrossSiteAncestor": False},
    ]
    cookies = [
        cookie("sid", secure=True, value=str(number)) | ({"partitionKey": key} if key else {})
        for number, key in enumerate(partitions)
    ]
    assert imported(client, {"cookies": cookies}, format="cdp")["cookies"] == counts(created=3)
    found = export(client, format="cdp").json()["cookies"]
    assert [(one["value"], one.get("partitionKey")) for one in found] == [
        (str(number), key) for number, key in enumerate(partitions)
    ]


TEXTS = {
    "netscape": ("# Netscape HTTP Cookie File\nshop.example\tFALSE\t/\tTRUE\t0\tsid\tv\n", {}),
    "cookie": ("Cookie: sid=v", {"url": "https://shop.example/"}),
    "set-cookie": ("Set-Cookie: sid=v; Secure", {"url": "https://shop.example/"}),
}


@pytest.mark.parametrize("format_", TEXTS)
def test_a_text_is_recognised_and_stored(client: Client, format_: str) -> None:
    text, query = TEXTS[format_]
    result = imported(client, text, **query)
    assert (result["format"], result["cookies"]) == (format_, counts(created=1))
    [found] = exported(client)["cookies"]
    assert (found["name"], found["value"], found["domain"]) == ("sid", "v", "shop.example")
    dry = imported(client, text, **query, replace="true", dry_run="true")
    assert (dry["cookies"], dry["local_storage"]) == (counts(unchanged=1), NOTHING)


def test_replace_by_a_format_without_local_storage_keeps_the_entries(client: Client) -> None:
    imported(client, LOGIN)
    text, _ = TEXTS["netscape"]
    assert imported(client, text, replace="true")["local_storage"] == NOTHING
    assert exported(client)["origins"] == LOGIN["origins"]


def test_a_cookie_keeps_what_the_format_does_not_carry(client: Client) -> None:
    flags = {"httpOnly": True, "secure": True, "sameSite": "Strict"}
    partition = {"partitionKey": "https://portal.example", "_crHasCrossSiteAncestor": True}
    plain, partitioned = cookie("sid", **flags), cookie("embedded", **flags, **partition)
    imported(client, document(plain, partitioned))
    text = export(client, format="netscape").text.replace("value-of", "new-value-of")
    for dry_run in ("true", "false"):
        result = imported(client, text, replace="true", dry_run=dry_run)
        assert result["cookies"] == counts(updated=2)
    changed = [one | {"value": f"new-{one['value']}"} for one in (plain, partitioned)]
    assert exported(client)["cookies"] == changed
    header = "Cookie: sid=newest"
    imported(client, header, url="https://shop.example/")
    assert exported(client)["cookies"] == [changed[0] | {"value": "newest"}, changed[1]]


def test_a_cookie_keeps_its_expiry_only_with_its_value(client: Client) -> None:
    login = cookie("sid", secure=True, httpOnly=True, sameSite="Strict", expires=1_999_999_999)
    page = {"url": "https://shop.example/"}
    imported(client, document(login))
    same = export(client, format="cookie", **page).text
    assert imported(client, same, **page)["cookies"] == counts(unchanged=1)
    assert exported(client) == document(login)
    assert imported(client, "Cookie: sid=renewed", **page)["cookies"] == counts(updated=1)
    assert exported(client) == document(login | {"value": "renewed", "expires": -1})


def test_a_cookie_does_not_keep_an_expiry_that_has_passed(client: Client) -> None:
    expired = cookie("sid", value="same", expires=1_000_000_000)
    imported(client, document(expired))
    assert exported(client) == document()
    result = imported(client, "Cookie: sid=same", url="https://shop.example/")
    assert result["cookies"] == counts(updated=1)
    assert exported(client) == document(expired | {"expires": -1})


REQUESTS = {
    "cookie": ("Cookie: sid=new", {"url": "https://www.shop.example/account/orders"}),
    "curl": ("curl https://www.shop.example/account/orders -b sid=new", {}),
}


@pytest.mark.parametrize("replace", ["true", "false"])
@pytest.mark.parametrize("format_", REQUESTS)
def test_a_request_means_the_stored_cookie_that_its_page_gets(
    client: Client, format_: str, replace: str
) -> None:
    flags = {"httpOnly": True, "secure": True, "sameSite": "Lax"}
    sid = cookie("sid", ".shop.example", value="old", path="/account", **flags)
    others = [cookie("sid", "www.shop.example", path="/help"), cookie("sid", "shop.example")]
    imported(client, document(sid, cookie("seen", ".shop.example"), *others))
    text, query = REQUESTS[format_]
    for dry_run in ("true", "false"):
        result = imported(client, text, **query, replace=replace, dry_run=dry_run)
        assert result["format"] == format_
        assert result["cookies"] == counts(updated=1, deleted=int(replace == "true"))
    kept = [] if replace == "true" else [cookie("seen", ".shop.example")]
    assert exported(client) == document(sid | {"value": "new"}, *kept, *others)
    assert audited(client)[-1]["about"]["domains"] == [".shop.example"]


@pytest.mark.parametrize("replace", ["true", "false"])
def test_a_request_with_one_of_two_equal_names_is_a_cookie_of_its_host(
    client: Client, replace: str
) -> None:
    stored = [cookie("sid", ".shop.example"), cookie("sid", "www.shop.example", path="/account")]
    imported(client, document(*stored))
    text, query = REQUESTS["cookie"]
    result = imported(client, text, **query, replace=replace)
    assert result["cookies"] == counts(created=1, deleted=2 * int(replace == "true"))
    new = cookie("sid", "www.shop.example", value="new")
    assert exported(client) == document(*(() if replace == "true" else stored), new)


def test_a_request_renews_an_expired_cookie_unless_there_is_another(client: Client) -> None:
    expired = cookie("sid", ".shop.example", expires=1_000_000_000)
    imported(client, document(expired))
    text, query = REQUESTS["cookie"]
    assert imported(client, text, **query)["cookies"] == counts(updated=1)
    renewed = expired | {"value": "new", "expires": -1}
    assert exported(client) == document(renewed)
    imported(client, document(expired | {"path": "/account"}))
    assert imported(client, text, **query)["cookies"] == counts(unchanged=1)


def test_several_accounts_for_one_domain_are_separate(client: Client) -> None:
    imported(client, document(cookie("sid", value="first")))
    second = document(
        cookie("sid", value="second"), origins=(origin("https://shop.example", k="v"),)
    )
    assert imported(client, second, profile="buyer 2")["profile"] == "buyer 2"
    assert exported(client) == document(cookie("sid", value="first"))
    assert exported(client, profile="buyer 2") == second
    assert exported(client, profile="unknown") == document()
    assert [one["value"] for one in client.get("/v1/cookies").json()] == ["first"]


@pytest.mark.parametrize("by", ["group_id", "id"])
def test_entries_can_be_those_of_a_group(client: Client, by: str) -> None:
    group = client.put("/v1/groups/prices", json={}).json()
    state = document(origins=(origin("https://shop.example", k="of the group"),))
    imported(client, state, group_id=group[by])
    [entry] = client.get("/v1/local-storage").json()
    assert entry["group_id"] == group["id"]
    assert exported(client, group_id=group[by]) == state


def test_the_name_of_a_group_wins_over_a_number(client: Client) -> None:
    number = client.put("/v1/groups/prices", json={}).json()["id"]
    named = client.put(f"/v1/groups/{number}", json={}).json()
    imported(client, document(origins=(origin("https://a.example", k="v"),)), group_id=number)
    assert client.get("/v1/local-storage").json()[0]["group_id"] == named["id"]


@pytest.mark.parametrize("group", ["unknown", "999999999", "0", "9" * 30])
def test_an_unknown_group_gets_404(client: Client, group: str) -> None:
    for answer in (
        send(client, LOGIN, group_id=group),
        client.get("/v1/sessions/export", params={"group_id": group}),
    ):
        [detail] = answer.json()["detail"]
        assert (answer.status_code, detail["loc"]) == (404, ["query", "group_id"])
    assert client.get("/v1/cookies").json() == []


# --- replace ------------------------------------------------------------------------------------


def test_replace_deletes_what_the_document_does_not_have(client: Client) -> None:
    old = document(
        cookie("gone"),
        cookie("kept"),
        cookie("gone too", ".shop.example"),
        cookie("other host", "www.shop.example"),
        origins=(
            origin("https://shop.example", gone="1", kept="2"),
            origin("http://b.example", k="v"),
        ),
    )
    imported(client, old)
    imported(client, old, profile="other")
    new = document(cookie("kept"), origins=(origin("https://shop.example", kept="new"),))
    result = imported(client, new, replace="true")
    assert result["cookies"] == counts(unchanged=1, deleted=2)
    assert result["local_storage"] == counts(updated=1, deleted=1)
    left = exported(client)
    assert names(left) == ["kept", "other host"]
    assert left["origins"] == [
        origin("https://shop.example", kept="new"),
        origin("http://b.example", k="v"),
    ]
    assert exported(client, profile="other") == old


def test_replace_keeps_the_entries_of_other_groups(client: Client) -> None:
    number = client.put("/v1/groups/prices", json={}).json()["id"]
    own = document(origins=(origin("https://shop.example", own="1"),))
    imported(client, own, group_id="prices")
    imported(client, document(cookie("a")), replace="true")
    assert [one["group_id"] for one in client.get("/v1/local-storage").json()] == [number]


EMPTY = {
    "playwright": (document(), {}),
    "cookie": ("Cookie: ", {"format": "cookie", "url": "https://shop.example/"}),
    "all rejected": (document(cookie("__Host-a", ".shop.example")), {}),
}


@pytest.mark.parametrize("case", EMPTY)
def test_a_document_without_records_says_so_and_replaces_nothing(client: Client, case: str) -> None:
    imported(client, LOGIN)
    content, query = EMPTY[case]
    result = imported(client, content, **query)
    assert (result["cookies"], result["local_storage"]) == (NOTHING, NOTHING)
    assert result["losses"][-1].startswith("Nothing is stored")
    for dry_run in ("true", "false"):
        answer = send(client, content, **query, replace="true", dry_run=dry_run)
        [detail] = answer.json()["detail"]
        assert (answer.status_code, detail["loc"]) == (422, ["body"])
        assert "DELETE /v1/sessions" in detail["msg"]
    assert exported(client) == LOGIN


# --- dry run ------------------------------------------------------------------------------------


def test_a_dry_run_stores_nothing_and_lists_what_would_be_stored(client: Client) -> None:
    imported(client, document(cookie("old"), cookie("lang", value="de")))
    before = client.get("/v1/cookies").json()
    answer = send(client, LOGIN, dry_run="true", replace="true")
    assert "value" not in answer.text
    result = answer.json()
    assert result["dry_run"] is True
    assert result["cookies"] == counts(created=1, updated=1, deleted=1)
    assert result["local_storage"] == counts(created=1)
    described = {(one["kind"], one["name"]): one for one in result["records"]}
    assert described["cookie", "sid"] == {
        "kind": "cookie",
        "change": "created",
        "domain": ".shop.example",
        "origin": None,
        "path": "/",
        "name": "sid",
        "expires": "2030-03-17T17:46:40Z",
    }
    assert described["cookie", "old"]["change"] == "deleted"
    assert described["local_storage", "token"]["origin"] == "https://shop.example:8443"
    assert client.get("/v1/cookies").json() == before
    assert client.get("/v1/local-storage").json() == []
    # The real import does what the dry run says.
    real = imported(client, LOGIN, replace="true")
    assert (real["cookies"], real["local_storage"]) == (result["cookies"], result["local_storage"])
    assert "records" not in real


# --- versions -----------------------------------------------------------------------------------


def test_a_stale_writer_gets_412_and_stores_nothing(client: Client) -> None:
    imported(client, LOGIN)
    path = "/v1/sessions/import"
    headers = {"If-Match": export(client, domain="shop.example").headers["etag"]}
    fresh = json.dumps(document(cookie("sid", ".shop.example", value="fresh")))
    assert client.post(path, content=fresh, headers=headers).status_code == 200
    stale = json.dumps(document(cookie("sid", ".shop.example", value="stale"), cookie("new")))
    for query in ({}, {"dry_run": "true"}):
        answer = client.post(path, content=stale, headers=headers, params=query)
        [detail] = answer.json()["detail"]
        assert (answer.status_code, detail["loc"]) == (412, ["header", "if-match"])
    found = {one["name"]: one["value"] for one in exported(client)["cookies"]}
    assert (found["sid"], "new" in found) == ("fresh", False)
    assert len(audited(client)) == 2


def test_an_import_returns_the_version_of_its_profile(client: Client) -> None:
    first = send(client, LOGIN, profile="buyer").headers["etag"]
    assert first == export(client, profile="buyer").headers["etag"]
    assert send(client, LOGIN, profile="buyer", dry_run="true").headers["etag"] == first
    changed = json.dumps(document(cookie("lang", value="fr")))
    path = "/v1/sessions/import?profile=buyer"
    answer = client.post(path, content=changed, headers={"If-Match": first})
    assert answer.status_code == 200
    assert answer.headers["etag"] != first
    assert client.post(path, content=changed, headers={"If-Match": first}).status_code == 412


# --- audit --------------------------------------------------------------------------------------


def test_imports_and_dry_runs_are_audited_without_names(client: Client) -> None:
    number = client.put("/v1/groups/prices", json={}).json()["id"]
    send(client, LOGIN, dry_run="true", profile="buyer")
    send(client, LOGIN, group_id="prices")
    send(client, "{}", format="playwright", replace="yes")
    domains = [".shop.example", "shop.example"]
    about = {"records": 3, "domains": domains, "format": "playwright"}
    assert [entry["about"] for entry in audited(client)] == [
        about | {"profile": "buyer", "dry_run": True},
        about | {"profile": "default", "dry_run": False, "for_group": number},
    ]


def test_another_organization_does_not_see_it(client: Client, service: Service) -> None:
    imported(client, LOGIN)
    with service.client() as other:
        assert exported(other) == document()
        assert imported(other, LOGIN, dry_run="true")["cookies"] == counts(created=2)


# --- bad input ----------------------------------------------------------------------------------

BAD_RECORD = document(cookie("a"), cookie("sid", domain="not a host", value=SECRET))
BAD = {
    "empty": (b"", {}, ["body"], "session_format"),
    "no session": (b'{"a": "value-of-sid"}', {}, ["body"], "session_format"),
    "garbage": (b"\xff\x00value-of-sid", {}, ["body"], "session_format"),
    "one bad record": (json.dumps(BAD_RECORD).encode(), {}, ["body"], "session_format"),
    "nested": (b"[" * 100_000, {}, ["body"], "session_format"),
    "NUL": (json.dumps(document(cookie("a\0"))).encode(), {}, ["body"], "session_format"),
    "no page": (b"Cookie: a=value-of-sid", {}, ["query", "url"], "missing"),
    "file name": (b"cookies-value-of-sid.txt", {}, ["body"], "session_format"),
    "lost lines": (b"# Netscape HTTP Cookie File.a.com\tTRUE", {}, ["body"], "session_format"),
    "format": (b"{}", {"format": "excel"}, ["query", "format"], "session_format"),
    "url": (b"{}", {"url": "ftp://value-of-sid"}, ["query", "url"], "url"),
    "profile": (b"{}", {"profile": "a/b"}, ["query", "profile"], "name"),
    "parameter": (b"{}", {"dryrun": "true"}, ["query", "dryrun"], "unknown_name"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_gets_422_without_its_values(client: Client, case: str) -> None:
    body, query, loc, type_ = BAD[case]
    answer = send(client, body, **query)
    [detail] = answer.json()["detail"]
    assert (answer.status_code, detail["loc"], detail["type"]) == (422, loc, type_)
    assert SECRET not in answer.text
    assert client.get("/v1/cookies").json() == []
    assert audited(client) == []


def test_an_invalid_record_is_named_by_its_place(client: Client) -> None:
    [detail] = send(client, BAD_RECORD).json()["detail"]
    assert detail["msg"].startswith("cookies[1]: ")


def test_a_cookie_file_without_cookies_is_read(client: Client) -> None:
    empty = imported(client, "# Netscape HTTP Cookie File\n")
    assert (empty["format"], empty["cookies"]) == ("netscape", NOTHING)
    [detail] = send(client, "# Netscape HTTP Cookie File").json()["detail"]
    assert "no line breaks, or no cookies" in detail["msg"]


@pytest.mark.parametrize("format_", ["auto", "extension"])
def test_truncated_json_is_named_as_such(client: Client, format_: str) -> None:
    [detail] = send(client, b'[{"name": "sid", "value": "S3C', format=format_).json()["detail"]
    expected = "The document is not valid JSON: it ends too early, after 30 characters"
    assert (detail["loc"], detail["msg"]) == (["body"], expected)


def test_an_unknown_format_gets_the_list_of_formats(client: Client) -> None:
    [detail] = send(client, "{}", format="excel").json()["detail"]
    assert detail["msg"] == f"expected one of auto, {', '.join(FORMATS)}"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        *(("netscpae", "netscape"), ("Cookies.txt", "netscape"), ("storageState", "playwright")),
        *(
            ("editthiscookie", "extension"),
            ("cookie_editor", "extension"),
            ("header", "cookie"),
        ),
    ],
)
def test_an_unknown_format_gets_the_one_that_is_meant(
    client: Client, name: str, expected: str
) -> None:
    for answer in (
        send(client, "{}", format=name),
        client.get("/v1/sessions/export", params={"format": name}),
    ):
        [detail] = answer.json()["detail"]
        assert (answer.status_code, detail["loc"]) == (422, ["query", "format"])
        assert detail["msg"].endswith(f'; did you mean "{expected}"?')


@pytest.mark.thorough
def test_too_many_records_get_422(client: Client) -> None:
    answer = send(client, document(*(cookie(f"c{number}") for number in range(10_001))))
    [detail] = answer.json()["detail"]
    assert (answer.status_code, detail["type"]) == (422, "too_long")


@pytest.mark.thorough
def test_too_many_json_values_get_422(client: Client) -> None:
    answer = send(client, b'{"cookies": [], "origins": [], "x": [' + b"1," * 1_000_001 + b"1]}")
    [detail] = answer.json()["detail"]
    assert (answer.status_code, detail["type"]) == (422, "too_many_values")


def test_a_form_gets_415(client: Client) -> None:
    answer = client.post("/v1/sessions/import", files={"file": b"{}"})
    assert answer.status_code == 415
    assert "--data-binary" in answer.text


def test_any_media_type_and_a_compressed_body_are_accepted(client: Client) -> None:
    body = json.dumps(LOGIN).encode()
    for headers in ({"Content-Type": "application/x-www-form-urlencoded"}, {"Content-Type": "a/b"}):
        answer = client.post("/v1/sessions/import", content=body, headers=headers)
        assert answer.status_code == 200, answer.text
    answer = client.post(
        "/v1/sessions/import", content=gzip.compress(body), headers={"Content-Encoding": "gzip"}
    )
    assert answer.json()["cookies"] == counts(unchanged=2)


def test_what_cannot_be_kept_is_in_losses(client: Client) -> None:
    state = document(
        cookie("__Host-a", ".shop.example", secure=True),
        cookie("b", sameSite="Sometimes"),
        origins=(origin("https://shop.example") | {"indexedDB": [{"name": "db"}]},),
    )
    result = imported(client, state)
    assert result["cookies"] == counts(created=1)
    assert len(result["losses"]) == 3
    assert "SameSite is omitted, because its value is unknown (1 cookie)." in result["losses"]


# --- what was exported --------------------------------------------------------------------------


@pytest.mark.parametrize("read_as", ["auto", "named"])
@pytest.mark.parametrize("format_", FORMATS)
def test_an_empty_export_can_be_imported(client: Client, format_: str, read_as: str) -> None:
    url = "https://www.shop.example/"
    answer = client.get("/v1/sessions/export", params={"format": format_, "url": url})
    assert answer.status_code == 200
    query = {"format": format_ if read_as == "named" else "auto", "url": url}
    result = client.post("/v1/sessions/import", params=query, content=answer.content)
    assert result.status_code == 200, result.text
    assert (result.json()["cookies"], result.json()["local_storage"]) == (NOTHING, NOTHING)
    assert len(result.json()["losses"]) == 1


@settings(max_examples=int(os.environ.get("GLEANERY_FUZZ_EXAMPLES", "10")) * 2, deadline=None)
@given(states(), st.sampled_from([*FORMATS]), st.sampled_from(URLS))
def test_an_export_without_losses_is_imported_without_effect(
    service: Service, state: SessionState, format_: str, url: str
) -> None:
    with service.client() as client:
        given_state = sessions.write(state, "playwright").content
        assert client.post("/v1/sessions/import", json=given_state).status_code == 200
        before = client.get("/v1/sessions/export").content
        needs_url = FORMATS[format_].needs_url
        query = {"format": format_} | ({"url": url} if needs_url else {})
        answer = client.get("/v1/sessions/export", params=query)
        result = client.post("/v1/sessions/import", params=query, content=answer.content)
        assert result.status_code == 200, result.text
        if json.loads(answer.headers["gleanery-losses"]) == []:
            for kind in ("cookies", "local_storage"):
                assert {**result.json()[kind], "unchanged": 0} == NOTHING
            assert client.get("/v1/sessions/export").content == before
