"""The groups and the page of a group in the browser."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.support.console import ConsolePage, console_page
from tests.support.outputs import output
from tests.support.service import Client, Service


@pytest.fixture
def console(browser: Browser, service: Service, client: Client) -> Iterator[ConsolePage]:
    """The console after a login of the client's token."""
    assert client.token is not None
    with console_page(browser, service.url) as page:
        page.sign_in(client.token)
        yield page


def test_without_groups_the_next_step_is_said(console: ConsolePage) -> None:
    console.show("groups")
    expect(console.page.get_by_role("heading", name="No groups yet")).to_be_visible()


@pytest.mark.journey
def test_groups_have_numbers_and_a_sparkline(console: ConsolePage, client: Client) -> None:
    client.store("shop", *(output(number) for number in range(3)), output(1, job_id="other"))
    client.post("/v1/reviews/shop", json={"job_id": "other", "status": "approved"})
    console.show("groups")
    row = console.page.locator("tbody tr")
    for text in ("shop", "4", "25 %", "100 %"):
        expect(row).to_contain_text(text)
    expect(
        row.get_by_role("img", name="4 changes in 30 days, at most 4 a day, 4 today")
    ).to_be_visible()
    console.page.keyboard.press("j")
    console.page.keyboard.press("Enter")
    console.page.wait_for_url("**#/groups/shop")
    expect(console.page.get_by_role("heading", name="shop")).to_be_visible()
    console.assert_quiet()


def test_more_groups_are_loaded(console: ConsolePage, client: Client) -> None:
    for number in range(27):
        client.store(f"group-{number:02}", output(1))
    console.show("groups")
    rows = console.page.locator("tbody tr")
    expect(rows).to_have_count(25)
    console.page.get_by_role("button", name="Show more").click()
    expect(rows).to_have_count(27)


@pytest.mark.journey
def test_the_page_of_a_group_lists_its_jobs(console: ConsolePage, client: Client) -> None:
    name = "a & b?c"
    client.store("a%20&%20b%3Fc", output(1, job_id="one"), output(2, job_id="two"))
    review = {"job_id": "two", "status": "approved", "comment": "fine"}
    client.post("/v1/reviews/a%20&%20b%3Fc", json=review)
    console.show("groups/a%20%26%20b%3Fc")
    page = console.page
    expect(page.get_by_role("heading", name=name)).to_be_visible()
    expect(page.locator("tbody tr")).to_have_count(2)
    expect(page.locator("tbody tr", has_text="two")).to_contain_text("Approved")
    expect(page.locator("tbody tr", has_text="one")).to_contain_text("Not reviewed")
    link = page.get_by_role("link", name="Review one").get_attribute("href")
    assert link == "#/groups/a%20%26%20b%3Fc/review/one"
    link = page.get_by_role("link", name="Outputs of one").get_attribute("href")
    assert link == "#/groups/a%20%26%20b%3Fc/outputs?job_id=one"
    expect(page.get_by_role("navigation", name="Group")).to_be_visible()
    console.assert_quiet()


def test_an_unknown_group_is_an_error_in_words(console: ConsolePage) -> None:
    console.show("groups/nobody")
    expect(console.page.get_by_role("heading", name="This page does not exist")).to_be_visible()


def test_every_group_can_be_exported(console: ConsolePage, client: Client) -> None:
    for group in ("news", "shop"):
        client.store(group, output(1))
    console.show("groups")
    console.page.get_by_role("button", name="Export shop").click()
    dialog = console.page.get_by_role("dialog")
    with console.page.expect_download() as found:
        dialog.get_by_role("button", name="Download").click()
    assert found.value.suggested_filename == "shop.csv"
    console.assert_quiet()
