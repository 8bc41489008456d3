"""Hostile data on every screen: nothing executes, and nothing is requested from other hosts."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest
from playwright.sync_api import Browser

from tests.support.console import ConsoleClient, ConsolePage, console_page
from tests.support.console_data import route_of, screen_patterns
from tests.support.hostile_data import GROUP, MARKUP, VALUES, in_path, store_hostile
from tests.support.service import Service

PERSON = MARKUP.replace("evil.example/x", "evil.example")
SUSPECTS = """() => {
    const found = [];
    if (window.hacked !== undefined || {}.hacked !== undefined) found.push("code was executed");
    const own = document.baseURI.split("/").slice(0, 3).join("/");
    for (const one of document.querySelectorAll("*")) {
        const name = one.localName;
        if (["iframe", "object", "embed", "base", "form[action]", "style"].includes(name))
            found.push(name);
        if (name === "script" && !one.src.startsWith(own + "/")) found.push(one.outerHTML);
        if (name === "img" && !/^blob:|^$/.test(one.src) && !one.src.startsWith(own + "/"))
            found.push(one.outerHTML);
        if (name === "a" && !/^(https?:|blob:|$)/.test(one.href)) found.push(one.outerHTML);
        if (name === "a" && one.username) found.push(one.outerHTML);
        for (const attribute of one.attributes)
            if (/^on|^srcdoc$/.test(attribute.name)) found.push(one.outerHTML);
    }
    return found.map((text) => text.slice(0, 200));
}"""
RAW_CONTROLS = """() => {
    const found = [document.title];
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) found.push(texts.currentNode.data);
    for (const one of document.querySelectorAll("[title]")) found.push(one.title);
    const isRaw = (text) => /[\\u202a-\\u202e\\u2066-\\u2069]/.test(text);
    return found.filter(isRaw).map((text) => text.slice(0, 200));
}"""
EXPAND = """() => {
    for (const one of document.querySelectorAll("main details")) one.open = true;
    const opens = /^(show|more|expand|[0-9]+ attempt)/i;
    for (const one of document.querySelectorAll("main button"))
        if (opens.test(one.textContent.trim()) && !one.disabled) one.click();
}"""

Hostile = tuple[str, dict[str, str], list[str]]


@pytest.fixture(scope="module")
def hostile(service: Service) -> Hostile:
    token = service.token()
    console = ConsoleClient(service.url, token, PERSON)
    with service.client(token) as client, closing(console):
        names, ids = store_hostile(client, console)
    return token, names, ids


class Watched:
    """The console in a browser, and everything suspicious that happens in it."""

    def __init__(self, console: ConsolePage) -> None:
        self.console = console
        self.found: list[Any] = []
        console.page.on("dialog", self._dismiss)
        console.page.on("popup", lambda popup: self.found.append(f"a new window: {popup.url}"))
        console.page.on("download", lambda one: self.found.append(f"a download: {one.url}"))

    def _dismiss(self, dialog: Any) -> None:
        self.found.append(f"a dialog: {dialog.message}")
        dialog.dismiss()

    def visit(self, route: str) -> None:
        self.console.show(route)
        page = self.console.page
        page.evaluate(EXPAND)
        page.evaluate("() => new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")
        self.found += [(route, one) for one in page.evaluate(SUSPECTS)]
        self.found += [(route, one) for one in page.evaluate(RAW_CONTROLS)]
        errors = page.locator("main .problem-box").all_inner_texts()
        self.found += [(route, text) for text in errors]

    def assert_harmless(self) -> None:
        assert self.found == []
        self.console.assert_quiet()


@pytest.mark.journey
def test_no_screen_executes_or_loads_anything(
    browser: Browser, service: Service, hostile: Hostile
) -> None:
    token, names, _ = hostile
    with console_page(browser, service.url) as console:
        console.sign_in(token, PERSON)
        watched = Watched(console)
        for pattern in screen_patterns():
            watched.visit(route_of(pattern, names))
        watched.assert_harmless()


def test_no_value_executes_or_loads_anything_in_detail(
    browser: Browser, service: Service, hostile: Hostile
) -> None:
    token, _, ids = hostile
    assert len(ids) == len(VALUES)
    with console_page(browser, service.url) as console:
        console.sign_in(token, PERSON)
        watched = Watched(console)
        for output_id in ids:
            watched.visit(f"groups/{in_path(GROUP)}/outputs/{output_id}")
        watched.visit(f"groups/{in_path(GROUP)}/outputs?output={ids[0]}&job_id={in_path(MARKUP)}")
        watched.assert_harmless()


def test_a_route_made_by_an_attacker_is_harmless(
    browser: Browser, service: Service, hostile: Hostile
) -> None:
    """A link to the console can have anything in its fragment."""
    token, _, _ = hostile
    with console_page(browser, service.url) as console:
        console.sign_in(token, PERSON)
        watched = Watched(console)
        page = console.page
        for route in (
            in_path(MARKUP),
            f"groups/{in_path(MARKUP)}",
            f"groups/{in_path(MARKUP)}/outputs?job_id={in_path(MARKUP)}&view={in_path(MARKUP)}",
            "groups/__proto__",
            "constructor",
            "groups?__proto__=1&constructor=2",
            "sessions/javascript%3Ahacked%3D1",
            f"webhooks/{in_path(MARKUP)}?event={in_path(MARKUP)}&status=constructor",
        ):
            page.evaluate("route => { location.hash = '#/' + route }", route)
            page.evaluate("() => new Promise((done) => setTimeout(done, 100))")
            watched.found += page.evaluate(SUSPECTS)
        assert watched.found == []
        outside = [url for url in console.requests if not url.startswith(f"{service.url}/")]
        assert outside == []
