"""The review of a job in Chromium: keys, decisions, the bound, and what is sent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.console import NARROW, WIDE, ConsolePage, console_page
from tests.support.outputs import output
from tests.support.service import Client, Service

ROUTE = "groups/group/review/job"


@pytest.fixture
def client(service: Service) -> Iterator[Client]:
    with service.client() as made:
        yield made


@pytest.fixture
def console(service: Service, browser: Browser, client: Client) -> Iterator[ConsolePage]:
    assert client.token is not None
    with console_page(browser, service.url) as made:
        made.sign_in(client.token)
        yield made


def product(number: int, **data: Any) -> dict[str, Any]:
    fields = {"title": f"Mug {number}", "price": 12.5, "stock": number, **data}
    return output(number, data=fields, tags={"country": "Germany"})


def store(client: Client, count: int, **data: Any) -> None:
    client.store("group", *(product(number, **data) for number in range(count)))


def review(client: Client, status: str) -> None:
    body = {"job_id": "job", "status": status}
    assert client.post("/v1/reviews/group", json=body).status_code == 200


def open_review(console: ConsolePage, route: str = ROUTE) -> Page:
    console.open(route)
    expect(console.page.get_by_role("region", name="Progress")).to_be_visible()
    return console.page


def reviews(client: Client) -> list[dict[str, Any]]:
    """All reviews with their details, oldest first."""
    found = client.get("/v1/reviews/group", params={"history": "true"}).json()
    return [client.get(f"/v1/reviews/group/{one['review_id']}").json() for one in found[::-1]]


class Keyboard:
    """Presses keys, and counts them."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self.count = 0

    def press(self, *keys: str) -> None:
        for key in keys:
            self._page.keyboard.press(key)
            self.count += 1


def test_100_decisions_need_at_most_110_keys(client: Client, console: ConsolePage) -> None:
    store(client, 400)
    page = open_review(console)
    keyboard = Keyboard(page)
    keyboard.press(*"a" * 40, "2", "j", *"a" * 20, "f", "j", *"a" * 38)
    expect(page.get_by_text("100/100 decided")).to_be_visible()
    expect(page.get_by_text("All outputs of the sample are decided")).to_be_visible()
    console.assert_quiet()
    keyboard.press("C", "Control+Enter")
    expect(page.get_by_text("2 outputs of job job are sent back.")).to_be_visible()
    assert keyboard.count <= 110
    [made] = reviews(client)
    assert (made["status"], made["person"]) == ("changes_requested", "Anna Reviewer")
    assert sorted(one["path"] or "" for one in made["findings"]) == ["", "price"]


@pytest.mark.journey
def test_an_approval_covers_what_was_seen(client: Client, console: ConsolePage) -> None:
    store(client, 3)
    page = open_review(console)
    expect(page.get_by_text("0/3 decided")).to_be_visible()
    client.store("group", product(7))
    page.keyboard.press("A")
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text("0 of 3 outputs decided")).to_be_visible()
    expect(dialog.get_by_text("Only 0 of 3 outputs are decided.")).to_be_visible()
    expect(dialog.get_by_label("Comment")).to_be_focused()
    page.keyboard.press("Control+Enter")
    text = "Job job is approved. 1 output arrived or changed later and is not approved"
    expect(page.get_by_text(text)).to_be_visible()
    approved = {one["data"]["stock"]: one["is_approved"] for one in client.items("group")}
    assert approved == {0: True, 1: True, 2: True, 7: False}


@pytest.mark.journey
def test_flagged_outputs_are_sent_back_after_an_approval(
    client: Client, console: ConsolePage
) -> None:
    store(client, 3)
    page = open_review(console)
    page.keyboard.press("1")
    page.keyboard.press("c")
    page.keyboard.type("Wrong title")
    page.keyboard.press("Enter")
    expect(page.get_by_text("1/3 decided")).to_be_visible()
    page.keyboard.press("A")
    expect(page.get_by_label("Send the 1 flagged output back")).to_be_checked()
    page.keyboard.press("Control+Enter")
    expect(page.get_by_text("1 output of job job is sent back.")).to_be_visible()
    approval, return_ = reviews(client)
    assert (approval["status"], approval["output_ids"]) == ("approved", None)
    assert return_["status"] == "changes_requested"
    [finding] = return_["findings"]
    assert (finding["path"], finding["note"]) == ("title", "Wrong title")
    assert return_["output_ids"] == [finding["output_id"]]
    assert sum(one["is_approved"] for one in client.items("group")) == 2


@pytest.mark.parametrize(("key", "verb"), [("C", "Send back"), ("R", "Reject")])
def test_a_refusal_applies_to_the_flagged_outputs_by_default(
    client: Client, console: ConsolePage, key: str, verb: str
) -> None:
    store(client, 3)
    review(client, "approved")
    page = open_review(console)
    page.keyboard.press("f")
    page.keyboard.press(key)
    dialog = page.get_by_role("dialog")
    only = dialog.get_by_role("button", name="Only the 1 flagged output")
    expect(only).to_have_attribute("aria-pressed", "true")
    expect(dialog.get_by_text("Takes their approval back")).to_have_count(0)
    dialog.get_by_role("button", name="All 3 outputs").click()
    expect(dialog.get_by_role("button", name=f"{verb} 3 outputs")).to_be_visible()
    expect(dialog.get_by_text("Takes their approval back")).to_be_visible()
    only.click()
    expect(dialog.get_by_role("button", name=f"{verb} 1 output", exact=True)).to_be_visible()
    dialog.get_by_label("Comment").focus()
    page.keyboard.press("Control+Enter")
    expect(page.get_by_text("1 output of job job is sent back.")).to_be_visible()
    assert sum(one["is_approved"] for one in client.items("group")) == 2
    assert len(reviews(client)[-1]["output_ids"]) == 1


