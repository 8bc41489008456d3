"""Webhooks in the browser: creation, secrets, tests, deliveries, and those that fail."""

from __future__ import annotations

import base64
import hmac
import re
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, expect

from tests.support.console import ConsolePage, console_page
from tests.support.console_webhooks import answered_webhook, create_webhook, deliveries, send_test
from tests.support.outputs import output
from tests.support.receiver import FAIL, GONE, OK, Answer, Received, Receiver, receiver
from tests.support.service import DAY, Client, Service
from tests.support.waiting import wait_until

HOSTILE = "<img src=x onerror=alert(1)>\u202e"
SHOWN = "<img src=x onerror=alert(1)>U+202E"


@pytest.fixture
def console(browser: Browser, service: Service, client: Client) -> Iterator[ConsolePage]:
    """The console after a login of the client's token."""
    assert client.token is not None
    with console_page(browser, service.url) as page:
        page.sign_in(client.token)
        yield page


@pytest.fixture
def target() -> Iterator[Receiver]:
    with receiver() as made:
        yield made


def button(console: ConsolePage, name: str) -> Locator:
    return console.page.get_by_role("button", name=name, exact=True)


def dialog(console: ConsolePage) -> Locator:
    return console.page.get_by_role("dialog")


def rows(console: ConsolePage) -> Locator:
    """The deliveries, without the rows that show their attempts."""
    return console.page.locator("table.deliveries tbody tr:not(.webhooks-attempts)")


def note(console: ConsolePage) -> Locator:
    """The state of the webhook below its name."""
    return console.page.locator("main .head .note")


def show(console: ConsolePage, webhook_id: str) -> None:
    console.show(f"webhooks/{webhook_id}")
    expect(console.page.locator("main .facts")).to_be_visible()


def settings_of(client: Client, webhook_id: str) -> Any:
    return client.get(f"/v1/webhooks/{webhook_id}").json()


def signs(received: Received, secret: str) -> bool:
    """Returns True if one of the signatures of a request is made with this secret."""
    content = f"{received.id}.{received.timestamp}.".encode() + received.body
    digest = hmac.digest(base64.b64decode(secret.removeprefix("whsec_")), content, "sha256")
    signature = f"v1,{base64.b64encode(digest).decode()}"
    return signature in received.headers["webhook-signature"].split()


@pytest.mark.journey
def test_a_webhook_is_created_tested_and_used(
    console: ConsolePage, client: Client, target: Receiver
) -> None:
    console.show("webhooks")
    expect(console.page.get_by_text("No webhooks yet")).to_be_visible()
    console.page.keyboard.press("n")
    dialog(console).get_by_label("URL").fill(target.url("/hook"))
    dialog(console).get_by_label("outputs.changed").check()
    dialog(console).get_by_label("Groups").fill(" shop \n\n news")
    dialog(console).get_by_label("Description").fill("Warehouse")
    assert console.violations() == []
    dialog(console).get_by_role("button", name="Create webhook").click()
    expect(dialog(console)).to_contain_text("It cannot be shown again.")
    for _ in range(3):  # does not lose the secret
        console.page.keyboard.press("Escape")
    secret = dialog(console).get_by_label("New secret").input_value()
    assert console.violations() == []
    dialog(console).get_by_role("button", name="Done").click()
    heading = console.page.get_by_role("heading", name="Warehouse")
    expect(heading).to_be_visible()
    assert secret not in console.page.content()
    [created] = client.get("/v1/webhooks").json()["webhooks"]
    assert created["groups"] == ["shop", "news"]
    assert console.page.url.endswith(f"#/webhooks/{created['id']}")

    button(console, "Test").click()
    expect(console.page.get_by_text("The test has arrived: status 200")).to_be_visible()
    assert signs(target.wait_for(1, "/hook")[0], secret)
    client.store("shop", output(1))
    wait_until(lambda: len(deliveries(client, created["id"])) == 2)
    button(console, "Refresh").click()
    row = rows(console).filter(has_text="outputs.changed")
    expect(row).to_contain_text("Delivered")
    expect(row.get_by_role("link", name="shop")).to_have_attribute("href", "#/groups/shop")
    row.get_by_role("button", name="1 attempt").click()
    expect(console.page.get_by_role("group", name="Response")).to_have_text("ok")
    assert console.violations() == []
    console.show("webhooks")
    row = console.page.get_by_role("row", name="Warehouse")
    for text in ("outputs.changed", "shop, news", "Enabled", "JSON"):
        expect(row).to_contain_text(text)
    console.assert_quiet()


