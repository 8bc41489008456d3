"""The login in Chromium: forged requests of other pages, other ports, several tabs, links."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2
import pytest
from playwright.sync_api import Browser, Page, expect

from gleanery.service.foundation.values import timestamps
from gleanery.service.resources.access import console_sessions
from gleanery.service.storage.database import Engine, Transaction
from tests.support.browser import chromium_options
from tests.support.console import PERSON, ConsolePage, console_page
from tests.support.console_http import new_link, on_engine, revoke
from tests.support.outputs import output
from tests.support.service import DAY, NO_TLS, Service

COOKIE = "__Host-gleanery-"
SIGN_IN = "Sign in to Gleanery"
SESSION_STATUS = """async () => {
    const headers = { "gleanery-session-key": localStorage.getItem("gleanery.key /") ?? "" };
    return (await fetch("/console/api/session", { headers })).status;
}"""


class Attacker:
    """A page of an attacker on another port, and the headers of the requests that it gets."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.cookies: list[str | None] = []

    def url(self, host: str) -> str:
        return f"http://{host}:{self.port}/"


@contextmanager
def attacker_page() -> Iterator[Attacker]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            attacker.cookies.append(self.headers["Cookie"])
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!doctype html><title>attacker</title><body></body>")

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    attacker = Attacker(server.server_port)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield attacker
    server.shutdown()
    server.server_close()


@pytest.fixture
def token(service: Service) -> str:
    return service.token()


@pytest.fixture
def console(browser: Browser, service: Service) -> Iterator[ConsolePage]:
    with console_page(browser, service.url) as opened:
        yield opened


def heading(page: Page) -> Any:
    return page.get_by_role("heading", name=SIGN_IN)


def key_of(page: Page) -> str | None:
    key: str | None = page.evaluate("localStorage.getItem('gleanery.key /')")
    return key


def cookie_of(console: ConsolePage) -> Any:
    cookies = console.page.context.cookies(console.url.replace("http:", "https:"))
    return next((one for one in cookies if one["name"].startswith(COOKIE)), None)


# --- the session in the browser -------------------------------------------------------------------


@pytest.mark.journey
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_the_cookie_is_stored_on_the_machine_itself(
    browser: Browser, service: Service, token: str, host: str
) -> None:
    with console_page(browser, service.url.replace("127.0.0.1", host)) as console:
        console.sign_in_with_form(token)
        cookie = cookie_of(console)
        assert (cookie["secure"], cookie["httpOnly"], cookie["sameSite"]) == (True, True, "Strict")
        assert 0 < cookie["expires"] - time.time() <= 7 * DAY
        assert console.page.evaluate("document.cookie") == ""
        stored = console.page.evaluate(
            "[JSON.stringify(localStorage), JSON.stringify(sessionStorage)]"
        )
        assert token not in "".join(stored)
        assert cookie["value"] not in "".join(stored)


def test_plain_http_of_another_host_says_what_to_do(browser: Browser, service: Service) -> None:
    context = browser.new_context()
    page = context.new_page()
    target = service.url

    def forward(route: Any) -> None:
        url = route.request.url.replace("http://data.example", target)
        route.fulfill(response=context.request.get(url))

    page.route("http://data.example/**", forward)
    page.goto("http://data.example/console")
    expect(page.get_by_role("heading", name="A secure connection is needed")).to_be_visible()
    expect(page.get_by_text("--tls-cert")).to_be_visible()
    context.close()


def test_a_browser_without_cookies_is_told(console: ConsolePage, token: str) -> None:
    """A request without the cookie gets 401, as the service would answer."""
    refused = '{"detail": [{"loc": [], "msg": "no session", "type": "unauthenticated"}]}'
    session = "**/console/api/session"
    console.page.route(session, lambda route: route.fulfill(status=401, body=refused))
    console.page.goto(f"{console.url}/console")
    console.page.get_by_label("Your name").fill(PERSON)
    console.page.get_by_label("Access token").fill(token)
    console.page.get_by_role("button", name="Sign in").click()
    expect(console.page.get_by_role("alert")).to_contain_text("has not stored the cookie")