def test_every_decision_can_be_undone(client: Client, console: ConsolePage) -> None:
    store(client, 5)
    page = open_review(console)
    for key in ("a", "a", "3", "j", "c"):
        page.keyboard.press(key)
    page.keyboard.type("odd")
    page.keyboard.press("Enter")
    expect(page.get_by_text("3/5 decided")).to_be_visible()
    expect(page.get_by_text("· 1 flagged", exact=True)).to_be_visible()
    for key in "uuuu":
        page.keyboard.press(key)
    expect(page.get_by_text("0/5 decided")).to_be_visible()
    expect(page.get_by_text("1 of 5")).to_be_visible()
    expect(page.get_by_role("button", name="Undo")).to_be_disabled()


def test_several_fields_of_one_output_can_be_flagged(client: Client, console: ConsolePage) -> None:
    store(client, 2)
    page = open_review(console)
    for key in "1232":
        page.keyboard.press(key)
    expect(page.get_by_text("2 flagged fields")).to_be_visible()
    expect(page.get_by_text("1 of 2")).to_be_visible()
    pressed = {"title": "true", "price": "false", "stock": "true"}
    for name, state in pressed.items():
        flag = page.get_by_role("button", name=f"Flag {name}")
        expect(flag).to_have_attribute("aria-pressed", state)
    page.get_by_role("button", name="Flag title").click()
    page.keyboard.press("3")
    expect(page.get_by_text("0/2 decided")).to_be_visible()
    page.keyboard.press("u")
    expect(page.get_by_text("1 flagged field", exact=True)).to_be_visible()


def test_a_field_without_a_digit_is_chosen_with_the_arrows(
    client: Client, console: ConsolePage
) -> None:
    client.store("group", output(1, data={f"field{n}": n for n in range(12)}))
    page = open_review(console)
    for _ in range(11):
        page.keyboard.press("ArrowDown")
    page.keyboard.press("f")
    flag = page.get_by_role("button", name="Flag field10")
    expect(flag).to_have_attribute("aria-pressed", "true")
    page.keyboard.press("c")
    page.keyboard.type("Ten")
    page.keyboard.press("Enter")
    expect(page.get_by_role("row").filter(has_text="field10")).to_contain_text("Ten")


def test_a_note_is_about_the_flag_or_the_output(client: Client, console: ConsolePage) -> None:
    store(client, 1)
    page = open_review(console)
    notes = {"2": "Wrong price", "3": "Wrong stock", "f": "All wrong"}
    for key, note in notes.items():
        page.keyboard.press(key)
        page.keyboard.press("c")
        page.keyboard.type(note)
        page.keyboard.press("Enter")
        expect(page.get_by_text(note)).to_be_visible()
    page.keyboard.press("C")
    for note in notes.values():
        expect(page.get_by_role("dialog").get_by_text(note)).to_be_visible()
    expect(page.get_by_role("dialog").get_by_text("shop.example/0").first).to_be_visible()
    page.keyboard.press("Control+Enter")
    expect(page.get_by_text("1 output of job job is sent back.")).to_be_visible()
    found = {one["path"]: one["note"] for one in reviews(client)[0]["findings"]}
    assert found == {"price": "Wrong price", "stock": "Wrong stock", None: "All wrong"}


def test_only_changed_says_why_it_is_disabled(client: Client, console: ConsolePage) -> None:
    store(client, 2)
    page = open_review(console)
    button = page.get_by_role("button", name="Only changed")
    expect(button).to_be_disabled()
    expect(button).to_have_attribute("title", "No version of this output is approved")
    page.keyboard.press("d")
    expect(page.get_by_text("No version of this output is approved.")).to_be_visible()
    review(client, "approved")
    page.reload()
    expect(button).to_have_attribute("title", "No field differs from the approved version")


def test_changed_outputs_come_first(client: Client, console: ConsolePage) -> None:
    store(client, 60)
    review(client, "approved")
    client.store("group", *(product(number, price=1) for number in range(40, 45)))
    page = open_review(console, f"{ROUTE}?size=20&seed=s")
    parts = page.get_by_role("group", name="Part of the sample")
    expect(parts.get_by_role("button").first).to_contain_text("changed")
    expect(page.get_by_text("Changed since its approval")).to_be_visible()
    parts.get_by_role("button", name="random").click()
    expect(page.get_by_text("Random", exact=True)).to_be_visible()
    page.keyboard.press("k")
    expect(page.get_by_text("Random", exact=True)).to_have_count(0)


def test_the_banner_keeps_its_height(client: Client, console: ConsolePage) -> None:
    store(client, 400)
    page = open_review(console)
    banner = page.get_by_role("region", name="Progress")
    heights = set()
    for count in range(0, 101, 5):
        expect(page.get_by_text(f"{count}/100 decided")).to_be_visible()
        heights.add(banner.evaluate("one => one.offsetHeight"))
        for key in "2jaaaa":
            page.keyboard.press(key)
    assert len(heights) == 1


def test_the_approved_value_is_beside_the_present_one(client: Client, console: ConsolePage) -> None:
    store(client, 1)
    review(client, "approved")
    client.store("group", product(0, price=14.9))
    page = open_review(console)
    row = page.get_by_role("row").filter(has_text="price")
    expect(row).to_contain_text("14.9")
    expect(row).to_contain_text("12.5")
    expect(row).to_contain_text("changed")
    expect(page.get_by_role("row").filter(has_text="title")).to_contain_text("same")
    page.keyboard.press("d")
    expect(page.get_by_role("row").filter(has_text="title")).to_have_count(0)
    expect(page.get_by_text("3 unchanged fields hidden")).to_be_visible()
    expect(page.get_by_text("Changed since its approval")).to_be_visible()


@pytest.mark.journey
def test_decisions_survive_a_reload_and_hold_no_values(
    client: Client, console: ConsolePage
) -> None:
    store(client, 40)
    page = open_review(console, f"{ROUTE}?size=20")
    for key in ("a", "a", "2"):
        page.keyboard.press(key)
    expect(page.get_by_text("3/20 decided")).to_be_visible()
    stored = page.evaluate("JSON.stringify(localStorage)")
    assert "price" in stored
    assert "Mug" not in stored
    page.reload()
    expect(page.get_by_text("3/20 decided")).to_be_visible()
    expect(page.get_by_text("4 of 20")).to_be_visible()
    console.open("groups")
    expect(page.get_by_role("heading", name="Groups")).to_be_visible()
    open_review(console, f"{ROUTE}?size=20")
    expect(page.get_by_text("3/20 decided")).to_be_visible()


