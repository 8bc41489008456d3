"""Session pools of Crawlee with a real service: stored logins, leases, and retired sessions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from http.cookiejar import CookieJar
from typing import Any

import pytest
from crawlee import Request, service_locator
from crawlee.crawlers import HttpCrawler, HttpCrawlingContext
from crawlee.sessions import SessionPool
from crawlee.storage_clients import MemoryStorageClient

from examples import shop
from gleanery import AsyncClient, Client
from gleanery.client import Conflict, LeaseLost
from gleanery.integrations.crawlee import GleaneryStorageClient, LoginExpired, session_pool
from tests.support.browser import chromium_path
from tests.support.cookie_site import SECRET, CookieSite, running_cookie_site
from tests.support.databases import execute_sql
from tests.support.service import Service
from tests.support.waiting import wait_until

ON_SQLITE = pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
HOST = "shop.example"
SITE = "127.0.0.1"


class Logins:
    """Logins of a new organization, and pools that use them."""

    def __init__(self, service: Service) -> None:
        self.url, self.token = service.url, service.token()
        self.client = Client(self.url, self.token)

    def store(
        self, value: str, profile: str = "default", host: str = HOST, **fields: Any
    ) -> dict[str, Any]:
        state = state_of(value, host, **fields)
        self.client.session(host, profile=profile).store(state)
        return state

    def pool(self, host: str = HOST, **options: Any) -> Any:
        """Session pool for a loop of its own."""
        client = AsyncClient(self.url, self.token, max_retries=1)
        return session_pool(client, host, **options)

    def values(self, host: str = HOST, profile: str = "default") -> dict[str, str]:
        cookies = self.client.session(host, profile=profile).playwright()["cookies"]
        return {cookie["name"]: cookie["value"] for cookie in cookies}


@pytest.fixture
def logins(service: Service) -> Logins:
    return Logins(service)


@pytest.fixture
def site() -> Iterator[CookieSite]:
    with running_cookie_site() as running:
        yield running


def state_of(value: str, host: str = HOST, **fields: Any) -> dict[str, Any]:
    cookie = {"name": "sid", "value": value, "domain": host, "path": "/", "expires": -1, **fields}
    return {"cookies": [cookie], "origins": []}


async def use(pool: SessionPool, profile: str = "default", value: str | None = None) -> str | None:
    """Returns the cookie of a session. With a value, a response changes it."""
    session = await pool.get_session_by_id(profile)
    assert session is not None
    before = session.cookies["sid"]
    if value is not None:
        session.cookies.set("sid", value, domain=HOST)
    return before


async def crawl(pool: SessionPool, *requests: str | Request) -> list[str]:
    """Runs a crawler, and returns the URLs of the pages that it has handled."""
    service_locator.storage_instance_manager.clear_cache()  # else it continues another crawl
    handled = []

    async def scrape(context: HttpCrawlingContext) -> None:
        handled.append(context.request.url)

    crawler = HttpCrawler(
        request_handler=scrape,
        session_pool=pool,
        storage_client=MemoryStorageClient(),
        configure_logging=False,
    )
    await crawler.run(requests)
    return handled


def test_a_pool_has_a_session_for_each_profile(logins: Logins) -> None:
    logins.store("a", "ada")
    logins.store("b", "bob")

    async def run() -> None:
        async with logins.pool(profiles=["bob", "ada"]) as pool, pool:
            assert pool.session_count == 2
            assert await use(pool, "ada", "a2") == "a"
            assert await use(pool, "bob") == "b"
            session = await pool.get_session_by_id("ada")
            session.retire()
            while (await pool.get_session()).id != "ada":
                pass
            assert await use(pool, "ada") == "a2", "the next session has the changed cookies"
            assert await pool.get_session_by_id("eve") is None
            with pytest.raises(Conflict):
                await logins.pool(profiles=["ada"]).__aenter__()

    asyncio.run(run())
    assert [logins.values(profile=name)["sid"] for name in ("ada", "bob")] == ["a2", "b"]


@ON_SQLITE
def test_a_retired_session_is_replaced_by_one_with_the_same_login(logins: Logins) -> None:
    logins.store("a", "ada")
    logins.store("b", "bob")

    async def run() -> None:
        async with logins.pool(profiles=["ada", "bob"]) as pool:
            for _ in range(2):  # a crawler can run again
                async with pool:
                    for profile in ("ada", "bob", "ada"):
                        (await pool.get_session_by_id(profile)).retire()
                        assert await use(pool, profile) == profile[0]
                    assert pool.session_count == 2
                    found = {(await pool.get_session()).id for _ in range(50)}
                    assert found == {"ada", "bob"}
        with pytest.raises(TypeError, match="each profile has one session"):
            await logins.pool(max_pool_size=10).__aenter__()

    asyncio.run(run())


@ON_SQLITE
def test_requests_of_a_profile_go_on_after_the_site_has_refused_one(
    logins: Logins, site: CookieSite
) -> None:
    logins.store(f"{SECRET}1", "ada", SITE)
    urls = [f"{site.url}/refused", f"{site.url}/a", f"{site.url}/b"]

    async def run() -> list[str]:
        async with logins.pool(SITE, profiles=["ada"]) as pool:
            return await crawl(pool, *(Request.from_url(url, session_id="ada") for url in urls))

    assert sorted(asyncio.run(run())) == sorted(urls)
    assert all(value.startswith(SECRET) for value in site.received)


@ON_SQLITE
def test_a_lost_lease_ends_the_crawl(logins: Logins, site: CookieSite, service: Service) -> None:
    logins.store(f"{SECRET}1", host=SITE)

    async def run() -> None:
        async with logins.pool(SITE, seconds=2) as pool:
            await asyncio.to_thread(execute_sql, service.settings, "DELETE FROM session_leases")
            stored = pool._logins[0]._stored
            await asyncio.to_thread(wait_until, lambda: not stored.is_held)  # the next renewal
            await crawl(pool, f"{site.url}/")

    with pytest.raises(LeaseLost, match=r"127\.0\.0\.1 has ended"):
        asyncio.run(run())
    assert site.received == []


@ON_SQLITE
def test_a_cookie_of_one_host_stays_one_in_a_browser(logins: Logins) -> None:
    logins.store("first")

    async def run() -> None:
        async with logins.pool() as pool, pool:
            session = await pool.get_session()
            changed = [{"name": "sid", "value": "second", "domain": HOST, "path": "/"}]
            session.cookies.set_cookies_from_playwright_format(changed)

    asyncio.run(run())
    [found] = logins.client.session(HOST).playwright()["cookies"]
    assert (found["domain"], found["value"]) == (HOST, "second")


@ON_SQLITE
def test_a_cookie_that_a_response_has_deleted_is_deleted(logins: Logins, site: CookieSite) -> None:
    state = logins.store(f"{SECRET}1", host=SITE)
    state["cookies"].append({**state["cookies"][0], "name": "consent"})
    logins.client.session(SITE).store(state)

    async def run() -> None:
        async with logins.pool(SITE) as pool:
            await crawl(pool, f"{site.url}/logout")

    asyncio.run(run())
    assert logins.values(SITE).keys() == {"consent"}


@ON_SQLITE
def test_a_pool_logs_in_where_no_login_is_stored(logins: Logins) -> None:
    async def log_in(profile: str) -> dict[str, Any]:
        return state_of(f"new {profile}")

    async def run() -> None:
        with pytest.raises(LoginExpired, match="is not stored"):
            await logins.pool().__aenter__()
        async with logins.pool(login=log_in) as pool, pool:
            assert await use(pool) == "new default"

    asyncio.run(run())
    assert logins.values() == {"sid": "new default"}


@ON_SQLITE
def test_only_the_cookies_of_the_login_count(logins: Logins) -> None:
    logins.store("yes", name="consent")

    async def forget(profile: str) -> str:
        return "Set-Cookie: theme=dark"

    async def log_in(profile: str) -> CookieJar:
        jar = CookieJar()
        return jar if profile != "default" else state_of("new")  # type: ignore[return-value]

    async def run() -> None:
        with pytest.raises(
            LoginExpired, match=r"has expired \(it needs the cookies sid\)"
        ) as caught:
            await logins.pool(login_cookies=["sid"]).__aenter__()
        assert "or give a function" in str(caught.value)
        for login, profile in ((forget, "default"), (log_in, "empty")):
            with pytest.raises(LoginExpired, match="has returned, but there is no login of shop"):
                await logins.pool(
                    login=login, login_cookies=["sid"], profiles=[profile]
                ).__aenter__()
        assert await asyncio.to_thread(logins.values) == {"consent": "yes"}
        async with logins.pool(login=log_in, login_cookies=["sid"]) as pool, pool:
            assert await use(pool) == "new"

    asyncio.run(run())
    assert logins.values() == {"consent": "yes", "sid": "new"}


@ON_SQLITE
def test_a_check_finds_a_login_that_the_site_has_ended(logins: Logins) -> None:
    logins.store("ended")

    async def is_logged_in(profile: str, jar: CookieJar) -> bool:
        assert profile == "default"
        return [cookie.value for cookie in jar] == ["new"]

    async def log_in(profile: str) -> dict[str, Any]:
        return state_of("new")

    async def fail(profile: str) -> dict[str, Any]:
        return state_of("anonymous")

    async def run() -> None:
        with pytest.raises(LoginExpired, match="has expired"):
            await logins.pool(is_logged_in=is_logged_in).__aenter__()
        with pytest.raises(LoginExpired, match="has returned"):
            await logins.pool(is_logged_in=is_logged_in, login=fail).__aenter__()
        assert await asyncio.to_thread(logins.values) == {"sid": "ended"}
        async with logins.pool(is_logged_in=is_logged_in, login=log_in) as pool, pool:
            assert await use(pool) == "new"
        async with logins.pool(is_logged_in=is_logged_in) as pool, pool:
            assert await use(pool) == "new"

    asyncio.run(run())


@pytest.mark.parametrize("lease", [True, False])
@ON_SQLITE
def test_a_pool_saves_after_an_error_but_not_over_changes_of_others(
    lease: bool, logins: Logins, caplog: pytest.LogCaptureFixture
) -> None:
    logins.store("first")

    async def run(
        value: str | None, theirs: str | None = None, error: Exception | None = None
    ) -> None:
        async with logins.pool(lease=lease) as pool, pool:
            await use(pool, "default", value)
            if theirs is not None:
                await asyncio.to_thread(logins.store, theirs)
            if error is not None:
                raise error

    with pytest.raises(KeyError):
        asyncio.run(run("second", error=KeyError()))
    assert logins.values() == {"sid": "second"}
    with pytest.raises(LoginExpired):
        asyncio.run(run("anonymous", error=LoginExpired("a login form")))
    assert logins.values() == {"sid": "second"}
    with caplog.at_level(logging.WARNING):
        asyncio.run(run("mine", theirs="theirs"))
    assert "another client has changed it since it was loaded" in caplog.text
    assert logins.values() == {"sid": "theirs"}
    asyncio.run(run(None, theirs="theirs again"))
    assert logins.values() == {"sid": "theirs again"}


@ON_SQLITE
def test_the_login_of_a_faster_worker_is_used(logins: Logins) -> None:
    async def log_in(profile: str) -> dict[str, Any]:
        await asyncio.to_thread(logins.store, "theirs")
        return state_of("mine")

    async def run() -> None:
        async with logins.pool(login=log_in, lease=False) as pool, pool:
            assert await use(pool) == "theirs"

    asyncio.run(run())
    assert logins.values() == {"sid": "theirs"}


@pytest.mark.thorough
@ON_SQLITE
def test_a_browser_of_crawlee_uses_the_stored_login(logins: Logins) -> None:
    pytest.importorskip("browserforge", reason="needs crawlee[playwright]")
    path = chromium_path()

    async def run(site: shop.Shop) -> None:
        from crawlee.crawlers import PlaywrightCrawler, PlaywrightCrawlingContext

        async def scrape(context: PlaywrightCrawlingContext) -> None:
            sku = await context.page.locator(".sku").text_content()
            await context.push_data({"url": context.page.url, "sku": sku})

        client = AsyncClient(logins.url, logins.token)
        storage_client = GleaneryStorageClient(
            "prices", "shop", client=client, storage_client=MemoryStorageClient()
        )
        async with logins.pool(SITE) as pool:
            crawler = PlaywrightCrawler(
                request_handler=scrape,
                storage_client=storage_client,
                session_pool=pool,
                browser_launch_options={"executable_path": path, "chromium_sandbox": False},
                max_request_retries=0,
            )
            await crawler.run([f"{site.url}/products/1", f"{site.url}/products/2"])

    with shop.running_shop() as site:
        logins.store(site.session, host=SITE, name=shop.SESSION)
        asyncio.run(run(site))
    outputs = logins.client.outputs("prices")
    assert sorted(output.data["sku"] for output in outputs) == ["SKU-0001", "SKU-0002"]
