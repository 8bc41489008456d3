"""Monitors in the browser: alerts in the inbox, the rules of a group, and the history of alerts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, expect

from tests.support.console import NARROW, PERSON, WIDE, ConsolePage, console_page
from tests.support.console_alerts import USUAL, change, empty_field, few_outputs, run, usual_runs
from tests.support.outputs import output
from tests.support.service import Client, Service

HOSTILE = "<img src=x onerror=alert(1)>\u202e"
FAR = "2999-01-01T00:00:00Z"
COLUMNS = """(chart) => [...chart.querySelectorAll(".run-column")].map((column) =>
    Math.round(100 * [...column.children].filter((part) => part.className !== "run-missing")
        .reduce((sum, part) => sum + part.offsetHeight, 0) / column.clientHeight))"""


@pytest.fixture
def console(browser: Browser, service: Service, client: Client) -> Iterator[ConsolePage]:
    """The console after a login of the client's token."""
    assert client.token is not None
    with console_page(browser, service.url) as page:
        page.sign_in(client.token)
        yield page


def alerts(console: ConsolePage) -> Locator:
    return console.page.locator(".inbox-main .alert")


def rules(client: Client, group: str = "shop") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.get(f"/v1/monitors/{group}").json()
    return found


def refresh(console: ConsolePage) -> None:
    console.page.get_by_role("button", name="Refresh").click()


# --- alerts in the inbox ------------------------------------------------------------------------


@pytest.mark.journey
def test_the_inbox_begins_with_alerts(console: ConsolePage, client: Client) -> None:
    few_outputs(client, "shop", "s4")
    run(client, "shop", "s4", 4)
    client.put("/v1/groups/shop", json={"display_name": "Prices"})
    refresh(console)
    heading = console.page.locator(".inbox-main h2").first
    expect(heading).to_have_text("Alerts")
    alert = alerts(console)
    for text in ("s4 stored 4 outputs; 20 is usual.", "Few outputs", "Prices", "2 runs"):
        expect(alert).to_contain_text(text)
    expect(alert).to_contain_text(re.compile("for [0-9]+ (second|minute)s?"))
    chart = alert.get_by_role("img")
    expect(chart).to_have_attribute(
        "aria-label", "Outputs of the last 6 runs, oldest first: 20, 20, 20, 20, 5, 4"
    )
    heights = chart.evaluate(COLUMNS)
    assert heights == pytest.approx([100, 100, 100, 100, 25, 20], abs=6)
    expect(chart.locator(".run-alert")).to_have_count(2)
    expect(chart.locator(".run-usual")).to_have_count(1)
    assert console.violations() == []
    console.page.keyboard.press("j")
    console.page.keyboard.press("Enter")
    console.page.wait_for_url("**#/groups/shop/monitors?job_id=s4")
    console.assert_quiet()


@pytest.mark.journey
def test_an_alert_is_acknowledged_muted_and_accepted(console: ConsolePage, client: Client) -> None:
    made = {job: few_outputs(client, "shop", job) for job in ("first", "second")}
    refresh(console)
    page = console.page
    expect(alerts(console)).to_have_count(2)
    expect(alerts(console).first).to_contain_text("second")
    alerts(console).first.get_by_role("button", name="Acknowledge").click()
    expect(alerts(console).last).to_contain_text(f"Acknowledged by {PERSON}")
    expect(alerts(console).first).to_contain_text("first")
    expect(page.locator(".inbox-main header").first).to_contain_text("1 new, 1 acknowledged")

    alerts(console).last.get_by_role("button", name="Mute").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("there are no messages about this rule and job")
    assert console.violations() == []
    dialog.get_by_role("button", name="1 week").click()
    dialog.get_by_role("button", name="Mute", exact=True).click()
    expect(alerts(console)).to_have_count(1)
    assert client.get(f"/v1/alerts/{made['second']['alert_id']}").json()["muted_until"] is not None
    page.get_by_text("1 muted alert").click()
    muted = page.locator(".alerts-muted .alert")
    expect(muted).to_contain_text("Muted until")
    assert console.violations() == []
    muted.get_by_role("button", name="Unmute").click()
    expect(page.locator(".alerts-muted")).to_have_count(0)
    expect(alerts(console)).to_have_count(2)

    alerts(console).first.get_by_role("button", name="Normal now").click()
    expect(dialog).to_contain_text("what the last run was like is usual from now on")
    assert console.violations() == []
    dialog.get_by_role("button", name="It is normal now").click()
    expect(alerts(console)).to_have_count(1)
    closed = client.get(f"/v1/alerts/{made['first']['alert_id']}").json()
    assert closed["close_reason"] == "normal"
    console.show("audit")
    for text in ("acknowledged an alert of shop", "muted an alert", "accepted the level of"):
        expect(page.locator("#main")).to_contain_text(text)
    console.assert_quiet()


