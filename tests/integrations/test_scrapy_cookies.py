"""Scrapy with sessions of the service: cookies, their changes, leases and profiles."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from examples.shop import SESSION, running_shop
from tests.support.browser import chromium_path
from tests.support.cookie_site import COOKIE, SECRET, CookieSite, running_cookie_site
from tests.support.crawls import ASYNCIO, SELECT, RunningCrawl, crawl
from tests.support.forwarder import Forwarder
from tests.support.service import Client, Service
from tests.support.waiting import wait_until

pytestmark = pytest.mark.thorough

HOST = "127.0.0.1"


@pytest.fixture
def site() -> Iterator[CookieSite]:
    with running_cookie_site() as site:
        yield site


def settings_of(service: Service, client: Client, **more: Any) -> dict[str, Any]:
    return {
        "GLEANERY_URL": service.url,
        "GLEANERY_TOKEN": client.token,
        "GLEANERY_SESSIONS": True,
        "ITEM_PIPELINES": {"gleanery.integrations.scrapy.GleaneryPipeline": None},
        "CONCURRENT_REQUESTS": 1,
        "RETRY_ENABLED": False,
        **more,
    }


def browser_settings() -> dict[str, Any]:
    return {
        "DOWNLOAD_HANDLERS": {"http": "scrapy_playwright.handler.ScrapyPlaywrightDownloadHandler"},
        "PLAYWRIGHT_LAUNCH_OPTIONS": {"executable_path": chromium_path(), "args": ["--no-sandbox"]},
    }


def store(client: Client, number: int = 0, profile: str = "default", host: str = HOST) -> None:
    """Store the session of the site."""
    cookies = [{"name": COOKIE, "value": f"{SECRET}{number}", "domain": host, "path": "/"}]
    sent = client.post(
        "/v1/sessions/import",
        params={"profile": profile},
        json={"cookies": [{**cookies[0], "expires": -1}], "origins": []},
    )
    assert sent.status_code == 200, sent.text


def stored(client: Client, profile: str = "default", host: str = HOST) -> dict[str, str]:
    """Return the values of the stored cookies."""
    query = {"domain": host, "profile": profile}
    state = client.get("/v1/sessions/export", params=query).json()
    return {cookie["name"]: cookie["value"] for cookie in state["cookies"]}


def lease(client: Client, host: str = HOST) -> str:
    answer = client.post("/v1/sessions/leases", json={"domain": host, "seconds": 600})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["id"])


def values(*numbers: int) -> list[str]:
    return [f"{SECRET}{number}" for number in numbers]


@pytest.mark.parametrize("reactor", [ASYNCIO, SELECT], ids=["asyncio", "select"])
def test_cookies_are_sent_and_their_changes_stored(
    service: Service, client: Client, site: CookieSite, tmp_path: Path, reactor: str
) -> None:
    store(client)
    settings = settings_of(service, client, TWISTED_REACTOR=reactor)
    urls = f"{site.url}/ {site.url}/redirect {site.url}/"
    done = crawl(tmp_path, "PageSpider", settings, urls=urls)
    assert site.received == values(0, 1, 2, 3)
    assert stored(client) == {COOKIE: f"{SECRET}4", "theme": "dark"}
    assert done.stats["gleanery/session_cookies_stored"] == 2
    assert done.stats["finish_reason"] == "finished"
    assert SECRET not in done.log + str(done.stats)


def test_an_unchanged_session_is_not_stored(
    service: Service, client: Client, site: CookieSite, tmp_path: Path
) -> None:
    cookie = {"name": COOKIE, "value": "other", "domain": HOST, "path": "/"}
    client.post("/v1/cookies", json=[cookie])
    done = crawl(tmp_path, "PageSpider", settings_of(service, client), urls=site.url)
    assert site.received == ["other"]
    assert "gleanery/session_cookies_stored" not in done.stats


def test_a_cookie_that_the_site_deletes_is_not_exported_again(
    service: Service, client: Client, site: CookieSite, tmp_path: Path
) -> None:
    store(client)
    crawl(tmp_path, "PageSpider", settings_of(service, client), urls=f"{site.url}/logout")
    assert site.received == values(0)
    assert stored(client) == {}


def test_changes_are_stored_during_the_crawl(
    service: Service, client: Client, site: CookieSite, tmp_path: Path
) -> None:
    store(client)
    settings = settings_of(service, client, GLEANERY_SESSION_SECONDS=0.1)
    running = RunningCrawl(tmp_path, "PageSpider", settings, urls=f"{site.url}/ {site.url}/slow")
    wait_until(lambda: stored(client).get(COOKIE) == f"{SECRET}1")
    site.pause.set()
    running.wait()
    assert stored(client)[COOKIE] == f"{SECRET}2"


def test_a_profile_has_cookies_of_its_own(
    service: Service, client: Client, site: CookieSite, tmp_path: Path
) -> None:
    store(client)
    store(client, 70, profile="buyer")
    settings = settings_of(service, client)
    urls = f"{site.url}/ {site.url}/redirect"
    crawl(tmp_path, "PageSpider", settings, urls=urls, meta='{"gleanery_profile": "buyer"}')
    assert site.received == values(70, 71, 72)
    assert stored(client, "buyer")[COOKIE] == f"{SECRET}73"
    assert stored(client)[COOKIE] == f"{SECRET}0"
    settings["GLEANERY_PROFILE"] = "buyer"
    crawl(tmp_path, "PageSpider", settings, urls=urls)
    assert site.received[3:] == values(73, 74, 75)


@pytest.mark.parametrize("meta", [{}, {"cookiejar": 1}, {"playwright": True}])
def test_the_profile_of_a_request_wins_over_what_it_inherits(
    service: Service, client: Client, site: CookieSite, tmp_path: Path, meta: dict[str, Any]
) -> None:
    store(client)
    store(client, 70, profile="buyer")
    more = browser_settings() if "playwright" in meta else {}
    settings = settings_of(service, client, **more)
    arguments = {"url": site.url, "profiles": "default buyer default", "meta": json.dumps(meta)}
    crawl(tmp_path, "ProfileSpider", settings, **arguments)
    assert site.received == values(0, 70, 1)


def test_localhost_has_cookies(
    service: Service, client: Client, site: CookieSite, tmp_path: Path
) -> None:
    store(client, host="localhost")
    url = f"http://localhost:{site.server_port}/"
    crawl(tmp_path, "PageSpider", settings_of(service, client), urls=f"{url} {url}")
    assert site.received == values(0, 1)
    assert stored(client, host="localhost")[COOKIE] == f"{SECRET}2"


def test_a_cookie_jar_of_the_spider_has_no_session(
    service: Service, client: Client, site: CookieSite, tmp_path: Path
) -> None:
    store(client)
    settings = settings_of(service, client)
    crawl(tmp_path, "PageSpider", settings, urls=site.url, meta='{"cookiejar": 1}')
    crawl(tmp_path, "PageSpider", settings, urls=site.url, meta='{"dont_merge_cookies": true}')
    assert site.received == ["", ""]


def test_a_browser_starts_with_the_session(
    service: Service, client: Client, site: CookieSite, tmp_path: Path
) -> None:
    store(client)
    settings = settings_of(service, client, **browser_settings())
    urls = f"{site.url}/ {site.url}/redirect {site.url}/"
    done = crawl(tmp_path, "PageSpider", settings, urls=urls, meta='{"playwright": true}')
    assert site.received == values(0, 1, 2, 3)
    assert stored(client) == {COOKIE: f"{SECRET}4", "theme": "dark"}
    assert SECRET not in done.log


def test_a_crawl_waits_for_the_lease_of_another_worker(
    service: Service, client: Client, site: CookieSite, tmp_path: Path
) -> None:
    store(client)
    held = lease(client)
    settings = settings_of(service, client, GLEANERY_LEASE=True)
    running = RunningCrawl(tmp_path, "PageSpider", settings, urls=f"{site.url}/ {site.url}/")
    wait_until(lambda: "Waiting for the lease" in running.log)
    assert site.received == []
    changed = {"cookies": [{"name": COOKIE, "value": f"{SECRET}7", "domain": HOST, "path": "/"}]}
    body = {"state": {**changed, "origins": []}, "format": "playwright", "release": True}
    assert client.put(f"/v1/sessions/leases/{held}", json=body).status_code == 200
    done = running.wait()
    assert site.received == values(7, 8)
    assert stored(client)[COOKIE] == f"{SECRET}9"
    assert client.get("/v1/sessions/leases").json() == []
    assert done.stats["finish_reason"] == "finished"


def test_a_site_without_a_session_is_not_leased_or_stored(
    service: Service, client: Client, site: CookieSite, tmp_path: Path
) -> None:
    store(client)
    lease(client, "localhost")
    settings = settings_of(service, client, GLEANERY_LEASE=True, GLEANERY_LEASE_WAIT=0)
    urls = f"http://localhost:{site.server_port}/welcome {site.url}/"
    done = crawl(tmp_path, "PageSpider", settings, urls=urls)
    assert sorted(site.received) == ["", *values(0)]
    assert done.stats["finish_reason"] == "finished"
    assert done.stats["gleanery/sessions"] == 1
    assert stored(client, host="localhost") == {}
    assert stored(client)[COOKIE] == f"{SECRET}1"


def test_the_settings_can_choose_the_sites_that_have_a_session(
    service: Service, client: Client, site: CookieSite, tmp_path: Path
) -> None:
    store(client)
    settings = settings_of(service, client, GLEANERY_SESSION_DOMAINS=["localhost"])
    urls = f"http://localhost:{site.server_port}/welcome {site.url}/"
    crawl(tmp_path, "PageSpider", settings, urls=urls)
    assert site.received == ["", ""]
    assert stored(client, host="localhost") == {"visitor": "1"}
    assert stored(client) == {COOKIE: f"{SECRET}0"}


def test_crawls_lease_the_sites_of_the_settings_in_the_same_order(
    service: Service, client: Client, site: CookieSite, tmp_path: Path
) -> None:
    held = lease(client)
    domains = f"localhost,{HOST}"
    settings = settings_of(service, client, GLEANERY_LEASE=True, GLEANERY_SESSION_DOMAINS=domains)
    url = f"http://localhost:{site.server_port}/"
    running = RunningCrawl(tmp_path, "PageSpider", settings, urls=url)
    wait_until(lambda: f"Waiting for the lease of {HOST}" in running.log)
    assert [each["id"] for each in client.get("/v1/sessions/leases").json()] == [held]
    assert client.delete(f"/v1/sessions/leases/{held}").status_code == 200
    assert running.wait().stats["gleanery/sessions"] == 2


def test_a_crawl_ends_if_it_does_not_get_the_lease(
    service: Service, client: Client, site: CookieSite, tmp_path: Path
) -> None:
    store(client)
    lease(client)
    settings = settings_of(service, client, GLEANERY_LEASE=True, GLEANERY_LEASE_WAIT=0)
    done = crawl(tmp_path, "PageSpider", settings, urls=f"{site.url}/ {site.url}/")
    assert site.received == []
    assert done.stats["finish_reason"] == "gleanery_session_unavailable"
    assert f"The lease of {HOST} is not available" in done.log
    assert done.stats["log_count/ERROR"] == 1


@pytest.mark.parametrize("reactor", [ASYNCIO, SELECT], ids=["asyncio", "select"])
def test_a_crawl_ends_when_the_lease_is_lost(
    service: Service, client: Client, site: CookieSite, tmp_path: Path, reactor: str
) -> None:
    store(client)
    settings = settings_of(
        service,
        client,
        TWISTED_REACTOR=reactor,
        GLEANERY_LEASE=True,
        GLEANERY_LEASE_SECONDS=1,
    )
    urls = f"{site.url}/ {site.url}/slow {site.url}/ {site.url}/"
    running = RunningCrawl(tmp_path, "PageSpider", settings, urls=urls)
    wait_until(lambda: len(site.received) == 2)
    [held] = client.get("/v1/sessions/leases").json()
    client.delete(f"/v1/sessions/leases/{held['id']}")
    wait_until(lambda: "has ended" in running.log)  # the next renewal notices it
    site.pause.set()
    done = running.wait()
    assert len(site.received) == 2
    assert done.stats["finish_reason"] == "gleanery_lease_lost"
    assert done.stats["gleanery/lease_lost"] == 1
    assert stored(client)[COOKIE] == f"{SECRET}0"


@pytest.mark.parametrize("reactor", [ASYNCIO, SELECT], ids=["asyncio", "select"])
def test_the_end_of_a_crawl_does_not_wait_long_for_a_service_that_hangs(
    service: Service, client: Client, site: CookieSite, tmp_path: Path, reactor: str
) -> None:
    store(client)
    store(client, host="localhost")
    gate = Forwarder(("127.0.0.1", int(service.url.rsplit(":", 1)[1])))
    gate.start()
    settings = settings_of(
        service,
        client,
        GLEANERY_URL=f"http://127.0.0.1:{gate.port}",
        GLEANERY_LEASE=True,
        GLEANERY_CLOSE_SECONDS=1,
        TWISTED_REACTOR=reactor,
    )
    urls = f"http://localhost:{site.server_port}/ {site.url}/ {site.url}/slow"
    running = RunningCrawl(tmp_path, "PageSpider", settings, urls=urls)
    wait_until(lambda: len(site.received) == 3)
    gate.freeze()
    site.pause.set()
    done = running.wait()
    gate.stop()
    assert done.stats["gleanery/session_store_errors"] == 2
    assert done.log.count("cookies of") == 4  # two were loaded, and two are not stored
    assert done.log.count("ends by itself") == 2


def test_a_crawl_ends_without_a_session_if_the_token_cannot_read_it(
    service: Service, site: CookieSite, tmp_path: Path
) -> None:
    client = service.client(scopes=frozenset({"outputs:write"}))
    settings = settings_of(service, client)
    done = crawl(tmp_path, "PageSpider", settings, urls=f"{site.url}/ {site.url}/")
    assert site.received == []
    assert done.stats["finish_reason"] == "gleanery_session_unavailable"
    assert "session:read" in done.log


def test_without_sessions_scrapy_is_not_logged_in(
    service: Service, client: Client, tmp_path: Path
) -> None:
    settings = settings_of(service, client, GLEANERY_SESSIONS=False)
    with running_shop() as shop:
        cookie = {"domain": HOST, "name": SESSION, "value": shop.session, "path": "/"}
        client.post("/v1/cookies", json=[cookie])
        done = crawl(tmp_path, "ShopSpider", settings, url=shop.url, pages="1")
        assert done.stats["shop/not_logged_in"] >= 1
        settings["GLEANERY_SESSIONS"] = True
        done = crawl(tmp_path, "ShopSpider", settings, url=shop.url, pages="1")
        assert "shop/not_logged_in" not in done.stats
        assert done.stats["item_scraped_count"] == 20
