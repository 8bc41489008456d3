"""The reference page in Chromium: accessibility, keyboard, search, and the forms.

``make browser`` installs Chromium and runs these tests. Without it the tests are skipped.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Locator, Page, Route, expect

from tests.support.browser import browser as browser
from tests.support.browser import service as service
from tests.support.outputs import output
from tests.support.service import Client, Service

WIDE = {"width": 1280, "height": 900}
NARROW = {"width": 400, "height": 800}

expect.set_options(timeout=30_000)  # as long as Playwright waits for an element


class Visit:
    """The open page, and everything that it requests and reports."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.requests: list[str] = []
        self.messages: list[str] = []
        page.on("request", lambda request: self.requests.append(f"{request.method} {request.url}"))
        page.on("console", lambda message: self.messages.append(message.text))
        page.on("pageerror", lambda error: self.messages.append(str(error)))
        page.goto(f"{url}/docs")

    def open_form(self, operation: str) -> Locator:
        """Opens the form of an operation."""
        form = self.page.locator(f"#{operation} .try")
        form.locator("summary").first.click()
        return form

    def assert_quiet(self) -> None:
        """Checks that nothing was reported, such as an error or a violation of the policy."""
        assert self.messages == []


@pytest.fixture
def visit(browser: Browser, service: Service) -> Iterator[Visit]:
    context = browser.new_context(viewport=WIDE)
    yield Visit(context.new_page(), service.url)
    context.close()


def violations(page: Page) -> list[tuple[str, Any]]:
    """Returns the rules of axe that the page violates, with the elements."""
    found = Axe().run(page).response["violations"]
    return [(rule["id"], [node["html"] for node in rule["nodes"]]) for rule in found]


def send(form: Locator, status: str) -> Locator:
    """Sends the request, and returns the shown body when there is a response."""
    form.locator("button").first.click()
    expect(form.get_by_role("status")).to_contain_text(status)
    return form.locator(".result > pre")


# --- accessibility --------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_axe_finds_no_violation(
    browser: Browser, client: Client, size: Any, scheme: Literal["light", "dark"]
) -> None:
    context = browser.new_context(viewport=size, color_scheme=scheme)
    visit = Visit(context.new_page(), str(client.base_url).rstrip("/"))
    page = visit.page
    page.locator("#get_groups .statuses summary").click()
    form = visit.open_form("get_groups")
    form.locator(".token").fill(client.token or "")
    send(form, "200 OK")
    form.get_by_text("Headers").click()
    refused = visit.open_form("delete_group")
    refused.locator("[name=group_id]").fill("unknown")
    refused.get_by_role("checkbox").check()
    send(refused, "404 Not Found")
    page.locator("#get_groups [value=python]").check()
    assert violations(page) == []
    page.locator("#search").fill("cursor")
    assert violations(page) == []
    if size == NARROW:
        page.locator(".menu > summary").click()
        assert violations(page) == []
    context.close()


def test_the_page_fits_a_narrow_screen(browser: Browser, service: Service) -> None:
    context = browser.new_context(viewport=NARROW)
    page = Visit(context.new_page(), service.url).page
    for details in page.locator("details").all():
        details.evaluate("details => { details.open = true }")
    assert page.evaluate("document.documentElement.scrollWidth") == NARROW["width"]
    page.locator(".menu").evaluate("menu => { menu.open = false }")
    page.locator(".menu > summary").focus()
    page.keyboard.press("Enter")
    page.locator("nav").get_by_role("link", name="Get changes").press("Enter")
    expect(page.locator("nav")).to_be_hidden()
    expect(page.locator("#get_changes h3")).to_be_in_viewport()
    context.close()


def test_a_keyboard_alone_finds_an_operation_and_sends_a_request(
    visit: Visit, service: Service
) -> None:
    page, keyboard = visit.page, visit.page.keyboard
    keyboard.press("/")
    expect(page.locator("#search")).to_be_focused()
    keyboard.type("get a group")
    keyboard.press("Enter")
    expect(page.locator("#get_group h3 a")).to_be_focused()
    form = page.locator("#get_group .try")
    press_until(page, "Tab", form.locator("summary").first)
    keyboard.press("Enter")
    press_until(page, "Tab", form.locator(".token"))
    keyboard.type(service.token())
    press_until(page, "Tab", form.locator("[name=group_id]"))
    keyboard.type("unknown/group")
    keyboard.press("Enter")
    expect(form.get_by_role("status")).to_contain_text("404 Not Found")
    assert visit.requests[-1] == f"GET {service.url}/v1/groups/unknown%2Fgroup"
    press_until(page, "Tab", form.locator(".result > pre"))
    press_until(page, "Shift+Tab", page.locator("#get_group h3 a"))
    keyboard.press("/")
    keyboard.press("Escape")
    expect(page.locator("#get_outputs")).to_be_visible()


