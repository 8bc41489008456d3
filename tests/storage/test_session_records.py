"""Stored session records: their identities, profiles, and what a write without a member means."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from gleanery.common.settings import Settings
from gleanery.service.foundation.security import tokens
from gleanery.service.foundation.security.tokens import COMMAND_LINE
from gleanery.service.foundation.security.vault import Vault, open_vault
from gleanery.service.foundation.values import timestamps
from gleanery.service.foundation.values.json_text import hash_parts
from gleanery.service.resources.access.organizations import find_grant
from gleanery.service.resources.sessions import cookies, local_storage, records, states, writing
from gleanery.service.resources.sessions.cookies import COOKIES
from gleanery.service.resources.sessions.local_storage import LOCAL_STORAGE
from gleanery.service.resources.sessions.records import Filter
from gleanery.service.resources.sessions.state_models import Cookie, LocalStorageEntry
from gleanery.service.storage.database import Database, Transaction
from gleanery.service.storage.engines import open_engine
from gleanery.sessions import model
from tests.support.databases import execute_sql, run_script, undo_migrations
from tests.support.service import Client, Service
from tests.support.settings import fresh_settings

T = TypeVar("T")
MAX_BYTES = 1024 * 1024
SITE = model.PartitionKey("https://portal.example", has_cross_site_ancestor=True)
OTHER_SITE = model.PartitionKey("https://portal.example", has_cross_site_ancestor=False)


def vault_of(settings: Settings) -> Vault:
    return open_vault(settings.secret_key, settings.key_file)


def in_tenant(
    service: Service, client: Client, work: Callable[[Database, Vault], Awaitable[T]]
) -> T:
    """Runs work on the database of the client's organization."""

    async def run() -> T:
        async with open_engine(service.settings) as engine:
            grant = await find_grant(engine, tokens.digest(client.token or ""))
            assert grant is not None
            return await work(engine.for_tenant(grant.organization_id), vault_of(service.settings))

    return asyncio.run(run())


def store(
    service: Service, client: Client, *inputs: Cookie | LocalStorageEntry
) -> tuple[int, int, int]:
    kind: Any = COOKIES if isinstance(inputs[0], Cookie) else LOCAL_STORAGE

    async def work(database: Database, vault: Vault) -> tuple[int, int, int]:
        now = timestamps.now()
        counts = await writing.store(kind, database, vault, inputs, now, COMMAND_LINE)
        return counts["created"], counts["updated"], counts["unchanged"]

    return in_tenant(service, client, work)


def stored_cookies(service: Service, client: Client, filter_: Filter) -> list[model.Cookie]:
    async def work(database: Database, vault: Vault) -> list[model.Cookie]:
        rows, _ = await states.read_rows(COOKIES, database, filter_, MAX_BYTES)
        decrypt = records.decrypter(COOKIES, database, vault)
        return [cookies.to_stored(decrypt(row), row[:-1]).cookie for row in rows]

    return in_tenant(service, client, work)


def stored_entries(
    service: Service, client: Client, filter_: Filter
) -> list[local_storage.StoredEntry]:
    async def work(database: Database, vault: Vault) -> list[local_storage.StoredEntry]:
        rows, _ = await states.read_rows(LOCAL_STORAGE, database, filter_, MAX_BYTES)
        decrypt = records.decrypter(LOCAL_STORAGE, database, vault)
        return [local_storage.to_stored(decrypt(row), row[:-1]) for row in rows]

    return in_tenant(service, client, work)


# --- records of earlier versions ----------------------------------------------------------------


def insert_as_before(settings: Settings, organization_id: int) -> None:
    """Stores a cookie and an entry as the version without profiles did."""
    vault = vault_of(settings)
    key = vault.key(vault.fingerprints[0])
    cookie = hash_parts("cookie", organization_id, ".a.com", "/", "sid")
    entry = hash_parts("local storage", organization_id, 0, "a.com", "/", "auth")
    owner, now = organization_id, timestamps.now()
    values = [f"'\\x{key.encrypt('old', identity).hex()}'" for identity in (cookie, entry)]
    identities = [f"'\\x{identity.hex()}'" for identity in (cookie, entry)]
    script = f"""
INSERT INTO cookies (organization_id, identity, domain, host, name, path, encrypted_value, secure,
    http_only, expires, updated_at)
VALUES ({owner}, {identities[0]}, '.a.com', 'a.com', 'sid', '', {values[0]}, true, false, NULL,
    {now});
INSERT INTO local_storage (organization_id, identity, group_id, domain, host, key, path,
    encrypted_value, expires, created_at, updated_at)
VALUES ({owner}, {identities[1]}, 0, 'a.com', 'a.com', 'auth', '/', {values[1]}, NULL, {now},
    {now});
"""
    is_sqlite = settings.database is None
    run_script(settings, script.replace("'\\x", "x'") if is_sqlite else script)


