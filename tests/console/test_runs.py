"""Runs in the browser: the list of a group, the page of one, and a removal that is held."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, expect

from tests.support.console import NARROW, ConsolePage, console_page
from tests.support.console_runs import send_run
from tests.support.outputs import output
from tests.support.service import Client, Service

HOSTILE = "<img src=x onerror=alert(1)>\u202e"
WIDTHS = """(bars) => bars.map((bar) => {
    const parts = [...bar.children].map((part) => part.getBoundingClientRect().width);
    return Math.round(100 * parts.reduce((sum, one) => sum + one, 0) / bar.clientWidth);
})"""


@pytest.fixture
def console(browser: Browser, service: Service, client: Client) -> Iterator[ConsolePage]:
    """The console after a login of the client's token."""
    assert client.token is not None
    with console_page(browser, service.url) as page:
        page.sign_in(client.token)
        yield page


def run(client: Client, count: int, job: str = "job", **members: Any) -> dict[str, Any]:
    outputs = [output(number, job_id=job) for number in range(count)]
    return send_run(client, "shop", job, outputs, **members)


def held_run(client: Client) -> str:
    """The id of a run after which 12 of 20 outputs wait for a decision."""
    settings = {"missing": {"after_runs": 1}}
    assert client.put("/v1/groups/shop", json=settings).status_code == 200
    run(client, 20)
    found = run(client, 8)
    assert (found["removal"], found["removable"]) == ("held", 12)
    return str(found["run_id"])


def rows(console: ConsolePage) -> Locator:
    return console.page.locator("table.runs tbody tr")


def bar_widths(console: ConsolePage) -> list[int]:
    """How much of each bar is filled, in percent."""
    widths: list[int] = console.page.locator(".run-bar").evaluate_all(WIDTHS)
    return widths


@pytest.mark.parametrize("size", [None, NARROW])
def test_a_run_that_differs_from_its_neighbours_stands_out(
    browser: Browser, service: Service, client: Client, size: dict[str, int] | None
) -> None:
    for _ in range(3):
        run(client, 40)
    run(client, 20, status="partial", message="half of the pages")
    run(client, 0, status="failed", message="no login")
    run(client, 4, job="small")
    with console_page(browser, service.url, **({} if size is None else {"size": size})) as console:
        console.sign_in(str(client.token))
        console.show("groups/shop/runs")
        expect(rows(console)).to_have_count(6)
        small, failed, half, *full = rows(console).all()
        expect(failed).to_contain_text("Failed")
        expect(failed).to_contain_text("No outputs")
        expect(failed).to_contain_text("no login")
        expect(half).to_contain_text("20 unchanged")
        expect(half).to_contain_text("50 % fewer than usual")
        expect(half).to_contain_text("half of the pages")
        expect(full[-1]).to_contain_text("40 new")
        for row in (small, *full):
            expect(row).not_to_contain_text("fewer than usual")
        # The bars of a job have the same scale, and those of another job do not count.
        found = bar_widths(console)
        assert (found[0], found[1]) == (100, 0)
        assert found[2] == pytest.approx(50, abs=2)
        assert found[3:] == pytest.approx([100] * 3, abs=2)
        assert console.violations() == []
        console.assert_quiet()


def test_missing_and_rejected_outputs_are_parts_of_the_bar(
    console: ConsolePage, client: Client
) -> None:
    run(client, 10)
    outputs = [*(output(number) for number in range(6)), {"job_id": "job"}]
    changed = output(0, data={"number": -1})
    send_run(client, "shop", "job", [changed, *outputs[1:], output(50)])
    console.show("groups/shop/runs")
    newest = rows(console).first
    for text in ("1 new", "1 updated", "5 unchanged", "4 missing", "1 rejected"):
        expect(newest).to_contain_text(text)
    parts = newest.locator(".run-bar > span")
    names = [f"run-{name}" for name in ("created", "updated", "unchanged", "missing", "rejected")]
    assert [part.get_attribute("class") for part in parts.all()] == names


