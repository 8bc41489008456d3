"""The audit log on its screen: newest first, in pages, with filters."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest

from gleanery.service.foundation.security.tokens import SCOPES, Actor
from gleanery.service.foundation.values import timestamps
from gleanery.service.resources.audit import log
from gleanery.service.storage.database import Engine, Transaction
from tests.support.console import PERSON, ConsoleClient
from tests.support.console_http import on_engine
from tests.support.outputs import output
from tests.support.service import Client, Service

AUDIT = "/console/api/audit"


def pages(page: ConsoleClient, **query: Any) -> list[list[dict[str, Any]]]:
    found, before = [], None
    while True:
        parameters = query if before is None else query | {"before": before}
        answer = page.get(AUDIT, params=parameters)
        assert answer.status_code == 200, answer.text
        found.append(answer.json()["entries"])
        before = answer.json()["next_before"]
        if before is None:
            return found


def append(service: Service, organization_id: int, count: int, action: Any = "get_cookies") -> None:
    async def run(engine: Engine) -> None:
        async def work(transaction: Transaction) -> None:
            for _ in range(count):
                actor = Actor(None, None, "Carla")
                await log.append(transaction, actor, timestamps.now(), action, {"records": 1})

        await engine.for_tenant(organization_id).write(work)

    on_engine(service.settings, run)


def organization_of(client: Client) -> int:
    client.post("/v1/local-storage", json=[{"domain": "a.example", "key": "a", "value": "b"}])
    return int(client.get("/v1/local-storage").json()[0]["organization_id"])


def test_all_entries_come_once_and_newest_first(service: Service, client: Client) -> None:
    append(service, organization_of(client), 130)
    with closing(ConsoleClient(service.url, str(client.token))) as page:
        found = pages(page)
        oldest_first = client.get("/v1/audit", params={"limit": 1000}).json()["entries"]
        assert [len(entries) for entries in found] == [50, 50, len(oldest_first) - 100]
        assert [entry for entries in found for entry in entries] == oldest_first[::-1]


def test_a_download_in_the_console_is_audited(service: Service, client: Client) -> None:
    client.store("shop", output(1))
    with closing(ConsoleClient(service.url, str(client.token))) as page:
        assert page.get("/v1/exports/shop", params={"format": "csv"}).status_code == 200
        assert page.get("/v1/exports/none").status_code == 404
        assert page.head("/v1/exports/shop").status_code == 200
        assert client.get("/v1/exports/shop").status_code == 200  # not in the console
        found = [
            (entry["action"], entry["about"]) for [*entries] in pages(page) for entry in entries
        ]
    about = {"group_id": "shop", "format": "csv", "person": PERSON}
    assert [one for one in found if one[0] == "export_outputs"] == [("export_outputs", about)]


def test_a_full_last_page_is_the_end(service: Service, client: Client) -> None:
    organization_id = organization_of(client)  # three entries with the creation of the token
    append(service, organization_id, 46)
    with closing(ConsoleClient(service.url, str(client.token))) as page:  # and one more
        assert [len(entries) for entries in pages(page)] == [50]


def test_entries_are_filtered(service: Service, client: Client) -> None:
    with closing(ConsoleClient(service.url, str(client.token))) as page:
        own = page.get("/console/api/session").json()["token_id"]
        new = {"name": "Crawler", "scopes": ["outputs:read"], "days": None}
        created = page.post("/console/api/tokens", json=new).json()
        [[entry]] = pages(page, action="sign_in")
        assert (entry["action"], entry["token_id"]) == ("sign_in", own)
        assert [one["action"] for one in pages(page, person="anna r")[0]] == [
            "create_token",
            "sign_in",
        ]
        assert pages(page, person="Nobody") == [[]]
        [[about_new]] = pages(page, token_id=created["id"])  # also what was done to the token
        assert about_new["about"]["token_id"] == created["id"]
        answer = page.get(AUDIT, params={"token_id": created["id"]}).json()
        assert answer["token_names"] == {str(created["id"]): "Crawler"}
        assert page.get(AUDIT, params={"action": "nothing"}).status_code == 422
        assert about_new["about"]["person"] == PERSON


@pytest.mark.thorough
def test_a_rare_action_is_found_in_bounded_steps(service: Service, client: Client) -> None:
    organization_id = organization_of(client)
    append(service, organization_id, 1, "restore")
    append(service, organization_id, 6000)
    with closing(ConsoleClient(service.url, str(client.token))) as page:
        found = pages(page, action="restore")
        assert [len(entries) for entries in found] == [0, 1]


def test_the_scope_and_a_session_are_needed(service: Service, client: Client) -> None:
    assert client.get(AUDIT).status_code == 401
    token = service.token(scopes=frozenset(SCOPES) - {"audit:read"})
    with closing(ConsoleClient(service.url, token)) as page:
        assert page.get(AUDIT).status_code == 403


@pytest.mark.parametrize("before", ["0", "-1", "x", str(2**63)])
def test_an_invalid_position_is_explained(service: Service, client: Client, before: str) -> None:
    with closing(ConsoleClient(service.url, str(client.token))) as page:
        assert page.get(AUDIT, params={"before": before}).status_code == 422
