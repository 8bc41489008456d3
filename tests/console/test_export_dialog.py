"""The export dialog: download, filters, command and link."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import httpx2
import pytest
from playwright.sync_api import Browser, expect

from tests.support.console import NARROW, ConsolePage, console_page
from tests.support.outputs import output
from tests.support.service import Service

GROUP = "mugs & 'cups' <b>"


@pytest.fixture(params=["wide", "narrow"])
def console(
    request: pytest.FixtureRequest, browser: Browser, service: Service
) -> Iterator[ConsolePage]:
    token = service.token()
    with service.client(token) as client:
        for job in ("daily", "weekly"):
            stored = (output(n, job_id=job, data={"name": f"=mug {n}"}) for n in range(3))
            client.store("mugs%20%26%20'cups'%20%3Cb%3E", *stored)
    size = {"size": NARROW} if request.param == "narrow" else {}
    with console_page(browser, service.url, **size) as console:
        console.sign_in(token)
        route = "groups/mugs%20%26%20'cups'%20%3Cb%3E/outputs?job_id=daily"
        console.show(route)
        console.page.get_by_role("button", name="Export").click()
        yield console
        console.assert_quiet()


@pytest.mark.parametrize(
    ("choice", "ending", "start"),
    [
        ("CSV", "csv", b"source_url,"),
        ("JSON lines", "jsonl", b'{"'),
        ("Parquet", "parquet", b"PAR1"),
    ],
)
def test_a_file_is_downloaded(console: ConsolePage, choice: str, ending: str, start: bytes) -> None:
    page = console.page
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name=choice).click()
    with page.expect_download() as found:
        dialog.get_by_role("button", name="Download").click()
    content = found.value.path().read_bytes()
    assert content.startswith(start)
    assert found.value.suggested_filename.endswith(f".{ending}")
    if choice != "Parquet":
        assert content.count(b"mug") == 3 * content.count(b"mug 1")  # only the filtered job
    expect(dialog).to_have_count(0)


@pytest.mark.journey
def test_the_dialog_shows_the_filters_the_command_and_a_link(console: ConsolePage) -> None:
    page = console.page
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("daily")
    dialog.get_by_role("button", name="Approved versions").click()
    dialog.get_by_text("For scripts and tools").click()
    words = shlex.split(dialog.locator("code").inner_text())
    assert words[:2] == ["gleanery", "export"]
    assert words[-1] == GROUP
    assert {"--job=daily", "--view=approved", "--output=mugs_cups_b_.csv"} <= set(words)
    dialog.get_by_role("button", name="Create a link").click()
    link = dialog.get_by_label("Link", exact=True)
    expect(link).to_be_visible()
    assert console.violations() == []
    answer = httpx2.get(link.input_value())
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/csv")
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)


def test_a_format_that_the_service_cannot_write_is_disabled(console: ConsolePage) -> None:
    page = console.page
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("button", name="Parquet")).to_be_enabled()
    dialog.get_by_role("button", name="Cancel").click()
    formats = {"export_formats": ["csv", "jsonl"]}
    page.route("**/console/api/session", lambda route: route.fulfill(json=formats))
    page.get_by_role("button", name="Export").click()
    expect(dialog.get_by_role("button", name="Parquet")).to_be_disabled()
    expect(dialog).to_contain_text("Parquet needs a library that the service does not have")
    assert console.violations() == []


def test_an_error_is_shown(console: ConsolePage) -> None:
    page = console.page
    page.route(
        "**/v1/exports/*",
        lambda route: route.fulfill(status=503, json={"detail": [{"msg": "No."}]}),
    )
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Download").click()
    expect(dialog.get_by_role("alert")).to_contain_text("No.")
    console.messages.clear()  # the browser reports the status


def test_a_broken_download_is_said(console: ConsolePage) -> None:
    page = console.page
    page.evaluate(
        """() => { window.fetch = async () => new Response(new ReadableStream({
            start: (stream) => stream.enqueue(new Uint8Array(3)),
            pull: (stream) => stream.error(new TypeError("network error")),
        })) }"""
    )
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Download").click()
    expect(dialog.get_by_role("alert")).to_contain_text("The connection broke before the end")


def test_a_large_file_is_streamed_by_the_browser(console: ConsolePage) -> None:
    page = console.page
    page.evaluate(
        """() => { const { fetch } = window; window.fetch = async (url, ...rest) => {
            const response = await fetch(url, ...rest);
            if (/links/.test(url)) return response;
            return new Response(response.body, { headers: { "content-length": "100000001" } });
        } }"""
    )
    with page.expect_download() as found:
        page.get_by_role("dialog").get_by_role("button", name="Download").click()
    assert found.value.url.startswith(f"{console.url}/v1/exports/")
    expect(page.get_by_text("your browser shows its progress")).to_be_visible()