@pytest.mark.journey
def test_a_wrong_token_is_explained(console: ConsolePage) -> None:
    console.page.goto(f"{console.url}/console")
    console.page.get_by_label("Your name").fill(PERSON)
    console.page.get_by_label("Access token").fill("glean_wrong")
    console.page.get_by_role("button", name="Sign in").click()
    expect(console.page.get_by_role("alert")).to_contain_text("not a complete Gleanery token")


def test_a_cookie_from_before_the_login_is_replaced(
    service: Service, console: ConsolePage, token: str
) -> None:
    planted = console_sessions.new_secret()
    name = console_sessions.cookie_name(service.settings.address)
    cookie = {"name": name, "value": planted, "secure": True}
    url = console.url.replace("http:", "https:")
    console.page.context.add_cookies([{**cookie, "url": url}])  # type: ignore[typeddict-item]
    console.sign_in_with_form(token)
    assert cookie_of(console)["value"] != planted


# --- tabs -----------------------------------------------------------------------------------------


def test_a_new_tab_needs_no_login(console: ConsolePage, token: str) -> None:
    console.sign_in(token)
    tab = console.page.context.new_page()
    tab.goto(f"{console.url}/console#/access")
    expect(tab.get_by_role("heading", name="Access", exact=True)).to_be_visible()


def reopen(console: ConsolePage) -> Page:
    """Closes the last tab, and opens the console in a new one."""
    context = console.page.context
    tab = context.new_page()
    console.page.close()
    tab.goto(f"{console.url}/console")
    return tab


def test_a_person_who_closes_the_last_tab_can_go_on(console: ConsolePage, token: str) -> None:
    console.sign_in(token)
    tab = reopen(console)
    expect(tab.locator(".person")).to_contain_text(PERSON)
    expect(heading(tab)).to_have_count(0)


@pytest.mark.parametrize("stays", [True, False], ids=["stay signed in", "a shared computer"])
def test_the_end_of_the_browser_ends_the_session_only_if_the_person_wants(
    browser: Browser, service: Service, token: str, tmp_path: Path, stays: bool
) -> None:
    def start() -> Any:
        return browser.browser_type.launch_persistent_context(tmp_path, **chromium_options())

    with start() as context:
        console = ConsolePage(context.new_page(), service.url)
        console.page.goto(f"{service.url}/console")
        console.page.get_by_label("Stay signed in").set_checked(stays)
        console.sign_in_with_form(token, is_open=True)
    with start() as context:
        page = context.new_page()
        page.goto(f"{service.url}/console")
        expect(page.locator("#main") if stays else heading(page)).to_be_visible()
        assert (page.evaluate(SESSION_STATUS), key_of(page) is None) == (
            (200, False) if stays else (401, True)
        )


def make_idle(service: Service, person: str) -> None:
    """Changes the last use of a session to more than eight hours ago."""

    async def work(transaction: Transaction) -> None:
        sql = "UPDATE console_sessions SET last_used_at = $1 WHERE person = $2"
        await transaction.fetch(sql, timestamps.now() - console_sessions.IDLE - 1, person)

    async def write(engine: Engine) -> None:
        await engine.write(work)

    on_engine(service.settings, write)


def test_a_person_who_comes_back_too_late_signs_in_again(
    service: Service, console: ConsolePage, token: str
) -> None:
    console.sign_in(token, "Late")
    make_idle(service, "Late")
    tab = reopen(console)
    expect(heading(tab)).to_be_visible()
    expect(tab.get_by_role("status")).to_contain_text("session of the console has ended")
    assert key_of(tab) is None


def without_key(page: Page) -> None:
    page.evaluate("localStorage.removeItem('gleanery.key /')")


def without_cookie(page: Page) -> None:
    page.context.clear_cookies()


@pytest.mark.parametrize("lose", [without_key, without_cookie])
def test_the_cookie_or_the_key_alone_shows_the_login(
    console: ConsolePage, token: str, lose: Callable[[Page], None]
) -> None:
    console.sign_in(token)
    lose(console.page)
    tab = reopen(console)
    expect(heading(tab)).to_be_visible()
    assert tab.evaluate(SESSION_STATUS) == 401