@pytest.mark.thorough
def test_records_of_a_database_without_profiles_are_readable(
    engine: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    settings = fresh_settings(engine, request, tmp_path)
    service = Service(settings)
    token = service.token()
    with service.client(token) as client:
        client.post("/v1/local-storage", json=[{"domain": "b.com", "key": "k", "value": "v"}])
        [entry] = client.get("/v1/local-storage").json()
    service.stop()
    execute_sql(settings, "DELETE FROM local_storage WHERE organization_id > 0")
    undo_migrations(settings, "sessions")
    insert_as_before(settings, entry["organization_id"])
    service = Service(settings)
    with service.client(token) as client:
        [cookie] = client.get("/v1/cookies").json()
        [entry] = client.get("/v1/local-storage").json()
        assert (cookie["value"], entry["value"]) == ("old", "old")
        for path, record in (("cookies", cookie), ("local-storage", entry)):
            assert client.post(f"/v1/{path}", json=[record]).json()["unchanged"] == 1
        [found] = stored_cookies(service, client, Filter())
        assert not found.host_only
        given = LocalStorageEntry("a.com", "auth", "old", origin="https://a.com")
        assert store(service, client, given) == (0, 1, 0)  # the same entry, now with an origin
        assert len(client.get("/v1/local-storage").json()) == 1
    service.stop()


@pytest.mark.thorough
def test_cookies_of_an_earlier_program_are_listed_for_subdomains(
    engine: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    settings = fresh_settings(engine, request, tmp_path)
    service = Service(settings)
    token = service.token()
    given = {"domain": "a.com", "name": "sid", "value": "v", "hostOnly": True}
    with service.client(token) as client:
        client.post("/v1/cookies", json=[given])
    service.stop()
    undo_migrations(settings, "host_only_stated")
    service = Service(settings)
    with service.client(token) as client:
        [listed] = client.get("/v1/cookies?domain=www.a.com").json()
        assert client.post("/v1/cookies", json=[listed]).json()["unchanged"] == 1
        assert client.post("/v1/cookies", json=[given]).json()["updated"] == 1
        assert client.get("/v1/cookies?domain=www.a.com").json() == []
    service.stop()


# --- profiles -----------------------------------------------------------------------------------


def test_profiles_are_apart(service: Service, client: Client) -> None:
    ours = Cookie("a.com", "sid", "1")
    theirs = ours._replace(value="2", profile="second", same_site="Lax", host_only=True)
    entry = LocalStorageEntry("a.com", "k", "1")
    assert store(service, client, ours, theirs) == (2, 0, 0)
    assert store(service, client, entry, entry._replace(value="2", profile="second")) == (2, 0, 0)
    assert [one["value"] for one in client.get("/v1/cookies").json()] == ["1"]
    assert [one["value"] for one in client.get("/v1/local-storage").json()] == ["1"]
    [found] = stored_cookies(service, client, Filter("www.a.com", profile="second"))
    assert (found.value, found.same_site) == ("2", "Lax")
    for path in ("cookies", "local-storage"):
        assert client.delete(f"/v1/{path}?domain=a.com").json() == {"deleted": 1}
    [found] = stored_cookies(service, client, Filter(profile="second"))
    [found_entry] = stored_entries(service, client, Filter(profile="second"))
    assert (found.value, found_entry.value) == ("2", "2")


def test_hosts_are_deleted_in_one_profile(service: Service, client: Client) -> None:
    given = [
        Cookie(domain, "sid", "1", profile=profile)
        for domain in ("a.com", ".a.com", "b.com")
        for profile in ("default", "second")
    ]
    assert store(service, client, *given) == (6, 0, 0)

    async def work(database: Database, vault: Vault) -> int:
        async def delete(transaction: Transaction) -> int:
            await records.lock_without_key(transaction, timestamps.now())
            prepared = await writing.prepare(COOKIES, database.organization_id, [given[3]])
            kept = prepared.by_identity
            deleted = await writing.delete_hosts(COOKIES, transaction, "second", ["a.com"], kept)
            return len(deleted)

        return await database.write(delete, queue_key=records.QUEUE_KEY)

    assert in_tenant(service, client, work) == 1
    left = stored_cookies(service, client, Filter(profile="second"))
    assert [one.domain for one in left] == [".a.com", "b.com"]
    assert len(client.get("/v1/cookies").json()) == 3


# --- members that a client does not give --------------------------------------------------------


def test_a_cookie_keeps_what_a_write_does_not_give(service: Service, client: Client) -> None:
    full = Cookie("a.com", "sid", "1", host_only=False, same_site="Strict", partition_key=None)
    store(service, client, full)
    bare = Cookie("a.com", "sid", "1")
    assert store(service, client, bare) == (0, 0, 1)
    assert store(service, client, bare._replace(value="2")) == (0, 1, 0)
    [found] = stored_cookies(service, client, Filter())
    assert (found.value, found.same_site, found.host_only) == ("2", "Strict", False)
    assert store(service, client, bare._replace(value="2", same_site=None)) == (0, 1, 0)
    [found] = stored_cookies(service, client, Filter())
    assert found.same_site is None


def test_a_cookie_without_partition_means_the_only_one(service: Service, client: Client) -> None:
    bare = Cookie("a.com", "sid", "1", path="")
    store(service, client, bare._replace(partition_key=SITE))
    assert store(service, client, bare._replace(path="/")) == (0, 1, 0)
    assert store(service, client, bare._replace(path="/")) == (0, 0, 1)
    [found] = stored_cookies(service, client, Filter())
    assert found.partition_key == SITE
    assert store(service, client, bare._replace(path="/other")) == (1, 0, 0)
    # Of two partitions it means neither.
    store(service, client, bare._replace(partition_key=OTHER_SITE, value="2"))
    assert store(service, client, bare._replace(value="3")) == (1, 0, 0)
    values = {
        one.partition_key: one.value
        for one in stored_cookies(service, client, Filter())
        if one.path == "/"
    }
    assert values == {SITE: "1", OTHER_SITE: "2", None: "3"}
    assert client.delete("/v1/cookies?domain=a.com&name=sid").json() == {"deleted": 4}


def test_an_array_may_name_a_partitioned_cookie_twice(service: Service, client: Client) -> None:
    bare = Cookie("a.com", "sid", "1")
    store(service, client, bare._replace(partition_key=SITE))
    again = bare._replace(value="2"), bare._replace(value="3", partition_key=SITE)
    assert store(service, client, *again) == (0, 1, 0)
    [found] = stored_cookies(service, client, Filter())
    assert found.value == "3"


def test_an_entry_without_origin_means_the_only_one(service: Service, client: Client) -> None:
    bare = LocalStorageEntry("a.com", "k", "1")
    store(service, client, bare._replace(origin="http://a.com:8080"))
    assert store(service, client, bare) == (0, 0, 1)
    store(service, client, bare._replace(origin="https://a.com", value="2"))
    assert store(service, client, bare._replace(value="3")) == (0, 1, 0)
    found = {one.origin: one.value for one in stored_entries(service, client, Filter("a.com"))}
    assert found == {"http://a.com:8080": "1", "https://a.com": "3"}


def test_many_new_records_are_matched_at_once(service: Service, client: Client) -> None:
    given = [Cookie("a.com", f"c{n}", "1", partition_key=SITE) for n in range(20)]
    store(service, client, *given)
    bare = [Cookie("a.com", f"c{n}", "2") for n in range(30)]
    assert store(service, client, *bare) == (10, 20, 0)


# --- the fixed routes ---------------------------------------------------------------------------

CDP = {  # as the Chrome DevTools Protocol reports a cookie
    "name": "sid",
    "value": "s3cret",
    "domain": "shop.example",
    "path": "/",
    "expires": 1893553445.25,
    "size": 9,
    "httpOnly": True,
    "secure": True,
    "session": False,
    "sameSite": "None",
    "priority": "Medium",
    "sameParty": False,
    "sourceScheme": "Secure",
    "sourcePort": 443,
    "partitionKey": {"topLevelSite": "https://portal.example", "hasCrossSiteAncestor": True},
    "partitionKeyOpaque": False,
}
FIREFOX = {
    "name": "sid",
    "value": "s3cret",
    "domain": "shop.example",
    "hostOnly": True,
    "path": "/",
    "secure": True,
    "httpOnly": True,
    "sameSite": "no_restriction",
    "session": False,
    "firstPartyDomain": "",
    "partitionKey": {"topLevelSite": "https://portal.example"},
    "expirationDate": 1893553445,
    "storeId": "firefox-default",
}
PLAYWRIGHT = {
    "name": "sid",
    "value": "s3cret",
    "domain": "shop.example",
    "path": "/",
    "expires": 1893553445,
    "httpOnly": True,
    "secure": True,
    "sameSite": "None",
    "partitionKey": "https://portal.example",
    "_crHasCrossSiteAncestor": True,
}
PUPPETEER = CDP | {"partitionKey": {"sourceOrigin": "https://portal.example"}}
BROWSERS = {"cdp": CDP, "firefox": FIREFOX, "playwright": PLAYWRIGHT, "puppeteer": PUPPETEER}


@pytest.mark.parametrize("browser", BROWSERS)
def test_a_cookie_of_a_browser_is_stored_whole(
    service: Service, client: Client, browser: str
) -> None:
    answer = client.post("/v1/cookies", json=[BROWSERS[browser]])
    assert answer.json() == {"created": 1, "updated": 0, "unchanged": 0}
    assert stored_cookies(service, client, Filter()) == [
        model.Cookie(
            name="sid",
            value="s3cret",
            host="shop.example",
            expires=1893553445,
            secure=True,
            http_only=True,
            same_site="None",
            partition_key=SITE,
        )
    ]
    listed = client.get("/v1/cookies").json()
    assert "partitionKey" not in listed[0]  # the shape of the list is fixed
    assert client.post("/v1/cookies", json=listed).json()["unchanged"] == 1


def test_a_fixed_write_changes_only_what_it_gives(service: Service, client: Client) -> None:
    given: dict[str, object] = {"domain": "a.com", "name": "sid", "value": "1"}
    for members, expected in (
        ({}, (None, True)),
        ({"sameSite": "Strict", "hostOnly": False}, ("Strict", False)),
        ({"value": "2"}, ("Strict", False)),
        ({"hostOnly": True}, ("Strict", True)),
        ({"same_site": "unspecified"}, (None, True)),
    ):
        client.post("/v1/cookies", json=[given | members])
        [found] = stored_cookies(service, client, Filter())
        assert (found.same_site, found.host_only) == expected
    client.post("/v1/cookies", json=[{"domain": ".b.com", "name": "sid", "value": "1"}])
    [_, found] = stored_cookies(service, client, Filter())
    assert not found.host_only


def test_a_partition_can_be_named_or_left_out(service: Service, client: Client) -> None:
    given: dict[str, object] = {"domain": "a.com", "name": "sid", "value": "1"}
    partitioned = given | {"partitionKey": "https://www.a.com"}
    assert client.post("/v1/cookies", json=[partitioned]).json()["created"] == 1
    assert client.post("/v1/cookies", json=[given]).json()["unchanged"] == 1
    assert client.post("/v1/cookies", json=[given | {"partitionKey": ""}]).json()["created"] == 1
    values = [one.partition_key for one in stored_cookies(service, client, Filter())]
    assert values == [model.PartitionKey("https://www.a.com", True), None]
    assert client.delete("/v1/cookies?domain=a.com&name=sid").json() == {"deleted": 2}


def test_an_entry_is_stored_with_its_origin(service: Service, client: Client) -> None:
    given = [
        {"origin": "http://LOCALHOST:8000/", "name": "k", "value": "1"},
        {"origin": "https://localhost", "name": "k", "value": "2"},
        {"domain": "other.example", "key": "k", "value": "3"},
    ]
    assert client.post("/v1/local-storage", json=given).json()["created"] == 3
    found = {one.value: one.origin for one in stored_entries(service, client, Filter())}
    assert found == {"1": "http://localhost:8000", "2": "https://localhost", "3": None}
    assert client.delete("/v1/local-storage?domain=localhost&key=k").json() == {"deleted": 2}


@pytest.mark.parametrize(
    ("members", "wrong"),
    [
        ({"partitionKey": "portal"}, "partitionKey"),
        ({"partitionKey": {"topLevelSite": "https://a.com", "other": 1}}, "partitionKey"),
        ({"partitionKey": {"hasCrossSiteAncestor": "yes"}}, "partitionKey"),
        ({"partitionKeyOpaque": True}, "partitionKeyOpaque"),
        ({"size": "large"}, "size"),
    ],
)
def test_partitions_that_cannot_be_stored_are_rejected(
    client: Client, members: dict[str, object], wrong: str
) -> None:
    given = {"domain": "a.com", "name": "sid", "value": "1"} | members
    answer = client.post("/v1/cookies", json=[given])
    assert answer.status_code == 422
    assert [one["loc"] for one in answer.json()["detail"]] == [["body", "0", wrong]]