def test_an_acknowledgement_can_be_taken_back(console: ConsolePage, client: Client) -> None:
    change(client, few_outputs(client, "shop", "job"), acknowledged=True)
    refresh(console)
    alerts(console).get_by_role("button", name="Not acknowledged").click()
    expect(alerts(console)).not_to_contain_text("Acknowledged by")
    expect(alerts(console).get_by_role("button", name="Acknowledge")).to_be_visible()


def test_an_alert_that_has_closed_meanwhile_is_an_error(
    console: ConsolePage, client: Client
) -> None:
    few_outputs(client, "shop", "job")
    refresh(console)
    alerts(console).get_by_role("button", name="Normal now").click()
    run(client, "shop", "job", USUAL)
    dialog = console.page.get_by_role("dialog")
    dialog.get_by_role("button", name="It is normal now").click()
    expect(dialog.get_by_role("alert")).to_contain_text("This alert is closed")


def test_only_a_level_can_be_accepted(console: ConsolePage, client: Client) -> None:
    client.store("shop", output(1))
    client.put("/v1/monitors/shop", json=[{"kind": "failed_run"}])
    started = client.post("/v1/runs/shop", json={"job_id": "job"}).json()
    client.post(f"/v1/runs/shop/{started['run_id']}/finish", json={"status": "failed"})
    refresh(console)
    expect(alerts(console)).to_contain_text("The last run of job failed.")
    expect(alerts(console).get_by_role("button", name="Mute")).to_be_visible()
    expect(alerts(console).get_by_role("button", name="Normal now")).to_have_count(0)


def test_muted_alerts_alone_are_not_an_empty_inbox(console: ConsolePage, client: Client) -> None:
    change(client, few_outputs(client, "shop", "job"), muted_until=FAR)
    review = {"job_id": "job", "status": "approved"}
    assert client.post("/v1/reviews/shop", json=review).status_code == 200
    refresh(console)
    expect(console.page.get_by_text("1 muted alert")).to_be_visible()
    expect(alerts(console)).to_have_count(0)


@pytest.mark.parametrize("size", [WIDE, NARROW])
def test_names_in_alerts_are_text(
    browser: Browser, service: Service, client: Client, size: dict[str, int]
) -> None:
    few_outputs(client, "shop", HOSTILE)
    with console_page(browser, service.url, size) as console:
        console.sign_in(str(client.token))
        expect(alerts(console)).to_contain_text("<img src=x onerror=alert(1)>U+202E")
        assert console.page.locator("main img").count() == 0
        assert console.violations() == []
        console.assert_quiet()


def test_what_the_scopes_do_not_allow_is_not_offered(browser: Browser, service: Service) -> None:
    with service.client(service.token("guarded")) as client:
        few_outputs(client, "shop", "job")
    for scopes in ({"outputs:read"}, {"outputs:read", "monitors:read"}):
        with console_page(browser, service.url) as console:
            console.sign_in(service.token("guarded", frozenset(scopes)))
            main = console.page.locator("#main")
            expect(main.locator(".inbox-row")).to_have_count(1)
            may_read = "monitors:read" in scopes
            expect(alerts(console)).to_have_count(1 if may_read else 0)
            expect(main.get_by_role("button", name="Acknowledge")).to_have_count(0)
            console.show("groups/shop/monitors")
            if may_read:
                expect(main).to_contain_text("needs the scope monitors:write")
                expect(main.get_by_role("button", name="Edit")).to_have_count(0)
                expect(main.get_by_role("button", name="Add")).to_have_count(0)
                console.assert_quiet()
            else:
                expect(main).to_contain_text("It lacks the scope monitors:read")


