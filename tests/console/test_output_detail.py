"""One output in the console, in Chromium: value, differences, files and history."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.console import NARROW, ConsolePage, console_page
from tests.support.files import upload
from tests.support.outputs import output
from tests.support.service import Client, Service

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
SVG = b'<svg xmlns="http://www.w3.org/2000/svg"><script>window.hacked = 1</script></svg>'
LARGE = 12345678901234567890123
_SHOW_PANE = """async ([group, outputId]) => {
  const base = document.querySelector("script").src.replace("main.js", "");
  const { html, render } = await import(base + "vendor/preact.js");
  const { OutputDetail } = await import(base + "screens/output_detail.js");
  const box = document.getElementById("main").appendChild(document.createElement("div"));
  const onClose = () => render(null, box);
  const properties = { group, outputId, onClose, session: { scopes: [] } };
  render(html`<${OutputDetail} ...${properties} />`, box);
}"""


@pytest.fixture
def console(browser: Browser, service: Service, client: Client) -> Iterator[ConsolePage]:
    assert client.token is not None
    with console_page(browser, service.url) as page:
        page.sign_in(client.token)
        yield page


def store(client: Client, data: Any, **members: Any) -> str:
    """Stores a version of one output, and returns its id."""
    text = json.dumps([output(1, key="key", data=data, **members)])
    headers = {"Content-Type": "application/json"}
    answer = client.post("/v1/outputs/group", content=text, headers=headers)
    assert answer.status_code == 200, answer.text
    output_id: str = answer.json()["results"][0]["output_id"]
    return output_id


def approve(client: Client) -> None:
    body = {"job_id": "job", "status": "approved"}
    assert client.post("/v1/reviews/group", json=body).status_code == 200


def copied(page: Page) -> str:
    return str(page.evaluate("navigator.clipboard.readText()"))


def panel(page: Page, title: str) -> Any:
    return page.locator(".panel").filter(has=page.get_by_role("heading", name=title))


@pytest.mark.journey
def test_an_output_is_compared_with_its_last_approved_version(
    client: Client, console: ConsolePage
) -> None:
    store(client, {"name": "mug", "price": 12.5, "note": "old"})
    approve(client)
    text = "The whole story. " * 1000
    output_id = store(
        client, {"name": "mug", "price": LARGE, "story": text}, tags={"country": "DE"}
    )
    console.open(f"groups/group/outputs/{output_id}")
    page = console.page
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    value = panel(page, "Value")
    expect(value.locator(".output-changes")).to_contain_text("12.5")
    expect(value.locator(".output-changes")).to_contain_text(str(LARGE))
    expect(value.locator(".output-changes dt")).to_have_text(
        ["price", "note", "story", "tag: country"]
    )
    value.get_by_role("button", name="Current", exact=True).click()
    expect(value.locator(".value.number")).to_have_text(str(LARGE))
    value.get_by_role("button", name="Copy price").click()
    expect(value.get_by_role("button", name="Copied")).to_be_visible()
    assert copied(page) == str(LARGE)
    expect(value).not_to_contain_text(text.strip())
    value.get_by_role("button", name="Show all").click()
    expect(value).to_contain_text(text.strip())
    value.get_by_role("button", name="Copy story").click()
    page.wait_for_function(
        "text => navigator.clipboard.readText().then(now => now === text)", arg=text
    )
    page.get_by_text("Technical").click()
    page.get_by_role("button", name="Copy Output ID").click()
    page.wait_for_function(
        "id => navigator.clipboard.readText().then(now => now === id)", arg=output_id
    )
    value.get_by_role("button", name="Last approved").click()
    expect(value.locator(".value.number")).to_have_text("12.5")
    assert console.violations() == []
    console.assert_quiet()


def test_the_history_is_loaded_in_pages(client: Client, console: ConsolePage) -> None:
    for price in range(12):
        output_id = store(client, {"price": price})
        if price == 1:
            approve(client)
    console.open(f"groups/group/outputs/{output_id}")
    history = panel(console.page, "History")
    expect(history.get_by_role("listitem")).to_have_count(10)
    expect(history.get_by_role("listitem").first).to_contain_text("1 field changed")
    history.get_by_role("button", name="Load earlier versions").click()
    expect(history.get_by_role("listitem")).to_have_count(12)
    expect(history.get_by_role("listitem").nth(10)).to_contain_text("Approved")
    expect(history.get_by_role("listitem").last).to_contain_text("Created")
    expect(history.get_by_role("button")).to_have_count(0)
    console.assert_quiet()


def test_only_images_by_their_first_bytes_are_shown_and_every_file_can_be_saved(
    client: Client, console: ConsolePage
) -> None:
    image = upload(client, PNG, filename="mug.png")
    drawing = upload(client, SVG, filename="drawing.svg")
    headers = {"Content-Type": "image/png"}
    claimed = client.post(
        "/v1/files", params={"filename": "claimed"}, content=b"words", headers=headers
    )
    files = [
        {"field": f"f{n}", "id": file["id"]}
        for n, file in enumerate((image, drawing, claimed.json()))
    ]
    external = {
        "field": "external",
        "source_url": "https://other.example/a.png",
        "file_type": "image/png",
    }
    output_id = store(client, {"a": 1}, files=[*files, external])
    console.open(f"groups/group/outputs/{output_id}")
    found = panel(console.page, "Files (4)")
    expect(found.locator("img")).to_have_count(1)
    assert found.locator("img").get_attribute("src", timeout=1000).startswith("blob:")  # type: ignore[union-attr]
    expect(found.get_by_role("alert")).to_contain_text("not an image that can be shown safely")
    expect(found.get_by_role("link")).to_have_attribute("rel", "noreferrer noopener")
    for name, content in (("mug.png", PNG), ("drawing.svg", SVG)):
        with console.page.expect_download() as download:
            found.get_by_role("button", name=f"Download {name}").click()
        assert download.value.suggested_filename == name
        assert Path(download.value.path()).read_bytes() == content
    with console.page.expect_download() as download:
        console.page.get_by_role("button", name="Download JSON").click()
    assert json.loads(Path(download.value.path()).read_bytes())["output_id"] == output_id
    expect(console.page.get_by_role("heading", name="shop.example/1", exact=True)).to_be_visible()
    assert console.page.evaluate("window.hacked") is None
    assert console.violations() == []
    console.assert_quiet()


def test_a_failed_request_is_shown(client: Client, console: ConsolePage) -> None:
    output_id = store(client, {"long": "x" * 3000})
    console.open(f"groups/group/outputs/{output_id}")
    show = console.page.get_by_role("button", name="Show all")
    expect(show).to_be_visible()
    store(client, {"other": 1})
    show.click()
    expect(panel(console.page, "Value")).to_contain_text("The output has no such value now: reload")


def test_a_very_long_text_is_shown_in_steps(client: Client, console: ConsolePage) -> None:
    """A browser takes a minute to lay out some megabytes of text."""
    text = "".join(f"{number:07} \u202e" for number in range(5000))
    output_id = store(client, {"long": text})
    console.open(f"groups/group/outputs/{output_id}")
    value = panel(console.page, "Value")
    value.get_by_role("button", name="Show all").click()
    more = value.get_by_role("button", name="Show more")
    expect(more).to_be_visible()
    expect(value).not_to_contain_text("0004999")
    more.click()
    more.click()
    expect(value).to_contain_text("0004999")
    expect(more).to_have_count(0)
    expect(value).to_contain_text("[U+202E]")
    console.assert_quiet()


def test_a_deleted_output_shows_what_is_kept_of_it(client: Client, console: ConsolePage) -> None:
    output_id = store(client, {"price": 1})
    client.delete(f"/v1/outputs/group/{output_id}")
    console.open(f"groups/group/outputs/{output_id}")
    expect(console.page.get_by_text("This output does not exist now")).to_be_visible()
    expect(panel(console.page, "History").get_by_role("listitem")).to_have_count(2)
    expect(panel(console.page, "History")).to_contain_text("Deleted")


def test_the_pane_covers_a_narrow_screen_and_closes_with_escape(
    browser: Browser, service: Service, client: Client
) -> None:
    output_id = store(client, {"price": 1})
    assert client.token is not None
    with console_page(browser, service.url, NARROW, "dark") as console:
        console.sign_in(client.token)
        console.open("groups")
        page = console.page
        expect(page.get_by_role("heading", name="Groups")).to_be_visible()
        page.evaluate(_SHOW_PANE, ["group", output_id])
        pane = page.get_by_role("complementary", name="Output")
        expect(pane).to_contain_text("Created")
        box = pane.bounding_box()
        assert box is not None
        assert (box["x"], box["width"]) == (0, 400)
        assert console.violations() == []
        page.keyboard.press("Escape")
        expect(pane).to_have_count(0)
        console.assert_quiet()


def test_leaving_a_screen_ends_the_download_of_its_pictures(
    client: Client, console: ConsolePage
) -> None:
    image = upload(client, PNG, filename="mug.png")
    output_id = store(client, {"a": 1}, files=[{"field": "image", "id": image["id"]}])
    page = console.page
    page.route("**/v1/files/*", lambda route: None)  # it never arrives
    with page.expect_request("**/v1/files/*"):
        console.open(f"groups/group/outputs/{output_id}")
    with page.expect_event("requestfailed", lambda request: "/v1/files/" in request.url):
        console.open("groups")
    expect(page.get_by_role("heading", name="Groups")).to_be_visible()
    console.assert_quiet()


def test_a_long_name_can_be_read_and_copied(client: Client, console: ConsolePage) -> None:
    name = "n" * 3000
    output_id = store(client, {name: "a value"})
    page = console.page
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    console.open(f"groups/group/outputs/{output_id}")
    value = panel(page, "Value")
    value.get_by_role("button", name="Copy the whole name").click()
    page.wait_for_function(
        "name => navigator.clipboard.readText().then(now => now === name)", arg=name
    )
    value.get_by_role("button", name="Show all").click()
    expect(value.get_by_text(name)).to_be_visible()
    console.assert_quiet()
