"""The inbox in the browser: waiting jobs, sessions, the keyboard and missing scopes."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.support.console import ConsolePage, console_page
from tests.support.outputs import output
from tests.support.service import Client, Service

HOSTILE = "<img src=x onerror=alert(1)>\u202e"


@pytest.fixture
def console(browser: Browser, service: Service, client: Client) -> Iterator[ConsolePage]:
    assert client.token is not None
    with console_page(browser, service.url) as page:
        yield page


def sign_in(console: ConsolePage, client: Client) -> None:
    assert client.token is not None
    console.sign_in(client.token)


def review(client: Client, status: str, job: str = "job", comment: str = "") -> None:
    body = {"job_id": job, "status": status, "comment": comment}
    assert client.post("/v1/reviews/group", json=body).status_code == 200


def test_an_empty_inbox_is_the_start(console: ConsolePage, client: Client) -> None:
    sign_in(console, client)
    expect(console.page.get_by_role("heading", name="Nothing waits for you")).to_be_visible()
    expect(console.page.get_by_role("link", name="Inbox")).to_have_attribute("aria-current", "page")
    assert console.violations() == []
    console.assert_quiet()


@pytest.mark.journey
def test_a_waiting_job_says_what_changed(console: ConsolePage, client: Client) -> None:
    client.store("group", *(output(number) for number in range(4)))
    review(client, "approved", comment="All fine")
    client.store("group", output(1, data={"number": 7}), output(9))
    sign_in(console, client)
    row = console.page.locator(".inbox-row")
    for text in ("job", "group", "1 new", "1 changed", "60 %", "Approved", "All fine"):
        expect(row).to_contain_text(text)
    expect(row).to_contain_text(re.compile("waiting for [0-9]+ (second|minute)s?"))
    assert row.get_attribute("href") == "#/groups/group/review/job"
    console.assert_quiet()


def test_a_group_is_shown_by_its_display_name(console: ConsolePage, client: Client) -> None:
    client.store("group", output(1))
    client.put("/v1/groups/group", json={"display_name": HOSTILE})
    shown = "<img src=x onerror=alert(1)>U+202E"
    sign_in(console, client)
    main, crumbs = console.page.locator("#main"), console.page.get_by_label("Breadcrumb")
    expect(main.locator(".inbox-row")).to_contain_text(shown)
    console.page.evaluate("location.hash = '#/groups/group/review/job'")
    console.page.reload()  # no screen has loaded the name
    expect(crumbs).to_contain_text(shown)
    for route in ("", "/fields", "/settings", "/outputs"):
        console.show(f"groups/group{route}")
        expect(main.get_by_role("heading", level=1)).to_have_text(shown)
        expect(main.locator(".note code")).to_have_text("group")
    console.page.reload()  # the outputs load the name, too
    expect(main.get_by_role("heading", level=1)).to_have_text(shown)
    console.show("groups")
    expect(main.get_by_role("link", name=shown)).to_be_visible()
    console.assert_quiet()


def test_keys_move_over_the_rows_and_open_one(console: ConsolePage, client: Client) -> None:
    for job in ("first", "second"):
        client.store("group", output(1, job_id=job))
    sign_in(console, client)
    rows = console.page.locator(".inbox-row")
    expect(rows).to_have_count(2)
    keyboard = console.page.keyboard
    for key, focused in (("j", 0), ("j", 1), ("j", 1), ("k", 0)):
        keyboard.press(key)
        expect(rows.nth(focused)).to_be_focused()
    keyboard.press("Enter")
    console.page.wait_for_url("**#/groups/group/review/first*")  # the screen adds its seed


def test_more_jobs_are_loaded(console: ConsolePage, client: Client) -> None:
    client.store("group", *(output(1, job_id=f"job {number}") for number in range(30)))
    sign_in(console, client)
    rows = console.page.locator(".inbox-row")
    expect(rows).to_have_count(25)
    console.page.get_by_role("button", name="Show more").click()
    expect(rows).to_have_count(30)
    expect(console.page.get_by_role("button", name="Show more")).to_have_count(0)


def test_an_expiring_session_is_shown_without_values(console: ConsolePage, client: Client) -> None:
    expires = int(time.time()) + 86_400
    cookie = {"domain": "shop.example", "name": "sid", "value": "s3cret", "expires": expires}
    assert client.post("/v1/cookies", json=[cookie]).status_code == 200
    sign_in(console, client)
    row = console.page.locator(".inbox-row")
    expect(row).to_contain_text("shop.example")
    expect(row).to_contain_text("1 expires soon")
    assert "s3cret" not in console.page.content()


def test_missing_scopes_are_said(console: ConsolePage, service: Service) -> None:
    console.sign_in(service.token(scopes=frozenset({"session:read"})))
    expect(console.page.locator("#main")).to_contain_text("lacks the scope outputs:read")
    console.show("sessions")
    console.assert_quiet()
    for route, scope in (("groups", "outputs:read"), ("groups/g/review/j", "reviews:read")):
        console.show(route)
        expect(console.page.locator(".empty")).to_contain_text(f"It lacks the scope {scope}")
        expect(console.page.get_by_role("button", name="Try again")).to_have_count(0)
    console.messages.clear()  # Chromium reports the refused requests
    console.assert_quiet()


def test_a_failed_request_can_be_repeated(console: ConsolePage, client: Client) -> None:
    failing = "**/console/api/inbox"
    console.page.route(failing, lambda route: route.fulfill(status=503, json={"detail": []}))
    sign_in(console, client)
    expect(console.page.get_by_role("alert")).to_be_visible()
    console.page.unroute(failing)
    console.page.get_by_role("button", name="Try again").click()
    expect(console.page.get_by_role("heading", name="Nothing waits for you")).to_be_visible()


def test_hostile_names_are_text(console: ConsolePage, client: Client) -> None:
    client.store("group", output(1, job_id=HOSTILE))
    review(client, "in_review", HOSTILE, comment=HOSTILE)
    sign_in(console, client)
    expect(console.page.locator(".inbox-row")).to_contain_text("<img src=x onerror=alert(1)>")
    assert console.page.locator("main img").count() == 0
    console.assert_quiet()
