"""The audit log is complete, contains no values, and is append-only."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import apsw
import asyncpg
import pytest

from gleanery.common.settings import Settings
from gleanery.service.foundation.security.tokens import DEFAULT_SCOPES, SCOPES, Actor
from gleanery.service.foundation.values import timestamps
from gleanery.service.resources.audit import log as audit_log
from gleanery.service.storage.database import Engine, Transaction
from gleanery.service.storage.engines import open_engine
from gleanery.service.storage.postgres import tenants
from gleanery.service.storage.sqlite import connections as sqlite
from tests.support.databases import open_sqlite
from tests.support.outputs import output
from tests.support.process import (
    database_options,
    join_readers_after_writers,
    run_successfully,
)
from tests.support.service import SECRET_KEY, Client, Clock, Service, new_secret_key
from tests.support.settings import fresh_settings

T = TypeVar("T")
DAY = 86_400 * timestamps.SECOND
COOKIE = {"domain": "shop.example", "name": "a-cookie-name", "value": "a-cookie-value"}
ENTRY = {"domain": ".shop.example", "key": "an-entry-key", "value": "an-entry-value"}


def log(client: Client, cursor: int = 0, limit: int = 1000) -> dict[str, Any]:
    answer = client.get("/v1/audit", params={"cursor": cursor, "limit": limit})
    assert answer.status_code == 200, answer.text
    page: dict[str, Any] = answer.json()
    return page


def told(client: Client) -> list[tuple[str, dict[str, Any]]]:
    return [(entry["action"], entry["about"]) for entry in log(client)["entries"]]


def on_engine(settings: Settings, work: Callable[[Engine], Awaitable[T]]) -> T:
    async def run() -> T:
        async with open_engine(settings) as engine:
            return await work(engine)

    return asyncio.run(run())


def organization_of(client: Client) -> int:
    client.post("/v1/local-storage", json=[ENTRY])
    return int(client.get("/v1/local-storage").json()[0]["organization_id"])


# --- entries ------------------------------------------------------------------------------------


def test_every_read_and_write_of_session_values_is_audited(client: Client) -> None:
    before = log(client)["cursor"]
    number = client.put("/v1/groups/prices", json={}).json()["id"]
    client.post("/v1/cookies", json=[COOKIE, COOKIE | {"domain": "b.example"}])
    client.get("/v1/cookies")
    client.get("/v1/cookies", params={"domain": "www.shop.example"})
    client.delete("/v1/cookies", params={"domain": "shop.example", "name": COOKIE["name"]})
    client.post("/v1/local-storage", json=[ENTRY])
    client.get("/v1/local-storage", params={"for_group": number})
    client.delete("/v1/local-storage", params={"domain": ".shop.example"})
    found = log(client, before)["entries"]
    assert [(entry["action"], entry["about"]) for entry in found] == [
        ("set_cookies", {"records": 2, "domains": ["shop.example", "b.example"]}),
        ("get_cookies", {"records": 2}),
        ("get_cookies", {"records": 1, "domains": ["www.shop.example"]}),
        ("delete_cookies", {"records": 1, "domains": ["shop.example"]}),
        ("set_local_storage", {"records": 1, "domains": [".shop.example"]}),
        ("get_local_storage", {"records": 1, "for_group": number}),
        ("delete_local_storage", {"records": 1, "domains": [".shop.example"]}),
    ]


def test_changed_settings_of_a_group_are_audited(client: Client) -> None:
    before = log(client)["cursor"]
    for settings in (
        {},
        {"display_name": "Prices", "retain_days": 30},
        {"display_name": "Prices", "retain_days": 30, "keep_versions": 20},  # the default
        {"schema": {"type": "object"}, "key_fields": ["sku"], "keep_days": 7},
    ):
        assert client.put("/v1/groups/prices", json=settings).status_code == 200
    found = log(client, before)["entries"]
    lost = ["display_name", "key_fields", "schema", "retain_days", "keep_days"]
    assert [(entry["action"], entry["about"]) for entry in found] == [
        ("set_group", {"group_id": "prices", "settings": ["display_name", "retain_days"]}),
        ("set_group", {"group_id": "prices", "settings": lost}),
    ]


def test_an_entry_names_the_token_the_date_and_the_request(
    client: Client, service: Service
) -> None:
    [made] = log(client)["entries"]
    assert made["action"] == "create_token"
    assert (made["token_id"], made["request_id"]) == (None, None)
    answer = client.get("/v1/cookies")
    [entry] = log(client, made["id"])["entries"]
    assert entry["token_id"] == made["about"]["token_id"]
    assert entry["request_id"] == answer.headers["x-request-id"]
    assert entry["date"] == timestamps.render_microseconds(entry["id"])
    assert abs(entry["id"] - timestamps.now()) < 60 * timestamps.SECOND


def test_no_entry_holds_a_value_a_name_or_a_key(client: Client) -> None:
    client.get("/v1/cookies", headers={"X-Request-ID": f"of-{client.token}"})
    client.post("/v1/cookies", json=[COOKIE])
    client.get("/v1/cookies")
    client.delete("/v1/cookies", params={"domain": "shop.example", "name": COOKIE["name"]})
    client.post("/v1/local-storage", json=[ENTRY])
    client.get("/v1/local-storage")
    client.delete("/v1/local-storage", params={"domain": ".shop.example", "key": ENTRY["key"]})
    text = client.get("/v1/audit").text
    assert text.count("shop.example") == 4
    assert "a-cookie" not in text
    assert "an-entry" not in text
    assert "glean_" not in text


def test_a_review_is_audited_without_its_comment(client: Client) -> None:
    client.store("prices", output(1, job_id="monday"))
    review = {"job_id": "monday", "status": "approved", "comment": "said in confidence"}
    review_id = client.post("/v1/reviews/prices", json=review).json()["review_id"]
    about = {"group_id": "prices", "job_id": "monday", "review_id": review_id, "status": "approved"}
    assert told(client)[-1] == ("add_review", about)
    assert "confidence" not in client.get("/v1/audit").text


def test_a_rejected_request_is_not_audited(client: Client) -> None:
    before = told(client)
    client.post("/v1/cookies", json=[{"domain": "a.com"}])
    client.post("/v1/local-storage", json=[ENTRY | {"group_id": 10**9}])
    client.post("/v1/reviews/none", json={"job_id": "a", "status": "approved"})
    client.get("/v1/cookies", params={"domain": "%%"})
    client.get("/v1/audit")
    assert told(client) == before


def test_a_write_to_many_domains_names_the_first(client: Client) -> None:
    client.post("/v1/cookies", json=[COOKIE | {"domain": f"a{n}.com"} for n in range(50)])
    action, about = told(client)[-1]
    assert (action, about["records"]) == ("set_cookies", 50)
    assert about["domains"] == [f"a{n}.com" for n in range(20)]


# --- reading ------------------------------------------------------------------------------------


def test_the_log_is_paged_oldest_first(client: Client) -> None:
    for number in range(7):
        client.get("/v1/cookies", params={"domain": f"a{number}.com"})
    whole, cursor, pages = log(client), 0, []
    while (page := log(client, cursor, limit=3))["entries"]:
        pages.append(page["entries"])
        cursor = page["cursor"]
    assert [len(page) for page in pages] == [3, 3, 2]
    assert [entry for page in pages for entry in page] == whole["entries"]
    assert [entry["about"].get("domains") for entry in whole["entries"][1:]] == [
        [f"a{number}.com"] for number in range(7)
    ]
    assert log(client, cursor) == {"cursor": cursor, "entries": []}
    assert log(client, whole["entries"][4]["id"] - 1)["entries"] == whole["entries"][4:]
    for wrong in ({"limit": 0}, {"limit": 1001}, {"cursor": -1}):
        assert client.get("/v1/audit", params=wrong).status_code == 422


def test_each_organization_has_its_own_audit_log(service: Service) -> None:
    with service.client() as one, service.client() as two:
        before = told(two)
        one.post("/v1/cookies", json=[COOKIE])
        assert told(two) == before
        assert [action for action, _ in told(one)] == ["create_token", "set_cookies"]


def test_the_audit_log_needs_its_own_scope(service: Service) -> None:
    assert "audit:read" not in DEFAULT_SCOPES
    with service.client(scopes=frozenset(SCOPES) - {"audit:read"}) as client:
        assert client.get("/v1/audit").status_code == 403


@pytest.mark.thorough
def test_a_client_that_follows_the_audit_log_misses_no_entry(service: Service) -> None:
    """Ids are in commit order: a client never sees an id before a smaller one."""
    working, seen, failures = threading.Event(), list[str](), list[int]()
    with service.client() as owner:
        token = str(owner.token)

    def work(number: int) -> None:
        with service.client(token) as client:
            for turn in range(25):
                path = ("/v1/cookies", "/v1/local-storage")[turn % 2]
                named = {"X-Request-ID": f"{number}-{turn}"}
                if turn % 5:
                    answer = client.get(path, headers=named)
                else:
                    answer = client.post(path, json=[(COOKIE, ENTRY)[turn % 2]], headers=named)
                if answer.status_code != 200:
                    failures.append(answer.status_code)

    def follow() -> None:
        with service.client(token) as client:
            cursor, last = 0, False
            while not last:
                last = not working.is_set()
                while (page := log(client, cursor, limit=10))["entries"]:
                    seen.extend(str(entry["request_id"]) for entry in page["entries"])
                    cursor = page["cursor"]
                time.sleep(0.001)

    writers = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    join_readers_after_writers(writers, [threading.Thread(target=follow)], working)
    assert failures == []
    assert sorted(seen) == sorted(["None", *(f"{n}-{t}" for n in range(6) for t in range(25))])


# --- failures -----------------------------------------------------------------------------------


@contextmanager
def nobody_can_write(settings: Settings) -> Iterator[None]:
    if settings.database is None:
        connection = open_sqlite(settings.sqlite_file)
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        finally:
            connection.close()
        return
    with asyncio.Runner() as runner:
        holder: Any = runner.run(asyncpg.connect(settings.database))
        runner.run(holder.execute("BEGIN; LOCK TABLE audit_log IN EXCLUSIVE MODE"))
        try:
            yield
        finally:
            runner.run(holder.execute("ROLLBACK"))  # returns when the lock is released
            runner.run(holder.close())


def test_values_do_not_leave_if_the_read_cannot_be_audited(
    engine: str,
    request: pytest.FixtureRequest,
    tmp_path: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sqlite, "_BUSY_TIMEOUT_MS", 1500)
    monkeypatch.setattr(tenants, "LOCK_TIMEOUT", "lock_timeout = '1500ms'")
    service = Service(fresh_settings(engine, request, tmp_path))
    with service.client() as client:
        client.post("/v1/cookies", json=[COOKIE])
        before = told(client)
        with nobody_can_write(service.settings):
            answer = client.get("/v1/cookies")
            assert answer.status_code == 503
            assert "retry-after" in answer.headers
            assert "a-cookie" not in answer.text
            assert client.get("/v1/groups").status_code == 200
            assert told(client) == before
        assert client.get("/v1/cookies").json()[0]["value"] == COOKIE["value"]
        assert told(client)[-1] == ("get_cookies", {"records": 1})
    service.stop()


# --- append-only --------------------------------------------------------------------------------

CHANGES = (
    "UPDATE audit_log SET action = 'nothing' WHERE organization_id = $1",
    "DELETE FROM audit_log WHERE organization_id = $1",
)


def test_the_database_refuses_to_change_audit_entries(
    client: Client, service: Service, engine: str
) -> None:
    organization_id = organization_of(client)
    before = told(client)

    async def attempt(engine: Engine) -> None:
        for sql in CHANGES:
            with pytest.raises((apsw.ConstraintError, asyncpg.PostgresError)):
                await engine.for_tenant(organization_id).write(
                    lambda transaction, sql=sql: transaction.fetch(sql, organization_id)
                )

    async def replace(engine: Engine) -> None:
        """REPLACE deletes conflicting rows without triggers, unless the triggers are enabled."""
        first = "organization_id, min(id), token_id, request_id, 'nothing', about FROM audit_log"
        sql = f"INSERT OR REPLACE INTO audit_log SELECT {first} WHERE organization_id = $1"
        with pytest.raises(apsw.ConstraintError):
            await engine.for_all_tenants().write(
                lambda transaction: transaction.fetch(sql, organization_id)
            )

    on_engine(service.settings, attempt)
    if service.settings.database is None:
        on_engine(service.settings, replace)
    assert told(client) == before != []
    if service.settings.database is not None:
        for sql in (*CHANGES, "TRUNCATE audit_log"):
            with pytest.raises(asyncpg.RaiseError, match="audit log"):
                asyncio.run(_as_owner(service.settings.database, sql, organization_id))
    assert told(client) == before


async def _as_owner(url: str, sql: str, organization_id: int) -> None:
    connection: Any = await asyncpg.connect(url)
    try:
        await connection.execute(sql.replace("$1", str(organization_id)))
    finally:
        await connection.close()


@pytest.mark.thorough
def test_old_entries_are_deleted(service: Service) -> None:
    old, young, count = timestamps.now() - 401 * DAY, timestamps.now() - 399 * DAY, 2500
    with service.client() as client:
        organization_id = organization_of(client)
        of_today = log(client)["entries"]

        async def note(transaction: Transaction) -> None:
            """Makes all entries older."""
            back = "UPDATE audit_positions SET last_id = 0 WHERE organization_id = $1"
            await transaction.fetch(back, organization_id)
            for moment in [old] * count + [young]:
                await audit_log.append(transaction, Actor(7), moment, "get_cookies", {})

        on_engine(service.settings, lambda e: e.for_tenant(organization_id).write(note))
        assert {entry["date"][:10] for entry in log(client)["entries"]} == (
            {timestamps.render_microseconds(old)[:10]}
        )
        service.sweep(timestamps.now)
        [kept, *rest] = log(client)["entries"]
        assert (kept["id"], kept["token_id"]) == (young, 7)
        assert rest == of_today != []


def test_audit_entries_stay_in_order_if_the_clock_goes_back(timed: Client, clock: Clock) -> None:
    timed.get("/v1/cookies")
    clock.move(seconds=-3600)
    timed.get("/v1/local-storage")
    *_, first, second = log(timed)["entries"]
    assert (first["action"], second["action"]) == ("get_cookies", "get_local_storage")
    assert second["id"] == first["id"] + 1


# --- commands -----------------------------------------------------------------------------------


def test_commands_are_audited(timed_service: Service) -> None:
    settings = timed_service.settings
    where = database_options(settings)
    variables = {}
    if settings.database is not None:
        variables = {"GLEANERY_SECRET_KEY": f"{new_secret_key()} {SECRET_KEY}"}

    def run(*arguments: str) -> str:
        return run_successfully(*arguments, *where, **variables).strip()

    scopes = "session:write,audit:read"
    token = run("token", "create", "--organization", "Harvest & Co", "--scopes", scopes)
    with timed_service.client(token) as client:
        client.post("/v1/cookies", json=[COOKIE])
        [made, _] = log(client)["entries"]
        run("token", "create", "--organization", "Harvest & Co")
        second = log(client)["entries"][-1]["about"]["token_id"]
        for _ in range(2):  # the second revocation changes nothing
            run("token", "revoke", str(second))
        run("keys", "rotate")
        entries = log(client, made["id"])["entries"]
    assert made["about"] == {
        "token_id": made["about"]["token_id"],
        "scopes": ["audit:read", "session:write"],
    }
    assert [(entry["action"], entry["token_id"] is None) for entry in entries] == [
        ("set_cookies", False),
        ("create_token", True),
        ("revoke_token", True),
        ("rotate_keys", True),
    ]
    assert entries[1]["about"]["scopes"] == (
        ["outputs:read", "reviews:read", "session:read", "session:write"]
    )
    assert entries[2]["about"] == {"token_id": second}
    assert len(entries[3]["about"]["key"]) == 8
