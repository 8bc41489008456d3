"""Tokens and sessions on the access screen: who may list, create, revoke and end them."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest

from gleanery.service.foundation.security import tokens as all_tokens
from gleanery.service.foundation.values import timestamps
from tests.support.console import PERSON, ConsoleClient
from tests.support.service import Clock, Service

TOKENS, SESSIONS = "/console/api/tokens", "/console/api/sessions"
NEW = {"name": "Crawler", "scopes": ["outputs:write"], "days": 30}
DAY = 86_400 * timestamps.SECOND


def organization(label: str) -> str:
    return f"{label} {timestamps.now()}"


def console(service: Service, token: str, person: str = PERSON) -> Any:
    return closing(ConsoleClient(service.url, token, person))


def test_a_created_token_is_listed_works_and_is_revoked(service: Service) -> None:
    with console(service, service.token()) as page:
        created = page.post(TOKENS, json=NEW).json()
        [new, own] = page.get(TOKENS).json()["tokens"]
        assert (new["id"], new["name"], new["scopes"]) == (created["id"], "Crawler", NEW["scopes"])
        assert new["expires"] == created["expires"]
        assert abs(new["expires"] - new["created"] - 30 * DAY) < timestamps.SECOND
        assert own["id"] == page.get("/console/api/session").json()["token_id"]
        assert created["token"] not in page.get(TOKENS).text
        with service.client(created["token"]) as client:
            client.store("shop", {"data": {}, "source_url": "https://a.example", "job_id": "1"})
            assert client.get("/v1/cookies").status_code == 403
            assert page.delete(f"{TOKENS}/{created['id']}").json() == {"revoked": True}
            assert client.get("/v1/groups").status_code == 401  # at once, in this process
        assert page.delete(f"{TOKENS}/{created['id']}").status_code == 404
        assert [one["id"] for one in page.get(TOKENS).json()["tokens"]] == [own["id"]]


def test_the_last_use_is_that_of_the_last_minute(timed_service: Service, clock: Clock) -> None:
    token = timed_service.token()
    with console(timed_service, token) as page, timed_service.client(token) as client:
        for _ in range(3):
            client.get("/v1/groups")
            [own] = page.get(TOKENS).json()["tokens"]
            assert 0 <= clock() - own["last_used"] < 60 * timestamps.SECOND
            clock.move(seconds=60)


def test_creating_and_revoking_is_audited_with_the_person(service: Service) -> None:
    with console(service, service.token(), "Berta") as page:
        created = page.post(TOKENS, json=NEW).json()
        page.delete(f"{TOKENS}/{created['id']}")
        own = page.get("/console/api/session").json()["token_id"]
        entries = page.get("/v1/audit").json()["entries"][-2:]
        assert [(one["action"], one["token_id"], one["about"]) for one in entries] == [
            (
                "create_token",
                own,
                {"token_id": created["id"], "scopes": ["outputs:write"], "person": "Berta"},
            ),
            ("revoke_token", own, {"token_id": created["id"], "person": "Berta"}),
        ]


def test_a_token_cannot_exceed_the_rights_of_its_creator(service: Service) -> None:
    scopes = frozenset({"tokens:write", "outputs:read"})
    with console(service, service.token(scopes=scopes)) as page:
        answer = page.post(TOKENS, json=NEW | {"scopes": ["outputs:read", "session:read"]})
        assert answer.status_code == 403
        assert "session:read" in answer.text
        both = page.post(TOKENS, json=NEW | {"scopes": ["outputs:read", "tokens:write"]})
        assert both.status_code == 200


def test_a_token_that_expires_creates_none_that_lasts_longer(service: Service) -> None:
    end = timestamps.now() + 40 * DAY
    with console(service, service.token(expires=end)) as page:
        for days, expires in ((None, end), (365, end)):
            assert page.post(TOKENS, json=NEW | {"days": days}).json()["expires"] == expires
        assert page.post(TOKENS, json=NEW).json()["expires"] < end
    with console(service, service.token()) as page:
        assert page.post(TOKENS, json=NEW | {"days": None}).json()["expires"] is None


def test_creating_a_token_needs_a_fresh_login(timed_service: Service, clock: Clock) -> None:
    token = timed_service.token()
    with console(timed_service, token) as page:
        clock.move(seconds=600)
        answer = page.post(TOKENS, json=NEW)
        assert answer.status_code == 403
        assert answer.json()["detail"][0]["type"] == "confirmation_required"
        assert page.post("/console/api/confirm", json={"token": token}).status_code == 200
        assert page.post(TOKENS, json=NEW).status_code == 200


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({"name": " "}, "name"),
        ({"name": "a" * 101}, "name"),
        ({"name": "a\0"}, "name"),
        ({"scopes": []}, "scopes"),
        ({"scopes": ["all"]}, "scopes"),
        ({"days": 0}, "days"),
        ({"days": 36_501}, "days"),
        ({"days": "30"}, "days"),
        ({"organization": "other"}, "organization"),
    ],
)
def test_an_invalid_token_is_explained(service: Service, change: Any, wrong: str) -> None:
    with console(service, service.token()) as page:
        answer = page.post(TOKENS, json=NEW | change)
        assert answer.status_code == 422
        assert answer.json()["detail"][0]["loc"][:2] == ["body", wrong]


def test_the_scope_is_needed_and_not_given_by_default(service: Service) -> None:
    assert "tokens:write" not in all_tokens.DEFAULT_SCOPES
    scopes = frozenset(all_tokens.SCOPES) - {"tokens:write"}
    with console(service, service.token(scopes=scopes)) as page:
        answers = [page.get(TOKENS), page.post(TOKENS, json=NEW), page.delete(f"{TOKENS}/1")]
        assert [answer.status_code for answer in answers] == [403] * 3
    with service.client() as client:  # every scope, but no session
        answers = [client.get(TOKENS), client.post(TOKENS, json=NEW), client.delete(f"{TOKENS}/1")]
        assert [answer.status_code for answer in answers] == [401] * 3


def test_tokens_and_sessions_of_other_organizations_look_unknown(service: Service) -> None:
    with console(service, service.token()) as mine, console(service, service.token()) as other:
        foreign = other.get("/console/api/session").json()
        assert mine.delete(f"{TOKENS}/{foreign['token_id']}").status_code == 404
        assert mine.delete(f"{SESSIONS}/{foreign['session_id']}").status_code == 404
        assert other.get("/console/api/session").status_code == 200
        assert len(mine.get(TOKENS).json()["tokens"]) == 1
        assert len(mine.get(SESSIONS).json()["sessions"]) == 1
        for text in ("0", "-1", "x", "1.0", "9" * 30, "%00", "٣"):
            assert mine.delete(f"{TOKENS}/{text}").status_code == 404
            assert mine.delete(f"{SESSIONS}/{text}").status_code == 404


def test_sessions_name_the_person_and_can_be_ended(service: Service) -> None:
    name = organization("sessions")
    admin, token = service.token(name), service.token(name)
    with console(service, admin) as page, console(service, token, "Berta") as other:
        listed = page.get(SESSIONS).json()["sessions"]
        assert {one["person"] for one in listed} == {PERSON, "Berta"}
        [berta] = [one for one in listed if one["person"] == "Berta"]
        assert page.delete(f"{SESSIONS}/{berta['id']}").json() == {"ended": True}
        assert other.get("/console/api/session").status_code == 401
        assert page.delete(f"{SESSIONS}/{berta['id']}").status_code == 404
        last = page.get("/v1/audit", params={"limit": 1000}).json()["entries"][-1]
        about = {"token_id": berta["token_id"], "of_person": "Berta", "person": PERSON}
        assert (last["action"], last["about"]) == ("sign_out", about)


def test_without_the_scope_only_sessions_of_the_own_token_are_seen_and_ended(
    service: Service,
) -> None:
    name = organization("own sessions")
    admin, token = service.token(name), service.token(name, scopes=frozenset({"outputs:read"}))
    with (
        console(service, admin) as page,
        console(service, token, "Berta") as berta,
        console(service, token, "Carla") as carla,
    ):
        listed = berta.get(SESSIONS).json()["sessions"]
        assert {one["person"] for one in listed} == {"Berta", "Carla"}
        mine = page.get("/console/api/session").json()["session_id"]
        assert berta.delete(f"{SESSIONS}/{mine}").status_code == 403
        of_carla = carla.get("/console/api/session").json()["session_id"]
        assert berta.delete(f"{SESSIONS}/{of_carla}").status_code == 200
        assert carla.get("/console/api/session").status_code == 401


def test_revoking_the_own_token_ends_the_session(service: Service) -> None:
    with console(service, service.token()) as page:
        own = page.get("/console/api/session").json()["token_id"]
        assert page.delete(f"{TOKENS}/{own}").status_code == 200
        assert page.get("/console/api/session").status_code == 401


def test_a_long_list_of_tokens_has_pages(service: Service) -> None:
    name = organization("many tokens")
    token = service._create([name] * 131, frozenset(all_tokens.SCOPES), None)[0]
    with console(service, token) as page:
        first = page.get(TOKENS).json()
        second = page.get(TOKENS, params={"before": first["next_before"]}).json()
        ids = [one["id"] for part in (first, second) for one in part["tokens"]]
        assert (len(first["tokens"]), len(ids), second["next_before"]) == (100, 131, None)
        assert ids == sorted(set(ids), reverse=True)
