"""The login of the console: what creates a session, what a session needs, and what ends it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gleanery.service.foundation.security import tokens
from gleanery.service.foundation.values import timestamps
from gleanery.service.maintenance import restore
from gleanery.service.resources.access import console_sessions
from tests.support.console import PERSON, ConsoleClient
from tests.support.console_http import OWN_PAGE, credentials, new_link, on_engine, revoke, sign_in
from tests.support.service import DAY, Client, Clock, Service
from tests.support.settings import fresh_settings
from tests.support.waiting import wait_until

SESSION = "/console/api/session"
HOUR = 3600
ROUTES = (SESSION, "/v1/groups")  # of the console, and of the API


@pytest.fixture
def stranger(service: Service) -> Iterator[Client]:
    with service.stranger() as made:
        yield made


@pytest.fixture
def token(service: Service) -> str:
    return service.token()


def status(client: Client, headers: dict[str, str], path: str = SESSION) -> int:
    return client.get(path, headers=headers).status_code


def audit_of(service: Service, token: str) -> list[tuple[str, dict[str, Any]]]:
    with service.client(token) as client:
        entries = client.get("/v1/audit", params={"limit": 1000}).json()["entries"]
    return [(entry["action"], entry["about"]) for entry in entries]


# --- what a request needs -------------------------------------------------------------------------


def test_a_login_sets_a_cookie_that_only_this_host_gets(stranger: Client, token: str) -> None:
    answer = sign_in(stranger, token=token, stay=False)
    name, _, rest = answer.headers["set-cookie"].partition("=")
    assert re.fullmatch("__Host-gleanery-[0-9a-f]{8}", name)
    assert rest.split("; ")[1:] == ["Path=/", "Secure", "HttpOnly", "SameSite=Strict"]
    assert answer.headers["cache-control"] == "no-store"
    assert answer.json()["session"]["person"] == PERSON
    assert token not in answer.text


def test_a_cookie_that_stays_ends_with_the_longest_session(stranger: Client, token: str) -> None:
    """Later the service refuses it in any case, so the browser need not keep it."""
    answer = sign_in(stranger, token=token)
    assert answer.headers["set-cookie"].endswith(f"; Max-Age={7 * DAY}")
    assert status(stranger, credentials(answer)) == 200


@pytest.mark.parametrize("path", ROUTES)
def test_a_request_needs_the_cookie_the_key_and_the_same_origin(
    stranger: Client, token: str, path: str
) -> None:
    headers = credentials(sign_in(stranger, token=token))
    assert status(stranger, headers, path) == 200
    for missing in headers:
        rest = {name: value for name, value in headers.items() if name != missing}
        assert status(stranger, rest, path) == 401, missing
    for site in ("same-site", "cross-site", "none", "Same-Origin", ""):
        assert status(stranger, headers | {"Sec-Fetch-Site": site}, path) == 401, site


@pytest.mark.parametrize("path", ROUTES)
def test_the_key_of_another_session_is_not_accepted(
    service: Service, stranger: Client, token: str, path: str
) -> None:
    mine = credentials(sign_in(stranger, token=token))
    for other_token in (token, service.token()):
        other = credentials(sign_in(stranger, token=other_token))
        mixed = mine | {"Gleanery-Session-Key": other["Gleanery-Session-Key"]}
        assert status(stranger, mixed, path) == 401
    assert status(stranger, mine, path) == 200


@pytest.mark.parametrize("value", ["", "x", "a" * 42, "a" * 44, "é" * 43, "a" * 42 + ";"])
def test_a_malformed_key_or_cookie_is_not_accepted(
    stranger: Client, token: str, value: str
) -> None:
    headers: dict[str, Any] = dict(credentials(sign_in(stranger, token=token)))
    assert status(stranger, headers | {"Gleanery-Session-Key": value.encode()}) == 401
    name = headers["Cookie"].partition("=")[0]
    cookie = f"{name}={value}".encode()
    assert status(stranger, headers | {"Cookie": cookie}) == 401


def test_a_cookie_among_others_is_found(stranger: Client, token: str) -> None:
    headers = credentials(sign_in(stranger, token=token))
    assert status(stranger, headers | {"Cookie": f"a=b; {headers['Cookie']};c=d"}) == 200
    assert status(stranger, headers | {"Cookie": f"x{headers['Cookie']}"}) == 401


def test_a_token_beside_a_session_counts(service: Service, stranger: Client, token: str) -> None:
    """A request that carries a token has its rights, whatever else it carries."""
    headers = credentials(sign_in(stranger, token=token))
    with service.client() as other:
        other.store(
            "other-group", {"data": {"a": 1}, "source_url": "https://a.example/", "job_id": "1"}
        )
        both = headers | {"Authorization": f"Bearer {other.token}"}
        assert [one["group_id"] for one in stranger.get("/v1/groups", headers=both).json()] == [
            "other-group"
        ]
        assert status(stranger, both) == 401  # a token is not a session
        wrong = headers | {"Authorization": f"Bearer {tokens.mint()}"}
        assert status(stranger, wrong, "/v1/groups") == 401


def test_a_token_alone_is_no_session(service: Service) -> None:
    with service.client() as client:
        assert client.get(SESSION).status_code == 401
        assert client.post("/console/api/logout", json={}).status_code == 401


# --- forged logins --------------------------------------------------------------------------------


@pytest.mark.parametrize("site", ["cross-site", "same-site", "none", None])
def test_another_page_cannot_sign_in(stranger: Client, token: str, site: str | None) -> None:
    headers = {} if site is None else {"Sec-Fetch-Site": site}
    body = {"token": token, "person": PERSON}
    answer = stranger.post("/console/api/login", json=body, headers=headers)
    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers


def test_a_form_cannot_sign_in_or_out(stranger: Client, token: str) -> None:
    form = {"token": token, "person": PERSON}
    assert stranger.post("/console/api/login", data=form, headers=OWN_PAGE).status_code == 415
    headers = credentials(sign_in(stranger, token=token))
    assert stranger.post("/console/api/logout", data={}, headers=headers).status_code in (415, 422)
    cookie_only = {"Cookie": headers["Cookie"], "Sec-Fetch-Site": "same-site"}
    for body in ({"data": {}}, {"json": {}}):
        answer = stranger.post("/console/api/logout", headers=cookie_only, **body)
        assert answer.status_code == 401
    assert status(stranger, headers) == 200


def test_a_preflight_of_another_origin_gets_no_permission(stranger: Client) -> None:
    asked = {
        "Origin": "https://evil.example",
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "gleanery-session-key,content-type",
    }
    answer = stranger.request("OPTIONS", "/console/api/login", headers=asked)
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_a_cookie_from_before_the_login_is_never_adopted(
    service: Service, stranger: Client, token: str
) -> None:
    """Session fixation: the attacker knows the cookie and the key that the browser had."""
    planted = console_sessions.new_secret()
    headers = OWN_PAGE | {
        "Cookie": f"{console_sessions.cookie_name(service.settings.address)}={planted}",
        "Gleanery-Session-Key": console_sessions.new_secret(),
    }
    body = {"token": token, "person": PERSON}
    answer = stranger.post("/console/api/login", json=body, headers=headers)
    assert planted not in answer.headers["set-cookie"]
    assert answer.json()["key"] != headers["Gleanery-Session-Key"]
    assert status(stranger, headers) == 401


def test_a_new_login_ends_the_session_that_it_replaces(stranger: Client, token: str) -> None:
    first = credentials(sign_in(stranger, token=token))
    other = credentials(sign_in(stranger, token=token))
    body = {"token": token, "person": PERSON}
    second = credentials(stranger.post("/console/api/login", json=body, headers=first))
    assert [status(stranger, one) for one in (first, other, second)] == [401, 200, 200]


def test_a_login_is_small(stranger: Client, token: str) -> None:
    """Strangers may send one, so it cannot be used to fill the memory."""
    assert sign_in(stranger, token=token, person="a" * 5000).status_code == 413
    assert sign_in(stranger, token=token, person="a" * 101).status_code == 422


@pytest.mark.parametrize(
    ("body", "wrong"),
    [
        ({"person": "Anna"}, "token"),
        ({"person": "Anna", "token": "a", "link": "b"}, "token"),
        ({"token": "a"}, "person"),
        ({"token": "a", "person": "  "}, "person"),
        ({"token": "a", "person": "Anna", "admin": True}, "admin"),
    ],
)
def test_an_incomplete_login_says_what_is_missing(
    stranger: Client, body: dict[str, Any], wrong: str
) -> None:
    answer = stranger.post("/console/api/login", json=body, headers=OWN_PAGE)
    assert answer.status_code == 422
    assert answer.json()["detail"][0]["loc"] == ["body", wrong]


def test_a_login_over_the_rate_limit_does_not_use_up_the_link(
    engine: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    settings = fresh_settings(engine, request, tmp_path)
    limited = Service(replace(settings, rate_limit="1/hour"))
    with limited.stranger() as stranger:
        token_id = sign_in(stranger, token=limited.token()).json()["session"]["token_id"]
        link = new_link(limited.settings, token_id)
        assert sign_in(stranger, link=link).status_code == 429
    limited.stop()
    free = Service(settings)
    with free.stranger() as stranger:
        assert [sign_in(stranger, link=link).status_code for _ in range(2)] == [200, 401]
    free.stop()


# --- the end of a session -------------------------------------------------------------------------


@pytest.mark.parametrize("path", ROUTES)
def test_sign_out_ends_one_session(stranger: Client, token: str, path: str) -> None:
    mine, other = (credentials(sign_in(stranger, token=token)) for _ in range(2))
    assert status(stranger, mine, path) == status(stranger, other, path) == 200
    answer = stranger.post("/console/api/logout", json={}, headers=mine)
    assert "Max-Age=0" in answer.headers["set-cookie"]
    assert status(stranger, mine, path) == 401
    assert status(stranger, other, path) == 200


def test_sign_out_everywhere_ends_all_sessions_of_the_token(
    service: Service, stranger: Client, token: str
) -> None:
    mine, other = (credentials(sign_in(stranger, token=token)) for _ in range(2))
    foreign = credentials(sign_in(stranger, token=service.token()))
    session = stranger.get(SESSION, headers=mine).json()
    link = new_link(service.settings, session["token_id"])
    stranger.post("/console/api/logout", json={"everywhere": True}, headers=mine)
    assert sign_in(stranger, link=link).status_code == 401
    assert [status(stranger, one) for one in (mine, other, foreign)] == [401, 401, 200]
    assert status(stranger, {"Authorization": f"Bearer {token}"}, "/v1/groups") == 200


@pytest.mark.parametrize("path", ROUTES)
def test_a_session_ends_at_once_with_its_token(
    service: Service, stranger: Client, token: str, path: str
) -> None:
    answer = sign_in(stranger, token=token)
    headers = credentials(answer)
    assert status(stranger, headers, path) == 200
    revoke(service.settings, answer.json()["session"]["token_id"])
    refused = stranger.get(path, headers=headers)
    assert refused.status_code == 401
    assert "The token of your session was revoked" in refused.json()["detail"][0]["msg"]
    assert sign_in(stranger, token=token).status_code == 401


def test_a_token_has_a_limited_number_of_sessions(
    service: Service, stranger: Client, token: str
) -> None:
    first = credentials(sign_in(stranger, token=token))
    for _ in range(console_sessions.MAX_PER_TOKEN - 1):
        last = credentials(sign_in(stranger, token=token))
    assert status(stranger, first) == 200
    newest = credentials(sign_in(stranger, token=token))
    assert [status(stranger, one) for one in (first, last, newest)] == [401, 200, 200]


def test_a_session_ends_with_the_expiry_of_its_token(timed_service: Service, clock: Clock) -> None:
    token = timed_service.token(expires=timestamps.now() + HOUR * timestamps.SECOND)
    with timed_service.stranger() as stranger:
        headers = credentials(sign_in(stranger, token=token))
        assert status(stranger, headers) == 200
        clock.move(seconds=HOUR + 1)
        assert status(stranger, headers) == 401
        assert sign_in(stranger, token=token).status_code == 401


def test_a_session_ends_after_eight_idle_hours(timed_service: Service, clock: Clock) -> None:
    with timed_service.stranger() as stranger:
        token = timed_service.token()
        used, idle = (credentials(sign_in(stranger, token=token)) for _ in range(2))
        for _ in range(3):
            clock.move(seconds=4 * HOUR)
            assert status(stranger, used) == 200
        assert status(stranger, idle) == 401
        clock.move(seconds=8 * HOUR)
        assert status(stranger, used) == 401


def test_requests_of_an_open_page_do_not_keep_a_session(
    timed_service: Service, clock: Clock
) -> None:
    with timed_service.stranger() as stranger:
        headers = credentials(sign_in(stranger, token=timed_service.token()))
        background = headers | {"Gleanery-Background": "1"}
        clock.move(seconds=4 * HOUR)
        assert status(stranger, background) == 200
        clock.move(seconds=4 * HOUR + 1)
        assert status(stranger, background) == 401
        assert status(stranger, headers) == 401


def test_a_session_in_use_ends_after_a_week(timed_service: Service, clock: Clock) -> None:
    with timed_service.stranger() as stranger:
        headers = credentials(sign_in(stranger, token=timed_service.token()))
        for _ in range(7 * 4 - 1):
            clock.move(seconds=6 * HOUR)
            assert status(stranger, headers) == 200
        clock.move(seconds=6 * HOUR)
        assert status(stranger, headers) == 401


def test_the_sweep_deletes_ended_sessions_and_links(timed_service: Service, clock: Clock) -> None:
    async def counts(engine: Any) -> list[int]:
        tables = ("console_sessions", "login_links")
        return [(await engine.read(f"SELECT count(*) FROM {one}"))[0][0] for one in tables]

    settings = timed_service.settings
    with timed_service.stranger() as stranger:
        answer = sign_in(stranger, token=timed_service.token())
    new_link(settings, answer.json()["session"]["token_id"])
    assert on_engine(settings, counts) == [1, 1]
    clock.move(seconds=9 * HOUR)
    on_engine(settings, lambda engine: console_sessions.delete_ended(engine, clock()))
    assert on_engine(settings, counts) == [0, 0]


def test_a_session_that_a_wrong_clock_created_ends(timed_service: Service, clock: Clock) -> None:
    """Its dates are in the future, so it would live longer than any other."""
    token = timed_service.token()
    with timed_service.stranger() as stranger:
        clock.jump(seconds=40 * DAY)
        headers = credentials(sign_in(stranger, token=token))
        assert status(stranger, headers) == 200
        clock.jump(seconds=-40 * DAY)
        assert [status(stranger, headers, path) for path in ROUTES] == [401, 401]
        own = credentials(sign_in(stranger, token=token))
        listed = stranger.get("/console/api/sessions", headers=own).json()["sessions"]
        assert len(listed) == 1


def test_a_use_while_the_clock_was_wrong_does_not_keep_a_session(
    timed_service: Service, clock: Clock
) -> None:
    with timed_service.stranger() as stranger:
        headers = credentials(sign_in(stranger, token=timed_service.token()))
        clock.jump(seconds=7 * HOUR)
        assert status(stranger, headers) == 200
        clock.jump(seconds=-7 * HOUR)
        assert status(stranger, headers) == 401


def test_nodes_with_slightly_different_clocks_share_sessions(
    timed_service: Service, clock: Clock
) -> None:
    with timed_service.stranger() as stranger:
        clock.jump(seconds=HOUR / 2)
        headers = credentials(sign_in(stranger, token=timed_service.token()))
        clock.jump(seconds=-HOUR / 2)
        assert status(stranger, headers) == 200


def test_a_link_that_a_wrong_clock_created_does_not_work(
    service: Service, stranger: Client, token: str
) -> None:
    later = timestamps.now() + 40 * DAY * timestamps.SECOND
    link = new_link(service.settings, token_id_of(stranger, token), None, later)
    assert sign_in(stranger, link=link).status_code == 401


def test_a_restored_backup_revives_no_session(timed_service: Service) -> None:
    settings = timed_service.settings
    with timed_service.stranger() as stranger:
        answer = sign_in(stranger, token=timed_service.token())
        headers = credentials(answer)
        link = new_link(settings, answer.json()["session"]["token_id"])

        def no_progress(*_: Any) -> Any:
            return lambda _: None

        on_engine(settings, lambda e: restore.complete_restore(e, timestamps.now, no_progress))
        # On PostgreSQL the service may be 503 for a second, after it has seen the restore.
        wait_until(lambda: status(stranger, headers) == 401)
        wait_until(lambda: sign_in(stranger, link=link).status_code == 401)


# --- login links ----------------------------------------------------------------------------------


def token_id_of(stranger: Client, token: str) -> int:
    return int(sign_in(stranger, token=token).json()["session"]["token_id"])


def test_a_link_works_once(service: Service, stranger: Client, token: str) -> None:
    link = new_link(service.settings, token_id_of(stranger, token), "Berta")
    answer = sign_in(stranger, link=link, person="Not Berta")
    assert status(stranger, credentials(answer)) == 200
    assert answer.json()["session"]["person"] == "Berta"
    again = sign_in(stranger, link=link)
    assert again.status_code == 401
    assert "used before" in again.text


def test_a_link_without_a_name_takes_that_of_the_person(
    service: Service, stranger: Client, token: str
) -> None:
    token_id = token_id_of(stranger, token)
    for given, used in (("Carla", "Carla"), ("", "Somebody")):
        answer = sign_in(stranger, link=new_link(service.settings, token_id), person=given)
        assert answer.json()["session"]["person"] == used


def test_an_expired_link_and_one_of_a_revoked_token_do_not_work(
    service: Service, stranger: Client, token: str
) -> None:
    token_id = token_id_of(stranger, token)
    before = timestamps.now() - console_sessions.LINK_LIFETIME
    assert (
        sign_in(stranger, link=new_link(service.settings, token_id, None, before)).status_code
        == 401
    )
    assert audit_of(service, token)[-1] == (
        "refuse_sign_in",
        {"reason": "expired_link", "person": PERSON},
    )
    link = new_link(service.settings, token_id)
    revoke(service.settings, token_id)
    assert sign_in(stranger, link=link).status_code == 401
    assert sign_in(stranger, link=console_sessions.new_secret()).status_code == 401


# --- confirmation ---------------------------------------------------------------------------------


def test_a_login_is_fresh_for_ten_minutes(timed_service: Service, clock: Clock) -> None:
    token = timed_service.token()
    with closing(ConsoleClient(timed_service.url, token)) as console:
        assert console.get(SESSION).json()["is_fresh"]
        clock.move(seconds=10 * 60)
        assert not console.get(SESSION).json()["is_fresh"]
        for wrong in ("x", tokens.mint(), timed_service.token()):
            answer = console.post("/console/api/confirm", json={"token": wrong})
            assert answer.status_code == 422
            assert not console.get(SESSION).json()["is_fresh"]
        assert console.post("/console/api/confirm", json={"token": token}).json()["is_fresh"]
        assert console.get(SESSION).json()["is_fresh"]


def test_a_new_link_of_the_token_confirms_once(timed_service: Service, clock: Clock) -> None:
    token = timed_service.token()
    with closing(ConsoleClient(timed_service.url, token)) as console:
        token_id = console.get(SESSION).json()["token_id"]
        with closing(ConsoleClient(timed_service.url, timed_service.token())) as other:
            other_id = other.get(SESSION).json()["token_id"]
        expired = new_link(timed_service.settings, token_id, now=clock())
        clock.move(seconds=console_sessions.LINK_LIFETIME // timestamps.SECOND)
        foreign = new_link(timed_service.settings, other_id, now=clock())
        link = new_link(timed_service.settings, token_id, now=clock())
        for wrong in ("x", expired, foreign):
            answer = console.post("/console/api/confirm", json={"link": wrong})
            assert answer.json()["detail"][0]["loc"] == ["body", "token"]
            assert not console.get(SESSION).json()["is_fresh"]
        assert console.post("/console/api/confirm", json={"link": link}).json()["is_fresh"]
        assert console.get(SESSION).json()["is_fresh"]
        assert console.post("/console/api/confirm", json={"link": link}).status_code == 422
        assert sign_in(timed_service.stranger(), link=foreign).status_code == 200  # it is unused


# --- the audit log --------------------------------------------------------------------------------


def test_sign_in_and_sign_out_are_audited_with_the_person(service: Service, token: str) -> None:
    with closing(ConsoleClient(service.url, token)) as console:
        console.post("/console/api/logout", json={})
    with closing(ConsoleClient(service.url, token, "Berta")) as console:
        console.post("/console/api/logout", json={"everywhere": True})
    assert audit_of(service, token)[1:] == [
        ("sign_in", {"person": PERSON}),
        ("sign_out", {"person": PERSON}),
        ("sign_in", {"person": "Berta"}),
        ("sign_out", {"everywhere": True, "person": "Berta"}),
    ]


def test_refused_sign_ins_are_audited_but_not_each(service: Service, stranger: Client) -> None:
    name = f"refusals of {timestamps.now()}"
    reader, expired = service.token(name), service.token(name, expires=timestamps.now() - 1)
    revoked = service.token(name)
    revoke(service.settings, token_id_of(stranger, revoked))
    for used in (expired, revoked, expired, revoked, tokens.mint(), "glean_nothing"):
        assert sign_in(stranger, token=used).status_code == 401
    refused = [about for action, about in audit_of(service, reader) if action == "refuse_sign_in"]
    assert refused == [
        {"reason": "expired_token", "person": PERSON},
        {"reason": "revoked_token", "person": PERSON},
    ]


def test_the_log_and_the_pages_hold_no_secret(
    service: Service, stranger: Client, token: str
) -> None:
    headers = credentials(sign_in(stranger, token=token))
    answers = [stranger.get(path, headers=headers).text for path in (SESSION, "/v1/audit")]
    cookie = headers["Cookie"].partition("=")[2]
    for secret in (token, cookie, headers["Gleanery-Session-Key"]):
        assert not [text for text in answers if secret in text]
