"""Leases of sessions: one holder at a time, renewal, return with changes, and expiry."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from gleanery.service.foundation.security.tokens import SCOPES
from gleanery.service.resources.sessions import leases
from gleanery.service.storage.engines import open_engine
from tests.support.databases import execute_sql
from tests.support.service import DAY, Client, Clock, Service
from tests.support.session_documents import cookie, document, exported, imported, names, origin
from tests.support.settings import fresh_settings

LEASES = "/v1/sessions/leases"


def ask(client: Client, domain: str = "shop.example", **more: Any) -> httpx2.Response:
    return client.post(LEASES, json={"domain": domain, "seconds": 60, **more})


def acquire(client: Client, domain: str = "shop.example", **more: Any) -> dict[str, Any]:
    answer = ask(client, domain, **more)
    assert answer.status_code == 200, answer.text
    lease: dict[str, Any] = answer.json()
    return lease


def change(client: Client, lease: dict[str, Any], **body: Any) -> httpx2.Response:
    return client.put(f"{LEASES}/{lease['id']}", json=body)


def give_back(client: Client, lease: dict[str, Any]) -> httpx2.Response:
    return client.delete(f"{LEASES}/{lease['id']}")


def held(client: Client) -> list[str]:
    return [lease["id"] for lease in client.get(LEASES).json()]


def let_pass(service: Service, seconds: float) -> None:
    """Moves all leases of the service into the past, as if this time had passed."""
    moved = int(seconds * 1_000_000)
    sql = "UPDATE session_leases SET acquired_at = acquired_at - $1, expires_at = expires_at - $1"
    execute_sql(service.settings, sql, moved)


def stored(service: Service) -> list[str]:
    async def read() -> list[str]:
        async with open_engine(service.settings) as engine:
            rows = await engine.for_all_tenants().read("SELECT id FROM session_leases")
            return [row[0] for row in rows]

    return asyncio.run(read())


# --- one holder at a time -----------------------------------------------------------------------


def test_a_second_holder_waits_until_the_lease_is_returned(client: Client) -> None:
    lease = acquire(client, holder="worker 1")
    assert lease["seconds"] == 60
    refused = ask(client)
    assert refused.status_code == 409
    assert 1 <= int(refused.headers["Retry-After"]) <= 60
    assert refused.json()["detail"][0]["type"] == "leased"
    assert give_back(client, lease).json() == {"deleted": 1}
    assert acquire(client)["id"] != lease["id"]


@pytest.mark.parametrize(
    ("first", "second", "excluded"),
    [
        ("shop.example", "SHOP.example", True),
        ("shop.example", ".shop.example", True),
        ("shop.example", "www.shop.example", True),
        ("a.b.shop.example", "shop.example", True),
        ("a.shop.example", "b.shop.example", False),
        ("shop.example", "myshop.example", False),
        ("shop.example", "shop.example.org", False),
        ("10.0.0.1", "10.0.0.1", True),
        ("10.0.0.1", "10.0.0.2", False),
        ("[::1]", "[::1]", True),
    ],
)
def test_a_lease_excludes_its_host_and_parent_and_child_hosts(
    client: Client, first: str, second: str, excluded: bool
) -> None:
    acquire(client, first)
    assert (ask(client, second).status_code == 409) is excluded


def test_of_many_requests_at_once_one_gets_the_lease(service: Service, client: Client) -> None:
    def ask_for(domain: str) -> int:
        with service.client(client.token) as other:
            return ask(other, domain).status_code

    hosts = ("shop.example", "www.shop.example") * 4
    with ThreadPoolExecutor(len(hosts)) as threads:
        assert sorted(threads.map(ask_for, hosts)) == [200] + [409] * (len(hosts) - 1)


def test_profiles_and_organizations_are_independent(service: Service, client: Client) -> None:
    default = acquire(client)
    other = acquire(client, profile="second account")
    assert (default["profile"], other["profile"]) == ("default", "second account")
    assert ask(client, profile="second account").status_code == 409
    with service.client() as stranger:
        acquire(stranger)
        assert give_back(stranger, default).status_code == 404
        assert change(stranger, default, seconds=60).status_code == 404
        assert default["id"] not in held(stranger)
    assert held(client) == [default["id"], other["id"]]


@pytest.mark.thorough
def test_an_organization_has_a_limited_number_of_leases(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "MAX_LEASES", 2)
    acquire(client, "a.example")
    second = acquire(client, "b.example")
    assert ask(client, "c.example").status_code == 409
    give_back(client, second)
    acquire(client, "c.example")


# --- time ---------------------------------------------------------------------------------------


def test_a_lease_ends_when_its_time_is_over(service: Service, client: Client) -> None:
    lease = acquire(client, seconds=60)
    let_pass(service, 30)
    assert ask(client).status_code == 409
    let_pass(service, 30)
    assert held(client) == []
    acquire(client)
    for late in (change(client, lease, seconds=60), give_back(client, lease)):
        assert late.status_code == 404
        assert late.json()["detail"][0]["loc"] == ["path", "lease_id"]


def test_a_renewed_lease_ends_later_and_never_earlier(service: Service, client: Client) -> None:
    lease = acquire(client, seconds=60)
    let_pass(service, 50)
    assert change(client, lease, seconds=60).json()["seconds"] == 60
    let_pass(service, 50)
    assert change(client, lease, seconds=1).json()["seconds"] in (8, 9)  # whole seconds
    assert change(client, lease).json()["seconds"] in (7, 8, 9)
    let_pass(service, 10)
    assert change(client, lease, seconds=60).status_code == 404


@pytest.mark.thorough
def test_the_clock_of_a_node_does_not_end_a_lease_on_postgres(
    timed: Client, clock: Clock, engine: str
) -> None:
    """Nodes have different clocks. On SQLite all processes read the clock of one machine."""
    lease = acquire(timed)
    clock.jump(seconds=3600)
    expected = 404 if engine == "sqlite" else 200
    assert change(timed, lease).status_code == expected


def test_a_clock_that_was_set_back_blocks_a_session_for_an_hour_at_most(
    service: Service, client: Client
) -> None:
    lease = acquire(client, seconds=60)
    let_pass(service, -86_400)
    assert change(client, lease).json()["seconds"] > 86_000
    assert ask(client).status_code == 409
    assert change(client, lease).json()["seconds"] <= 3600
    let_pass(service, 3600)
    acquire(client)


@pytest.mark.thorough
def test_the_sweep_deletes_leases_that_expired_long_ago(
    timed_service: Service, timed: Client, clock: Clock
) -> None:
    lease = acquire(timed)
    let_pass(timed_service, 61)
    timed_service.sweep(clock)
    assert stored(timed_service) == [lease["id"]]
    let_pass(timed_service, 2 * DAY)
    timed_service.sweep(clock)
    assert stored(timed_service) == []


# --- who may do what ----------------------------------------------------------------------------


@pytest.mark.parametrize("missing", ["session:read", "session:write"])
def test_a_lease_needs_both_scopes(service: Service, missing: str) -> None:
    organization = f"without {missing} {uuid4()}"
    with service.client(organization=organization) as complete:
        lease = acquire(complete)
    scopes = frozenset(SCOPES) - {missing}
    with service.client(organization=organization, scopes=scopes) as client:
        for answer in (ask(client), change(client, lease, seconds=60), give_back(client, lease)):
            assert answer.status_code == 403
            assert missing in answer.json()["detail"][0]["msg"]
        assert client.get(LEASES).status_code == (403 if missing == "session:read" else 200)


def test_the_list_shows_who_holds_what_and_an_operator_ends_it(service: Service) -> None:
    organization = f"of a worker {uuid4()}"
    with service.client(organization=organization) as worker:
        lease = acquire(worker, "www.shop.example", holder="worker 7", seconds=600)
        [shown] = worker.get(LEASES).json()
    assert shown == {key: shown[key] if key == "seconds" else lease[key] for key in shown}
    assert "state" not in shown
    assert shown["holder"] == "worker 7"
    with service.client(organization=organization) as operator:
        assert give_back(operator, shown).status_code == 200
        assert give_back(operator, shown).status_code == 404
        assert operator.get(LEASES).json() == []


def test_leases_are_audited(client: Client) -> None:
    before = client.get("/v1/audit").json()["cursor"]
    lease = acquire(client, "www.shop.example", profile="second")
    ask(client, "www.shop.example", profile="second")
    change(client, lease, seconds=60)
    give_back(client, lease)
    change(client, lease, seconds=60)
    session = {"domains": ["www.shop.example"], "profile": "second"}
    entries = client.get("/v1/audit", params={"cursor": before}).json()["entries"]
    assert [(entry["action"], entry["about"]) for entry in entries] == [
        ("acquire_lease", session | {"format": "playwright"}),
        ("renew_lease", session | {"records": 0}),
        ("release_lease", session),
    ]
    assert {entry["token_id"] for entry in entries} == {lease["token_id"]}


def test_a_return_with_changes_is_audited_as_a_return(client: Client) -> None:
    lease = acquire(client, format="netscape")
    before = client.get("/v1/audit").json()["cursor"]
    change(client, lease, state=document(cookie("sid")), release=True)
    [entry] = client.get("/v1/audit", params={"cursor": before}).json()["entries"]
    assert entry["action"] == "release_lease"
    assert entry["about"] == {"domains": ["shop.example"], "profile": "default", "records": 1}


# --- invalid requests ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ({"seconds": 0}, "seconds"),
        ({"seconds": 3601}, "seconds"),
        ({"seconds": None}, "seconds"),
        ({"domain": "https://shop.example"}, "domain"),
        ({"profile": "a/b"}, "profile"),
        ({"holder": "x" * 201}, "holder"),
        ({"format": "unknown"}, "format"),
        ({"secods": 1}, "secods"),
    ],
)
def test_an_invalid_acquisition_is_422(client: Client, body: dict[str, Any], place: str) -> None:
    answer = client.post(LEASES, json={"domain": "shop.example", "seconds": 60} | body)
    assert answer.status_code == 422
    assert answer.json()["detail"][0]["loc"] == ["body", place]
    assert held(client) == []


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ({"seconds": 3601}, "seconds"),
        ({"seconds": 60, "release": True}, "seconds"),
        ({"format": "playwright"}, "format"),
        ({"replace": True}, "replace"),
        ({"state": {}, "format": "unknown"}, "format"),
    ],
)
def test_an_invalid_change_is_422(client: Client, body: dict[str, Any], place: str) -> None:
    lease = acquire(client)
    answer = change(client, lease, **body)
    assert answer.status_code == 422
    assert answer.json()["detail"][0]["loc"] == ["body", place]
    assert held(client) == [lease["id"]]


# --- the state ----------------------------------------------------------------------------------


def test_a_holder_gets_the_state_and_returns_it_with_changes(client: Client) -> None:
    state = document(cookie("sid"), origins=(origin("https://shop.example:8443", cart="7"),))
    imported(client, state)
    lease = acquire(client)
    assert lease["state"] == state
    assert lease["losses"] == []
    changed = document(cookie("sid", value="new"), cookie("second"), origins=())
    returned = change(client, lease, state=changed, release=True).json()
    assert returned["cookies"] == {"created": 1, "updated": 1, "unchanged": 0, "deleted": 0}
    assert returned["seconds"] == 0
    assert held(client) == []
    assert acquire(client)["state"] == changed | {"origins": state["origins"]}


def test_a_returned_cookie_stays_in_the_list_for_subdomains(client: Client) -> None:
    plain = {"domain": "shop.example", "name": "sid", "value": "1", "path": "/"}
    client.post("/v1/cookies", json=[plain])
    lease = acquire(client)
    same = change(client, lease, state=lease["state"]).json()
    assert same["cookies"] == {"created": 0, "updated": 0, "unchanged": 1, "deleted": 0}
    change(client, lease, state=document(cookie("sid", value="new")), release=True)
    [listed] = client.get("/v1/cookies?domain=www.shop.example").json()
    assert listed["value"] == "new"


def test_a_lease_with_a_leading_dot_is_for_the_subdomains_too(client: Client) -> None:
    below = (cookie("sid", "www.shop.example"), cookie("old", "api.shop.example"))
    entries = (origin("https://www.shop.example", cart="7"),)
    imported(client, document(cookie("lang"), *below, origins=entries))
    imported(client, document(cookie("sid", "othershop.example")))
    host = acquire(client)
    assert names(host["state"]) == ["lang"]
    assert [loss.rpartition("(")[2] for loss in host["losses"]] == ["2 cookies).", "1 entry)."]
    give_back(client, host)
    lease = acquire(client, ".shop.example")
    assert (lease["domain"], lease["losses"]) == (".shop.example", [])
    assert names(lease["state"]) == ["lang", "sid", "old"]
    assert lease["state"]["origins"] == list(entries)
    assert ask(client, "www.shop.example").status_code == 409
    changed = document(cookie("sid", "www.shop.example", value="new"), origins=entries)
    returned = change(client, lease, state=changed, replace=True, release=True).json()
    assert returned["cookies"] == {"created": 0, "updated": 1, "unchanged": 0, "deleted": 2}
    assert returned["local_storage"]["unchanged"] == 1
    assert len(exported(client)["cookies"]) == 2  # that of the other shop is there


def test_a_holder_stores_changes_and_keeps_its_lease(client: Client) -> None:
    lease = acquire(client)
    change(client, lease, state=document(cookie("a"), cookie("b")))
    kept = change(client, lease, state=document(cookie("b")), replace=True, seconds=120)
    assert kept.json()["seconds"] == 120
    assert kept.json()["cookies"] == {"created": 0, "updated": 0, "unchanged": 1, "deleted": 1}
    assert ask(client).status_code == 409
    assert names(exported(client)) == ["b"]


def test_a_lease_that_has_ended_stores_nothing(service: Service, client: Client) -> None:
    imported(client, document(cookie("sid", value="old")))
    lease = acquire(client)
    let_pass(service, 60)
    next_one = acquire(client)
    change(client, next_one, state=document(cookie("sid", value="fresh")), release=True)
    for body in ({"release": True}, {"seconds": 60}, {"replace": True}):
        late = change(client, lease, state=document(cookie("sid", value="stale")), **body)
        assert late.status_code == 404
    [stored_cookie] = exported(client)["cookies"]
    assert stored_cookie["value"] == "fresh"


def test_a_change_without_a_lease_is_noticed_by_if_match(client: Client) -> None:
    answer = ask(client)
    lease, read = answer.json(), {"If-Match": answer.headers["ETag"]}
    path = f"{LEASES}/{lease['id']}"
    changed = client.put(path, json={"state": document(cookie("sid"))}, headers=read)
    assert changed.status_code == 200
    newer = {"If-Match": changed.headers["ETag"]}
    assert client.put(path, json={}, headers=read).status_code == 412
    assert client.put(path, json={}, headers=newer).status_code == 200
    client.post("/v1/cookies", json=[{"domain": "shop.example", "name": "sid", "value": "other"}])
    late = {"state": document(cookie("sid", value="stale")), "release": True}
    assert client.put(path, json=late, headers=newer).status_code == 412
    assert exported(client)["cookies"][0]["value"] == "other"
    assert held(client) == [lease["id"]]


def test_a_host_in_brackets_that_is_no_address_is_leased(client: Client) -> None:
    lease = acquire(client, "[:7ba2]")
    assert change(client, lease, state=document(cookie("sid", "[:7ba2]"))).status_code == 200
    give_back(client, lease)
    answer = ask(client, "[:7ba2]", format="curl")
    assert answer.status_code == 200, answer.text


def test_an_invalid_state_changes_nothing(client: Client) -> None:
    lease = acquire(client, seconds=60)
    damaged = document(cookie("sid"), cookie("secret-name", "secret host"))
    answer = change(client, lease, state=damaged, release=True)
    assert answer.status_code == 422
    assert answer.json()["detail"][0]["loc"] == ["body", "state"]
    assert "secret" not in answer.text
    assert held(client) == [lease["id"]]
    assert names(exported(client)) == []


def test_a_lease_covers_what_pages_on_its_host_see(client: Client) -> None:
    visible = (cookie("own", "www.shop.example"), cookie("shared", ".shop.example"))
    others = (cookie("parent", "shop.example"), cookie("other", "tracker.example"))
    entries = (origin("https://www.shop.example", a="1"), origin("https://shop.example", b="2"))
    imported(client, document(*visible, *others, origins=entries))
    lease = acquire(client, "www.shop.example")
    assert lease["state"] == document(*visible, origins=entries[:1])
    stale = [one | {"value": "stale"} for one in others]
    sent = document(*visible, *stale, origins=(origin("https://shop.example", b="stale"),))
    answer = change(client, lease, state=sent, replace=True, release=True).json()
    assert answer["cookies"] == {"created": 0, "updated": 0, "unchanged": 2, "deleted": 0}
    assert answer["local_storage"] == {"created": 0, "updated": 0, "unchanged": 0, "deleted": 1}
    assert [loss[-12:] for loss in answer["losses"]] == ["(2 cookies).", "s (1 entry)."]
    left = exported(client)
    assert {one["name"]: one["value"] for one in left["cookies"]} == {
        name: f"value-of-{name}" for name in ("own", "shared", "parent", "other")
    }
    assert left["origins"] == [entries[1]]


def test_each_profile_has_its_own_state(client: Client) -> None:
    imported(client, document(cookie("sid", value="first")))
    lease = acquire(client, profile="second")
    assert lease["state"] == document()
    change(client, lease, state=document(cookie("sid", value="second")), release=True)
    assert exported(client)["cookies"][0]["value"] == "first"
    assert exported(client, profile="second")["cookies"][0]["value"] == "second"


@pytest.mark.parametrize("state", [document(), document(cookie("sid", "other.example"))])
def test_a_state_without_records_deletes_nothing(client: Client, state: dict[str, Any]) -> None:
    imported(client, document(cookie("sid")))
    lease = acquire(client)
    answer = change(client, lease, state=state, replace=True, release=True)
    [detail] = answer.json()["detail"]
    assert (answer.status_code, detail["loc"]) == (422, ["body", "state"])
    returned = change(client, lease, state=state, release=True).json()
    assert returned["losses"][-1].startswith("Nothing is stored")
    assert exported(client) == document(cookie("sid"))


@pytest.mark.parametrize("domain", ["shop.example", "www.shop.example", ".example"])
def test_a_deleted_session_does_not_come_back(client: Client, domain: str) -> None:
    imported(client, document(cookie("sid", ".shop.example")))
    lease = acquire(client, domain)
    assert names(lease["state"]) == ["sid"]
    answer = client.delete("/v1/sessions", params={"domain": "shop.example"})
    assert answer.json() == {"deleted": 1}
    late = change(client, lease, state=lease["state"], release=True)
    assert late.status_code == 404
    assert exported(client) == document()
    acquire(client, domain)


def test_a_deletion_does_not_end_the_leases_of_other_sessions(client: Client) -> None:
    of_others = [
        acquire(client, "example"),  # its pages do not see subdomains
        acquire(client, "notshop.example", profile="2"),
        acquire(client, "shop.example", profile="3"),
    ]
    for profile in ("default", "2"):
        client.delete("/v1/sessions", params={"domain": "shop.example", "profile": profile})
    assert held(client) == [lease["id"] for lease in of_others]


def test_a_state_has_the_format_that_the_holder_wants(client: Client) -> None:
    imported(client, document(cookie("sid"), origins=(origin("https://shop.example", a="1"),)))
    lease = acquire(client, format="netscape")
    assert lease["state"].endswith("sid\tvalue-of-sid\n")
    assert len(lease["losses"]) == 1
    text = lease["state"].replace("value-of-sid", "new")
    changed = change(client, lease, state=text, format="netscape", replace=True).json()
    assert changed["cookies"]["updated"] == 1
    assert changed["local_storage"]["deleted"] == 0  # the format has none


def test_a_cookie_header_deletes_no_cookie_of_a_parent_domain(client: Client) -> None:
    parents = cookie("of the parent", ".shop.example")
    imported(client, document(parents, cookie("old", "www.shop.example")))
    lease = acquire(client, "www.shop.example", format="cookie")
    changed = change(client, lease, state="new=1", format="cookie", replace=True).json()["cookies"]
    assert (changed["created"], changed["deleted"]) == (1, 1)
    assert names(exported(client)) == ["of the parent", "new"]


def test_a_cookie_header_replaces_only_what_its_page_gets(client: Client) -> None:
    below, elsewhere = cookie("a", "www.shop.example"), cookie("b", path="/account")
    imported(client, document(cookie("sid", ".shop.example"), cookie("old"), below, elsewhere))
    lease = acquire(client, ".shop.example", format="cookie")
    text = lease["state"].replace("value-of-sid", "new").replace("; old=value-of-old", "")
    curl = "curl https://other.example/ -b sid=x"
    for state, updated, deleted in ((text, 1, 1), (f"{curl}\ncurl shop.example -b sid=new", 0, 0)):
        changed = change(client, lease, state=state, replace=True).json()["cookies"]
        assert (changed["created"], changed["updated"], changed["deleted"]) == (0, updated, deleted)
    sid = cookie("sid", ".shop.example", value="new")
    assert exported(client) == document(sid, below, elsewhere)


@pytest.mark.thorough
def test_a_state_that_is_too_large_leaves_no_lease(
    engine: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    settings = replace(fresh_settings(engine, request, tmp_path), max_page_bytes=1000)
    service = Service(settings)
    with service.client() as client:
        imported(client, document(*(cookie(f"c{n}", value="x" * 100) for n in range(10))))
        answer = ask(client)
        assert answer.status_code == 422
        assert answer.json()["detail"][0]["type"] == "too_large"
        assert held(client) == []
    service.stop()
