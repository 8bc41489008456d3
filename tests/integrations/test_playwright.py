"""Playwright with a real browser: stored logins, leases, errors in the block, and downloads."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import async_playwright
from playwright.sync_api import Browser, Error

from examples import shop
from gleanery import AsyncClient, Client
from gleanery.client import Conflict, LeaseLost
from gleanery.integrations.playwright import async_api, sync_api
from gleanery.integrations.playwright.sync_api import (
    BrowserSession,
    LoginExpired,
    SessionChanged,
    session,
    store_download,
)
from tests.support.browser import chromium_path, running_chromium
from tests.support.databases import execute_sql
from tests.support.service import Service
from tests.support.shop_runs import check_two_days

pytestmark = pytest.mark.thorough
ON_SQLITE = pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
HOST = "127.0.0.1"


@pytest.fixture(scope="module")
def browser(service: Service) -> Iterator[Browser]:
    """Chromium. A service cannot start in a thread that has the loop of Playwright."""
    with running_chromium() as running:
        yield running


@pytest.fixture
def site() -> Iterator[shop.Shop]:
    with shop.running_shop() as running:
        yield running


@pytest.fixture
def gleanery(service: Service) -> Iterator[Client]:
    with Client(service.url, service.token(), max_retries=1) as made:
        yield made


def log_in_to(site: shop.Shop) -> Any:
    def log_in(session: BrowserSession) -> None:
        page = session.new_page()
        page.goto(f"{site.url}/login")
        page.fill("input[name=user]", shop.USER)
        page.fill("input[name=password]", shop.PASSWORD)
        page.click("button")
        page.get_by_text("You are logged in").wait_for()

    return log_in


_KEY = 'await crypto.subtle.generateKey({name: "AES-GCM", length: 128}, false, ["encrypt"])'
_CREATE_DATABASE = """async () => {
    const value = VALUE;
    await new Promise((resolve, reject) => {
    const request = indexedDB.open("login", 1);
    request.onupgradeneeded = () => request.result.createObjectStore("users").put(value, 1);
    request.onsuccess = () => { request.result.close(); resolve(null); };
    request.onerror = () => reject(request.error);
    });
}"""


def state_of(site: shop.Shop, value: str | None = None, expires: float = -1) -> dict[str, Any]:
    """Session as Playwright writes it."""
    cookie = {
        "name": shop.SESSION,
        "value": value or site.session,
        "domain": HOST,
        "path": "/",
        "expires": expires,
        "httpOnly": True,
        "secure": False,
        "sameSite": "Lax",
    }
    return {"cookies": [cookie], "origins": []}


def consent(expires: float = -1) -> dict[str, Any]:
    """Cookie that every visitor gets. It is no login."""
    return {"name": "consent", "value": "yes", "domain": HOST, "path": "/", "expires": expires}


def stored_names(client: Client) -> set[str]:
    return {cookie["name"] for cookie in client.session(HOST).playwright()["cookies"]}


def stored_value(client: Client) -> Any:
    [cookie] = client.session(HOST).playwright()["cookies"]
    return cookie["value"]


def set_cookie(context: Any, value: str) -> None:
    context.add_cookies([{"name": shop.SESSION, "value": value, "domain": HOST, "path": "/"}])


def end_leases(service: Service) -> None:
    """Moves all leases of the service into the past. The browser has the loop of this thread."""
    statement = "UPDATE session_leases SET expires_at = acquired_at"
    with ThreadPoolExecutor(1) as executor:
        executor.submit(execute_sql, service.settings, statement).result()


def test_a_login_is_stored_and_used_by_the_next_session(
    gleanery: Client, browser: Browser, site: shop.Shop
) -> None:
    with session(gleanery, browser, HOST, login=log_in_to(site), locale="de-DE") as first:
        assert first.needs_login
        assert first.new_page().evaluate("navigator.language") == "de-DE"
    with session(gleanery, browser, HOST) as second:
        assert not second.needs_login
        page = second.new_page()
        page.goto(f"{site.url}/products/1")
        assert page.locator(".sku").text_content() == "SKU-0001"
        page.goto(site.url)
        assert page.evaluate(f"localStorage.getItem('{shop.STORAGE_KEY}')") == shop.USER
    assert site.counts["welcome"] == 1
    assert browser.contexts == []


@ON_SQLITE
def test_a_login_is_stored_before_the_block(
    gleanery: Client, browser: Browser, site: shop.Shop
) -> None:
    with session(gleanery, browser, HOST, login=log_in_to(site)):
        assert stored_value(gleanery) == site.session


@ON_SQLITE
@pytest.mark.parametrize("value", ['"Ann"', _KEY])
def test_indexed_db_that_is_not_stored_is_a_warning(
    gleanery: Client,
    browser: Browser,
    site: shop.Shop,
    caplog: pytest.LogCaptureFixture,
    value: str,
) -> None:
    with session(gleanery, browser, HOST, login=log_in_to(site)) as shop_session:
        assert not caplog.records
        page = shop_session.new_page()
        page.goto(site.url)
        page.evaluate(_CREATE_DATABASE.replace("VALUE", value))
    [warning] = [record for record in caplog.records if record.levelname == "WARNING"]
    assert warning.getMessage() == (
        f"The session of {HOST} is not saved completely: IndexedDB of {site.url} is not kept: only "
        "cookies and local storage are supported"
    )


@ON_SQLITE
def test_nothing_is_stored_after_a_failed_login(
    gleanery: Client, browser: Browser, site: shop.Shop
) -> None:
    def fail(opened: BrowserSession) -> None:
        set_cookie(opened.context, "anonymous")
        raise ValueError("wrong password")

    with pytest.raises(ValueError, match="wrong password"):
        session(gleanery, browser, HOST, login=fail).__enter__()
    assert gleanery.sessions() == []
    assert browser.contexts == []
    with gleanery.session(HOST).lease(1):
        pass  # the lease was returned


@ON_SQLITE
def test_a_missing_login_is_an_error(gleanery: Client, browser: Browser) -> None:
    with pytest.raises(LoginExpired, match=r"127\.0\.0\.1 in the profile 'shop' is not stored"):
        session(gleanery, browser, HOST, profile="shop").__enter__()
    assert browser.contexts == []
    with session(gleanery, browser, HOST, allow_empty=True) as empty:
        assert empty.needs_login
        set_cookie(empty.context, "new")
    assert stored_value(gleanery) == "new"


@ON_SQLITE
def test_an_expired_login_is_an_error_also_if_it_has_local_storage(
    gleanery: Client, browser: Browser, site: shop.Shop
) -> None:
    state = state_of(site, expires=time.time() - 60)
    entry = {"name": shop.STORAGE_KEY, "value": shop.USER}
    state["origins"] = [{"origin": site.url, "localStorage": [entry]}]
    gleanery.session(HOST).store(state)
    with pytest.raises(LoginExpired, match="has expired"):
        session(gleanery, browser, HOST).__enter__()


@ON_SQLITE
def test_local_storage_alone_can_be_a_login(
    gleanery: Client, browser: Browser, site: shop.Shop
) -> None:
    entry = {"name": "token", "value": "t"}
    origins = [{"origin": site.url, "localStorage": [entry]}]
    gleanery.session(HOST).store({"cookies": [], "origins": origins})
    with session(gleanery, browser, HOST) as opened:
        assert not opened.needs_login


@pytest.mark.parametrize("lease", [True, False])
@ON_SQLITE
def test_changed_cookies_are_stored_also_after_an_error(
    lease: bool, gleanery: Client, browser: Browser, site: shop.Shop
) -> None:
    gleanery.session(HOST).store(state_of(site))
    with session(gleanery, browser, HOST, lease=lease) as opened:
        set_cookie(opened.context, "second")
    assert stored_value(gleanery) == "second"

    def fail() -> None:
        with session(gleanery, browser, HOST, lease=lease) as opened:
            set_cookie(opened.context, "third")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert stored_value(gleanery) == "third"
    assert browser.contexts == []


@ON_SQLITE
def test_others_wait_for_the_lease(gleanery: Client, browser: Browser, site: shop.Shop) -> None:
    gleanery.session(HOST).store(state_of(site))
    with session(gleanery, browser, HOST) as opened:
        assert opened.lease is not None
        assert opened.is_held
        with pytest.raises(Conflict, match="Another holder"):
            session(gleanery, browser, HOST).__enter__()
        with session(gleanery, browser, HOST, lease=False) as other:
            assert other.lease is None
    with session(gleanery, browser, HOST):
        pass


@ON_SQLITE
def test_nothing_is_stored_after_the_lease_is_lost(
    gleanery: Client, browser: Browser, site: shop.Shop, service: Service
) -> None:
    gleanery.session(HOST).store(state_of(site))

    def save_late() -> None:
        with session(gleanery, browser, HOST) as opened:
            set_cookie(opened.context, "late")
            end_leases(service)

    with pytest.raises(LeaseLost):
        save_late()
    assert stored_value(gleanery) == site.session
    assert browser.contexts == []


@ON_SQLITE
def test_the_error_of_a_block_tells_that_the_session_is_not_saved(
    gleanery: Client, browser: Browser, site: shop.Shop, service: Service
) -> None:
    gleanery.session(HOST).store(state_of(site))

    def fail() -> None:
        with session(gleanery, browser, HOST) as opened:
            set_cookie(opened.context, "late")
            end_leases(service)
            raise KeyError

    with pytest.raises(KeyError) as caught:
        fail()
    [note] = caught.value.__notes__
    assert "not saved: The lease of 127.0.0.1 has ended" in note


@pytest.mark.parametrize("lease", [True, False])
@ON_SQLITE
def test_changes_of_another_client_are_not_overwritten(
    lease: bool,
    gleanery: Client,
    browser: Browser,
    site: shop.Shop,
    caplog: pytest.LogCaptureFixture,
) -> None:
    gleanery.session(HOST).store(state_of(site))
    with session(gleanery, browser, HOST, lease=lease) as opened:
        set_cookie(opened.context, "mine")
        gleanery.session(HOST).store(state_of(site, "theirs"))
        with pytest.raises(SessionChanged, match="another client has changed it since it was"):
            opened.save()
        caplog.clear()
    assert "another client has changed it since it was loaded" in caplog.text
    assert stored_value(gleanery) == "theirs"
    with session(gleanery, browser, HOST, lease=lease) as opened:
        set_cookie(opened.context, "mine")
        gleanery.session(HOST).store(state_of(site, "theirs"))
        opened.save(overwrite=True)
        opened.save()
    assert stored_value(gleanery) == "mine"


@ON_SQLITE
def test_without_a_lease_a_session_can_be_saved_several_times(
    gleanery: Client, browser: Browser, site: shop.Shop
) -> None:
    gleanery.session(HOST).store(state_of(site))
    with session(gleanery, browser, HOST, lease=False) as opened:
        for value in ("first", "second"):
            set_cookie(opened.context, value)
            opened.save()
            assert stored_value(gleanery) == value
            other = {**consent(), "domain": "other.example", "value": value}
            gleanery.session("other.example").store({"cookies": [other], "origins": []})


@ON_SQLITE
def test_a_session_without_changes_is_not_saved(
    gleanery: Client, browser: Browser, site: shop.Shop, caplog: pytest.LogCaptureFixture
) -> None:
    state = state_of(site, expires=time.time() + 10_000 * 86_400)  # a browser shortens it
    state["origins"] = [{"origin": site.url, "localStorage": [{"name": "a", "value": "b"}]}]
    gleanery.session(HOST).store(state)
    before = gleanery.session(HOST).export().etag
    with session(gleanery, browser, HOST, lease=False) as opened:
        opened.new_page().goto(f"{site.url}/products/1")
        opened.save()
    assert gleanery.session(HOST).export().etag == before
    with session(gleanery, browser, HOST, lease=False) as opened:
        gleanery.session(HOST).store(state_of(site, "theirs"))
    assert stored_value(gleanery) == "theirs"
    assert "another client" not in caplog.text


@ON_SQLITE
def test_cookies_that_the_site_has_deleted_are_deleted(
    gleanery: Client, browser: Browser, site: shop.Shop
) -> None:
    state = state_of(site)
    state["cookies"].append(consent())
    gleanery.session(HOST).store(state)
    with session(gleanery, browser, HOST) as opened:
        page = opened.new_page()
        page.goto(site.url)
        page.evaluate("document.cookie = 'consent=; path=/; max-age=0'")
    assert stored_names(gleanery) == {shop.SESSION}
    with session(gleanery, browser, HOST, replace=True) as opened:
        opened.context.clear_cookies()
    with pytest.raises(LoginExpired, match="has expired"):
        session(gleanery, browser, HOST).__enter__()


@ON_SQLITE
def test_replace_deletes_entries_that_the_browser_no_longer_has(
    gleanery: Client, browser: Browser, site: shop.Shop
) -> None:
    state = state_of(site)
    state["origins"] = [{"origin": site.url, "localStorage": [{"name": "a", "value": "b"}]}]
    gleanery.session(HOST).store(state)
    for replace, left in ((False, 1), (True, 0)):
        with session(gleanery, browser, HOST, replace=replace) as opened:
            page = opened.new_page()
            page.goto(site.url)
            page.evaluate("localStorage.clear()")
        assert len(gleanery.session(HOST).playwright()["origins"]) == left


@ON_SQLITE
def test_a_login_in_the_block_that_fails_is_not_saved(
    gleanery: Client, browser: Browser, site: shop.Shop, caplog: pytest.LogCaptureFixture
) -> None:
    gleanery.session(HOST).store(state_of(site))

    def fail(opened: BrowserSession) -> None:
        set_cookie(opened.context, "anonymous")
        raise ValueError("wrong password")

    def log_in_again() -> None:
        with session(gleanery, browser, HOST, login=fail) as opened:
            opened.log_in()

    with pytest.raises(ValueError, match="wrong password"):
        log_in_again()
    assert stored_value(gleanery) == site.session
    with (
        session(gleanery, browser, HOST, login=fail) as opened,
        pytest.raises(ValueError, match="wrong password"),
    ):
        opened.log_in()
    assert stored_value(gleanery) == site.session
    assert "is not saved: its login failed" in caplog.text


@ON_SQLITE
def test_a_login_in_the_block_is_saved_at_once(
    gleanery: Client, browser: Browser, site: shop.Shop
) -> None:
    gleanery.session(HOST).store(state_of(site, "ended"))
    with session(gleanery, browser, HOST, login=log_in_to(site)) as opened:
        page = opened.new_page()
        page.goto(f"{site.url}/products/1")
        assert page.url.endswith("/login")
        opened.log_in()
        assert stored_value(gleanery) == site.session
    with (
        session(gleanery, browser, HOST) as opened,
        pytest.raises(RuntimeError, match="give login"),
    ):
        opened.log_in()


@pytest.mark.parametrize("is_group", [False, True])
@ON_SQLITE
def test_nothing_is_saved_if_the_block_says_that_the_login_has_expired(
    is_group: bool, gleanery: Client, browser: Browser, site: shop.Shop
) -> None:
    gleanery.session(HOST).store(state_of(site))
    error = LoginExpired("a login form")

    def find_login_form() -> None:
        with session(gleanery, browser, HOST) as opened:
            set_cookie(opened.context, "anonymous")
            raise ExceptionGroup("tasks", [error]) if is_group else error

    with pytest.raises((LoginExpired, ExceptionGroup)):
        find_login_form()
    assert stored_value(gleanery) == site.session


@pytest.mark.parametrize("expires", [None, -60])
@ON_SQLITE
def test_only_the_cookies_of_the_login_count(
    expires: int | None, gleanery: Client, browser: Browser, site: shop.Shop
) -> None:
    state: dict[str, Any] = {"cookies": [consent()], "origins": []}
    if expires is not None:
        state["cookies"] += state_of(site, expires=time.time() + expires)["cookies"]
    gleanery.session(HOST).store(state)
    names = [shop.SESSION]
    with pytest.raises(LoginExpired, match=r"has expired \(it needs the cookies shop_session\)"):
        session(gleanery, browser, HOST, login_cookies=names).__enter__()
    with session(gleanery, browser, HOST, login=log_in_to(site), login_cookies=names) as opened:
        assert opened.needs_login
    with session(gleanery, browser, HOST, login_cookies=names) as opened:
        assert not opened.needs_login
    with pytest.raises(TypeError, match="must be a list"):
        session(gleanery, browser, HOST, login_cookies=shop.SESSION)


@ON_SQLITE
def test_a_check_finds_a_login_that_the_site_has_ended(
    gleanery: Client, browser: Browser, site: shop.Shop
) -> None:
    gleanery.session(HOST).store(state_of(site, "ended"))

    def is_logged_in(opened: BrowserSession) -> bool:
        page = opened.new_page()
        page.goto(f"{site.url}/products/1")
        shown = page.locator(".sku").count()
        page.close()
        return shown == 1

    with pytest.raises(LoginExpired, match="has expired"):
        session(gleanery, browser, HOST, is_logged_in=is_logged_in).__enter__()
    with session(
        gleanery, browser, HOST, is_logged_in=is_logged_in, login=log_in_to(site)
    ) as opened:
        assert opened.needs_login
    with session(gleanery, browser, HOST, is_logged_in=is_logged_in) as opened:
        assert not opened.needs_login


@pytest.mark.parametrize("names", [[], [shop.SESSION]])
@ON_SQLITE
def test_a_function_that_does_not_log_in_is_an_error(
    names: list[str], gleanery: Client, browser: Browser
) -> None:
    def forget_to_wait(opened: BrowserSession) -> None:
        if names:
            opened.context.add_cookies([consent()])  # type: ignore[list-item]

    with pytest.raises(LoginExpired, match="has returned, but there is no login of 127"):
        session(gleanery, browser, HOST, login=forget_to_wait, login_cookies=names).__enter__()
    assert gleanery.sessions() == []


@ON_SQLITE
def test_a_closed_browser_does_not_hide_the_error_of_the_block(
    gleanery: Client, site: shop.Shop, browser: Browser
) -> None:
    gleanery.session(HOST).store(state_of(site))

    def fail() -> None:
        with session(gleanery, browser, HOST) as opened:
            opened.context.close()
            raise KeyError

    with pytest.raises(KeyError) as caught:
        fail()
    assert "is not saved" in caught.value.__notes__[0]
    with pytest.raises(Error, match="closed"), session(gleanery, browser, HOST) as opened:
        opened.context.close()
    assert stored_value(gleanery) == site.session


def download_sheet(page: Any, site: shop.Shop) -> Any:
    page.goto(f"{site.url}/products/7")
    page.locator("a.pdf").evaluate("a => { a.download = 'sheet seven.pdf' }")
    with page.expect_download() as download:
        page.locator("a.pdf").click()
    return download.value


def test_a_download_becomes_a_file(
    gleanery: Client, browser: Browser, site: shop.Shop, tmp_path: Path
) -> None:
    gleanery.session(HOST).store(state_of(site))
    with session(gleanery, browser, HOST) as opened:
        page = opened.new_page()
        download = download_sheet(page, site)
        stored = store_download(gleanery, download, etag="v1")
        assert store_download(gleanery, download, etag="v1").id == stored.id
        copy = page.evaluate_handle("() => new Blob(['text'], {type: 'text/plain'})")
        page.evaluate(
            "blob => { const a = document.createElement('a'); a.href = URL.createObjectURL(blob);"
            " a.download = 'note.txt'; a.id = 'note'; a.textContent = 'x';"
            " document.body.append(a) }",
            copy,
        )
        with page.expect_download() as note:
            page.click("#note")
        text = store_download(gleanery, note.value)
    gleanery.download(stored, tmp_path / "copy.pdf")
    assert (tmp_path / "copy.pdf").read_bytes() == shop.data_sheet(7)
    assert stored.file_type == "application/pdf"
    assert text.file_type == "text/plain"
    known = gleanery.find_file(f"{site.url}/products/7/data-sheet.pdf", "v1")
    assert known is not None
    assert known.id == stored.id


@ON_SQLITE
def test_a_failed_download_is_an_error(gleanery: Client, browser: Browser, site: shop.Shop) -> None:
    gleanery.session(HOST).store(state_of(site))
    with session(gleanery, browser, HOST) as opened:
        download = download_sheet(opened.new_page(), site)
        download.delete()
        with pytest.raises(Error):
            store_download(gleanery, download)


def test_the_asynchronous_module_does_the_same(service: Service, site: shop.Shop) -> None:
    async def log_in(opened: async_api.BrowserSession) -> None:
        set_later = {"name": shop.SESSION, "value": site.session, "domain": HOST, "path": "/"}
        await opened.context.add_cookies([set_later])  # type: ignore[list-item]

    async def scrape() -> str:
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        async with (
            AsyncClient(service.url, service.token()) as client,
            async_playwright() as playwright,
        ):
            browser = await playwright.chromium.launch(
                executable_path=chromium_path(), args=arguments
            )
            async with async_api.session(client, browser, HOST, login=log_in):
                pass
            async with async_api.session(client, browser, HOST) as opened:
                page = await opened.new_page()
                await page.goto(f"{site.url}/products/7")
                await page.locator("a.pdf").evaluate("a => { a.download = '' }")
                async with page.expect_download() as download:
                    await page.locator("a.pdf").click()
                stored = await async_api.store_download(client, await download.value)
            await browser.close()
            return stored.file_type

    with ThreadPoolExecutor(1) as executor:  # the browser of other tests has this thread's loop
        assert executor.submit(asyncio.run, scrape()).result() == "application/pdf"


def test_both_modules_have_the_same_names() -> None:
    assert async_api.__all__ == sync_api.__all__


@ON_SQLITE
def test_the_shop_is_scraped_on_two_days(service: Service, tmp_path: Path) -> None:
    check_two_days(
        "playwright_shop.py", "shop-playwright", service, tmp_path, CHROMIUM=chromium_path()
    )
