"""All screens: accessibility, both themes and sizes, the keyboard, the policy, a path prefix."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Literal

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.console import NARROW, WIDE, ConsolePage, console_page
from tests.support.console_data import route_of, screen_patterns, store_sample
from tests.support.console_webhooks import ALLOWED
from tests.support.outputs import output
from tests.support.prefix_proxy import open_prefix_proxy
from tests.support.service import Client, Service
from tests.support.settings import fresh_settings

Sample = tuple[str, list[str]]
"""A token, and the routes of all screens."""
MAY_BE_EMPTY: set[str] = set()
"""Patterns of screens that have nothing to show in the sample."""
IS_TOO_WIDE = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
LOGO_IS_DRAWN = "() => [...document.querySelectorAll('.logo')].every((one) => one.naturalWidth)"
CONTROLS = """() => {
    const all = "a[href], button, input, select, textarea, summary, [tabindex]";
    const radios = new Set();
    window.controls = [...document.querySelectorAll(all)].filter((one) => {
        if (one.tabIndex < 0 || one.disabled) return false;
        if (!one.checkVisibility({ visibilityProperty: true })) return false;
        if (one.type !== "radio") return true;
        const isFirst = !radios.has(one.name);
        radios.add(one.name);
        return isFirst;
    });
    window.shadows = new Map(window.controls.map((one) => [one, getComputedStyle(one).boxShadow]));
    window.controls[1].focus();
    return window.controls.length;
}"""
FOCUSED = """() => {
    const one = document.activeElement;
    const style = getComputedStyle(one);
    const isOutlined = ({ outlineStyle, outlineWidth }) =>
        outlineStyle !== "none" && parseFloat(outlineWidth) > 0;
    const hasOutline = isOutlined(style);
    const hasShadow = window.shadows.has(one) && window.shadows.get(one) !== style.boxShadow;
    const before = window.before;
    window.before = one;
    const isAfter = before?.compareDocumentPosition(one) & Node.DOCUMENT_POSITION_FOLLOWING;
    window.controls = window.controls.filter((other) => other !== one && other.isConnected);
    return {
        hasWrapped: one === document.body || Boolean(before && !isAfter),
        isVisible: hasOutline || hasShadow,
        html: one.outerHTML.slice(0, 200),
    };
}"""


@pytest.fixture(scope="module")
def sample(service: Service) -> Sample:
    return stored_sample(service)


def stored_sample(service: Service) -> Sample:
    token = service.token()
    with service.client(token) as client:
        names = store_sample(client)
    return token, [route_of(pattern, names) for pattern in screen_patterns()]


def problems_of(console: ConsolePage, route: str) -> list[Any]:
    """Shows a screen, and returns everything that is wrong with it."""
    console.show(route)
    found: list[Any] = [*console.violations()]
    if console.page.evaluate(IS_TOO_WIDE):
        found.append("the page scrolls sideways")
    if (boxes := console.page.locator("main .problem-box")).count():
        found += boxes.all_inner_texts()
    return found


@pytest.mark.parametrize(
    ("size", "scheme"),
    [
        pytest.param(WIDE, "light", id="wide-light", marks=pytest.mark.journey),
        pytest.param(NARROW, "dark", id="narrow-dark"),
        pytest.param(WIDE, "dark", id="wide-dark"),
        pytest.param(NARROW, "light", id="narrow-light"),
    ],
)
def test_all_screens_are_accessible_and_quiet(
    browser: Browser,
    service: Service,
    sample: Sample,
    size: dict[str, int],
    scheme: Literal["light", "dark"],
) -> None:
    token, routes = sample
    with console_page(browser, service.url, size, scheme) as console:
        console.page.goto(f"{service.url}/console")
        expect(console.page.get_by_role("button", name="Sign in")).to_be_visible()
        assert console.violations() == []
        console.sign_in(token)
        console.page.wait_for_function(LOGO_IS_DRAWN)
        problems = {route: problems_of(console, route) for route in routes}
        assert {route: found for route, found in problems.items() if found} == {}
        console.page.keyboard.press("?")
        expect(console.page.get_by_role("dialog")).to_be_visible()
        assert console.violations() == []
        console.assert_quiet()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_links_in_sentences_do_not_need_their_color(
    browser: Browser, service: Service, scheme: Literal["light", "dark"]
) -> None:
    """Links inside text: of a sample, of findings, of changed values, of a list that goes on."""
    with service.client() as client, console_page(browser, service.url, scheme=scheme) as console:
        client.store("shop", *(linked(number, "before") for number in range(130)))
        client.store("shop", *(linked(number, "after") for number in range(40)))
        output_id = client.items("shop")[0]["output_id"]
        findings = [{"output_id": output_id, "path": "url", "note": "This page is gone."}]
        review = {"job_id": "job", "status": "changes_requested", "findings": findings}
        assert client.post("/v1/reviews/shop", json=review).status_code == 200
        cookies = [soon_expired(number) for number in range(30)]
        assert client.post("/v1/cookies", json=cookies).status_code == 200
        console.sign_in(str(client.token))
        problems = {}
        for route in ("inbox", "groups/shop/review/job", f"groups/shop/outputs/{output_id}"):
            console.show(route)
            console.page.evaluate(OPEN_ALL)
            problems[route] = console.violations()
        assert {route: found for route, found in problems.items() if found} == {}


OPEN_ALL = "document.querySelectorAll('details').forEach((one) => (one.open = true))"


def linked(number: int, version: str) -> dict[str, Any]:
    url = f"https://shop.example/{version}/{number}"
    return output(number, job_id="job", data={"url": url, "text": f"See {url}", "urls": [url, url]})


def soon_expired(number: int) -> dict[str, Any]:
    host = f"{number}.example"
    return {"domain": host, "name": "a", "value": "b", "expires": int(time.time()) + 3600}


def test_no_screen_is_empty(browser: Browser, service: Service, sample: Sample) -> None:
    """Otherwise the other tests would look at nothing: give a new screen its sample data."""
    token, routes = sample
    with console_page(browser, service.url) as console:
        console.sign_in(token)
        shown = []
        for pattern, route in zip(screen_patterns(), routes, strict=True):
            console.show(route)
            if console.page.locator("main .empty").count() and pattern not in MAY_BE_EMPTY:
                shown.append((pattern, console.page.locator("main .empty").first.inner_text()))
        assert shown == []


def test_tab_reaches_every_control_with_visible_focus(
    browser: Browser, service: Service, sample: Sample
) -> None:
    token, routes = sample
    with console_page(browser, service.url) as console:
        console.sign_in(token)
        problems = {}
        for route in routes:
            console.show(route)
            if found := keyboard_problems(console.page):
                problems[route] = found
        assert problems == {}


def keyboard_problems(page: Page) -> list[str]:
    """Presses Tab until the focus is at the start again."""
    found = []
    page.evaluate("window.before = null")
    most = 3 * page.evaluate(CONTROLS) + 20  # a grid may add rows meanwhile
    page.keyboard.press("Shift+Tab")  # the focus is visible after a key only
    for _ in range(most):
        focused = page.evaluate(FOCUSED)
        if focused["hasWrapped"]:
            break
        if not focused["isVisible"]:
            found.append(f"no visible focus: {focused['html']}")
        page.keyboard.press("Tab")
    else:
        found.append("Tab does not leave the screen")
    missed = page.evaluate("window.controls.map((one) => one.outerHTML.slice(0, 200))")
    return [*found, *(f"not reached: {html}" for html in missed)]


@pytest.fixture
def prefixed(
    browser: Browser, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Sample]]:
    """A service below a path. It starts in a thread: Playwright occupies the loop of this one."""
    fresh = fresh_settings("sqlite", request, tmp_path_factory.mktemp("prefixed"))
    with open_prefix_proxy("/data") as proxy, ThreadPoolExecutor(1) as thread:
        url = f"http://127.0.0.1:{proxy.server_port}/data"
        settings = replace(fresh, base_url=url, behind_proxy=True, webhook_allow=ALLOWED)
        service = thread.submit(Service, settings).result()
        proxy.target = service.settings.port
        yield url, stored_sample(service)
        service.stop()


@pytest.mark.journey
def test_all_screens_work_below_a_path(browser: Browser, prefixed: tuple[str, Sample]) -> None:
    url, (token, routes) = prefixed
    with console_page(browser, url) as console:
        console.sign_in(token)
        for route in routes:
            console.show(route)
            assert console.page.locator("main .problem-box").count() == 0, route
        console.assert_quiet()  # also no request beside the path
    with Client(url, token) as client:
        answer = client.get("/console/", follow_redirects=False)
        assert answer.headers["location"] == "/data/console"