def test_the_shortcut_can_be_switched_off(visit: Visit) -> None:
    page = visit.page
    page.get_by_role("button", name="Key / moves to the search").press("Enter")
    page.keyboard.press("/")
    expect(page.locator("#search")).not_to_be_focused()


def press_until(page: Page, key: str, target: Locator) -> None:
    for _ in range(40):
        page.keyboard.press(key)
        if target.evaluate("element => element === document.activeElement"):
            return
    raise AssertionError(f"{key} does not reach {target}")


# --- search and examples --------------------------------------------------------------------------


def shown(page: Page, selector: str) -> set[str]:
    ids: list[str] = page.locator(selector).evaluate_all(
        "found => found.filter(one => one.checkVisibility()).map(one => one.id)"
    )
    return set(ids)


def test_the_search_filters_operations_parameters_and_types(visit: Visit) -> None:
    page = visit.page
    page.locator("#search").fill("created_after")
    assert "get_outputs" in shown(page, "article")
    assert "get_cookies" not in shown(page, "article")
    page.locator("#search").fill("delete JOB")
    assert "delete_job" in shown(page, "article")
    expect(page.locator("nav").get_by_role("link", name="Delete a job")).to_be_visible()
    expect(page.locator("nav").get_by_role("link", name="Get changes")).to_be_hidden()
    page.locator("#search").fill("blob_key")
    assert {"FileOut", "StoredFile"} <= shown(page, "article")
    page.locator("#search").fill("zebra")
    assert shown(page, "article") == set()
    expect(page.locator("#matches")).to_have_text("0 operations and 0 types found")
    page.locator("#search").fill("get changes wait")
    page.locator("#get_changes").get_by_role("link", name="ChangePage").click()
    expect(page.locator("#ChangePage")).to_be_in_viewport()
    assert page.locator("#search").input_value() == ""


def test_the_language_is_chosen_once_and_a_button_copies(visit: Visit) -> None:
    page = visit.page
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.locator("#get_outputs [value=python]").check()
    expect(page.locator("#get_changes .python")).to_be_visible()
    expect(page.locator("#get_changes .curl")).to_be_hidden()
    page.locator("#get_changes .request .copy").click()
    expect(page.locator("#get_changes .request .copy")).to_have_text("Copied")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == page.locator("#get_changes .python code").text_content()
    compile(copied, "example", "exec")


def test_examples_and_requests_use_the_address_of_the_page(
    browser: Browser, service: Service
) -> None:
    """As behind a proxy that serves the page under another name and path."""
    page = browser.new_page()

    def to_service(route: Route) -> None:
        path = urlsplit(route.request.url).path.removeprefix("/data")
        route.fulfill(response=route.fetch(url=f"{service.url}{path}"))

    page.route("http://gleanery.test/data/**", to_service)
    visit = Visit(page, "http://gleanery.test/data")
    for code in ("#get_outputs .curl", "#get_outputs .python", "#get_outputs .json"):
        expect(page.locator(code)).to_contain_text("http://gleanery.test/data/v1/outputs/")
    assert service.url not in (page.locator("body").text_content() or "")
    page.locator("#get_outputs .request .copy").click()  # without HTTPS: by selecting
    assert page.evaluate("getSelection().toString()").startswith("curl 'http://gleanery.test/data")
    send(visit.open_form("healthz"), "200 OK")
    assert visit.requests[-1] == "GET http://gleanery.test/data/healthz"
    visit.assert_quiet()
    page.close()


# --- requests -------------------------------------------------------------------------------------


def test_the_token_stays_in_the_memory_of_the_page(visit: Visit, client: Client) -> None:
    page, token = visit.page, client.token or ""
    form = visit.open_form("get_groups")
    form.locator(".token").fill(token)
    send(form, "200 OK")
    expect(page.locator("#get_changes .token")).to_have_value(token)
    storage = "JSON.stringify([localStorage, sessionStorage, document.cookie, location.href])"
    assert token not in page.evaluate(storage)
    assert token not in page.content()
    assert not any(token in request for request in visit.requests)
    assert page.context.storage_state() == {"cookies": [], "origins": []}
    page.reload()
    assert page.locator("#get_groups .token").input_value() == ""


def test_the_page_requests_nothing_else(visit: Visit, client: Client) -> None:
    form = visit.open_form("get_groups")
    form.locator(".token").fill(client.token or "")
    send(form, "200 OK")
    url = str(client.base_url).rstrip("/")
    assert visit.requests == [f"GET {url}/docs", f"GET {url}/v1/groups"]
    visit.assert_quiet()