def test_another_login_changes_the_person_in_all_tabs(
    service: Service, console: ConsolePage, token: str
) -> None:
    console.sign_in(token)
    tab = console.page.context.new_page()
    secret = new_link(service.settings, own_token_id(service, token), "Berta")
    tab.goto(console_sessions.link_address(console.url, secret, "Berta"))
    tab.get_by_role("button", name="Sign in").click()
    for page in (tab, console.page):
        expect(page.locator(".person")).to_contain_text("Berta")


def test_nothing_is_done_as_another_person_before_their_name_is_shown(
    service: Service, console: ConsolePage, token: str
) -> None:
    """Otherwise an approval of one person could be stored with the name of the other."""
    console.sign_in(token)
    console.page.route("**/console/api/session", lambda _: None)  # takes long
    tab = console.page.context.new_page()
    secret = new_link(service.settings, own_token_id(service, token), "Berta")
    tab.goto(console_sessions.link_address(console.url, secret, "Berta"))
    with console.page.expect_request("**/console/api/session"):
        tab.get_by_role("button", name="Sign in").click()
        expect(tab.locator(".person")).to_contain_text("Berta")
    expect(console.page.get_by_text("Anna")).to_have_count(0)
    expect(console.page.locator("#main")).to_have_count(0)


@pytest.mark.journey
def test_signing_out_ends_all_tabs(console: ConsolePage, token: str) -> None:
    console.sign_in(token)
    tab = console.page.context.new_page()
    tab.goto(f"{console.url}/console#/access")
    expect(tab.get_by_role("heading", name="Access", exact=True)).to_be_visible()
    console.page.get_by_role("button", name="Sign out", exact=True).click()
    expect(heading(console.page)).to_be_visible()
    expect(heading(tab)).to_be_visible()
    assert (key_of(tab), cookie_of(console)) == (None, None)
    tab = reopen(console)
    expect(heading(tab)).to_be_visible()


LATE = """async () => {
    const base = document.querySelector("script").src.replace("main.js", "");
    const { send } = await import(base + "api.js");
    window.late = send("GET", "console/api/groups").catch((error) => error.status);
}"""


def test_a_late_401_does_not_end_the_next_session(console: ConsolePage, token: str) -> None:
    console.sign_in(token)
    page = console.page
    held: list[Any] = []
    page.route("**/console/api/groups", lambda route: held.append(route))
    with page.expect_request("**/console/api/groups"):
        page.evaluate(LATE)
    page.get_by_role("button", name="Sign out", exact=True).click()
    page.get_by_label("Access token").fill(token)
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator("#main")).to_be_visible()
    key = key_of(page)
    held[0].fulfill(status=401, json={"detail": [{"msg": "The session has ended."}]})
    assert page.evaluate("window.late") == 401
    expect(page.locator("#main")).to_be_visible()
    assert key is not None
    assert key_of(page) == key


def test_signing_out_everywhere_ends_other_browsers(
    browser: Browser, service: Service, console: ConsolePage, token: str
) -> None:
    console.sign_in(token)
    with console_page(browser, service.url) as other:
        other.sign_in(token, "Berta")
        other.show("access")
        console.show("access")
        console.page.get_by_role("button", name="Sign out everywhere").click()
        console.page.get_by_role("dialog").get_by_role("button", name="Sign out everywhere").click()
        expect(heading(console.page)).to_be_visible()
        other.page.keyboard.press("L")  # the next request shows that the session has ended
        expect(heading(other.page)).to_be_visible()


def test_a_revoked_token_shows_the_login(
    service: Service, console: ConsolePage, token: str
) -> None:
    console.sign_in(token)
    answer = console.page.evaluate(SESSION_STATUS)
    assert answer == 200
    console.show("access")
    with httpx2.Client(base_url=service.url, verify=NO_TLS) as client:
        bearer = {"Authorization": f"Bearer {token}"}
        entries = client.get("/v1/audit", headers=bearer).json()["entries"]
    revoke(service.settings, entries[0]["about"]["token_id"])
    console.page.keyboard.press("L")
    expect(heading(console.page)).to_be_visible()
    reason = console.page.get_by_role("status")
    expect(reason).to_contain_text("The token of your session was revoked")
    console.page.reload()
    expect(reason).to_contain_text("The token of your session was revoked")
    console.sign_in(service.token())
    console.page.get_by_role("button", name="Sign out", exact=True).click()
    expect(heading(console.page)).to_be_visible()
    expect(reason).to_have_count(0)