# --- the rules of a group -----------------------------------------------------------------------


@pytest.mark.journey
def test_a_rule_is_previewed_and_changed(console: ConsolePage, client: Client) -> None:
    usual_runs(client, "shop", "job")
    for count in (14, 20, 13):
        run(client, "shop", "job", count)
    console.show("groups/shop/monitors")
    page = console.page
    table = page.get_by_role("table", name="Rules")
    expect(table.locator("tbody tr")).to_have_count(3)
    expect(table.get_by_text("Default")).to_have_count(3)
    row = table.locator("tr", has_text="at most 50 % of the usual outputs")
    row.get_by_role("button", name="Edit").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("status")).to_contain_text("0 alerts in the last 3 runs")
    share = dialog.get_by_label("At most this share")
    expect(share).to_have_value("50")
    share.fill("80")
    expect(dialog.get_by_role("status")).to_contain_text("2 alerts in the last 3 runs")
    assert console.violations() == []
    share.fill("120")
    expect(dialog).to_contain_text("Give a number from 0 to 100.")
    dialog.get_by_role("button", name="Save").click()
    assert rules(client)[1]["threshold"] == 0.5
    share.fill("80")
    dialog.get_by_label("Or fewer outputs than").fill("10")
    dialog.get_by_role("button", name="Save").click()
    changed = table.locator("tr", has_text="at most 80 % of the usual outputs, or fewer than 10")
    expect(changed).to_be_visible()
    expect(table.get_by_text("Default")).to_have_count(2)
    stored = rules(client)[1]
    assert (stored["kind"], stored["threshold"], stored["minimum"]) == ("few_outputs", 0.8, 10)
    changed.get_by_role("button", name="Switch off").click()
    expect(changed).to_contain_text("Off")
    assert not rules(client)[1]["enabled"]
    changed.get_by_role("button", name="Switch on").click()
    expect(changed.get_by_role("button", name="Switch off")).to_be_visible()
    changed.get_by_role("button", name="Remove").click()
    expect(dialog).to_contain_text("Its open alerts close.")
    dialog.get_by_role("button", name="Remove the rule").click()
    expect(table.locator("tbody tr")).to_have_count(2)
    assert [rule["kind"] for rule in rules(client)] == ["no_run", "fill_rate"]
    console.show("audit")
    expect(page.locator("#main")).to_contain_text("changed the rules of shop")
    console.assert_quiet()


def test_rules_of_a_job_and_a_field_are_added(console: ConsolePage, client: Client) -> None:
    client.store("shop", output(1, job_id="small"))
    console.show("groups/shop/monitors")
    page = console.page
    page.get_by_role("button", name="Add a rule").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Rule", exact=True).select_option("Fill rate")
    dialog.get_by_label("Job").select_option("small")
    dialog.get_by_label("Field").fill("offer.price")
    dialog.get_by_label("Drop of the fill rate").fill("5")
    dialog.get_by_role("button", name="Add rule").click()
    row = page.locator(".monitors-rules tr", has_text="offer.price")
    expect(row).to_contain_text("The fill rate of offer.price has dropped by 5 percentage points")
    expect(row).to_contain_text("small")
    added = rules(client)[-1]
    assert (added["job_id"], added["path"], added["threshold"]) == ("small", "offer.price", 0.05)
    page.get_by_role("button", name="Add a rule").click()
    dialog.get_by_label("Rule", exact=True).select_option("Overdue")
    dialog.get_by_label("Or hours").fill("26.5")
    dialog.get_by_role("button", name="Add rule").click()
    expect(dialog.get_by_role("alert")).to_contain_text("another rule has the same kind")
    dialog.get_by_label("Job").select_option("small")
    dialog.get_by_role("button", name="Add rule").click()
    expect(page.locator(".monitors-rules")).to_contain_text("No run for 26.5 hours")
    assert rules(client)[-1]["hours"] == 26.5
    page.get_by_role("button", name="Add a rule").click()
    dialog.get_by_label("Rule", exact=True).select_option("Overdue")
    dialog.get_by_label("Or hours").fill("soon")
    dialog.get_by_role("button", name="Add rule").click()
    expect(dialog.locator(".problem")).to_have_count(1)


