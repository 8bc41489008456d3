"""The example spider scrapes the example shop on two days, and one with scrapy-playwright."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from examples.shop import PRODUCTS, Shop, product, running_shop
from tests.support.browser import chromium_path
from tests.support.scrapy_runs import Project
from tests.support.service import Client, Service

pytestmark = pytest.mark.thorough

_EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "scrapy_shop.py"
_CHANGED = 12


def expected(shop: Shop, number: int) -> dict[str, Any]:
    """Return the data of a product without its file."""
    shown = product(number, shop.day)
    return {**shown._asdict(), "url": f"{shop.url}/products/{number}"}


def check_outputs(client: Client, shop: Shop) -> None:
    """Compare all outputs with the shop, and their files with their data."""
    items = client.items("shop-scrapy", limit=1000)
    by_sku = {item["data"]["sku"]: item for item in items}
    assert len(items) == len(by_sku) == PRODUCTS
    for number in range(1, PRODUCTS + 1):
        item = by_sku[product(number).sku]
        sheet = item["data"].pop("data_sheet")
        assert item["data"] == expected(shop, number)
        assert [(file["field"], file["id"]) for file in item["files"]] == [("data_sheet", sheet)]


def test_the_example_spider_scrapes_the_shop_on_two_days(
    tmp_path: Path, service: Service, client: Client
) -> None:
    project = Project(tmp_path / "project", service.url, client.token)
    del project.settings["GLEANERY_GROUP"]  # the spider names its own
    with running_shop() as shop:
        run = project.run(str(_EXAMPLE), "-a", f"shop={shop.url}")
        assert run.count("created") == PRODUCTS, run.log
        check_outputs(client, shop)
        assert shop.counts["pdf"] == PRODUCTS
        shop.day = 2
        run = project.run(str(_EXAMPLE), "-a", f"shop={shop.url}")
        assert (run.count("updated"), run.count("unchanged")) == (_CHANGED, PRODUCTS - _CHANGED)
        check_outputs(client, shop)
        assert shop.counts["pdf"] == PRODUCTS


_BROWSER = """
    custom_settings = {{
        "DOWNLOAD_HANDLERS": {{
            "http": "scrapy_playwright.handler.ScrapyPlaywrightDownloadHandler"
        }},
        "PLAYWRIGHT_LAUNCH_OPTIONS": {{
            "executable_path": "{path}", "args": ["--no-sandbox"]
        }},
    }}

    async def start(self):
        yield scrapy.Request("{url}", meta={{"playwright": True}})

    def parse(self, response):
        for link in response.css("a.product"):
            url = response.urljoin(link.attrib["href"])
            yield {{"url": url, "name": link.css("::text").get()}}
        for link in response.css("a.next"):
            yield response.follow(link, meta={{"playwright": True}})
"""


@pytest.mark.extended
def test_items_are_stored_beside_scrapy_playwright(
    tmp_path: Path, service: Service, client: Client
) -> None:
    path = chromium_path()
    project = Project(tmp_path / "project", service.url, client.token)
    with running_shop() as shop:
        run = project.run(_BROWSER.format(path=path, url=shop.url))
    assert run.stats.get("playwright/request_count", 0) > 0, run.log
    assert run.count("created") == PRODUCTS, run.log
    names = {item["data"]["name"] for item in client.items("items", limit=1000)}
    assert names == {product(number).name for number in range(1, PRODUCTS + 1)}