def test_a_webhook_gets_alerts(console: ConsolePage, client: Client, target: Receiver) -> None:
    console.show("webhooks")
    console.page.keyboard.press("n")
    dialog(console).get_by_label("Format").select_option("E-mail")
    url = dialog(console).get_by_label("URL")
    expect(url).to_have_attribute("placeholder", "mailto:anna@example.com")
    dialog(console).get_by_label("Format").select_option("Slack")
    url.fill(target.url("/hook"))
    for event in ("alert.opened", "alert.closed"):
        dialog(console).get_by_label(event).check()
    dialog(console).get_by_role("button", name="Create webhook").click()
    dialog(console).get_by_role("button", name="Done").click()
    expect(console.page.locator("main .facts")).to_contain_text("alert.opened")
    [created] = client.get("/v1/webhooks").json()["webhooks"]
    assert created["events"] == ["alert.opened", "alert.closed"]


def test_an_error_is_at_its_field(console: ConsolePage) -> None:
    console.show("webhooks")
    button(console, "Create webhook").click()
    url = dialog(console).get_by_label("URL")
    url.fill("https://10.0.0.1/")
    dialog(console).get_by_label("Groups").fill("shop\na/b")
    create = dialog(console).get_by_role("button", name="Create webhook")
    create.click()
    events = dialog(console).get_by_role("group", name="Events")
    expect(events).to_have_accessible_description(re.compile("at least 1 element"))
    groups = dialog(console).get_by_label("Groups")
    expect(groups).to_have_attribute("aria-invalid", "true")
    expect(groups).to_have_accessible_description(re.compile("without slashes"))
    assert console.violations() == []
    groups.fill("")
    dialog(console).get_by_label("run.finished").check()
    create.click()
    expect(url).to_have_accessible_description(re.compile("not a public one"))
    expect(groups).not_to_have_attribute("aria-invalid", "true")
    expect(dialog(console).get_by_role("alert")).to_have_count(0)
    assert console.violations() == []


def test_headers_are_set_and_kept(console: ConsolePage, client: Client, target: Receiver) -> None:
    console.show("webhooks")
    button(console, "Create webhook").click()
    dialog(console).get_by_label("URL").fill(target.url())
    dialog(console).get_by_label("run.finished").check()
    headers = dialog(console).get_by_label("Headers")
    headers.fill("Authorization: Bearer a:b \nHost: x")
    dialog(console).get_by_role("button", name="Create webhook").click()
    expect(headers).to_have_accessible_description(re.compile("the service sets this header"))
    headers.fill("Authorization: Bearer a:b \n\nX-Old:old")
    dialog(console).get_by_role("button", name="Create webhook").click()
    dialog(console).get_by_role("button", name="Done").click()
    facts = console.page.locator("main .facts")
    expect(facts).to_contain_text("Authorization")
    assert "Bearer" not in console.page.content()
    [created] = client.get("/v1/webhooks").json()["webhooks"]
    button(console, "Edit").click()
    expect(headers).to_have_value("Authorization\nX-Old")
    headers.fill("Authorization\nX-New: new")
    assert console.violations() == []
    dialog(console).get_by_role("button", name="Save").click()
    expect(facts).to_contain_text("X-New")
    expect(facts).not_to_contain_text("X-Old")
    send_test(client, created["id"])
    [received] = target.wait_for(1)
    assert received.headers["authorization"] == "Bearer a:b"
    assert received.headers["x-new"] == "new"
    assert "x-old" not in received.headers