def sampled_in_order(page: Page) -> list[str]:
    """Returns the source pages of the outputs, in the order of the review."""
    place = page.locator(".review-move .muted")
    count = int(place.inner_text().split()[-1])
    while not place.inner_text().startswith("1 "):
        page.keyboard.press("k")
    found = []
    for at in range(1, count + 1):
        expect(place).to_have_text(f"{at} of {count}")
        found.append(page.locator(".review-about a.source").inner_text())
        page.keyboard.press("j")
    return found


def test_a_reload_keeps_the_sample_while_outputs_arrive_and_change(
    client: Client, console: ConsolePage
) -> None:
    store(client, 60)
    page = open_review(console, f"{ROUTE}?size=20&seed=s")
    page.wait_for_url("**as_of=*")
    for key in "aaaaa2j":
        page.keyboard.press(key)
    expect(page.get_by_text("6/20 decided")).to_be_visible()
    before, address = sampled_in_order(page), page.url
    client.store("group", *(product(number) for number in range(60, 200)))
    page.reload()
    expect(page.get_by_text("6/20 decided")).to_be_visible()
    expect(page.get_by_text("7 of 20")).to_be_visible()
    expect(page.get_by_text("the job has 200 outputs instead of 60")).to_be_visible()
    assert (sampled_in_order(page), page.url) == (before, address)
    page.keyboard.press("A")
    page.get_by_role("button", name="Approve 60 outputs").click()
    text = "1 output of job job is sent back. 140 outputs arrived or changed later"
    expect(page.get_by_text(text)).to_be_visible()
    assert sum(one["is_approved"] for one in client.items("group")) == 59


def test_a_decision_stays_with_the_version_that_was_seen(
    client: Client, console: ConsolePage
) -> None:
    """A scraper stores a new value of an output that is decided, and of one that is open."""
    store(client, 3)
    page = open_review(console)
    for key in "aa":
        page.keyboard.press(key)
    expect(page.get_by_text("2/3 decided")).to_be_visible()
    urls = sampled_in_order(page)
    decided, undecided = (int(urls[at].rpartition("/")[2]) for at in (0, 2))
    client.store("group", product(decided, price=1), product(undecided, price=2))
    page.reload()
    expect(page.get_by_text("2/3 decided")).to_be_visible()
    expect(page.get_by_text("2 outputs of it changed")).to_be_visible()
    expect(page.get_by_text("3 of 3")).to_be_visible()
    expect(page.get_by_text("Newer than the sample: not covered")).to_be_visible()
    expect(page.get_by_text("Not decided")).to_be_visible()
    page.keyboard.press("2")  # a finding about the later value
    for key in "kk":
        page.keyboard.press(key)
    expect(page.get_by_text("OK: the value before")).to_be_visible()
    expect(page.get_by_role("row").filter(has_text="price")).to_contain_text("1")
    page.keyboard.press("A")
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text("1 finding")).to_be_visible()
    expect(dialog.get_by_label("flagged")).to_have_count(0)  # it cannot be sent back
    page.keyboard.press("Control+Enter")
    expect(page.get_by_text("2 outputs arrived or changed later")).to_be_visible()
    approved = {one["data"]["stock"]: one["is_approved"] for one in client.items("group")}
    assert sorted(number for number in approved if not approved[number]) == sorted(
        [decided, undecided]
    )
    [made] = reviews(client)
    assert [one["path"] for one in made["findings"]] == ["price"]


def test_what_changes_during_a_review_is_marked_without_a_reload(
    client: Client, console: ConsolePage
) -> None:
    store(client, 3)
    page = open_review(console)
    expect(page.get_by_text("0/3 decided")).to_be_visible()
    shown, other = (int(url.rpartition("/")[2]) for url in sampled_in_order(page)[:2])
    while not page.get_by_text("1 of 3").is_visible():
        page.keyboard.press("k")
    ids = {one["data"]["stock"]: one["output_id"] for one in client.items("group")}
    client.store("group", product(shown, price=99))
    assert client.delete(f"/v1/outputs/group/{ids[other]}").status_code == 200
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")  # comes back to the tab
    expect(page.get_by_text("Has a newer value")).to_be_visible()
    expect(page.get_by_text("1 output of it deleted")).to_be_visible()
    price = page.get_by_role("row").filter(has_text="price")
    expect(price).to_contain_text("12.5")
    page.keyboard.press("a")
    expect(page.get_by_text("2 of 3")).to_be_visible()
    expect(page.get_by_text("Deleted", exact=True)).to_be_visible()
    page.keyboard.press("k")
    page.get_by_role("button", name="Show it").click()
    expect(price).to_contain_text("99")
    expect(page.get_by_text("OK: the value before")).to_be_visible()
    expect(page.get_by_text("1/2 decided")).to_be_visible()


def test_a_new_sample_takes_over_what_still_holds(client: Client, console: ConsolePage) -> None:
    store(client, 3)
    page = open_review(console)
    for key in "aaa":
        page.keyboard.press(key)
    expect(page.get_by_text("3/3 decided")).to_be_visible()
    first = page.url
    client.store("group", product(1, price=1), product(7))
    page.reload()
    page.get_by_role("button", name="New sample").click()
    expect(page.get_by_text("2/4 decided")).to_be_visible()
    expect(page.get_by_text("1 decision not taken over")).to_be_visible()
    expect(page.get_by_role("button", name="New sample")).to_have_count(0)
    assert page.url != first
    page.go_back()
    expect(page.get_by_text("3/3 decided")).to_be_visible()
    page.go_forward()
    expect(page.get_by_text("2/4 decided")).to_be_visible()
    for key in "aa":
        page.keyboard.press(key)
    expect(page.get_by_text("4/4 decided")).to_be_visible()
    page.keyboard.press("A")
    page.keyboard.press("Control+Enter")
    expect(page.get_by_text("Job job is approved.")).to_be_visible()
    assert all(one["is_approved"] for one in client.items("group"))
    assert page.evaluate("Object.keys(localStorage).filter((n) => n.includes('.review '))") == []


