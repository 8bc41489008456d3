"""The sessions screen in Chromium: import of pasted documents, reveal, export, leases, deletion."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, expect

from tests.support.console import NARROW, WIDE, ConsolePage, console_page
from tests.support.service import Client, Service

SECRET = "s3cret-value-7"
LATER = 4102444800  # 2100
COOKIE = {"domain": "shop.example", "name": "sid", "value": SECRET, "path": "/", "secure": True}
STATE = {
    "cookies": [COOKIE | {"expires": LATER, "httpOnly": True, "sameSite": "Lax"}],
    "origins": [
        {"origin": "https://shop.example", "localStorage": [{"name": "cart", "value": SECRET}]}
    ],
}
HAR_REQUEST = {"url": "https://shop.example/", "cookies": [{"name": "sid", "value": SECRET}]}
DOCUMENTS = {
    "Playwright storage state": json.dumps(STATE),
    "cookies.txt": "# Netscape HTTP Cookie File\n"
    f"shop.example\tFALSE\t/\tTRUE\t{LATER}\tsid\t{SECRET}\n",
    "Browser extension": json.dumps(
        [COOKIE | {"expirationDate": LATER, "hostOnly": True, "session": False, "storeId": "0"}]
    ),
    "curl command": f"curl 'https://shop.example/' -H 'Cookie: sid={SECRET}'",
    "HAR": json.dumps(
        {"log": {"version": "1.2", "entries": [{"request": HAR_REQUEST, "response": {}}]}}
    ),
}


@pytest.fixture
def client(service: Service) -> Iterator[Client]:
    with service.client() as made:
        yield made


@pytest.fixture
def console(service: Service, browser: Browser, client: Client) -> Iterator[ConsolePage]:
    assert client.token is not None
    with console_page(browser, service.url) as opened:
        opened.sign_in(client.token)
        yield opened
        opened.assert_quiet()


def fill(client: Client, **query: Any) -> None:
    assert client.post("/v1/sessions/import", params=query, json=STATE).status_code == 200


def paste(field: Locator, text: str) -> None:
    field.evaluate(
        """(field, text) => {
            const data = new DataTransfer();
            data.setData("text/plain", text);
            const init = { clipboardData: data, bubbles: true, cancelable: true };
            field.dispatchEvent(new ClipboardEvent("paste", init));
        }""",
        text,
    )


def everything(console: ConsolePage) -> str:
    """All that the page holds: its elements, the values of its fields, and its storage."""
    found = console.page.evaluate(
        """() => [document.documentElement.outerHTML, document.title, location.href,
            JSON.stringify(localStorage), JSON.stringify(sessionStorage),
            ...[...document.querySelectorAll("input, textarea")].map((field) => field.value)]"""
    )
    return "\n".join(found)


def ignore_rejection(console: ConsolePage, status: int) -> None:
    """Chromium reports each request that the service rejects."""
    rest = [message for message in console.messages if f"status of {status}" not in message]
    assert len(rest) < len(console.messages)
    console.messages[:] = rest


@pytest.mark.parametrize("title", DOCUMENTS)
def test_a_pasted_document_is_previewed_without_values(
    console: ConsolePage, client: Client, title: str
) -> None:
    page = console.page
    console.open("sessions")
    page.get_by_role("button", name="Import", exact=True).click()
    paste(page.get_by_label("Or paste text"), DOCUMENTS[title])
    preview = page.get_by_role("region", name="Preview")
    expect(preview).to_contain_text(title)
    expect(preview.get_by_role("cell", name="shop.example")).to_be_visible()
    assert SECRET not in everything(console)
    assert client.get("/v1/sessions").json() == []
    page.get_by_role("dialog").get_by_role("button", name="Import").click()
    expect(page.get_by_role("heading", name="shop.example")).to_be_visible()
    assert SECRET not in everything(console)
    [cookie] = client.get("/v1/cookies").json()
    assert (cookie["name"], cookie["value"]) == ("sid", SECRET)


def test_a_typed_cookie_header_asks_for_its_page(console: ConsolePage, client: Client) -> None:
    page = console.page
    console.open("sessions")
    page.get_by_role("button", name="Import", exact=True).click()
    page.get_by_label("Or paste text").fill(f"Cookie: sid={SECRET}")
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_role("alert")).to_contain_text("Enter the address of the page")
    page.get_by_label("Page").fill("https://shop.example/")
    page.get_by_label("Profile").fill("second")
    expect(page.get_by_role("region", name="Preview")).to_contain_text("1 cookie")
    assert SECRET not in everything(console)
    page.get_by_role("dialog").get_by_role("button", name="Import").click()
    expect(page.get_by_role("heading", name="shop.example")).to_be_visible()
    [session] = client.get("/v1/sessions").json()
    assert session["profile"] == "second"
    ignore_rejection(console, 422)


@pytest.mark.journey
def test_a_file_is_imported(console: ConsolePage, client: Client, tmp_path: Path) -> None:
    page, file = console.page, tmp_path / "state.json"
    file.write_text(json.dumps(STATE))
    console.open("sessions")
    page.get_by_role("button", name="Import", exact=True).click()
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Choose a file").click()
    chooser.value.set_files(file)
    expect(page.get_by_role("region", name="Preview")).to_contain_text("1 local-storage entry")
    fill(client)  # somebody else is faster
    page.get_by_role("dialog").get_by_role("button", name="Import").click()
    expect(page.get_by_role("alert")).to_be_visible()
    expect(page.get_by_role("region", name="Preview")).to_contain_text("Unchanged2")
    page.get_by_role("dialog").get_by_role("button", name="Import").click()
    expect(page.get_by_role("heading", name="shop.example")).to_be_visible()
    ignore_rejection(console, 412)


def test_what_is_no_session_is_explained(console: ConsolePage) -> None:
    page = console.page
    console.open("sessions")
    page.get_by_role("button", name="Import", exact=True).click()
    paste(page.get_by_label("Or paste text"), "[1, 2, 3")
    expect(page.get_by_role("alert")).not_to_be_empty()
    button = page.get_by_role("dialog").get_by_role("button", name="Import")
    expect(button).to_be_disabled()
    ignore_rejection(console, 422)


def test_the_format_of_an_unknown_text_is_chosen(console: ConsolePage) -> None:
    page = console.page
    console.open("sessions")
    page.get_by_role("button", name="Import", exact=True).click()
    paste(page.get_by_label("Or paste text"), f"sid {SECRET}")
    expect(page.get_by_role("alert")).to_contain_text("Choose it above")
    expect(page.get_by_role("button", name="Try again")).to_have_count(0)
    assert console.violations() == []
    page.get_by_label("Format").select_option("Set-Cookie headers")
    expect(page.get_by_role("alert")).not_to_contain_text("Choose it above")
    assert SECRET not in everything(console)
    ignore_rejection(console, 422)


def test_a_revealed_value_is_hidden_after_30_seconds(console: ConsolePage, client: Client) -> None:
    page = console.page
    fill(client)
    page.clock.install()
    console.open("sessions/shop.example")
    button = page.get_by_role("button", name="Reveal the value of sid")
    expect(button).to_be_visible()
    assert SECRET not in everything(console)
    button.click()
    value = page.get_by_role("region", name="Value of sid")
    expect(value).to_have_text(SECRET)
    assert SECRET not in page.title() + page.url
    page.clock.run_for(29_000)
    expect(value).to_have_text(SECRET)
    page.clock.run_for(1_500)
    expect(value).to_have_count(0)
    assert SECRET not in everything(console)
    actions = [entry["action"] for entry in client.get("/v1/audit").json()["entries"]]
    assert actions.count("reveal_value") == 1


def test_a_revealed_value_is_hidden_with_its_tab_and_page(
    console: ConsolePage, client: Client
) -> None:
    page = console.page
    fill(client)
    console.open("sessions/shop.example")
    button = page.get_by_role("button", name="Reveal the value of cart")
    value = page.get_by_role("region", name="Value of cart")
    button.click()
    expect(value).to_have_text(SECRET)
    page.evaluate(
        """() => {
            Object.defineProperty(document, "hidden", { value: true, configurable: true });
            document.dispatchEvent(new Event("visibilitychange"));
            delete document.hidden;
        }"""
    )
    expect(value).to_have_count(0)
    button.click()
    expect(value).to_have_text(SECRET)
    console.open("sessions")
    expect(page.get_by_role("heading", name="Sessions")).to_be_visible()
    assert SECRET not in everything(console)


@pytest.mark.journey
@pytest.mark.parametrize(
    ("format_", "name"), [("playwright", "storage_state.json"), ("curl", "curl.sh")]
)
def test_an_export_is_downloaded(
    console: ConsolePage, client: Client, format_: str, name: str
) -> None:
    page = console.page
    fill(client)
    console.open("sessions/shop.example")
    page.get_by_role("button", name="Export").click()
    expect(page.get_by_role("dialog")).to_contain_text("audit log")
    page.get_by_label("Format").select_option(format_)
    expect(page.get_by_label("Command", exact=True)).to_contain_text(f"--output={name}")
    with page.expect_download() as download:
        page.get_by_role("button", name="Download").click()
    assert download.value.suggested_filename == name
    assert SECRET in Path(download.value.path()).read_text()
    assert SECRET not in everything(console)


def test_a_lease_is_ended(console: ConsolePage, client: Client) -> None:
    page = console.page
    fill(client)
    wanted = {"domain": "shop.example", "seconds": 600, "holder": "worker 7"}
    assert client.post("/v1/sessions/leases", json=wanted).status_code == 200
    console.open("sessions")
    expect(page.get_by_role("row", name="shop.example").last).to_contain_text("worker 7")
    page.get_by_role("button", name="End lease").click()
    page.get_by_role("dialog").get_by_role("button", name="End lease").click()
    expect(page.get_by_text("In use now")).to_have_count(0)
    assert client.get("/v1/sessions/leases").json() == []


def test_a_session_is_deleted(console: ConsolePage, client: Client) -> None:
    page = console.page
    fill(client)
    fill(client, profile="second")
    console.open("sessions/shop.example?profile=second")
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("button", name="Delete session").click()
    expect(page.get_by_role("heading", name="Sessions")).to_be_visible()
    [session] = client.get("/v1/sessions").json()
    assert session["profile"] == "default"


def test_the_list_is_filtered_and_paged(console: ConsolePage, client: Client) -> None:
    page = console.page
    cookies = [COOKIE | {"domain": f"host{number:03}.example"} for number in range(120)]
    client.post("/v1/cookies", json=cookies)
    console.open("sessions")
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(100)
    box = page.get_by_role("searchbox")
    box.fill("host119.example")
    expect(rows).to_have_count(0)
    page.get_by_role("button", name="Find this exact host").click()
    expect(rows).to_have_count(1)
    page.get_by_role("button", name="Show all hosts").click()
    expect(rows).to_have_count(100)
    page.get_by_role("button", name="Show more").click()
    expect(rows).to_have_count(120)
    box.fill("host01")
    expect(rows).to_have_count(10)


def test_missing_scopes_are_explained(service: Service, browser: Browser, client: Client) -> None:
    fill(client)
    tokens = {
        scope: service.token(scopes=frozenset({scope, "outputs:read"}))
        for scope in ("session:read", "session:write")
    }
    for scope, token in tokens.items():
        with console_page(browser, service.url) as console:
            console.sign_in(token)
            console.open("sessions")
            button = console.page.get_by_role("button", name="Import", exact=True)
            missing = console.page.get_by_text("Your token cannot read sessions")
            expect(missing).to_have_count(1 if scope == "session:write" else 0)
            expect(button).to_have_count(1 if scope == "session:write" else 0)


@pytest.mark.parametrize(("scheme", "size"), [("light", WIDE), ("dark", NARROW)])
def test_all_views_are_accessible(
    service: Service, browser: Browser, client: Client, size: Any, scheme: Any
) -> None:
    fill(client)
    fill(client, profile="second")
    client.post("/v1/cookies", json=[COOKIE | {"name": "old", "expires": 1_000_000_000}])
    assert client.token is not None
    with console_page(browser, service.url, size, scheme) as console:
        page = console.page
        console.sign_in(client.token)
        console.open("sessions")
        expect(page.get_by_role("link", name="shop.example").first).to_be_visible()
        assert console.violations() == []
        console.open("sessions/shop.example")
        page.get_by_role("button", name="Reveal the value of sid").click()
        expect(page.get_by_role("region", name="Value of sid")).to_be_visible()
        assert console.violations() == []
        page.get_by_role("button", name="Export").click()
        assert console.violations() == []
        page.keyboard.press("Escape")
        page.get_by_role("button", name="Import").click()
        assert console.violations() == []
        paste(page.get_by_label("Or paste text"), DOCUMENTS["Playwright storage state"])
        expect(page.get_by_role("region", name="Preview")).to_be_visible()
        expect(page.get_by_role("dialog").get_by_role("button", name="Import")).to_be_enabled()
        assert console.violations() == []
        scroll = "document.documentElement.scrollWidth <= innerWidth"
        assert page.evaluate(scroll)
        console.assert_quiet()
