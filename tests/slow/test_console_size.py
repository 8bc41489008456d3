"""The grid of the console over a large group: memory, elements, and the time to the first rows.

GLEANERY_CONSOLE_OUTPUTS is the number of outputs. The limits do not depend on it.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, CDPSession, Page, expect

from tests.support.browser import running_chromium
from tests.support.console import ConsolePage, console_page
from tests.support.outputs import output
from tests.support.service import Client, Service
from tests.support.settings import fresh_settings

OUTPUTS = int(os.environ.get("GLEANERY_CONSOLE_OUTPUTS", "1000000"))
LINES = 20_000  # of one request
JUMPS = 1000
MAX_HEAP_BYTES = 15_000_000
MAX_ELEMENTS = 1500
MAX_SECONDS = 0.4
NAMES = ("Blue mug", "Oak table", "Linen shirt", "Desk lamp", "Wool rug", "Steel kettle")
FIRST_ROWS = """
async () => {
    const start = performance.now();
    location.hash = "#/groups/shop/outputs";
    while (!document.querySelector(".outputs-body [role=row]")) {
        await new Promise((resolve) => requestAnimationFrame(resolve));
    }
    return (performance.now() - start) / 1000;
}
"""


def product(number: int) -> dict[str, Any]:
    data = {
        "title": f"{NAMES[number % 6]} No. {number}",
        "price": number % 900 + 0.9,
        "stock": number % 40,
        "brand": f"Brand {number % 50}",
        "available": number % 5 > 0,
        "description": "A product with a longer description. " * (number % 6 + 1),
        "images": [f"https://shop.example/images/{number}.jpg"] * (number % 3),
    }
    return output(number, job_id=f"crawl-{number % 20}", data=data)


def fill(client: Client, count: int) -> None:
    """Stores outputs, and changes one of a hundred."""
    for start in range(0, count, LINES):
        numbers = range(start, min(start + LINES, count))
        store(client, (product(number) for number in numbers))
        changed = (product(number) for number in numbers[::100])
        store(client, (one | {"data": one["data"] | {"price": 0}} for one in changed))


def store(client: Client, outputs: Iterator[dict[str, Any]]) -> None:
    content = "\n".join(map(json.dumps, outputs)).encode()
    headers = {"Content-Type": "application/x-ndjson"}
    answer = client.post("/v1/outputs/shop", content=content, headers=headers)
    assert answer.status_code == 200, answer.text


@pytest.fixture(scope="module")
def shop(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Service, Client]]:
    folder: Path = tmp_path_factory.mktemp("service")
    service = Service(fresh_settings("sqlite", request, folder))
    client = service.client()
    fill(client, OUTPUTS)
    yield service, client
    client.close()
    service.stop()


@pytest.fixture(scope="module")
def browser(shop: tuple[Service, Client]) -> Iterator[Browser]:
    with running_chromium() as running:
        yield running


def heap_bytes(session: CDPSession) -> int:
    session.send("HeapProfiler.collectGarbage")
    return int(session.send("Runtime.getHeapUsage")["usedSize"])


def jump(page: Page, share: float) -> None:
    """Clicks the time bar, and waits until the rows of that time are there."""
    page.evaluate(
        """async (share) => {
            const bar = document.querySelector(".outputs-time");
            const box = bar.firstElementChild.getBoundingClientRect();
            const before = document.querySelector(".outputs-body").firstElementChild?.id;
            const clientY = box.top + share * box.height;
            const at = { clientX: box.left + 9, clientY, pointerId: 1, bubbles: true };
            bar.setPointerCapture = () => {};
            bar.dispatchEvent(new PointerEvent("pointerdown", at));
            bar.dispatchEvent(new PointerEvent("pointerup", at));
            for (let frames = 0; frames < 30; frames++) {
                await new Promise((resolve) => requestAnimationFrame(resolve));
                const first = document.querySelector(".outputs-body").firstElementChild?.id;
                if (first && first !== before) return;
            }
        }""",
        share,
    )


def test_the_grid_stays_small_and_is_fast(browser: Browser, shop: tuple[Service, Client]) -> None:
    service, client = shop
    with console_page(browser, service.url) as console:
        console.sign_in(str(client.token))
        seconds = console.page.evaluate(FIRST_ROWS)
        heap, elements = after_jumps(console)
        console.assert_quiet()
    report = f"{OUTPUTS} outputs: first rows after {seconds:.3f} s; after {JUMPS} jumps "
    print(f"\n{report}{heap / 1e6:.1f} MB heap, {elements} elements")
    assert heap <= MAX_HEAP_BYTES
    assert elements <= MAX_ELEMENTS
    assert seconds <= MAX_SECONDS


def after_jumps(console: ConsolePage) -> tuple[int, int]:
    """Returns the bytes of the heap and the greatest number of elements."""
    numbers = random.Random(7)
    elements = 0
    session = console.page.context.new_cdp_session(console.page)
    for number in range(JUMPS):
        jump(console.page, numbers.random())
        if number % 50 == 0:
            console.requests.clear()
            count = console.page.evaluate("document.querySelectorAll('*').length")
            elements = max(elements, count)
    expect(console.page.locator(".outputs-body [role=row]").first).to_be_visible()
    return heap_bytes(session), elements