def test_the_settings_are_changed(console: ConsolePage, client: Client, target: Receiver) -> None:
    events = ["run.finished", "session.invalid"]
    webhook_id = create_webhook(
        client, target.url(), events=events, groups=[HOSTILE.replace("/", "")], description="Old"
    )
    show(console, webhook_id)
    console.page.keyboard.press("e")
    expect(dialog(console).get_by_label("session.invalid")).to_be_checked()
    dialog(console).get_by_label("Format").select_option("Slack")
    dialog(console).get_by_label("run.finished").uncheck()
    dialog(console).get_by_label("review.created").check()
    dialog(console).get_by_label("Groups").fill("")
    dialog(console).get_by_label("Description").fill(HOSTILE)
    dialog(console).get_by_role("button", name="Save").click()
    expect(console.page.get_by_role("heading", level=1)).to_have_text(SHOWN)
    facts = console.page.locator("main .facts")
    for text in (target.url(), "Slack", "session.invalid", "review.created", "all"):
        expect(facts).to_contain_text(text)
    changed = settings_of(client, webhook_id)
    assert changed["events"] == ["session.invalid", "review.created"]
    assert (changed["groups"], changed["format"]) == (None, "slack")
    console.assert_quiet()


def test_a_rotated_secret_is_shown_once_next_to_the_old_one(
    console: ConsolePage, client: Client, target: Receiver
) -> None:
    body = {"url": target.url(), "events": ["run.finished"]}
    created = client.post("/v1/webhooks", json=body).json()
    show(console, created["id"])
    button(console, "Rotate secret").click()
    dialog(console).get_by_role("button", name="Rotate secret").click()
    secret = dialog(console).get_by_label("New secret").input_value()
    assert secret != created["secret"]
    expect(dialog(console)).to_contain_text(
        re.compile("Until .*, each delivery has a signature with the old secret as well")
    )
    assert console.violations() == []
    button(console, "Done").click()
    expect(console.page.locator("main .facts")).to_contain_text("signs as well until")
    assert secret not in console.page.content()
    send_test(client, created["id"])
    [received] = target.wait_for(1)
    assert signs(received, secret)
    assert signs(received, created["secret"])
    console.assert_quiet()


def test_a_disabled_webhook_is_in_the_inbox_and_enabled_again(
    console: ConsolePage, client: Client, target: Receiver
) -> None:
    answered_webhook(client, target, GONE, description=HOSTILE)
    console.show("inbox")
    button(console, "Refresh").click()
    line = console.page.locator(".inbox-row", has_text=SHOWN)
    expect(line).to_contain_text("the receiver is gone")
    assert console.violations() == []
    line.focus()
    console.page.keyboard.press("Enter")
    expect(note(console)).to_have_text("Disabled")
    expect(console.page.get_by_text("The service disabled this webhook")).to_be_visible()
    expect(rows(console)).to_contain_text("until the webhook is enabled")
    for name in ("Test", "Send again"):
        expect(button(console, name)).to_be_disabled()
    assert console.violations() == []
    target.answer("/410", OK)
    button(console, "Enable").click()
    expect(note(console)).to_have_text("Enabled")
    expect(rows(console)).to_contain_text("Delivered")  # by itself
    console.show("inbox")
    expect(console.page.get_by_role("heading", name="Nothing waits for you")).to_be_visible()
    console.assert_quiet()


def test_a_webhook_that_fails_for_more_than_a_day_is_in_the_inbox(
    console: ConsolePage, client: Client, target: Receiver
) -> None:
    answered_webhook(client, target, FAIL, description="Warehouse")
    console.show("inbox")
    expect(console.page.get_by_role("heading", name="Nothing waits for you")).to_be_visible()
    console.page.clock.set_fixed_time(time.time() + 2 * DAY)
    button(console, "Refresh").click()
    line = console.page.locator(".inbox-row", has_text="Warehouse")
    expect(line).to_contain_text("Failing for 2 days")
    line.click()
    expect(console.page.get_by_text("No attempt has succeeded for 2 days")).to_be_visible()
    console.assert_quiet()


def test_a_test_that_fails_says_why(console: ConsolePage, client: Client, target: Receiver) -> None:
    answered = threading.Event()
    target.answer("/", Answer(500, HOSTILE.encode(), until=answered))
    webhook_id = create_webhook(client, target.url())
    show(console, webhook_id)
    console.page.keyboard.press("t")
    expect(console.page.get_by_text("The test waits for its result")).to_be_visible()
    answered.set()
    expect(console.page.get_by_text("The test has failed: status 500")).to_be_visible()
    expect(note(console)).to_contain_text("Failing for")
    console.page.keyboard.press("j")
    console.page.keyboard.press("Enter")
    attempts = console.page.locator(".webhooks-attempts")
    expect(attempts).to_contain_text("the response has the status 500")
    expect(attempts.get_by_role("group", name="Response").first).to_have_text(SHOWN)
    assert console.violations() == []
    console.assert_quiet()