# --- answers of others than the service -----------------------------------------------------------

LOGIN_PAGE = "<!doctype html><title>Company login</title>"


@pytest.mark.parametrize(
    ("status", "type_", "body"),
    [
        (200, "text/html", LOGIN_PAGE),
        (200, "text/plain", "Maintenance until noon"),
        (200, "application/json", '{"groups": ['),
        (401, "text/html", LOGIN_PAGE),
        (403, "application/json", '{"error": "blocked"}'),
        (404, "text/html", LOGIN_PAGE),
        (502, "text/html", LOGIN_PAGE),
    ],
    ids=["login page", "text", "half an answer", "401", "403", "404", "502"],
)
def test_an_answer_of_a_proxy_has_a_sentence_and_keeps_the_session(
    console: ConsolePage, token: str, status: int, type_: str, body: str
) -> None:
    console.sign_in(token)
    groups = "**/console/api/groups*"
    answer: dict[str, Any] = {"status": status, "content_type": type_, "body": body}
    console.page.route(groups, lambda route: route.fulfill(**answer))
    console.open("groups")
    problem = console.page.get_by_role("alert")
    expect(problem).to_contain_text(f"not from the service (status {status}, {type_})")
    console.page.unroute(groups)
    problem.get_by_role("button", name="Try again").click()
    expect(problem).to_have_count(0)
    assert console.page.evaluate(SESSION_STATUS) == 200


def test_the_login_page_of_a_proxy_is_not_saved_or_shown_as_data(
    service: Service, console: ConsolePage, token: str
) -> None:
    with service.client(token) as client:
        client.store("shop", output(1))
        [item] = client.items("shop")
    console.sign_in(token)
    console.show(f"groups/shop/outputs/{item['output_id']}")
    page = console.page
    for path in (f"**/v1/outputs/shop/{item['output_id']}", "**/v1/groups/shop?*"):
        page.route(path, lambda route: route.fulfill(content_type="text/html", body=LOGIN_PAGE))
    page.get_by_role("button", name="Download JSON").click()
    expect(page.locator(".notice")).to_contain_text("not from the service")
    console.open("groups/shop/settings")
    expect(page.get_by_role("alert")).to_contain_text("not from the service")


# --- other pages ----------------------------------------------------------------------------------

FORM = """([address, type]) => {
    const form = document.createElement("form");
    Object.assign(form, { method: "POST", action: address, enctype: type, target: "_self" });
    const field = document.createElement("input");
    Object.assign(field, { name: '{"everywhere": true, "a": "', value: '"}' });
    form.append(field);
    document.body.append(form);
    form.submit();
}"""
FETCH = """async ([address, options]) => {
    try {
        const answer = await fetch(address, options);
        return answer.type === "opaque" ? "opaque" : answer.status;
    } catch (error) {
        return "blocked";
    }
}"""


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"], ids=["other port", "other site"])
def test_another_page_cannot_use_the_session(console: ConsolePage, token: str, host: str) -> None:
    """127.0.0.1 on another port gets the cookie, but neither the key nor the same origin."""
    console.sign_in(token)
    with attacker_page() as attacker:
        page = console.page.context.new_page()
        page.goto(attacker.url(host))
        page.goto(attacker.url(host))
        assert key_of(page) is None
        logout = f"{console.url}/console/api/logout"
        for options in (
            {"method": "POST", "mode": "no-cors", "credentials": "include", "body": "{}"},
            {"method": "POST", "credentials": "include", "body": "{}"},
        ):
            assert page.evaluate(FETCH, [logout, options]) in ("opaque", "blocked")
        read = {"credentials": "include", "headers": {"gleanery-session-key": "a" * 43}}
        for address in (f"{console.url}/console/api/session", f"{console.url}/v1/groups"):
            assert page.evaluate(FETCH, [address, read]) == "blocked"
        for type_ in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
            page.goto(attacker.url(host))
            with page.expect_navigation(url=logout) as answer:
                page.evaluate(FORM, [logout, type_])
            assert answer.value.status == 401
        assert console.page.evaluate(SESSION_STATUS) == 200