def decide_on_price(page: Page) -> int:
    """Flags the price of the output that is shown, and returns its number."""
    page.keyboard.press("2")
    expect(page.get_by_text("1/3 decided · 1 flagged")).to_be_visible()
    return int(page.locator(".review-about a.source").inner_text().rpartition("/")[2])


def test_a_decision_counts_although_its_value_went_and_came_back(
    client: Client, console: ConsolePage
) -> None:
    store(client, 3)
    page = open_review(console)
    number = decide_on_price(page)
    client.store("group", product(number, price=99))
    client.store("group", product(number))
    page.reload()
    expect(page.get_by_text("1 output of it changed")).to_be_visible()
    expect(page.get_by_text("1 bad of 1 seen")).to_be_visible()
    page.keyboard.press("C")
    page.get_by_role("button", name="Send back 1 output").click()
    expect(page.get_by_text("1 flagged output changed later")).to_be_visible()
    [made] = reviews(client)
    assert [one["path"] for one in made["findings"]] == ["price"]


def test_a_new_sample_takes_no_decision_over_to_a_value_that_nobody_saw(
    client: Client, console: ConsolePage
) -> None:
    """The position of the new sample covers a second value, but the third one is shown."""
    store(client, 3)
    page = open_review(console)
    number = decide_on_price(page)
    client.store("group", product(number, price=50))
    position = client.get("/v1/changes/group").json()["cursor"]
    page.reload()
    client.store("group", product(number, price=51))
    # As if the third value came after the position was read, and before the output was.
    new = "**/console/api/sample/group?*"
    page.route(new, lambda route: route.continue_(url=f"{route.request.url}&as_of={position}"))
    page.get_by_role("button", name="New sample").click()
    expect(page.get_by_text("1 decision not taken over")).to_be_visible()
    expect(page.get_by_text("0/3 decided · 0 flagged")).to_be_visible()


def test_a_position_that_is_gone_offers_a_new_sample(client: Client, console: ConsolePage) -> None:
    store(client, 2)
    console.open(f"{ROUTE}?seed=s&as_of=9000000000000000")
    expect(console.page.get_by_text("This position is after the last change")).to_be_visible()
    console.page.get_by_role("button", name="New sample").click()
    expect(console.page.get_by_text("0/2 decided")).to_be_visible()


def test_a_sample_whose_outputs_are_all_deleted_offers_a_new_one(
    client: Client, console: ConsolePage
) -> None:
    store(client, 1)
    page = open_review(console)
    page.keyboard.press("a")
    expect(page.get_by_text("1/1 decided")).to_be_visible()
    client.store("group", product(5))
    [old] = [one["output_id"] for one in client.items("group") if one["data"]["stock"] == 0]
    assert client.delete(f"/v1/outputs/group/{old}").status_code == 200
    page.reload()
    expect(page.get_by_text("There is no output to review")).to_be_visible()
    page.get_by_role("button", name="New sample").click()
    expect(page.get_by_text("0/1 decided")).to_be_visible()


def test_decisions_that_cannot_be_stored_are_said(client: Client, console: ConsolePage) -> None:
    store(client, 2)
    page = open_review(console)
    page.evaluate("() => { Storage.prototype.setItem = () => { throw new Error('full') } }")
    page.keyboard.press("a")
    expect(page.get_by_text("Your decisions cannot be stored")).to_be_visible()
    expect(page.get_by_text("1/2 decided")).to_be_visible()


def test_decisions_that_a_new_sample_cannot_store_are_said(
    client: Client, console: ConsolePage
) -> None:
    store(client, 2)
    page = open_review(console)
    page.keyboard.press("a")
    expect(page.get_by_text("1/2 decided")).to_be_visible()
    client.store("group", product(7))
    page.reload()
    renew = page.get_by_role("button", name="New sample")
    expect(renew).to_be_visible()
    page.evaluate("() => { Storage.prototype.setItem = () => { throw new Error('full') } }")
    renew.click()
    expect(page.get_by_text("Your decisions cannot be stored")).to_be_visible()
    expect(page.get_by_text("0/3 decided")).to_be_visible()
    page.go_back()
    expect(page.get_by_text("1/2 decided")).to_be_visible()


def test_the_source_opens_in_a_new_tab(client: Client, console: ConsolePage) -> None:
    store(client, 1)
    page = open_review(console)
    page.context.route("https://shop.example/**", lambda route: route.fulfill(body="shop"))
    with page.context.expect_page() as opened:
        page.keyboard.press("o")
    assert opened.value.url == "https://shop.example/0"
    assert opened.value.evaluate("window.opener") is None


def test_the_bound_is_exact(console: ConsolePage) -> None:
    source = console.page.locator('link[href$="/review_bound.js"]').get_attribute("href")
    script = """async ([source, pairs]) => {
        const { upperBound, roundedUp } = await import(new URL(source, location.href));
        const bounds = pairs.map(([bad, count]) => upperBound(bad, count));
        return bounds.map((bound) => [bound, roundedUp(bound)]);
    }"""
    known = {(0, 59): 5, (0, 99): 3, (0, 149): 2, (0, 299): 1, (1, 59): 7.8, (2, 100): 6.2}
    known |= {(0, 1): 95, (5, 5): 100, (0, 0): 100, (150, 300): 54.9, (299, 300): 100}
    found = console.page.evaluate(script, [source, [*known]])
    assert [rounded for _, rounded in found] == [*known.values()]
    for (bad, count), (bound, _) in zip(known, found, strict=True):
        if bad < count:
            assert _at_most(bad, count, bound) == pytest.approx(0.05, rel=1e-6)