def test_runs_are_filtered_and_loaded_in_pages(console: ConsolePage, client: Client) -> None:
    for _ in range(31):
        run(client, 0)
    run(client, 1, job="other", status="failed", labels={"country": "DE"})
    console.show("groups/shop/runs")
    page = console.page
    expect(rows(console)).to_have_count(30)
    page.get_by_role("button", name="Show more").click()
    expect(rows(console)).to_have_count(32)
    page.get_by_label("Status").select_option("Failed")
    expect(rows(console)).to_have_count(1)
    expect(rows(console)).to_contain_text("country DE")
    page.get_by_label("Job").select_option("job")
    expect(page.get_by_role("heading", name="No run fits the filters")).to_be_visible()
    page.wait_for_url("**/runs?status=failed&job_id=job")
    page.go_back()
    expect(rows(console)).to_have_count(1)
    page.go_back()
    expect(rows(console)).to_have_count(30)
    console.assert_quiet()


def test_the_page_of_a_run_says_everything(console: ConsolePage, client: Client) -> None:
    run(client, 10)
    made = run(client, 7, message=HOSTILE, labels={"country": HOSTILE})
    console.show("groups/shop/runs")
    console.page.keyboard.press("j")
    console.page.keyboard.press("Enter")
    console.page.wait_for_url(f"**#/groups/shop/runs/{made['run_id']}")
    main = console.page.locator("#main")
    expect(main.get_by_role("heading", level=1)).to_have_text("Run of job")
    for text in ("Complete", "7 unchanged", "3 of 10 outputs that the job had", made["run_id"]):
        expect(main).to_contain_text(text)
    expect(main).to_contain_text("<img src=x onerror=alert(1)>")
    assert main.locator("img").count() == 0
    expect(main.get_by_role("button", name="Remove")).to_have_count(0)
    main.get_by_role("link", name="Outputs that are missing now").click()
    console.page.wait_for_url("**#/groups/shop/outputs?job_id=job&missing=true")
    expect(main).to_contain_text("not in the last complete run")
    expect(console.page.locator(".outputs-state")).to_contain_text("3 outputs")
    console.assert_quiet()


def test_outputs_without_a_run_are_a_run_that_nobody_finished(
    console: ConsolePage, client: Client
) -> None:
    client.store("shop", output(1))
    console.show("groups/shop/runs")
    expect(rows(console)).to_contain_text("Running")
    rows(console).get_by_role("link").click()
    expect(console.page.locator("#main")).to_contain_text("outputs that named no run")
    expect(console.page.locator("#main")).to_contain_text("not yet")


@pytest.mark.journey
def test_a_held_removal_is_decided_by_a_person(console: ConsolePage, client: Client) -> None:
    held_run(client)
    page = console.page
    page.get_by_role("button", name="Refresh").click()
    row = page.locator(".inbox-row", has_text="12 outputs to remove")
    expect(row).to_contain_text("60 % of the job")
    row.click()
    main = page.locator("#main")
    expect(main).to_contain_text("They are 60 % of the job")
    listed = page.locator("table.run-removable tbody tr")
    expect(listed).to_have_count(10)
    main.get_by_role("button", name="Show more").click()
    expect(listed).to_have_count(12)
    assert console.violations() == []
    main.get_by_role("button", name="Remove").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("This deletes 12 outputs of the job job")
    assert console.violations() == []
    dialog.get_by_role("button", name="Cancel").click()
    assert len(client.items("shop")) == 20
    main.get_by_role("button", name="Remove").click()
    dialog.get_by_role("button", name="Remove 12 outputs").click()
    expect(page.get_by_text("Removed: 12 outputs.")).to_be_visible()
    expect(main).to_contain_text("12 outputs removed")
    expect(main.get_by_role("button", name="Remove")).to_have_count(0)
    assert len(client.items("shop")) == 8
    console.show("inbox")
    expect(page.locator(".inbox-row")).to_have_count(1)  # the job waits for a review
    console.show("audit")
    expect(main).to_contain_text("decided to remove missing outputs of shop")
    console.assert_quiet()


