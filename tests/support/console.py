"""The console in tests: a signed-in HTTP client, and a signed-in page in Chromium."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal
from urllib.parse import urlsplit

import httpx2
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from tests.support.service import NO_TLS
from tests.support.waiting import TIMEOUT_SECONDS

WIDE = {"width": 1280, "height": 900}
NARROW = {"width": 400, "height": 800}
PERSON = "Anna Reviewer"
_AXE = {"resultTypes": ["violations"], "elementRef": False, "selectors": False}
_REPORT = """document.addEventListener("securitypolicyviolation", (event) =>
    console.error("policy", event.violatedDirective, event.blockedURI, event.sourceFile));"""
_SHOW = """(route) => new Promise((done) => {
    const drawn = () => requestAnimationFrame(() => requestAnimationFrame(done));
    if (location.hash === "#/" + route) return drawn();
    addEventListener("hashchange", drawn, { once: true });
    location.hash = "#/" + route;
})"""

_KEEP_KEY = """([path, key, person]) => {
    localStorage.setItem("gleanery.key " + path, key);
    localStorage.setItem("gleanery.person", person);
}"""

expect.set_options(timeout=30_000)  # the machine may be busy


class ConsoleClient(httpx2.Client):
    """An HTTP client that sends what the console's page sends after a login."""

    def __init__(self, url: str, token: str, person: str = PERSON) -> None:
        headers = {"Sec-Fetch-Site": "same-origin"}
        super().__init__(base_url=url, headers=headers, timeout=TIMEOUT_SECONDS, verify=NO_TLS)
        answer = self.post("/console/api/login", json={"token": token, "person": person})
        assert answer.status_code == 200, answer.text
        # A secure cookie is not sent over plain HTTP by this client, but by browsers on localhost.
        cookie = answer.headers["set-cookie"].partition(";")[0]
        assert cookie.startswith("__Host-gleanery-")
        self.headers["Cookie"] = cookie
        self.headers["Gleanery-Session-Key"] = answer.json()["key"]

    def __enter__(self) -> ConsoleClient:
        return self  # the login has opened it


class ConsolePage:
    """The console in a page of Chromium, and everything that it requests and reports."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.url = url
        self.requests: list[str] = []
        self.messages: list[str] = []
        page.add_init_script(_REPORT)
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("console", lambda message: self.messages.append(message.text))
        page.on("pageerror", lambda error: self.messages.append(str(error)))

    def sign_in(self, token: str, person: str = PERSON) -> None:
        """Sign in over HTTP, without the form, and show the console."""
        with ConsoleClient(self.url, token, person) as client:
            name, value = client.headers["Cookie"].split("=", 1)
            key = client.headers["Gleanery-Session-Key"]
        host = urlsplit(self.url).hostname
        state = {"domain": host, "path": "/", "secure": True, "httpOnly": True}
        cookie = {"name": name, "value": value, "sameSite": "Strict", **state}
        self.page.context.add_cookies([cookie])  # type: ignore[list-item]
        self.page.goto(f"{self.url}/healthz")  # a small page of the origin
        self.page.evaluate(_KEEP_KEY, [f"{urlsplit(self.url).path}/", key, person])
        self.page.goto(f"{self.url}/console")
        expect(self.page.locator("#main")).to_be_visible()

    def sign_in_with_form(self, token: str, person: str = PERSON, is_open: bool = False) -> None:
        """Sign in as a person does. ``is_open``: the login is shown already."""
        if not is_open:
            self.page.goto(f"{self.url}/console")
        self.page.get_by_label("Your name").fill(person)
        self.page.get_by_label("Access token").fill(token)
        self.page.get_by_role("button", name="Sign in").click()
        expect(self.page.locator("#main")).to_be_visible()

    def open(self, route: str) -> None:
        """Shows a screen: ``groups/shop/outputs?job_id=7``."""
        self.page.evaluate("route => { location.hash = '#/' + route }", route)

    def show(self, route: str) -> None:
        """Shows a screen, and waits until it has loaded."""
        self.page.evaluate(_SHOW, route)
        about = f"{route} {self.messages}"
        expect(self.page.locator("main h1").first, about).to_be_visible()
        expect(self.page.locator("main .loading:not(.outputs-rest *)"), about).to_have_count(0)
        expect(self.page.locator("main [aria-busy=true]"), about).to_have_count(0)

    def assert_quiet(self) -> None:
        """Checks that nothing was reported, and that nothing was requested from other hosts."""
        assert self.messages == []
        own = (f"{self.url}/", f"blob:{_origin(self.url)}/")
        assert [url for url in self.requests if not url.startswith(own)] == []

    def violations(self) -> list[tuple[str, Any]]:
        """Returns the rules of axe that the page violates, with the elements."""
        is_there = self.page.evaluate("'axe' in window")
        axe = Axe("0") if is_there else Axe()  # the script is large: once per page
        found = axe.run(self.page, options=_AXE).response["violations"]
        return [(rule["id"], [node["html"] for node in rule["nodes"]]) for rule in found]


def _origin(url: str) -> str:
    return "/".join(url.split("/")[:3])


@contextmanager
def console_page(
    browser: Browser,
    url: str,
    size: Any = WIDE,
    scheme: Literal["light", "dark"] = "light",
) -> Iterator[ConsolePage]:
    """Opens a new context of the browser with one page."""
    context = browser.new_context(viewport=size, color_scheme=scheme, reduced_motion="reduce")
    yield ConsolePage(context.new_page(), url.rstrip("/"))
    context.close()