def _at_most(bad: int, count: int, share: float) -> float:
    from math import comb

    return sum(comb(count, n) * share**n * (1 - share) ** (count - n) for n in range(bad + 1))


def test_the_bound_counts_random_outputs_only(client: Client, console: ConsolePage) -> None:
    store(client, 40)
    review(client, "approved")
    client.store("group", *(product(number, price=1) for number in range(5)))
    page = open_review(console, f"{ROUTE}?size=20")
    for _ in range(20):
        page.keyboard.press("a")
    expect(page.get_by_text("20/20 decided")).to_be_visible()
    text = page.locator(".review-bound").inner_text()
    assert text.startswith("0 bad of 1"), text
    assert "at most" in text


def test_a_sample_of_the_whole_job_says_the_exact_share(
    client: Client, console: ConsolePage
) -> None:
    store(client, 4)
    page = open_review(console)
    for key in ("a", "1", "j", "a", "a"):
        page.keyboard.press(key)
    expect(page.get_by_text("1 bad of 4 outputs, the whole job: exactly 25 %")).to_be_visible()


def test_without_the_scope_nothing_can_be_sent(
    service: Service, browser: Browser, client: Client
) -> None:
    organization = "review without a scope"
    with Client(service.url, service.token(organization)) as owner:
        store(owner, 1)
    scopes = frozenset({"reviews:read", "outputs:read"})
    with console_page(browser, service.url) as limited:
        limited.sign_in(service.token(organization, scopes))
        page = open_review(limited)
        expect(page.get_by_role("button", name="Approve")).to_be_disabled()
        page.keyboard.press("A")
        expect(page.get_by_text("lacks the scope reviews:write")).to_be_visible()


def test_a_failed_review_is_shown_and_sent_again_once(client: Client, console: ConsolePage) -> None:
    store(client, 1)
    page = open_review(console)
    keys: list[str | None] = []

    def fail_once(route: Any) -> None:
        keys.append(route.request.headers.get("idempotency-key"))
        if len(keys) == 1:
            route.abort()
        else:
            route.continue_()

    page.route("**/v1/reviews/group", fail_once)
    page.keyboard.press("A")
    page.keyboard.press("Control+Enter")
    expect(page.get_by_text("The service cannot be reached")).to_be_visible()
    page.get_by_role("button", name="Approve 1 output").click()
    expect(page.get_by_text("Job job is approved.")).to_be_visible()
    assert keys[0] is not None
    assert keys[0] == keys[1]


HOSTILE = {
    "script": "<img src=x onerror=alert(1)><script>alert(1)</script>",
    "link": "javascript:alert(1)",
    "direction": "‮evil⁦",
    "long": "x" * 300_000,
    "node": {"__html": "<b>x</b>", "type": "script", "props": {"src": "https://evil.example"}},
    "formula": '=HYPERLINK("https://evil.example")',
    "image": "data:image/svg+xml,<svg onload=alert(1)>",
    "<b>name</b>": None,
}


@pytest.mark.parametrize(("scheme", "size"), [("light", WIDE), ("dark", NARROW)])
def test_hostile_outputs_are_shown_as_text_and_accessibly(
    service: Service, browser: Browser, client: Client, size: Any, scheme: Any
) -> None:
    client.store("group", output(1, data=HOSTILE), output(2, source_url="javascript:alert(1)"))
    review(client, "approved")
    client.store("group", output(1, data=HOSTILE | {"link": "data:text/html,x", "new": [1]}))
    with console_page(browser, service.url, size, scheme) as console:
        assert client.token is not None
        console.sign_in(client.token)
        page = open_review(console)
        assert console.violations() == []
        for key in "12c":
            page.keyboard.press(key)
        page.keyboard.type("<script>alert(1)</script>")
        page.keyboard.press("Enter")
        page.keyboard.press("c")
        assert console.violations() == []
        page.keyboard.press("Escape")
        page.keyboard.press("C")
        expect(page.get_by_role("dialog")).to_be_visible()
        assert console.violations() == []
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= size["width"]
        page.keyboard.press("Escape")
        assert page.locator("main img, main script, main iframe").count() == 0
        assert page.locator('main a:not([href^="http"]):not([href^="#"])').count() == 0
        console.assert_quiet()


def test_flagged_outputs_outside_of_the_sample_are_sent_back(
    client: Client, console: ConsolePage
) -> None:
    store(client, 24)
    page = open_review(console, f"{ROUTE}?size=60")
    for _ in range(24):
        page.keyboard.press("f")
        page.keyboard.press("j")
    expect(page.get_by_text("24/24 decided")).to_be_visible()
    page.get_by_role("button", name="20", exact=True).click()
    expect(page.get_by_text("4 flagged outputs are not in this sample")).to_be_visible()
    page.reload()
    expect(page.get_by_text("20/20 decided")).to_be_visible()
    for _ in range(20):
        page.keyboard.press("u")
    expect(page.get_by_text("0/20 decided")).to_be_visible()
    expect(page.get_by_role("button", name="Undo")).to_be_disabled()
    page.keyboard.press("A")
    expect(page.get_by_label("Send the 4 flagged outputs back")).to_be_checked()
    page.keyboard.press("Control+Enter")
    expect(page.get_by_text("4 outputs of job job are sent back.")).to_be_visible()
    assert len(reviews(client)[-1]["findings"]) == 4
    assert sum(one["is_approved"] for one in client.items("group")) == 20


def test_another_size_of_the_sample_keeps_all_decisions(
    client: Client, console: ConsolePage
) -> None:
    store(client, 60)
    page = open_review(console, f"{ROUTE}?size=60")
    page.keyboard.press("f")
    page.keyboard.press("j")
    for _ in range(59):
        page.keyboard.press("a")
    expect(page.get_by_text("60/60 decided")).to_be_visible()
    page.get_by_role("button", name="20", exact=True).click()
    expect(page.get_by_text("20/20 decided")).to_be_visible()
    page.get_by_role("button", name="60", exact=True).click()
    expect(page.get_by_text("60/60 decided")).to_be_visible()
    expect(page.get_by_text("· 1 flagged", exact=True)).to_be_visible()