def test_another_port_gets_the_cookie_but_it_is_not_enough(
    console: ConsolePage, service: Service, token: str
) -> None:
    """The reason for the key: a browser does not separate the cookies of ports."""
    console.sign_in(token)
    with attacker_page() as attacker:
        page = console.page.context.new_page()
        page.goto(attacker.url("127.0.0.1"))
        page.goto(attacker.url("127.0.0.1"))  # from its own page, so that Strict allows it
        page.evaluate("fetch('/')")
        [stolen, *_] = [cookie for cookie in attacker.cookies if cookie] or [None]
    assert stolen is not None
    assert COOKIE in stolen
    headers = {"Cookie": stolen, "Sec-Fetch-Site": "same-origin"}
    for key in ({}, {"Gleanery-Session-Key": console_sessions.new_secret()}):
        with httpx2.Client(base_url=service.url, headers=headers | key, verify=NO_TLS) as client:
            assert client.get("/console/api/session").status_code == 401
            assert client.get("/v1/groups").status_code == 401


@pytest.mark.parametrize("path", ["/console", "/console#/access"])
def test_the_console_cannot_be_framed(console: ConsolePage, token: str, path: str) -> None:
    console.sign_in(token)
    with attacker_page() as attacker:
        page = console.page.context.new_page()
        page.goto(attacker.url("127.0.0.1"))
        page.evaluate(
            "address => { const f = document.createElement('iframe'); f.src = address;"
            " document.body.append(f); return new Promise((done) => (f.onload = () => done(0))); }",
            console.url + path,
        )
        [_, frame] = page.frames
        assert "console" not in frame.url or frame.locator("#app").count() == 0


# --- login links ----------------------------------------------------------------------------------


def own_token_id(service: Service, token: str) -> int:
    with service.client(token) as client:
        entries = client.get("/v1/audit").json()["entries"]
    return int(entries[0]["about"]["token_id"])


@pytest.mark.journey
def test_a_link_signs_in_once_and_leaves_the_address(
    browser: Browser, service: Service, console: ConsolePage, token: str
) -> None:
    secret = new_link(service.settings, own_token_id(service, token), "Berta")
    address = console_sessions.link_address(console.url, secret, "Berta")
    console.page.goto(address)
    expect(console.page.get_by_text("as Berta")).to_be_visible()
    console.page.get_by_role("button", name="Sign in").click()
    expect(console.page.locator("#main")).to_be_visible()
    assert secret not in console.page.url
    assert not [url for url in console.requests if secret in url.partition("#")[0]]
    with console_page(browser, service.url) as other:
        other.page.goto(address)
        other.page.get_by_role("button", name="Sign in").click()
        expect(other.page.get_by_role("alert")).to_contain_text("was used before or has expired")
        other.page.get_by_role("link", name="Sign in with a token").click()
        expect(other.page.get_by_label("Access token")).to_be_visible()


def test_a_pasted_link_signs_in(service: Service, console: ConsolePage, token: str) -> None:
    secret = new_link(service.settings, own_token_id(service, token))
    page = console.page
    page.goto(f"{console.url}/console")
    expect(page.get_by_label("Your name")).to_be_focused()
    page.keyboard.type(PERSON)
    page.get_by_label("login link").fill(console_sessions.link_address(console.url, secret))
    page.keyboard.press("Enter")
    expect(page.locator("#main")).to_be_visible()


def test_a_used_link_does_not_end_the_present_session(console: ConsolePage, token: str) -> None:
    console.sign_in(token)
    console.page.goto(f"{console.url}/console#login={console_sessions.new_secret()}")
    console.page.get_by_label("Your name").fill(PERSON)
    console.page.get_by_role("button", name="Sign in").click()
    expect(console.page.get_by_role("alert")).to_contain_text("was used before or has expired")
    console.page.get_by_role("link", name="Stay signed in").click()
    expect(console.page.locator("#main")).to_be_visible()
    assert console.page.evaluate(SESSION_STATUS) == 200