def test_each_request_that_deletes_is_confirmed(visit: Visit, client: Client) -> None:
    client.store("shop", output(1))
    form = visit.open_form("delete_group")
    form.locator(".token").fill(client.token or "")
    form.locator("[name=group_id]").fill("shop")
    form.locator("[name=group_id]").press("Enter")
    form.locator("button").first.click()
    assert client.get("/v1/groups/shop").status_code == 200
    assert not any(request.startswith("DELETE") for request in visit.requests)
    form.get_by_role("checkbox").check()
    expect(send(form, "200 OK")).to_contain_text('"deleted": 1')
    expect(form.get_by_role("checkbox")).not_to_be_checked()
    assert client.get("/v1/groups/shop").status_code == 404


def test_a_body_and_a_file_are_sent(visit: Visit, client: Client, tmp_path: Path) -> None:
    form = visit.open_form("store_outputs")
    form.locator(".token").fill(client.token or "")
    form.locator("[name=group_id]").fill("numbers")
    body = json.dumps([output(1) | {"data": {"long": 12345678901234567890}}])
    form.locator("textarea").fill(body)
    form.get_by_role("checkbox").check()
    expect(send(form, "200 OK")).to_contain_text('"created": 1')
    form.get_by_label("Content-Type").select_option("application/x-ndjson")
    expect(form.locator("textarea")).to_have_value(re.compile(r"{.*}\n"))
    form.locator("textarea").fill("".join(json.dumps(output(n)) + "\n" for n in (2, 3)))
    form.get_by_role("checkbox").check()
    expect(send(form, "200 OK")).to_contain_text('"lines": 2')
    form = visit.open_form("get_outputs")
    form.locator("[name=group_id]").fill("numbers")
    expect(send(form, "200 OK")).to_contain_text('"long": 12345678901234567890')
    (tmp_path / "page.html").write_text("<!doctype html><p>Hello</p>")
    form = visit.open_form("store_file")
    form.locator("[type=file]").set_input_files(tmp_path / "page.html")
    form.get_by_role("checkbox").check()
    expect(send(form, "200 OK")).to_contain_text('"file_type": "text/html"')
    visit.assert_quiet()


def test_hostile_data_is_shown_as_text(visit: Visit, client: Client) -> None:
    hostile = "<img src=x onerror=alert(1)><script>alert(1)</script>"
    client.store("hostile", output(1) | {"data": {hostile: hostile}})
    form = visit.open_form("get_outputs")
    form.locator(".token").fill(client.token or "")
    form.locator("[name=group_id]").fill("hostile")
    expect(send(form, "200 OK")).to_contain_text(hostile)
    assert form.locator("img, script").count() == 0
    visit.assert_quiet()


def test_only_the_start_of_a_long_response_is_shown(visit: Visit, client: Client) -> None:
    """The start ends inside a string with many quotes, as HTML has them."""
    client.store("long", output(1) | {"data": {"text": '<p class="a">' * 100_000}})
    form = visit.open_form("get_outputs")
    form.locator(".token").fill(client.token or "")
    form.locator("[name=group_id]").fill("long")
    start = time.monotonic()
    body = send(form, "200 OK")
    assert time.monotonic() - start < 15, "the page was blocked"
    expect(body).to_contain_text("only the start is shown")
    assert len(body.text_content() or "") < 300_000


def test_a_request_that_waits_can_be_cancelled(visit: Visit, client: Client) -> None:
    client.store("idle", output(1))
    cursor = client.get("/v1/groups/idle").json()["cursor"]
    form = visit.open_form("get_changes")
    form.locator(".token").fill(client.token or "")
    form.locator("[name=group_id]").fill("idle")
    form.locator("[name=cursor]").fill(str(cursor))
    form.locator("[name=wait]").fill("2")
    visit.page.route("**/v1/changes/**", lambda route: None)  # never answered
    form.locator("button").first.click()
    form.get_by_role("button", name="Cancel").click()
    expect(form.get_by_role("status")).to_have_text("Cancelled")


def test_the_page_is_readable_without_scripts(browser: Browser, service: Service) -> None:
    context = browser.new_context(viewport=NARROW, java_script_enabled=False)
    page = Visit(context.new_page(), service.url).page
    expect(page.locator("#get_outputs .curl")).to_be_visible()
    expect(page.locator("#get_outputs .python")).to_be_hidden()
    page.locator("#get_outputs [value=python]").check()
    expect(page.locator("#get_outputs .python")).to_be_visible()
    expect(page.locator("nav")).to_be_visible()
    expect(page.locator(".search")).to_be_hidden()
    expect(page.locator("#get_outputs .try")).to_be_hidden()
    context.close()