def test_an_approval_without_its_second_review_is_said_and_finished_later(
    client: Client, console: ConsolePage
) -> None:
    store(client, 3)
    page = open_review(console)
    page.keyboard.press("f")
    sent: list[str] = []

    def fail_second(route: Any) -> None:
        sent.append(route.request.post_data_json["status"])
        if len(sent) == 2:
            route.abort()
        else:
            route.continue_()

    page.route("**/v1/reviews/group", fail_second)
    page.keyboard.press("A")
    page.keyboard.press("Control+Enter")
    dialog = page.get_by_role("dialog")
    text = "The job IS approved, but its flagged outputs are not sent back yet."
    expect(dialog.get_by_text(f"{text} The service cannot be reached")).to_be_visible()
    dialog.get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("region", name="Progress").get_by_text(text)).to_be_visible()
    page.keyboard.press("A")
    # The service may have it, so exactly the same is sent again.
    expect(dialog.get_by_label("Comment")).not_to_be_editable()
    dialog.get_by_role("button", name="Send the flagged outputs back").click()
    expect(page.get_by_text("1 output of job job is sent back.")).to_be_visible()
    assert sent == ["approved", "changes_requested", "changes_requested"]
    assert [one["status"] for one in reviews(client)] == ["approved", "changes_requested"]


def test_a_deleted_flagged_output_does_not_stop_the_review(
    client: Client, console: ConsolePage
) -> None:
    store(client, 4)
    page = open_review(console)
    for key in "fjfjf":
        page.keyboard.press(key)
    expect(page.get_by_text("3/4 decided")).to_be_visible()
    flagged = page.evaluate(
        """() => Object.entries(localStorage).filter(([name]) => name.startsWith("gleanery.review"))
        .flatMap(([, text]) => JSON.parse(text).steps.map((step) => step.id))"""
    )
    by_id = {one["output_id"]: one["data"]["stock"] for one in client.items("group")}
    assert client.delete(f"/v1/outputs/group/{flagged[0]}").status_code == 200
    client.store("group", product(by_id[flagged[1]], price=3))
    page.keyboard.press("A")
    page.keyboard.press("Control+Enter")
    expect(page.get_by_text("1 output of job job is sent back.")).to_be_visible()
    expect(page.get_by_text("1 flagged output no longer exists.")).to_be_visible()
    expect(page.get_by_text("1 output arrived or changed later")).to_be_visible()
    assert len(reviews(client)[-1]["findings"]) == 2


def test_a_sent_review_does_not_look_failed(client: Client, console: ConsolePage) -> None:
    store(client, 1)
    page = open_review(console)
    is_sent: list[bool] = []
    page.on("request", lambda request: is_sent.append("/v1/reviews/" in request.url))
    fail = lambda route: route.abort() if any(is_sent) else route.continue_()  # noqa: E731
    page.route("**/console/api/reviews/**", fail)
    page.keyboard.press("A")
    page.keyboard.press("Control+Enter")
    expect(page.get_by_text("Job job is approved.")).to_be_visible()


