"""The screen of outputs in Chromium: grid, time bar, filters, columns, keys and live updates."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, expect

from tests.support.console import NARROW, ConsolePage, console_page
from tests.support.outputs import output
from tests.support.service import Client, Service
from tests.support.waiting import wait_until

COUNT = 450


DRAWN = """() => new Promise((done) =>
    requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 20))))"""


def product(number: int, **data: Any) -> dict[str, Any]:
    values = {"title": f"Product {number}", "price": number, "brand": f"Brand {number % 3}"}
    job, country = f"job {number % 3}", ("Germany", "France")[number % 2]
    return output(number, job_id=job, tags={"country": country}, data=values | data)


@pytest.fixture(scope="module")
def shop(service: Service) -> Client:
    """A client of an organization with a group that no test changes."""
    client = service.client()
    client.store("shop", *(product(number) for number in range(COUNT)))
    client.store("shop", product(7, price=1234))
    return client


@pytest.fixture
def console(browser: Browser, service: Service, shop: Client) -> Iterator[ConsolePage]:
    with console_page(browser, service.url) as made:
        made.sign_in(str(shop.token))
        yield made
        made.assert_quiet()


def rows(console: ConsolePage) -> Locator:
    return console.page.locator(".outputs-body [role=row]")


def row(console: ConsolePage, text: str) -> Locator:
    return rows(console).filter(has=console.page.get_by_text(text, exact=True))


def show(console: ConsolePage, route: str = "groups/shop/outputs") -> None:
    console.open(route)
    expect(rows(console).first).to_be_visible()


def slider(console: ConsolePage) -> Locator:
    return console.page.get_by_role("slider", name="Time")


@pytest.mark.journey
def test_the_newest_change_is_first_and_shows_old_and_new(console: ConsolePage) -> None:
    show(console)
    first = rows(console).first
    expect(first).to_contain_text("Product 7")
    expect(first.locator("del")).to_have_text("7")
    expect(first.locator("ins")).to_have_text("1234")
    expect(first).to_contain_text("1 field")
    expect(console.page.get_by_role("grid")).to_have_attribute("aria-rowcount", "-1")
    headers = console.page.get_by_role("columnheader").all_inner_texts()
    assert [text.strip() for text in headers][:4] == ["Updated ↓", "title", "price", "brand"]


def test_scrolling_reaches_every_output(console: ConsolePage) -> None:
    show(console)
    box = console.page.locator(".outputs-grid")
    seen: list[str] = []
    for _ in range(200):
        for text in rows(console).locator(".outputs-cell.string").all_inner_texts():
            if text.startswith("Product") and text not in seen:
                seen.append(text)
        if len(seen) == COUNT:
            break
        box.evaluate("box => box.scrollBy(0, box.clientHeight - 100)")
        console.page.evaluate(DRAWN)
    assert len(seen) == COUNT
    assert seen[:3] == ["Product 7", f"Product {COUNT - 1}", f"Product {COUNT - 2}"]
    expect(console.page.get_by_text("This is the oldest output.")).to_be_visible()


# The rows arrive in the task of the scroll, before the browser reports it.
SCROLL_AND_LOAD = """async (top) => {
    const box = document.querySelector(".outputs-grid");
    const count = () => document.querySelector(".outputs-body").clientHeight;
    const before = count();
    box.scrollTop = top;
    window.release();
    const frame = () => new Promise(requestAnimationFrame);
    while (count() === before) await frame();
    await frame();
    return box.scrollTop;
}"""
HOLD_OLDER_ROWS = """() => {
    const { fetch } = window;
    const released = new Promise((resolve) => { window.release = resolve });
    window.fetch = async (url, ...rest) => {
        const response = await fetch(url, ...rest);
        if (!/rows.*before=/.test(url)) return response;
        const page = await response.json();
        window.isHeld = true;
        await released;
        return new Response(JSON.stringify(page), response);
    };
}"""


def test_rows_that_load_after_a_scroll_do_not_undo_it(console: ConsolePage) -> None:
    console.page.evaluate(HOLD_OLDER_ROWS)
    show(console)
    console.page.locator(".outputs-grid").evaluate("box => box.scrollTo(0, 2700)")
    console.page.wait_for_function("() => window.isHeld")
    assert console.page.evaluate(SCROLL_AND_LOAD, 1500) == 1500


def test_the_time_bar_jumps_to_any_time(console: ConsolePage) -> None:
    show(console)
    box = slider(console).bounding_box()
    assert box is not None
    console.page.mouse.click(box["x"] + 10, box["y"] + box["height"] - 2)
    expect(row(console, "Product 0")).to_be_visible()
    expect(slider(console)).to_have_attribute("aria-valuetext", re.compile(r"\d{4}"))
    expect(console.page).to_have_url(re.compile(r"[?&]at=\d+"))
    console.page.reload()
    expect(row(console, "Product 0")).to_be_visible()
    slider(console).press("Home")
    expect(row(console, "Product 7")).to_be_visible()
    slider(console).press("End")
    expect(row(console, "Product 0")).to_be_visible()


def test_rows_above_a_jump_are_loaded_without_moving_it(console: ConsolePage) -> None:
    show(console)
    console.page.keyboard.press("End")
    expect(row(console, "Product 0")).to_be_visible()
    box = console.page.locator(".outputs-grid")
    # A function: the page's policy forbids evaluating text again.
    is_there = "() => document.querySelector('.outputs-grid').scrollTop >= 3000"
    console.page.wait_for_function(is_there)
    box.evaluate("box => box.scrollBy(0, -3000)")
    expect(row(console, "Product 0")).to_have_count(0)
    expect(rows(console).first).to_be_visible()
    console.page.keyboard.press("Home")
    expect(row(console, "Product 7")).to_be_visible()


def test_keys_select_and_open_and_close(console: ConsolePage) -> None:
    show(console)
    console.page.keyboard.press("j")
    expect(rows(console).nth(0)).to_have_attribute("aria-selected", "true")
    console.page.keyboard.press("ArrowDown")
    expect(rows(console).nth(1)).to_have_attribute("aria-selected", "true")
    console.page.keyboard.press("k")
    console.page.keyboard.press("Enter")
    expect(console.page).to_have_url(re.compile(r"[?&]output=[0-9a-f]{32}"))
    expect(console.page.locator(".outputs-open")).to_be_visible()
    console.page.keyboard.press("Escape")
    expect(console.page.locator(".outputs-open")).to_have_count(0)
    for _ in range(60):
        console.page.keyboard.press("j")
    expect(row(console, f"Product {COUNT - 60}")).to_have_attribute("aria-selected", "true")
    expect(row(console, f"Product {COUNT - 60}")).to_be_in_viewport()


@pytest.mark.journey
def test_filters_are_chips_and_in_the_url(console: ConsolePage) -> None:
    show(console)
    console.page.keyboard.press("/")
    console.page.keyboard.type("job 2")
    console.page.keyboard.press("Enter")
    expect(console.page).to_have_url(re.compile(r"[?&]job_id=job"))
    expect(row(console, "Product 449")).to_be_visible()
    expect(row(console, "Product 448")).to_have_count(0)
    console.page.get_by_label("Filter by").select_option("Country")
    console.page.get_by_label("Value").fill("France")
    console.page.get_by_label("Value").press("Enter")
    expect(row(console, "Product 443")).to_be_visible()
    expect(row(console, "Product 446")).to_have_count(0)
    console.page.get_by_role("button", name="Remove the filter Country").click()
    expect(row(console, "Product 446")).to_be_visible()
    console.page.get_by_label("Filter by").select_option("Job")
    console.page.get_by_label("Value").fill("nobody")
    console.page.get_by_label("Value").press("Enter")
    expect(console.page.get_by_text("No output fits the filters")).to_be_visible()
    console.page.get_by_role("button", name="Remove all filters").click()
    expect(row(console, "Product 7")).to_be_visible()


def test_back_closes_the_output_and_undoes_a_filter(console: ConsolePage) -> None:
    console.show("groups")
    show(console)
    pane = console.page.locator(".outputs-open")
    console.page.get_by_label("Value").fill("job 2")
    console.page.get_by_label("Value").press("Enter")
    expect(row(console, "Product 448")).to_have_count(0)
    rows(console).nth(0).click()
    expect(pane).to_be_visible()
    console.page.keyboard.press("j")  # another output: one step back still closes it
    expect(rows(console).nth(1)).to_have_attribute("aria-selected", "true")
    console.page.go_back()
    expect(pane).to_have_count(0)
    expect(row(console, "Product 448")).to_have_count(0)
    console.page.go_back()
    expect(row(console, "Product 448")).to_be_visible()
    console.page.go_forward()
    expect(row(console, "Product 448")).to_have_count(0)
    console.page.get_by_role("button", name="Remove the filter Job").click()
    expect(row(console, "Product 448")).to_be_visible()
    console.page.go_back()
    expect(row(console, "Product 448")).to_have_count(0)


@pytest.mark.parametrize("way", ["key", "back"])
def test_a_closed_output_leaves_no_step_and_the_list_at_its_place(
    console: ConsolePage, way: str
) -> None:
    console.show("groups")
    show(console)
    rows(console).nth(2).click()
    expect(console.page.locator(".outputs-open")).to_be_visible()
    box = console.page.locator(".outputs-grid")
    box.evaluate("box => box.scrollTo(0, 2000)")
    expect(console.page).to_have_url(re.compile(r"[?&]at=\d+"))
    if way == "key":
        console.page.keyboard.press("Escape")
    else:
        console.page.go_back()
    expect(console.page.locator(".outputs-open")).to_have_count(0)
    expect(console.page).to_have_url(re.compile(r"outputs\?at=\d+$"))
    assert box.evaluate("box => box.scrollTop") == 2000
    console.page.go_back()
    expect(console.page).to_have_url(re.compile("#/groups$"))


def test_the_number_of_outputs_is_shown_without_counting(console: ConsolePage) -> None:
    show(console)
    state = console.page.locator(".outputs-state")
    expect(state).to_contain_text(f"{COUNT} outputs")
    show(console, "groups/shop/outputs?job_id=job 1")
    expect(state).to_contain_text(f"{COUNT // 3} outputs")
    show(console, "groups/shop/outputs?country=France")
    expect(state).to_contain_text("at least 100 outputs")
    show(console, "groups/shop/outputs?url=https://shop.example/7")
    expect(state).to_contain_text("1 output")


def test_an_approval_is_not_a_change_of_the_value_and_does_not_hide_one(
    console: ConsolePage, shop: Client
) -> None:
    shop.store("approved", product(1), product(2))
    shop.store("approved", product(1, price=99))
    show(console, "groups/approved/outputs")
    expect(row(console, "Product 1").locator("ins")).to_have_text("99")
    for job in ("job 1", "job 2"):
        review = {"job_id": job, "status": "approved"}
        assert shop.post("/v1/reviews/approved", json=review).status_code == 200
    for name in ("Product 1", "Product 2"):
        expect(row(console, name).locator(".outputs-when")).to_contain_text("approved")
    expect(row(console, "Product 1").locator(".outputs-when")).to_contain_text("approved, 1 field")
    expect(row(console, "Product 1").locator("ins")).to_have_text("99")
    expect(row(console, "Product 2").locator("ins")).to_have_count(0)


def test_the_group_has_tabs_and_each_key_one_meaning(console: ConsolePage) -> None:
    show(console)
    tab = console.page.get_by_role("navigation", name="Group").get_by_role("link", name="Outputs")
    expect(tab).to_have_attribute("aria-current", "page")
    console.page.keyboard.press("?")
    keys = console.page.get_by_role("dialog").locator("kbd").all_inner_texts()
    assert len(keys) == len(set(keys))


def test_the_time_under_the_pointer_is_shown(console: ConsolePage) -> None:
    show(console)
    slider(console).hover()
    expect(console.page.locator(".outputs-moment")).to_have_text(re.compile(r"\d{4}, \d\d:\d\d"))
    expect(row(console, "Product 7")).to_be_visible()
    console.page.get_by_role("columnheader").first.hover()
    expect(console.page.locator(".outputs-moment")).to_have_count(0)


def test_the_filters_suggest_what_the_group_has(console: ConsolePage) -> None:
    show(console)
    value = console.page.get_by_label("Value")
    expect(value).to_have_attribute("placeholder", "Exactly, e.g. job 0")
    console.page.get_by_label("Filter by").select_option("Country")
    options = console.page.locator("datalist option")
    expect(options).to_have_count(2)
    expect(options.nth(0)).to_have_attribute("label", "Germany")
    value.fill("Germny")
    value.press("Enter")
    expect(console.page.get_by_role("alert")).to_contain_text("Do you mean Germany?")
    console.messages.clear()  # Chromium reports the response 422


def test_an_invalid_filter_is_explained(console: ConsolePage) -> None:
    console.open("groups/shop/outputs?region=nonsense!")
    expect(console.page.get_by_role("alert")).to_contain_text("ISO 3166-2")
    console.page.get_by_role("button", name="Remove the filter Region").click()
    expect(row(console, "Product 7")).to_be_visible()
    console.messages.clear()  # Chromium reports the response 422


def test_chosen_columns_are_kept(console: ConsolePage) -> None:
    show(console)
    console.page.get_by_role("button", name="Columns", exact=True).click()
    console.page.get_by_role("checkbox", name="price").uncheck()
    console.page.get_by_role("button", name="Show 2 columns").click()
    expect(console.page.get_by_role("columnheader", name="price")).to_have_count(0)
    console.page.reload()
    expect(rows(console).first).to_be_visible()
    expect(console.page.get_by_role("columnheader", name="price")).to_have_count(0)
    console.page.get_by_role("button", name="Columns", exact=True).click()
    console.page.get_by_role("button", name="Use the usual columns").click()
    expect(console.page.get_by_role("columnheader", name="price")).to_be_visible()


def test_the_rows_do_not_wait_for_the_statistics(console: ConsolePage) -> None:
    """Statistics of many sparse fields take seconds. The rows themselves say what they have."""
    held: list[Any] = []
    console.page.route("**/v1/groups/shop/fields", lambda route: held.append(route))
    show(console)
    expect(rows(console).first).to_contain_text("Product 7")
    assert held == []
    console.page.get_by_role("button", name="Columns", exact=True).click()
    dialog = console.page.get_by_role("dialog")
    expect(dialog.get_by_role("status")).to_contain_text("Loading")
    wait_until(lambda: console.page.evaluate("1") and held)
    held[0].continue_()
    expect(dialog.get_by_role("checkbox", name="price")).to_be_checked()


def test_the_usual_columns_fit_the_filtered_rows(console: ConsolePage, shop: Client) -> None:
    """Most outputs of the group have other fields than those of one job."""
    for number in range(20):
        values = {f"field_{number}_{name}": "x" for name in range(6)}
        shop.store("sparse", output(number, job_id=f"job {number}", data=values))
    show(console, "groups/sparse/outputs?job_id=job 3")
    headers = console.page.get_by_role("columnheader").all_inner_texts()
    assert [text.strip() for text in headers][1:6] == [f"field_3_{name}" for name in range(5)]
    expect(rows(console).first.locator(".outputs-cell.string")).to_have_count(5)


def test_a_tag_can_be_a_column(console: ConsolePage) -> None:
    show(console)
    console.page.get_by_role("button", name="Columns", exact=True).click()
    console.page.get_by_role("checkbox", name="tag: country").check()
    console.page.get_by_role("button", name="Show 4 columns").click()
    expect(console.page.get_by_role("columnheader", name="tag: country")).to_be_visible()
    expect(row(console, "Product 7")).to_contain_text("France")


@pytest.mark.journey
def test_new_changes_appear_at_the_top_and_wait_elsewhere(
    console: ConsolePage, shop: Client
) -> None:
    shop.store("live", *(product(number) for number in range(300)))
    show(console, "groups/live/outputs")
    shop.store("live", product(1000))
    expect(rows(console).first).to_contain_text("Product 1000")
    console.page.locator(".outputs-grid").evaluate("box => box.scrollTo(0, 4000)")
    expect(row(console, "Product 1000")).to_have_count(0)
    shop.store("live", product(1001), product(1002))
    pill = console.page.get_by_role("button", name="2 new changes")
    expect(pill).to_be_visible()
    pill.click()
    expect(rows(console).first).to_contain_text("Product 1002")
    expect(pill).to_have_count(0)
    [item] = shop.items("live", url="https://shop.example/1001")
    assert shop.delete(f"/v1/outputs/live/{item['output_id']}").status_code == 200
    expect(row(console, "Product 1001")).to_have_count(0)


def test_many_deleted_outputs_disappear(console: ConsolePage, shop: Client) -> None:
    shop.store("deleted", *(product(number) for number in range(60)))
    show(console, "groups/deleted/outputs")
    items = shop.items("deleted")
    for item in items:
        if item["data"]["price"] < 55:
            assert shop.delete(f"/v1/outputs/deleted/{item['output_id']}").status_code == 200
    expect(rows(console)).to_have_count(5)


def test_a_group_without_outputs_explains_the_next_step(console: ConsolePage, shop: Client) -> None:
    shop.store("emptied", product(1))
    [item] = shop.items("emptied")
    assert shop.delete(f"/v1/outputs/emptied/{item['output_id']}").status_code == 200
    console.open("groups/emptied/outputs")
    expect(console.page.get_by_text("No outputs yet")).to_be_visible()


def test_an_unknown_group_is_explained(console: ConsolePage) -> None:
    console.open("groups/nothing/outputs")
    expect(console.page.get_by_role("heading", name="This page does not exist")).to_be_visible()
    console.messages.clear()  # Chromium reports the response 404


HOSTILE = [
    "<script>window.hacked = 1</script><img src=x onerror=window.hacked=1>",
    "javascript:window.hacked=1",
    "\u202egnp.exe",
    "x" * 300_000,
]


def test_hostile_values_are_only_text(console: ConsolePage, shop: Client) -> None:
    texts = {f"text {number}": text for number, text in enumerate(HOSTILE)}
    vnode = {"type": "script", "props": {"children": "window.hacked = 1"}, "__v": None}
    for number in range(30):
        shop.store("hostile", product(number, vnode=vnode, title=HOSTILE[number % 4], **texts))
        shop.store("hostile", product(number, vnode=vnode, title=HOSTILE[-number % 4], **texts))
    show(console, "groups/hostile/outputs")
    assert console.page.evaluate("window.hacked") is None
    assert console.page.evaluate("document.body.innerText.length") < 100_000
    assert console.violations() == []


@pytest.mark.parametrize(("scheme", "size"), [("light", "wide"), ("dark", "narrow")])
def test_the_screen_is_accessible(
    browser: Browser, service: Service, shop: Client, scheme: Any, size: str
) -> None:
    with console_page(browser, service.url, scheme=scheme) as console:
        console.sign_in(str(shop.token))
        if size == "narrow":
            console.page.set_viewport_size(NARROW)  # type: ignore[arg-type]
        show(console, "groups/shop/outputs?job_id=job 1")
        assert console.violations() == []
        rows(console).first.click()
        expect(console.page.locator(".outputs-open")).to_be_visible()
        width = console.page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert width <= 0
        console.assert_quiet()
