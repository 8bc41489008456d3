"""The fields and the settings of a group in the console, in Chromium."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Route, expect

from tests.support.console import NARROW, WIDE, ConsolePage, console_page
from tests.support.outputs import output
from tests.support.service import Client, Clock, Service
from tests.support.settings import fresh_settings

SCHEMA = '{"type": "object", "properties": {"number": {"maximum": 12345678901234567890123}}}'


@pytest.fixture
def console(browser: Browser, service: Service, client: Client) -> Iterator[ConsolePage]:
    assert client.token is not None
    with console_page(browser, service.url) as page:
        page.sign_in(client.token)
        yield page


@pytest.fixture
def timed_client(
    request: pytest.FixtureRequest, tmp_path: Path, clock: Clock
) -> Iterator[tuple[Client, Clock]]:
    """A client of a service whose clock the test moves.

    It starts in another thread, because Playwright runs an event loop in this one.
    """
    settings = fresh_settings("sqlite", request, tmp_path)
    with ThreadPoolExecutor(1) as thread:
        service = thread.submit(Service, settings, clock).result()
        token = thread.submit(service.token).result()
    yield service.client(token), clock
    service.stop()


def run(client: Client, clock: Clock, filled: int, job: str = "job") -> None:
    """A run with 100 outputs, of which some have a price."""
    batch = [
        output(
            number,
            job_id=job,
            data={"name": f"thing {number}"} | ({"price": 5.5} if number < filled else {}),
        )
        for number in range(100)
    ]
    client.store("group", *batch)
    clock.move(seconds=3600)


@pytest.mark.parametrize(("size", "scheme"), [(WIDE, "light"), (NARROW, "dark")])
def test_fill_rates_drift_and_runs_are_shown(
    size: Any, scheme: Any, browser: Browser, timed_client: tuple[Client, Clock]
) -> None:
    client, clock = timed_client
    for filled in (99, 100, 99, 99, 61):
        run(client, clock, filled)
    run(client, clock, 50, job="other <b>job")
    assert client.token is not None
    with console_page(browser, str(client.base_url), size, scheme) as console:
        console.sign_in(client.token)
        console.open("groups/group/fields?job_id=job")
        page = console.page
        drift = "price: filled in 61 %, median of earlier runs 99 %"
        expect(page.locator(".fields-drift")).to_contain_text(drift)
        row = page.get_by_role("row").filter(has_text="price")
        expect(row).to_contain_text("61 %")
        expect(row).to_contain_text("5.5")
        chart = "Filled in the last 5 runs, oldest first: 99 %, 100 %, 99 %, 99 %, 61 %"
        expect(row.get_by_role("img")).to_have_accessible_name(chart)
        assert console.violations() == []
        page.get_by_label("Job").select_option("other <b>job")
        expect(row).to_contain_text("50 %")
        page.get_by_label("Job").select_option("All jobs")
        expect(page.locator(".warning")).to_contain_text("accepts what changed")
        assert page.evaluate("document.documentElement.scrollWidth") == size["width"]
        console.assert_quiet()


@pytest.mark.journey
def test_the_suggested_schema_is_compared_and_applied(client: Client, console: ConsolePage) -> None:
    client.store("group", output(1), output(2, data={"number": 2, "extra": "text"}))
    settings = {"display_name": "Mugs", "key_fields": ["number"], "retain_days": 9}
    schema = {"type": "object", "properties": {"number": {"type": "integer", "minimum": 0}}}
    client.put("/v1/groups/group", json=settings | {"schema": schema, "keep_versions": 3})
    console.open("groups/group/fields")
    page = console.page
    rules = page.locator(".fields-rules > div")
    expect(rules.first).to_contain_text("integer, minimum 0")
    expect(rules.first).to_contain_text("integer, required")
    expect(rules.last).to_contain_text("text, not empty")
    page.get_by_role("button", name="Apply the suggestion").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("refuses new outputs that do not meet the schema")
    assert console.violations() == []
    dialog.get_by_role("button", name="Apply schema").click()
    expect(page.get_by_text("The schema of the group is the suggested one.")).to_be_visible()
    group = client.get("/v1/groups/group").json()
    assert {name: group[name] for name in settings} == settings
    assert group["keep_versions"] == 3
    assert group["schema"]["required"] == ["number"]
    assert client.get("/v1/groups/group/fields").json()["schema"] == group["schema"]
    page.get_by_role("button", name="Remove schema").click()
    dialog.get_by_role("button", name="Remove schema").click()
    expect(page.get_by_text("This group has no schema")).to_be_visible()
    assert client.get("/v1/groups/group").json()["schema"] is None
    console.assert_quiet()


def test_the_schema_of_a_job_is_not_applied_while_all_jobs_load(
    client: Client, console: ConsolePage
) -> None:
    client.store("group", output(1, job_id="job"), output(2, job_id="other"))
    console.open("groups/group/fields?job_id=job")
    page = console.page
    apply = page.get_by_role("button", name="Apply the suggestion")
    expect(page.get_by_text("Choose all jobs to apply one")).to_be_visible()
    held: list[Route] = []
    page.route("**/v1/groups/group/fields*", lambda route: held.append(route))
    with page.expect_request("**/v1/groups/group/fields*"):
        page.get_by_label("Job").select_option("All jobs")
    expect(page.get_by_text("Choose all jobs to apply one")).to_be_visible()
    expect(apply).to_have_count(0)
    held.pop().continue_()
    expect(apply).to_be_visible()
    page.unroute("**/v1/groups/group/fields*")
    page.go_back()  # to the job
    expect(page.get_by_text("Choose all jobs to apply one")).to_be_visible()
    console.assert_quiet()


@pytest.mark.journey
def test_settings_are_edited_without_changing_the_others(
    client: Client, console: ConsolePage
) -> None:
    client.store("group", output(1))
    text = '{"keep_days": 30, "schema": ' + SCHEMA + "}"
    client.put("/v1/groups/group", content=text, headers={"Content-Type": "application/json"})
    console.open("groups/group/settings")
    page = console.page
    page.get_by_label("Display name").fill("Mugs")
    page.get_by_label("Key fields").fill("number\nnumber")
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".problem, .problem-box")).to_be_visible()
    page.get_by_label("Key fields").fill("number\n")
    page.get_by_label("Earlier versions").fill("many")
    page.keyboard.press("Enter")
    expect(page.locator(".field .problem")).to_contain_text("integer")
    page.get_by_label("Earlier versions").fill("0")
    assert console.violations() == []
    page.keyboard.press("Enter")
    expect(page.get_by_text("The settings are saved.")).to_be_visible()
    answer = client.get("/v1/groups/group")
    group = answer.json()
    assert (group["display_name"], group["key_fields"]) == ("Mugs", ["number"])
    assert (group["retain_days"], group["keep_versions"], group["keep_days"]) == (None, 0, 30)
    assert "12345678901234567890123" in answer.text
    assert "422" in "".join(console.messages)
    assert len(console.messages) == 2  # the browser reports the refused requests
    expect(page.get_by_role("heading", level=1)).to_have_text("Mugs")


def test_a_reader_cannot_change_a_group(browser: Browser, service: Service, client: Client) -> None:
    name = "readers of fields"
    with ThreadPoolExecutor(1) as thread:
        writer = thread.submit(service.token, name).result()
        reader = thread.submit(service.token, name, frozenset({"outputs:read"})).result()
    service.client(writer).store("group", output(1))
    with console_page(browser, service.url) as console:
        console.sign_in(reader)
        console.open("groups/group/fields")
        expect(console.page.get_by_text("needs the scope outputs:write")).to_be_visible()
        expect(console.page.get_by_role("button", name="Apply the suggestion")).to_have_count(0)
        console.open("groups/group/settings")
        expect(console.page.get_by_role("button", name="Save")).to_be_disabled()
        console.assert_quiet()
