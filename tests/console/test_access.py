"""The screens of access and of the audit log in Chromium."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from gleanery.service.foundation.security.tokens import SCOPES, Actor
from gleanery.service.foundation.values import timestamps
from gleanery.service.resources.access import console_sessions
from gleanery.service.resources.audit import log
from gleanery.service.resources.audit.models import AuditAction
from gleanery.service.storage.database import Engine, Transaction
from tests.support.console import PERSON, ConsoleClient, ConsolePage, console_page
from tests.support.console_http import new_link, on_engine
from tests.support.service import Service


@pytest.fixture
def token(service: Service) -> str:
    return service.token()


@pytest.fixture
def console(browser: Browser, service: Service) -> Iterator[ConsolePage]:
    with console_page(browser, service.url) as opened:
        yield opened


def create(console: ConsolePage, name: str, *scopes: str) -> Any:
    """Opens the dialog with a key, and fills it in. Returns the dialog."""
    console.show("access")
    console.page.keyboard.press("n")
    dialog = console.page.get_by_role("dialog")
    dialog.get_by_label("Name").fill(name)
    for scope in scopes:
        dialog.get_by_label(scope).check()
    return dialog


@pytest.mark.journey
def test_a_token_is_created_shown_once_used_and_revoked(
    service: Service, console: ConsolePage, token: str
) -> None:
    console.sign_in(token)
    dialog = create(console, "Price crawler", "outputs:read")
    dialog.get_by_label("Expires after").select_option("30 days")
    dialog.get_by_role("button", name="Create token").click()
    new = dialog.get_by_label("New token").input_value()
    for _ in range(3):  # does not lose the token
        console.page.keyboard.press("Escape")
    expect(dialog.get_by_label("New token")).to_be_visible()
    assert console.violations() == []
    dialog.get_by_role("button", name="Done").click()
    row = console.page.get_by_role("row", name="Price crawler")
    expect(row).to_contain_text("outputs:read")
    assert new not in console.page.content()
    with service.client(new) as client:
        assert client.get("/v1/groups").status_code == 200
        assert client.get("/v1/cookies").status_code == 403
        console.page.get_by_role("button", name="Revoke Price crawler").click()
        console.page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
        expect(row).to_have_count(0)
        assert client.get("/v1/groups").status_code == 401
    console.assert_quiet()


@pytest.mark.parametrize("has_link", [False, True])
def test_a_later_creation_asks_for_the_token_or_a_link(
    service: Service, console: ConsolePage, token: str, has_link: bool
) -> None:
    """The service says whether the login is fresh; here its answer is replaced once."""
    proof = token
    if has_link:
        with closing(ConsoleClient(service.url, token)) as page:
            token_id = page.get("/console/api/session").json()["token_id"]
        proof = console_sessions.link_address(service.url, new_link(service.settings, token_id))
    console.sign_in(token)
    refused = (
        '{"detail": [{"loc": ["header", "cookie"], "msg": "Confirm", '
        '"type": "confirmation_required"}]}'
    )
    pattern = "**/console/api/tokens"

    def refuse(route: Any) -> None:
        if route.request.method == "POST":
            route.fulfill(status=403, body=refused)
        else:
            route.continue_()

    dialog = create(console, "Later", "outputs:read")
    console.page.route(pattern, refuse)
    dialog.get_by_role("button", name="Create token").click()
    field = dialog.get_by_label("Sign in again with")
    expect(field).to_be_visible()
    console.page.unroute(pattern)
    field.fill("glean_wrong")
    dialog.get_by_role("button", name="Create token").click()
    expect(dialog.get_by_text("This is not the token of your session")).to_be_visible()
    assert console.violations() == []
    field.fill(proof)
    dialog.get_by_role("button", name="Create token").click()
    expect(dialog.get_by_label("New token")).to_be_visible()


def test_a_missing_scope_cannot_be_given(service: Service, console: ConsolePage) -> None:
    console.sign_in(service.token(scopes=frozenset({"tokens:write", "outputs:read"})))
    dialog = create(console, "Small")
    expect(dialog.get_by_label("session:read")).to_be_disabled()
    dialog.get_by_role("button", name="Create token").click()
    expect(dialog.get_by_role("alert")).to_contain_text("Choose one or more of")


def test_revoking_the_own_token_warns_and_signs_out(console: ConsolePage, token: str) -> None:
    console.sign_in(token)
    console.show("access")
    console.page.get_by_role("button", name="Revoke").click()
    dialog = console.page.get_by_role("dialog")
    expect(dialog.get_by_text("This is your own token")).to_be_visible()
    dialog.get_by_role("button", name="Revoke").click()
    expect(console.page.get_by_role("heading", name="Sign in to Gleanery")).to_be_visible()


def test_somebody_else_is_signed_out(service: Service, console: ConsolePage, token: str) -> None:
    with closing(ConsoleClient(service.url, token, "Berta")) as berta:
        console.sign_in(token)
        console.show("access")
        console.page.get_by_role("button", name="End session of Berta").click()
        console.page.get_by_role("dialog").get_by_role("button", name="End session").click()
        expect(console.page.get_by_role("row", name="Berta")).to_have_count(0)
        assert berta.get("/console/api/session").status_code == 401
        console.show("audit")
        expect(console.page.get_by_text("ended the session of Berta")).to_be_visible()


def test_without_the_scope_only_the_own_sessions_are_shown(
    service: Service, console: ConsolePage
) -> None:
    console.sign_in(service.token(scopes=frozenset({"outputs:read"})))
    console.show("access")
    expect(console.page.get_by_text("it lacks the scope tokens:write")).to_be_visible()
    expect(console.page.get_by_role("button", name="Sign out everywhere")).to_be_visible()
    expect(console.page.get_by_role("button", name="Create token")).to_have_count(0)
    expect(console.page.get_by_role("row", name=PERSON)).to_contain_text("This session")
    assert console.violations() == []
    console.show("audit")
    expect(console.page.get_by_text("It lacks the scope audit:read")).to_be_visible()
    console.assert_quiet()


# --- the audit log --------------------------------------------------------------------------------

ABOUT: dict[str, Any] = {
    "records": 2,
    "domains": ["shop.example", "b.example"],
    "group_id": "shop",
    "job_id": "12",
    "status": "approved",
    "scopes": ["outputs:read"],
    "of_person": "Carla \u202e",
    "reason": "expired_token",
    "token_id": 7,
    "format": "csv",
    "dry_run": True,
    "settings": ["display_name", "retain_days"],
    "webhook_id": "9d2c6b1e4f7a4c3d8e5f60718293a4b5",
}


def append_each_action(service: Service, organization_id: int) -> None:
    async def run(engine: Engine) -> None:
        async def work(transaction: Transaction) -> None:
            for action in AuditAction.__args__:  # type: ignore[attr-defined]
                actor = Actor(None, None, "Anna")
                await log.append(transaction, actor, timestamps.now(), action, ABOUT)  # type: ignore[arg-type]

        await engine.for_tenant(organization_id).write(work)

    on_engine(service.settings, run)


def test_each_action_is_a_sentence(service: Service, console: ConsolePage, token: str) -> None:
    with service.client(token) as client:
        client.post("/v1/local-storage", json=[{"domain": "a.example", "key": "a", "value": "b"}])
        record = client.get("/v1/local-storage").json()[0]
    append_each_action(service, record["organization_id"])
    console.sign_in(token)
    console.show("audit")
    sentences = console.page.locator(".audit-sentence").all_inner_texts()
    assert "Anna approved job 12 of shop" in sentences
    assert "Anna read 2 cookies of shop.example and 1 other domain" in sentences
    assert "Anna could not sign in: the token had expired" in sentences
    assert "Anna downloaded shop as CSV" in sentences
    assert "Anna changed settings of shop: display name, retain days" in sentences
    assert (
        "Anna previewed an import of 2 records of shop.example and 1 other domain as CSV"
        in sentences
    )
    assert "Anna rotated the secret of webhook 9d2c6b1e" in sentences
    assert "Anna sent an event again to webhook 9d2c6b1e" in sentences
    assert [text for text in sentences if "_" in text or "undefined" in text] == []
    options = (
        console.page.get_by_label("Action")
        .locator("option")
        .evaluate_all("all => all.map((one) => one.value)")
    )
    assert set(options) - {""} == set(AuditAction.__args__)  # type: ignore[attr-defined]
    assert console.violations() == []
    console.assert_quiet()


@pytest.mark.journey
def test_the_log_is_filtered_and_goes_on(
    service: Service, console: ConsolePage, token: str
) -> None:
    with closing(ConsoleClient(service.url, token, "Berta")) as berta:
        for _ in range(60):
            berta.get("/v1/cookies")
    console.sign_in(token)
    console.show("audit")
    rows = console.page.locator(".audit-sentence")
    expect(rows).to_have_count(50)
    console.page.get_by_role("button", name="Show more").click()
    expect(rows).to_have_count(63)
    console.page.get_by_label("Action").select_option("Sign in")
    expect(rows).to_have_count(2)
    console.page.get_by_label("Person").fill("bert")
    console.page.keyboard.press("Enter")
    expect(rows).to_have_count(1)
    console.page.reload()  # the filters are in the address
    expect(rows).to_have_count(1)
    console.page.get_by_label("Person").fill("nobody")
    console.page.keyboard.press("Enter")
    expect(console.page.get_by_text("No entry fits the filters")).to_be_visible()
    console.page.go_back()  # it undoes the last filter
    expect(console.page.get_by_label("Person")).to_have_value("bert")
    expect(rows).to_have_count(1)
    console.page.go_back()
    expect(rows).to_have_count(2)
    console.page.get_by_role("button", name="Clear").click()
    expect(rows).to_have_count(50)


def test_the_log_of_a_token_opens_from_its_row(console: ConsolePage, token: str) -> None:
    console.sign_in(token)
    console.show("access")
    console.page.get_by_role("link", name="Audit log of").click()
    expect(console.page.get_by_label("Token", exact=True)).not_to_have_value("")
    expect(console.page.locator(".audit-sentence")).to_have_count(2)


def test_every_scope_has_a_checkbox(console: ConsolePage, token: str) -> None:
    console.sign_in(token)
    dialog = create(console, "All", *SCOPES)
    assert dialog.get_by_role("checkbox").count() == len(SCOPES)