def test_the_dialog_stays_while_a_review_is_sent(client: Client, console: ConsolePage) -> None:
    store(client, 1)
    page = open_review(console)
    waiting: list[Any] = []
    page.route("**/v1/reviews/group", lambda route: waiting.append(route))
    page.keyboard.press("A")
    page.keyboard.press("Control+Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog.locator("[aria-busy=true]")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    dialog.get_by_role("button", name="Cancel").click()
    expect(dialog).to_be_visible()
    waiting[0].continue_()
    expect(page.get_by_text("Job job is approved.")).to_be_visible()


def test_a_held_key_decides_once(client: Client, console: ConsolePage) -> None:
    store(client, 6)
    page = open_review(console)
    for _ in range(4):
        page.keyboard.down("a")  # all but the first are repetitions
    page.keyboard.up("a")
    expect(page.get_by_text("1/6 decided")).to_be_visible()
    for _ in range(3):
        page.keyboard.down("j")
    page.keyboard.up("j")
    expect(page.get_by_text("5 of 6")).to_be_visible()


def test_a_removed_flag_is_said(client: Client, console: ConsolePage) -> None:
    client.store("group", output(1, data={f"field{n}": n for n in range(40)}))
    page = open_review(console)
    for key in "fa":
        page.keyboard.press(key)
    notice = page.get_by_text("its flags were removed. u restores them.")
    expect(notice).to_be_visible()
    boxes = [page.locator(one).bounding_box() for one in (".notice", ".review-tools")]
    assert boxes[0]["y"] + boxes[0]["height"] <= boxes[1]["y"]  # type: ignore[index]
    page.keyboard.press("u")
    expect(page.get_by_text("· 1 flagged", exact=True)).to_be_visible()
    expect(notice).to_have_count(0)


def test_enter_on_a_button_of_a_note_presses_it(client: Client, console: ConsolePage) -> None:
    store(client, 2)
    page = open_review(console)
    note = page.get_by_role("textbox", name="Note on the output")
    for button, count in (("Cancel", 0), ("Keep", 1)):
        page.keyboard.press("c")
        note.fill("odd")
        page.get_by_role("button", name=button).focus()
        page.keyboard.press("Enter")
        expect(note).to_have_count(0)
        expect(page.get_by_text("odd", exact=True)).to_have_count(count)


def test_an_unfinished_note_is_kept(client: Client, console: ConsolePage) -> None:
    store(client, 3)
    page = open_review(console)
    for key in "1c":
        page.keyboard.press(key)
    page.keyboard.type("Wrong title")
    page.get_by_role("button", name="Flag price").click()
    expect(page.get_by_text("Wrong title")).to_be_visible()
    page.keyboard.press("c")
    page.keyboard.type("Wrong price")
    page.get_by_role("button", name="Cancel").focus()
    page.keyboard.press("j")
    expect(page.get_by_text("2 of 3")).to_be_visible()
    page.keyboard.press("k")
    expect(page.get_by_text("Wrong price")).to_be_visible()
    page.keyboard.press("c")
    page.keyboard.type(" and more")
    page.keyboard.press("Escape")
    expect(page.get_by_text("Wrong price", exact=True)).to_be_visible()


def test_a_file_elsewhere_shows_its_host(client: Client, console: ConsolePage) -> None:
    file = {"field": "manual", "file_type": "pdf", "file_url": "https://bücher.example/a.pdf"}
    client.store("group", output(1, files=[file]))
    page = open_review(console)
    expect(page.get_by_role("link", name="manual")).to_contain_text("xn--bcher-kva.example")
    assert console.violations() == []  # the first output with files has the first heading


def test_two_tabs_share_the_decisions(client: Client, console: ConsolePage) -> None:
    store(client, 3)
    page = open_review(console, f"{ROUTE}?seed=s")
    other = page.context.new_page()
    other.goto(page.url)
    expect(other.get_by_text("0/3 decided")).to_be_visible()
    page.keyboard.press("a")
    expect(other.get_by_text("1/3 decided")).to_be_visible()
    other.keyboard.press("j")
    other.keyboard.press("a")
    expect(page.get_by_text("2/3 decided")).to_be_visible()


def test_a_review_goes_on_after_a_reload_where_it_stopped(
    client: Client, console: ConsolePage
) -> None:
    store(client, 3)
    page = open_review(console)
    page.keyboard.press("f")

    def fail_second(route: Any) -> None:
        is_second = route.request.post_data_json["status"] == "changes_requested"
        route.abort() if is_second else route.continue_()

    page.route("**/v1/reviews/group", fail_second)
    page.keyboard.press("A")
    page.keyboard.press("Control+Enter")
    expect(page.get_by_role("dialog").get_by_text("The service cannot be reached")).to_be_visible()
    page.unroute("**/v1/reviews/group")
    page.reload()
    progress = page.get_by_role("region", name="Progress")
    expect(progress.get_by_text("The job IS approved, but its flagged outputs")).to_be_visible()
    page.keyboard.press("A")
    page.get_by_role("button", name="Send the flagged outputs back").click()
    expect(page.get_by_text("1 output of job job is sent back.")).to_be_visible()
    assert [one["status"] for one in reviews(client)] == ["approved", "changes_requested"]


def test_a_review_whose_response_is_lost_is_stored_once(
    client: Client, console: ConsolePage
) -> None:
    store(client, 1)
    page = open_review(console)
    stored: list[int] = []

    def lose(route: Any) -> None:
        # The browser adds this header after the interception.
        headers = route.request.all_headers() | {"sec-fetch-site": "same-origin"}
        stored.append(route.fetch(headers=headers).status)
        route.abort()

    page.route("**/v1/reviews/group", lose)
    page.keyboard.press("A")
    page.keyboard.press("Control+Enter")
    expect(page.get_by_role("dialog").get_by_text("The service cannot be reached")).to_be_visible()
    page.unroute("**/v1/reviews/group")
    assert 200 in stored
    page.reload()
    expect(page.get_by_text("0/1 decided")).to_be_visible()
    page.keyboard.press("A")
    page.keyboard.press("Control+Enter")
    expect(page.get_by_text("Job job is approved.")).to_be_visible()
    assert [one["status"] for one in reviews(client)] == ["approved"]


def test_two_tabs_send_a_review_once(client: Client, console: ConsolePage) -> None:
    store(client, 2)
    page = open_review(console, f"{ROUTE}?seed=s")
    other = page.context.new_page()
    other.goto(page.url)
    expect(other.get_by_text("0/2 decided")).to_be_visible()
    waiting: list[Any] = []
    page.route("**/v1/reviews/group", lambda route: waiting.append(route))
    for tab in (page, other):
        tab.keyboard.press("A")
        expect(tab.get_by_role("dialog")).to_be_visible()
    with page.expect_request("**/v1/reviews/group"):
        page.keyboard.press("Control+Enter")
    other.get_by_role("button", name="Approve 2 outputs").click()
    expect(other.locator("[aria-busy=true]")).to_be_visible()  # it waits for the first one
    waiting[0].continue_()
    page.wait_for_url("**#/inbox")
    expect(other.get_by_text("This review was sent in another tab")).to_be_visible()
    expect(other.get_by_role("dialog")).to_have_count(0)
    assert len(reviews(client)) == 1
    expect(other.locator("main").get_by_text("Approved").first).to_be_visible()
    other.get_by_role("button", name="Start another review").click()
    expect(other.get_by_role("button", name="Start another review")).to_have_count(0)
    expect(other.get_by_text("0/2 decided")).to_be_visible()
    expect(other.get_by_role("button", name="Approve")).to_be_enabled()


def test_names_of_fields_show_their_controls(client: Client, console: ConsolePage) -> None:
    client.store("group", output(1, data={"a\u202eb": 1}))
    page = open_review(console)
    for key in "1c":
        page.keyboard.press(key)
    expect(page.get_by_role("textbox", name="Note on a[U+202E]b")).to_be_visible()
    expect(page.get_by_role("button", name="Flag a[U+202E]b")).to_be_visible()


def test_a_review_by_somebody_else_is_said(client: Client, console: ConsolePage) -> None:
    store(client, 2)
    page = open_review(console)
    expect(page.get_by_text("2 outputs · never reviewed as a whole")).to_be_visible()
    review(client, "changes_requested")
    page.keyboard.press("A")
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text("Reviewed since")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator(".head").get_by_text("Changes requested")).to_be_visible()
    page.get_by_role("button", name="Next job").click()
    page.wait_for_url("**#/inbox")


