"""A reviewer's day in Chromium: the inbox, two flagged fields, one job sent back, one approved."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.support.console import PERSON, console_page
from tests.support.outputs import follow_changes, output
from tests.support.service import Client, Service


def products(job: str, numbers: range, price: float) -> list[dict[str, Any]]:
    return [
        output(number, job_id=job, data={"title": f"{job} {number}", "price": price, "stock": 3})
        for number in numbers
    ]


def titles(copy: dict[str, Any]) -> set[str]:
    return {one["data"]["title"] for one in copy.values()}


@pytest.mark.journey
def test_a_reviewers_day(service: Service, browser: Browser) -> None:
    token = service.token()
    with Client(service.url, token) as client, console_page(browser, service.url) as console:
        client.store("group", *products("mugs", range(3), 9.5))
        body = {"job_id": "mugs", "status": "approved"}
        assert client.post("/v1/reviews/group", json=body).status_code == 200
        copy: dict[str, Any] = {}
        cursor = follow_changes(client, copy, view="approved")
        assert titles(copy) == {"mugs 0", "mugs 1", "mugs 2"}
        client.store("group", *products("mugs", range(3), 950))
        client.store("group", *products("plates", range(10, 14), 12))

        console.sign_in_with_form(token)
        page, keyboard = console.page, console.page.keyboard
        keyboard.press("I")
        expect(page.get_by_text("2 jobs wait for a review.")).to_be_visible()
        keyboard.press("j")
        keyboard.press("Enter")
        expect(page.get_by_role("heading", name="mugs", exact=True)).to_be_visible()
        expect(page.get_by_text("0/3 decided")).to_be_visible()
        expect(page.get_by_role("row").filter(has_text="price")).to_contain_text("9.5")
        keyboard.press("2")
        keyboard.press("c")
        keyboard.type("Price in cents")
        keyboard.press("Enter")
        keyboard.press("j")
        keyboard.press("2")
        keyboard.press("a")
        expect(page.get_by_text("2/3 decided")).to_be_visible()
        keyboard.press("u")
        expect(page.get_by_text("· 2 flagged", exact=True)).to_be_visible()
        keyboard.press("C")
        expect(page.get_by_role("dialog").get_by_text("2 findings")).to_be_visible()
        keyboard.type("Prices are in cents")
        page.get_by_role("button", name="All 3 outputs").click()
        page.get_by_role("button", name="Send back 3 outputs").click()
        expect(page.get_by_text("Job mugs is sent back, with 2 findings.")).to_be_visible()

        expect(page.get_by_role("heading", name="plates", exact=True)).to_be_visible()
        expect(page.get_by_text("0/4 decided")).to_be_visible()
        for key in "aaaa":
            keyboard.press(key)
        expect(page.get_by_text("0 bad of 4 outputs, the whole job: exactly 0 %")).to_be_visible()
        client.store("group", *products("plates", range(14, 15), 12))
        keyboard.press("A")
        keyboard.press("Control+Enter")
        expect(page.get_by_text("Job plates is approved. 1 output arrived")).to_be_visible()
        expect(page.get_by_role("heading", name="Inbox", exact=True)).to_be_visible()
        expect(page.get_by_text("1 job waits for a review.")).to_be_visible()
        console.assert_quiet()

        follow_changes(client, copy, cursor, view="approved")
        assert titles(copy) == {"plates 10", "plates 11", "plates 12", "plates 13"}
        [plates, mugs] = client.get("/v1/reviews/group").json()
        assert (plates["status"], mugs["status"]) == ("approved", "changes_requested")
        details = client.get(f"/v1/reviews/group/{mugs['review_id']}").json()
        assert details["person"] == PERSON
        assert details["comment"] == "Prices are in cents"
        assert [(one["path"], one["note"]) for one in details["findings"]] == [
            ("price", "Price in cents"),
            ("price", ""),
        ]
