"""Cookies over HTTP, on both engines."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.service import Client, Service
from tests.support.session_documents import imported

COOKIE = {
    "domain": "example.com",
    "name": "sid",
    "value": "s3cret",
    "secure": True,
    "http_only": True,
    "expires": "2030-01-02T03:04:05Z",
    "path": "/app",
}


def test_a_cookie_comes_back_in_the_shape_of_the_contract(client: Client) -> None:
    answer = client.post("/v1/cookies", json=[COOKIE])
    assert (answer.status_code, answer.json()) == (
        200,
        {"created": 1, "updated": 0, "unchanged": 0},
    )
    answer = client.get("/v1/cookies")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == [
        {
            "name": "sid",
            "value": "s3cret",
            "url": "https://example.com/app",
            "domain": "example.com",
            "path": "/app",
            "expires": 1893553445,
            "http_only": True,
            "secure": True,
        }
    ]


def test_only_domain_name_and_value_are_needed(client: Client) -> None:
    bare = {"domain": ".example.com", "name": "a", "value": ""}
    client.post("/v1/cookies", json=[bare])
    assert client.get("/v1/cookies").json() == [
        {
            "name": "a",
            "value": "",
            "url": "http://example.com/",
            "domain": ".example.com",
            "path": "",
            "expires": -1,
            "http_only": False,
            "secure": False,
        }
    ]


def test_null_is_the_same_as_absent(client: Client) -> None:
    ours = ["secure", "http_only", "expires", "path"]
    browsers = ["httpOnly", "sameSite", "expiry", "expirationDate", "hostOnly", "session"]
    nothing = dict.fromkeys([*ours, *browsers, "storeId", "id", "partitionKey", "url"])
    full = {"domain": "a.com", "name": "a", "value": "1", **nothing}
    assert client.post("/v1/cookies", json=[full]).json()["created"] == 1
    bare = {"domain": "a.com", "name": "a", "value": "1"}
    assert client.post("/v1/cookies", json=[bare]).json()["unchanged"] == 1


def test_listed_records_can_be_posted_back_unchanged(client: Client) -> None:
    session = {"domain": ".x.org", "name": "b", "value": "2", "path": ""}
    client.post("/v1/cookies", json=[COOKIE, session])
    listed = client.get("/v1/cookies").json()
    assert client.post("/v1/cookies", json=listed).json() == {
        "created": 0,
        "updated": 0,
        "unchanged": 2,
    }
    assert client.get("/v1/cookies").json() == listed


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        ("2030-01-01T00:00:00Z", 1893456000),
        ("2030-01-01T00:00:00", 1893456000),
        ("2030-01-01T02:00:00+02:00", 1893456000),
        ("2029-12-31T19:30:00-0430", 1893456000),
        ("2030-01-01T00:00:00.999Z", 1893456000),
        (1893456000, 1893456000),
        (1893456000.987654, 1893456000),
        (0, 0),
        (-1, -1),
        ("1969-12-31T23:59:59Z", 0),  # long expired; -1 would be a session cookie
    ],
)
def test_expires_accepts_several_forms_and_returns_one(
    client: Client, given: object, seconds: int
) -> None:
    client.post("/v1/cookies", json=[COOKIE | {"expires": given}])
    assert client.get("/v1/cookies").json()[0]["expires"] == seconds


def test_a_cookie_posted_again_replaces_the_old_one_and_keeps_its_position(client: Client) -> None:
    client.post("/v1/cookies", json=[COOKIE | {"name": name} for name in "abc"])
    changed = COOKIE | {"name": "a", "value": "new"}
    assert client.post("/v1/cookies", json=[changed]).json() == {
        "created": 0,
        "updated": 1,
        "unchanged": 0,
    }
    listed = client.get("/v1/cookies").json()
    assert [cookie["name"] for cookie in listed] == ["a", "b", "c"]
    assert listed[0]["value"] == "new"


@pytest.mark.parametrize("change", [{"secure": False}, {"http_only": False}, {"expires": None}])
def test_every_attribute_counts_as_a_change(client: Client, change: dict[str, object]) -> None:
    client.post("/v1/cookies", json=[COOKIE])
    assert client.post("/v1/cookies", json=[COOKIE | change]).json()["updated"] == 1


def test_domain_path_and_name_make_the_identity(client: Client) -> None:
    others = [{"domain": "b.com"}, {"domain": ".example.com"}, {"path": "/x"}, {"name": "SID"}]
    cookies = [COOKIE, *(COOKIE | other for other in others)]
    assert client.post("/v1/cookies", json=cookies).json()["created"] == 5


def test_the_empty_path_and_the_root_path_are_the_same_identity(client: Client) -> None:
    client.post("/v1/cookies", json=[COOKIE | {"path": ""}])
    assert client.get("/v1/cookies").json()[0]["path"] == ""
    assert client.post("/v1/cookies", json=[COOKIE | {"path": "/"}]).json()["updated"] == 1
    [cookie] = client.get("/v1/cookies").json()
    assert cookie["path"] == "/"


def test_the_last_of_two_equal_cookies_in_an_array_wins(client: Client) -> None:
    twice = [COOKIE | {"value": "first"}, COOKIE | {"value": "last"}]
    assert client.post("/v1/cookies", json=twice).json() == {
        "created": 1,
        "updated": 0,
        "unchanged": 0,
    }
    assert client.get("/v1/cookies").json()[0]["value"] == "last"


def test_an_array_with_one_error_is_not_stored(client: Client) -> None:
    assert client.post("/v1/cookies", json=[COOKIE, {"domain": "x"}]).status_code == 422
    assert client.get("/v1/cookies").json() == []


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("Example.COM", "example.com"),
        (".Example.COM", ".example.com"),
        ("münchen.de", "xn--mnchen-3ya.de"),
        (".MÜNCHEN.de", ".xn--mnchen-3ya.de"),
        ("127.0.0.1", "127.0.0.1"),
        ("[::1]", "[::1]"),
        ("my_host", "my_host"),
    ],
)
def test_domains_are_normalized(client: Client, given: str, kept: str) -> None:
    client.post("/v1/cookies", json=[COOKIE | {"domain": given}])
    assert client.get("/v1/cookies").json()[0]["domain"] == kept


@pytest.mark.parametrize(
    ("host", "seen"),
    [
        ("example.com", ["example.com", ".example.com"]),
        ("WWW.example.com", ["example.com", ".example.com", "www.example.com"]),
        ("badexample.com", []),
        ("com", []),
        ("127.0.0.1", ["127.0.0.1"]),
    ],
)
def test_the_domain_filter_lists_what_a_page_on_that_host_sees(
    client: Client, host: str, seen: list[str]
) -> None:
    stored = ["example.com", ".example.com", "www.example.com", "0.0.1", "127.0.0.1"]
    client.post("/v1/cookies", json=[COOKIE | {"domain": domain} for domain in stored])
    listed = client.get("/v1/cookies", params={"domain": host}).json()
    assert [cookie["domain"] for cookie in listed] == seen


def seen_by(client: Client, host: str) -> tuple[bool, bool]:
    """Whether the list and the export for a host have a cookie."""
    listed = client.get("/v1/cookies", params={"domain": host}).json()
    exported = client.get("/v1/sessions/export", params={"domain": host}).json()["cookies"]
    return bool(listed), bool(exported)


@pytest.mark.parametrize("is_host_only", [True, False])
@pytest.mark.parametrize("host", ["example.com", "www.example.com", "other.com"])
def test_the_domain_filter_of_the_list_and_of_the_export_agree(
    client: Client, host: str, is_host_only: bool
) -> None:
    client.post("/v1/cookies", json=[COOKIE | {"hostOnly": is_host_only}])
    seen = host == "example.com" or (host == "www.example.com" and not is_host_only)
    assert seen_by(client, host) == (seen, seen)


def test_only_the_list_shows_a_cookie_to_subdomains_if_host_only_is_not_stated(
    client: Client,
) -> None:
    client.post("/v1/cookies", json=[COOKIE])
    assert seen_by(client, "example.com") == (True, True)
    assert seen_by(client, "www.example.com") == (True, False)
    assert seen_by(client, "other.com") == (False, False)


def test_a_later_write_keeps_whether_host_only_is_stated(client: Client) -> None:
    for members, change, seen in (
        ({}, "created", (True, False)),
        ({"value": "2"}, "updated", (True, False)),
        ({"value": "2", "hostOnly": True}, "updated", (False, False)),
        ({"value": "2", "hostOnly": True}, "unchanged", (False, False)),
        ({"value": "3"}, "updated", (False, False)),
        ({"value": "3", "hostOnly": None}, "unchanged", (False, False)),
        ({"value": "3", "hostOnly": False}, "updated", (True, True)),
        ({"value": "4"}, "updated", (True, True)),
    ):
        answer = client.post("/v1/cookies", json=[COOKIE | members])
        assert answer.json()[change] == 1, members
        assert seen_by(client, "www.example.com") == seen, members


PAGE = "https://example.com/app/"
IMPORTED = {"name": "sid", "value": "s3cret", "domain": "example.com", "path": "/app"}
DOCUMENTS: dict[str, tuple[Any, tuple[bool, bool]]] = {
    "playwright": ({"cookies": [IMPORTED], "origins": []}, (False, False)),
    "extension": ([IMPORTED | {"hostOnly": False}], (True, True)),
    "cookie": ("Cookie: sid=s3cret", (True, False)),
}


@pytest.mark.parametrize("format_", DOCUMENTS)
def test_an_import_states_host_only_if_its_format_carries_it(client: Client, format_: str) -> None:
    document, seen = DOCUMENTS[format_]
    imported(client, document, format=format_, url=PAGE)
    assert seen_by(client, "www.example.com") == seen
    client.post("/v1/cookies", json=client.get("/v1/cookies").json())
    assert seen_by(client, "www.example.com") == seen


@pytest.mark.parametrize("format_", ["playwright", "cookie"])
@pytest.mark.parametrize("is_host_only", [True, None])
def test_an_import_keeps_whether_a_stored_cookie_states_host_only(
    client: Client, format_: str, is_host_only: bool | None
) -> None:
    """An export does not say it. So an export that is imported again would hide the cookie."""
    client.post("/v1/cookies", json=[COOKIE | {"value": "old", "hostOnly": is_host_only}])
    imported(client, DOCUMENTS[format_][0], format=format_, url=PAGE)
    [listed] = client.get("/v1/cookies").json()
    assert listed["value"] == "s3cret"
    assert seen_by(client, "www.example.com") == (is_host_only is None, False)


def test_an_expired_cookie_is_still_listed(client: Client) -> None:
    client.post("/v1/cookies", json=[COOKIE | {"expires": "2001-01-01T00:00:00Z"}])
    assert len(client.get("/v1/cookies").json()) == 1


def test_many_cookies_keep_their_order(client: Client) -> None:
    cookies = [COOKIE | {"name": f"c{number}"} for number in range(2500)]
    assert client.post("/v1/cookies", json=cookies).json()["created"] == 2500
    listed = client.get("/v1/cookies").json()
    assert [cookie["name"] for cookie in listed] == [cookie["name"] for cookie in cookies]


def test_concurrent_writers_count_every_cookie_once(service: Service) -> None:
    from concurrent.futures import ThreadPoolExecutor

    token = service.token()

    def post(number: int) -> int:
        with service.client(token) as client:
            names = [f"c{(number + step) % 20}" for step in range(20)]
            cookies = [COOKIE | {"name": name} for name in names]
            return int(client.post("/v1/cookies", json=cookies).json()["created"])

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(post, range(16))) == 20


def test_cookies_are_deleted_by_domain_and_name(client: Client) -> None:
    stored = [
        COOKIE | {"domain": domain, "name": each}
        for domain in ("a.com", ".a.com")
        for each in "xyz"
    ]
    client.post("/v1/cookies", json=stored)
    answer = client.delete("/v1/cookies", params={"domain": "A.com", "name": "x"})
    assert (answer.status_code, answer.json()) == (200, {"deleted": 1})
    assert client.delete("/v1/cookies", params={"domain": ".a.com"}).json() == {"deleted": 3}
    left = [(one["domain"], one["name"]) for one in client.get("/v1/cookies").json()]
    assert left == [("a.com", "y"), ("a.com", "z")]
    assert client.delete("/v1/cookies", params={"domain": "b.com"}).json() == {"deleted": 0}
    assert client.post("/v1/cookies", json=stored[:1]).json()["created"] == 1


def test_deleting_needs_a_domain(client: Client) -> None:
    answer = client.delete("/v1/cookies", params={"name": "x"})
    assert answer.status_code == 422
    assert answer.json()["detail"][0]["loc"] == ["query", "domain"]


# --- partitions, which the list does not show ---------------------------------------------------

PLAIN = {"domain": "shop.example", "name": "sid", "value": "own", "path": "/", "secure": True}
SITES = ("https://portal.example", "https://news.example", "https://forum.example")


def partitioned(value: str, site: int = 0) -> dict[str, object]:
    return PLAIN | {"value": value, "partitionKey": SITES[site]}


def by_site(client: Client) -> dict[object, str]:
    """The stored values by the site of their partition."""
    exported = client.get("/v1/sessions/export?format=puppeteer&domain=shop.example").json()
    found = {(one.get("partitionKey") or {}).get("sourceOrigin"): one["value"] for one in exported}
    assert len(found) == len(exported)
    return found


@pytest.mark.parametrize(
    "stored",
    [
        [PLAIN, partitioned("embedded")],
        [partitioned("embedded"), PLAIN],
        [PLAIN, partitioned("a"), partitioned("b", 1)],
        [partitioned("a"), partitioned("b", 1)],
        [partitioned("a"), partitioned("a", 1)],
        [PLAIN, partitioned("own")],
        [PLAIN, partitioned("own"), partitioned("a", 1), partitioned("a", 2)],
        [partitioned("only")],
    ],
)
def test_a_list_with_partitioned_cookies_can_be_posted_back(
    client: Client, stored: list[dict[str, object]]
) -> None:
    client.post("/v1/cookies", json=stored)
    before, listed = by_site(client), client.get("/v1/cookies").json()
    assert len(listed) == len(stored)
    answer = client.post("/v1/cookies", json=listed)
    assert answer.status_code == 200, answer.text
    assert (answer.json()["created"], answer.json()["updated"]) == (0, 0)
    assert by_site(client) == before


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (["new"], {None: "new", SITES[0]: "embedded"}),
        (["own"], {None: "own", SITES[0]: "embedded"}),
        (["new", "embedded"], {None: "new", SITES[0]: "embedded"}),
        (["embedded", "new"], {None: "new", SITES[0]: "embedded"}),
        (["own", "new"], None),
        (["new", "newer"], None),
        (["embedded"], None),
    ],
)
def test_a_cookie_without_a_partition_never_replaces_another_one(
    client: Client, sent: list[str], expected: dict[object, str] | None
) -> None:
    client.post("/v1/cookies", json=[PLAIN, partitioned("embedded")])
    before = by_site(client)
    other = {"domain": "other.example", "name": "n", "value": "v"}
    answer = client.post("/v1/cookies", json=[other, *(PLAIN | {"value": one} for one in sent)])
    if expected is not None:
        assert answer.status_code == 200, answer.text
        assert by_site(client) == expected
        return
    assert answer.status_code == 422
    [problem] = answer.json()["detail"]
    assert problem["loc"] == ["body", str(len(sent)), "partitionKey"]
    assert by_site(client) == before
    named = [PLAIN | {"value": one, "partitionKey": ""} for one in sent]
    assert client.post("/v1/cookies", json=named).json()["updated"] == 1
    assert by_site(client)[None] == sent[-1]


def test_stating_host_only_does_not_make_a_partition_unclear(client: Client) -> None:
    client.post("/v1/cookies", json=[PLAIN, partitioned("embedded")])
    before = by_site(client)
    sent = [PLAIN | {"value": value, "hostOnly": True} for value in ("embedded", "own")]
    assert client.post("/v1/cookies", json=sent).json()["updated"] == 2
    assert by_site(client) == before
    assert client.get("/v1/cookies?domain=www.shop.example").json() == []


def test_pages_of_partitioned_cookies_do_not_replace_another_one(client: Client) -> None:
    client.post("/v1/cookies", json=[PLAIN, partitioned("embedded")])
    before, url, statuses = by_site(client), "/v1/cookies?limit=1", []
    while url:
        page = client.get(url)
        statuses.append(client.post("/v1/cookies", json=page.json()).status_code)
        url = page.links.get("next", {}).get("url", "")
    assert (statuses, by_site(client)) == ([200, 422], before)


SESSION_COOKIES = st.builds(
    lambda **members: {name: value for name, value in members.items() if value is not None},
    domain=st.sampled_from(["a.example", ".a.example", "b.example"]),
    name=st.sampled_from(["sid", "lang"]),
    path=st.sampled_from(["", "/", "/a"]),
    value=st.sampled_from(["1", "2", "33"]),
    secure=st.booleans(),
    expires=st.sampled_from([None, 1893456000]),
    hostOnly=st.sampled_from([None, False]),
    sameSite=st.sampled_from([None, "Lax"]),
    partitionKey=st.sampled_from([None, "", *SITES[:2]]),
)


def complete(client: Client) -> list[object]:
    return sorted(client.get("/v1/sessions/export?format=extension").json(), key=repr)


@settings(
    max_examples=int(os.environ.get("GLEANERY_FUZZ_EXAMPLES", "10")),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.lists(st.lists(SESSION_COOKIES, max_size=6), max_size=3))
def test_any_list_of_cookies_can_be_posted_back(
    service: Service, arrays: list[list[dict[str, object]]]
) -> None:
    with service.client() as client:
        for array in arrays:
            assert client.post("/v1/cookies", json=array).status_code in (200, 422)
        before, listed = complete(client), client.get("/v1/cookies").json()
        counts = {"created": 0, "updated": 0}
        answer = client.post("/v1/cookies", json=listed)
        assert answer.status_code == 200, answer.text
        assert answer.json().items() >= counts.items()
        assert complete(client) == before
        assert client.get("/v1/cookies").json() == listed


# --- the spellings of browsers ------------------------------------------------------------------

EXTENSION = {  # as browser extensions export a cookie
    "domain": ".shop.example",
    "expirationDate": 1893553445.75,
    "hostOnly": False,
    "httpOnly": True,
    "name": "sid",
    "path": "/",
    "sameSite": "no_restriction",
    "secure": True,
    "session": False,
    "storeId": "0",
    "value": "s3cret",
    "id": 1,
}
AUTOMATION = {  # as browser automation reports it
    "name": "sid",
    "value": "s3cret",
    "domain": ".shop.example",
    "path": "/",
    "expires": 1893553445.25,
    "httpOnly": True,
    "secure": True,
    "sameSite": "None",
    "partitionKey": "https://shop.example",
}
WEBDRIVER = {
    "name": "sid",
    "value": "s3cret",
    "domain": ".shop.example",
    "path": "/",
    "expiry": 1893553445,
    "httpOnly": True,
    "secure": True,
    "sameSite": "Lax",
}


@pytest.mark.parametrize("given", [EXTENSION, AUTOMATION, WEBDRIVER])
def test_cookies_of_browsers_are_stored_with_all_flags(
    client: Client, given: dict[str, object]
) -> None:
    answer = client.post("/v1/cookies", json=[given])
    assert answer.json() == {"created": 1, "updated": 0, "unchanged": 0}
    [cookie] = client.get("/v1/cookies").json()
    assert cookie == {
        "name": "sid",
        "value": "s3cret",
        "url": "https://shop.example/",
        "domain": ".shop.example",
        "path": "/",
        "expires": 1893553445,
        "http_only": True,
        "secure": True,
    }
    assert client.post("/v1/cookies", json=[cookie]).json()["unchanged"] == 1


@pytest.mark.parametrize("member", ["sameSite", "same_site"])
@pytest.mark.parametrize(
    "value",
    ["strict", "Strict", "LAX", "none", "None", "no_restriction", "NO_RESTRICTION", "Unspecified"],
)
def test_same_site_is_understood_in_any_case(client: Client, member: str, value: str) -> None:
    assert client.post("/v1/cookies", json=[COOKIE | {member: value}]).status_code == 200


@pytest.mark.parametrize(
    ("members", "expires"),
    [
        ({"session": True}, -1),
        ({"session": False}, -1),
        ({"session": True, "expirationDate": 1893553445}, -1),
        ({"session": False, "expirationDate": 1893553445}, 1893553445),
    ],
)
def test_a_session_cookie_has_no_expiry(
    client: Client, members: dict[str, object], expires: int
) -> None:
    client.post("/v1/cookies", json=[{"domain": "a.com", "name": "a", "value": "1"} | members])
    assert client.get("/v1/cookies").json()[0]["expires"] == expires


def test_two_spellings_with_the_same_value_are_accepted(client: Client) -> None:
    twice = {"httpOnly": True, "expiry": 1893553445, "expirationDate": 1893553445.5}
    assert client.post("/v1/cookies", json=[COOKIE | twice]).status_code == 200
    assert client.get("/v1/cookies").json()[0]["expires"] == 1893553445


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("members", "wrong"),
    [
        ({"httpOnly": False}, "httpOnly"),
        ({"expiry": 1}, "expiry"),
        ({"expirationDate": 1}, "expirationDate"),
        ({"same_site": "lax", "sameSite": "strict"}, "sameSite"),
        ({"domain": ".example.com", "hostOnly": True}, "hostOnly"),
        ({"httpOnly": "true", "http_only": None}, "httpOnly"),
        ({"sameSite": "sometimes"}, "sameSite"),
        ({"sameSite": 1}, "sameSite"),
        ({"partitionKey": 1}, "partitionKey"),
        (
            {"partitionKey": {"topLevelSite": "https://a.example", "sourceOrigin": 1}},
            "partitionKey",
        ),
        (
            {"partitionKey": {"topLevelSite": "https://a.io", "sourceOrigin": "https://b.io"}},
            "partitionKey",
        ),
        ({"id": []}, "id"),
        ({"storeId": 0}, "storeId"),
        ({"url": 1}, "url"),
    ],
)
def test_contradictions_and_wrong_types_are_rejected(
    client: Client, members: dict[str, object], wrong: str
) -> None:
    answer = client.post("/v1/cookies", json=[COOKIE, COOKIE | members])
    assert answer.status_code == 422
    assert [one["loc"] for one in answer.json()["detail"]] == [["body", "1", wrong]]
    assert client.get("/v1/cookies").json() == []


def test_a_long_array_is_counted_completely(client: Client) -> None:
    cookies = [{"domain": "a.example", "name": f"n{n}", "value": "v"} for n in range(1200)]
    first = client.post("/v1/cookies", json=cookies[:700])
    assert first.json() == {"created": 700, "updated": 0, "unchanged": 0}
    changed = [{**cookie, "value": "new"} for cookie in cookies[:600]]
    second = client.post("/v1/cookies", json=[*changed, *cookies[600:], cookies[1199]])
    assert second.json() == {"created": 500, "updated": 600, "unchanged": 100}