def test_a_change_keeps_what_others_have_changed(console: ConsolePage, client: Client) -> None:
    client.store("shop", output(1))
    console.show("groups/shop/monitors")
    console.page.get_by_role("button", name="Edit: Fill rate").click()
    client.put("/v1/monitors/shop", json=[*rules(client), {"kind": "failed_run"}])
    dialog = console.page.get_by_role("dialog")
    dialog.get_by_label("Drop of the fill rate").fill("30")
    dialog.get_by_role("button", name="Save").click()
    expect(console.page.locator(".monitors-rules")).to_contain_text("A run has failed")
    kinds = [(rule["kind"], rule["threshold"]) for rule in rules(client)]
    assert kinds[2:] == [("fill_rate", 0.3), ("failed_run", 1.0)]


def test_a_suggestion_is_added(console: ConsolePage, client: Client) -> None:
    usual_runs(client, "shop", "job", data={f"price{number}": 1.5 for number in range(8)})
    console.show("groups/shop/monitors")
    suggestion = console.page.locator(".monitors-suggestion", has_text="A run has failed")
    expect(suggestion).to_contain_text("It would have opened 0 alerts in the last 4 runs.")
    suggestion.get_by_role("button", name="Add").click()
    expect(console.page.locator(".monitors-rules")).to_contain_text("A run has failed")
    expect(suggestion).to_have_count(0)
    assert [rule["kind"] for rule in rules(client)][-1] == "failed_run"
    shown = console.page.locator(".monitors-suggestion")
    count = shown.count()
    console.page.get_by_role("button", name="Show all").click()
    expect(shown.nth(count)).to_be_visible()
    console.assert_quiet()


# --- the history of alerts ----------------------------------------------------------------------


def test_the_history_has_the_facts_of_each_alert(console: ConsolePage, client: Client) -> None:
    made = empty_field(client, "shop", "mugs")
    few_outputs(client, "shop", "plates")
    run(client, "shop", "plates", USUAL)
    console.show("groups/shop/monitors")
    page = console.page
    listed = page.locator(".alert")
    expect(listed).to_have_count(2)
    expect(listed.first).to_contain_text("Closed: over")
    expect(listed.first.get_by_role("button")).to_have_count(0)
    for text in ("name filled in 0 %, usually 100 %", "price filled in 0 %, usually 100 %"):
        expect(listed.last).to_contain_text(text)
    page.get_by_label("State").select_option("Open")
    expect(listed).to_have_count(1)
    page.wait_for_url("**/monitors?state=open")
    page.get_by_label("Job").select_option("plates")
    expect(page.get_by_role("heading", name="No alert fits the filters")).to_be_visible()
    page.go_back()
    listed.get_by_role("link", name="see it").click()
    page.wait_for_url(f"**/runs/{made['run_id']}")
    expect(page.locator(".alert")).to_contain_text("price filled in 0 %")
    page.get_by_role("link", name="All alerts of the job").click()
    page.wait_for_url("**/monitors?job_id=mugs")
    console.assert_quiet()


def test_the_list_of_runs_marks_those_with_an_alert(console: ConsolePage, client: Client) -> None:
    few_outputs(client, "shop", "job")
    console.show("groups/shop/runs")
    marks = console.page.locator("table.runs tbody tr").get_by_text("Alert", exact=True)
    expect(marks).to_have_count(1)
    expect(console.page.locator("table.runs tbody tr").first).to_contain_text("Alert")


def test_more_alerts_are_loaded(console: ConsolePage, client: Client) -> None:
    client.store("shop", output(1))
    client.put("/v1/monitors/shop", json=[{"kind": "few_outputs", "minimum": 1}])
    for number in range(22):
        run(client, "shop", f"job {number}", 0)
    refresh(console)
    expect(alerts(console)).to_have_count(20)
    console.page.get_by_role("button", name="Show more").first.click()
    expect(alerts(console)).to_have_count(22)
    console.show("groups/shop/monitors")
    expect(console.page.locator(".alert")).to_have_count(20)
    console.page.get_by_role("button", name="Show more").click()
    expect(console.page.locator(".alert")).to_have_count(22)