@pytest.mark.parametrize("status", ["changes_requested", "rejected"])
def test_an_approval_over_a_newer_refusal_asks(
    client: Client, console: ConsolePage, status: str
) -> None:
    store(client, 2)
    review(client, "rejected")  # known when the review begins
    page = open_review(console)
    expect(page.locator(".head").get_by_text("Rejected")).to_be_visible()
    page.keyboard.press("a")
    page.keyboard.press("A")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    review(client, status)  # after the dialog was opened
    page.reload()
    expect(page.get_by_text("1/2 decided")).to_be_visible()
    page.keyboard.press("A")
    page.keyboard.press("Control+Enter")
    expect(dialog.get_by_text("Approve anyway?")).to_be_visible()
    assert [one["status"] for one in reviews(client)] == ["rejected", status]
    dialog.get_by_role("button", name="Approve 2 outputs anyway").click()
    expect(page.get_by_text("Job job is approved.")).to_be_visible()
    assert [one["status"] for one in reviews(client)] == ["rejected", status, "approved"]


def test_an_approval_over_a_known_refusal_does_not_ask(
    client: Client, console: ConsolePage
) -> None:
    store(client, 2)
    review(client, "rejected")
    page = open_review(console)
    expect(page.locator(".head").get_by_text("Rejected")).to_be_visible()
    page.keyboard.press("A")
    page.keyboard.press("Control+Enter")
    expect(page.get_by_text("Job job is approved.")).to_be_visible()


def test_a_change_far_inside_a_long_text_is_visible(client: Client, console: ConsolePage) -> None:
    start, end = "The same beginning. " * 40, " and the same end." * 2000
    hostile = "<img src=x onerror=alert(1)>"
    client.store("group", product(0, text=f"{start}cold{end}", list=[*range(50), "old"]))
    review(client, "approved")
    changed = product(0, text=f"{start}{hostile}{end}", list=[*range(50), "new"])
    client.store("group", changed)
    page = open_review(console)
    text = page.get_by_role("row").filter(has_text="text").first
    expect(text.locator(".review-was")).to_contain_text("cold")
    expect(text.locator(".review-now")).to_contain_text(hostile)
    elements = page.get_by_role("row").filter(has_text="list").first
    expect(elements.locator(".review-was")).to_contain_text("old")
    expect(elements.locator(".review-now")).to_contain_text("new")
    now = text.locator(".review-now")
    expect(now).not_to_contain_text(start)
    now.get_by_role("button", name="Show all").click()
    expect(now).to_contain_text(f"{start}{hostile}")
    now.get_by_role("button", name="Show more").click()
    expect(now).to_contain_text(end[-15_000:])
    was = text.locator(".review-was")
    was.get_by_role("button", name="Show all").click()
    expect(was).to_contain_text(f"{start}cold")
    elements.locator(".review-now").get_by_role("button", name="Show all").click()
    expect(elements.locator(".review-now")).to_contain_text("[0,1,2,3")
    assert console.violations() == []
    assert page.locator("main img").count() == 0
    console.assert_quiet()


def test_the_whole_text_is_of_the_value_that_is_shown(client: Client, console: ConsolePage) -> None:
    long = "x" * 1000
    client.store("group", product(0, title=f"{long} first"), product(1, title=f"{long} other"))
    page = open_review(console)
    title = page.get_by_role("row").filter(has_text="title")
    title.get_by_role("button", name="Show all").click()
    expect(title).to_contain_text(long)
    page.keyboard.press("j")  # not the text of the output before
    expect(title.get_by_role("button", name="Show all")).to_be_visible()
    client.store("group", product(0, title=f"{long} second"), product(1, title=f"{long} second"))
    title.get_by_role("button", name="Show all").click()
    expect(title.get_by_text("The output has a newer value")).to_be_visible()
    expect(title.get_by_text("second")).to_have_count(0)


def test_fields_beyond_the_first_hundred_can_be_opened(
    client: Client, console: ConsolePage
) -> None:
    many = {f"field{n}": n for n in range(700)}
    client.store("group", output(1, data=many))
    review(client, "approved")
    client.store("group", output(1, data=many | {"field3": "new"}))
    page = open_review(console)
    flag = page.get_by_role("button", name="Flag field699", exact=True)
    expect(flag).to_have_count(0)
    page.get_by_role("button", name="Show 600 more fields").click()
    page.get_by_role("button", name="Show 200 more fields").click()
    flag.click()
    expect(flag).to_have_attribute("aria-pressed", "true")
    expect(page.get_by_role("button", name="more field")).to_have_count(0)
    assert page.locator(".review-fields tbody tr").count() == 700
    page.keyboard.press("d")
    expect(page.get_by_text("699 unchanged fields hidden")).to_be_visible()
    page.keyboard.press("C")
    page.keyboard.press("Control+Enter")
    expect(page.get_by_text("1 output of job job is sent back.")).to_be_visible()
    assert [one["path"] for one in reviews(client)[-1]["findings"]] == ["field699"]


def test_an_approval_by_somebody_else_does_not_hide_what_changed(
    client: Client, console: ConsolePage
) -> None:
    many = {f"field{n}": n for n in range(120)}
    long = "x" * 2000
    client.store("group", product(0, **many, title=f"{long} old"))
    review(client, "approved")
    client.store("group", product(0, **many, title=f"{long} new", price=99))
    page = open_review(console)
    price = page.get_by_role("row").filter(has_text="price")
    expect(price.locator(".review-was")).to_contain_text("12.5")
    review(client, "approved")
    page.reload()
    expect(page.get_by_text("This value is approved")).to_be_visible()
    expect(price.locator(".review-was")).to_contain_text("12.5")
    expect(price.locator(".review-now")).to_contain_text("99")
    before = page.get_by_role("row").filter(has_text="title").locator(".review-was")
    expect(before).to_contain_text("old")
    before.get_by_role("button", name="Show all").click()
    expect(before).to_contain_text(f"{long} old")
    page.get_by_role("button", name="more field").click()
    page.keyboard.press("d")
    expect(page.get_by_text("122 unchanged fields hidden")).to_be_visible()