def test_outputs_can_be_kept(console: ConsolePage, client: Client) -> None:
    run_id = held_run(client)
    console.show(f"groups/shop/runs/{run_id}")
    console.page.get_by_role("button", name="Keep").click()
    dialog = console.page.get_by_role("dialog")
    expect(dialog).to_contain_text("Nothing is deleted")
    dialog.get_by_role("button", name="Keep 12 outputs").click()
    expect(console.page.locator("#main")).to_contain_text("12 outputs kept by a decision")
    assert len(client.items("shop")) == 20
    console.assert_quiet()


def test_a_decision_that_somebody_else_has_taken_is_an_error(
    console: ConsolePage, client: Client
) -> None:
    run_id = held_run(client)
    console.show(f"groups/shop/runs/{run_id}")
    client.post(f"/v1/runs/shop/{run_id}/removal", json={"decision": "keep"})
    console.page.get_by_role("button", name="Remove").click()
    dialog = console.page.get_by_role("dialog")
    dialog.get_by_role("button", name="Remove 12 outputs").click()
    expect(dialog.get_by_role("alert")).to_contain_text("no removal that waits for a decision")
    assert len(client.items("shop")) == 20


def test_only_who_may_review_can_decide(browser: Browser, service: Service) -> None:
    with service.client(service.token("careful")) as client:
        run_id = held_run(client)
    token = service.token("careful", frozenset({"outputs:read"}))
    with console_page(browser, service.url) as console:
        console.sign_in(token)
        expect(console.page.locator(".inbox-row", has_text="12 outputs to remove")).to_be_visible()
        console.show(f"groups/shop/runs/{run_id}")
        main = console.page.locator("#main")
        expect(main).to_contain_text("needs the scope reviews:write")
        for name in ("Remove", "Keep"):
            expect(main.get_by_role("button", name=name)).to_be_disabled()
        console.assert_quiet()


def test_who_may_not_read_outputs_sees_no_removal(browser: Browser, service: Service) -> None:
    with service.client(service.token("secret")) as client:
        held_run(client)
    token = service.token("secret", frozenset({"session:read"}))
    with console_page(browser, service.url) as console:
        console.sign_in(token)
        expect(console.page.locator("#main")).to_contain_text("lacks the scope outputs:read")
        assert console.page.get_by_text("outputs to remove").count() == 0
        console.assert_quiet()


def test_the_settings_of_runs_can_be_changed(console: ConsolePage, client: Client) -> None:
    client.store("shop", output(1))
    console.show("groups/shop/settings")
    page = console.page
    expect(page.get_by_label("A run is abandoned after (minutes)")).to_have_value("360")
    page.get_by_label("A run is abandoned after (minutes)").fill("45")
    page.get_by_label("Remove after (complete runs)").fill("3")
    page.get_by_label("Ask a person above (% of the job)").fill("12.5")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("The settings are saved.")).to_be_visible()
    settings = client.get("/v1/groups/shop").json()
    assert settings["run_timeout_minutes"] == 45
    assert settings["missing"] == {"after_runs": 3, "max_share": 0.125}
    for screen in ("runs", "settings"):  # the form has loaded what was stored
        console.show(f"groups/shop/{screen}")
    expect(page.get_by_label("Remove after (complete runs)")).to_have_value("3")
    page.get_by_label("Remove after (complete runs)").fill("0")
    page.get_by_label("Ask a person above (% of the job)").fill("many")
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".problem")).to_have_count(2)
    page.get_by_label("Remove after (complete runs)").fill("")
    page.get_by_label("Ask a person above (% of the job)").fill("")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_label("Ask a person above (% of the job)")).to_have_value("30")
    assert client.get("/v1/groups/shop").json()["missing"]["after_runs"] is None


def test_another_setting_keeps_those_of_runs(console: ConsolePage, client: Client) -> None:
    missing = {"after_runs": 4, "max_share": 0.07}
    client.put("/v1/groups/shop", json={"missing": missing, "run_timeout_minutes": 90})
    console.show("groups/shop/settings")
    console.page.get_by_label("Display name").fill("Prices")
    console.page.get_by_role("button", name="Save").click()
    expect(console.page.get_by_role("heading", level=1)).to_have_text(re.compile("Prices"))
    settings = client.get("/v1/groups/shop").json()
    assert (settings["missing"], settings["run_timeout_minutes"]) == (missing, 90)