def test_an_event_is_sent_again(console: ConsolePage, client: Client, target: Receiver) -> None:
    webhook_id = create_webhook(client, target.url())
    send_test(client, webhook_id)
    show(console, webhook_id)
    button(console, "Send again").click()
    expect(rows(console)).to_contain_text("2 attempts")  # by itself
    first, second = target.wait_for(2)
    assert (first.id, first.body) == (second.id, second.body)
    console.assert_quiet()


def test_deliveries_are_filtered_and_go_on(
    console: ConsolePage, client: Client, target: Receiver
) -> None:
    webhook_id = create_webhook(client, target.url(), events=["review.created"])
    client.store("shop", output(1))
    client.post("/v1/reviews/shop", json={"job_id": "job", "status": "approved"})
    for _ in range(59):
        assert client.post(f"/v1/webhooks/{webhook_id}/test").status_code == 200
    wait_until(lambda: len(target.received()) == 60)
    show(console, webhook_id)
    expect(rows(console)).to_have_count(50)
    button(console, "Show more").click()
    expect(rows(console)).to_have_count(60)
    button(console, "Refresh").click()
    expect(console.page.locator("main [aria-busy=true]")).to_have_count(0)
    expect(rows(console)).to_have_count(60)
    console.page.get_by_label("Event").select_option("review.created")
    expect(rows(console)).to_have_count(1)
    console.page.reload()  # the filters are in the address
    expect(rows(console)).to_have_count(1)
    console.page.get_by_label("State").select_option("Failed")
    expect(console.page.get_by_text("No delivery fits the filters")).to_be_visible()
    console.page.go_back()  # it undoes the last filter
    expect(rows(console)).to_have_count(1)
    console.page.go_forward()
    button(console, "Remove all filters").click()
    expect(rows(console)).to_have_count(50)
    console.assert_quiet()


def test_a_deleted_webhook_is_gone(console: ConsolePage, client: Client, target: Receiver) -> None:
    webhook_id = create_webhook(client, target.url(), description="Warehouse")
    show(console, webhook_id)
    button(console, "Delete").click()
    expect(dialog(console)).to_contain_text("Warehouse")
    dialog(console).get_by_role("button", name="Delete webhook").click()
    expect(console.page.get_by_text("No webhooks yet")).to_be_visible()
    console.assert_quiet()
    console.show("audit")
    console.page.get_by_role("link", name=f"webhook {webhook_id[:8]}").first.click()
    expect(console.page.get_by_text("This page does not exist")).to_be_visible()


def test_missing_scopes_are_said(console: ConsolePage, service: Service) -> None:
    console.sign_in(service.token(scopes=frozenset({"webhooks:write"})))
    for route in ("webhooks", "webhooks/9d2c6b1e"):
        console.show(route)
        expect(console.page.locator("main")).to_contain_text("lacks the scope webhooks:read")
    console.assert_quiet()


def test_a_reader_gets_no_buttons(browser: Browser, service: Service, target: Receiver) -> None:
    name = "an organization with a reader"
    with service.client(organization=name) as client:
        webhook_id = create_webhook(client, target.url())
        send_test(client, webhook_id)
    reader = service.token(name, frozenset({"webhooks:read"}))
    with console_page(browser, service.url) as console:
        console.sign_in(reader)
        show(console, webhook_id)
        expect(rows(console)).to_have_count(1)
        for each in ("Test", "Edit", "Rotate secret", "Delete", "Send again"):
            expect(button(console, each)).to_have_count(0)
        for key in ("e", "t"):
            console.page.keyboard.press(key)
        expect(dialog(console)).to_have_count(0)
        console.show("webhooks")
        expect(button(console, "Create webhook")).to_have_count(0)
        assert console.violations() == []
        console.assert_quiet()
