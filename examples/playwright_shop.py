"""Scrapes the shop of shop.py with Playwright into the group shop-playwright.

Run it with ``python playwright_shop.py http://127.0.0.1:8080``. It needs GLEANERY_URL and
GLEANERY_TOKEN. It logs in once: the next run uses the stored login.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from typing import Any
from urllib.parse import urljoin, urlsplit

from playwright.sync_api import Page, sync_playwright

from gleanery import Client
from gleanery.integrations.playwright.sync_api import BrowserSession, session, store_download

GROUP, JOB = "shop-playwright", "shop"
READ_PRODUCT = """() => ({
    sku: document.querySelector(".sku").textContent,
    name: document.querySelector("h1").textContent,
    price: Number(document.querySelector(".price").textContent),
    in_stock: document.querySelector(".stock").textContent === "In stock",
    url: location.href,
    data_sheet: document.querySelector("a.pdf").href,
})"""
DOWNLOAD = "a => { a.download = ''; a.click() }"  # without it, Chromium shows the PDF


class Scraper:
    """Scraper of one shop."""

    def __init__(self, client: Client, shop_url: str) -> None:
        self.client = client
        self.shop_url = shop_url

    def log_in(self, shop: BrowserSession) -> None:
        page = shop.new_page()
        page.goto(urljoin(self.shop_url, "/login"))
        page.fill("input[name=user]", "ada")
        page.fill("input[name=password]", "lovelace")
        page.click("button")
        page.get_by_text("You are logged in").wait_for()
        page.close()

    def outputs(self, shop: BrowserSession) -> Iterator[dict[str, Any]]:
        """Yield each product as an output. Its key is the article number."""
        page = shop.new_page()
        for url in self.product_urls(shop.new_page()):
            page.goto(url)
            data = page.evaluate(READ_PRODUCT)
            data["data_sheet"] = self.store_data_sheet(shop, page, data["data_sheet"])
            file = {"field": "data_sheet", "id": data["data_sheet"]}
            yield {
                "job_id": JOB,
                "source_url": url,
                "key": data["sku"],
                "data": data,
                "files": [file],
            }

    def product_urls(self, page: Page) -> Iterator[str]:
        next_url = self.shop_url
        while next_url:
            page.goto(next_url)
            yield from page.locator("a.product").evaluate_all("links => links.map(a => a.href)")
            next_url = page.evaluate("() => document.querySelector('a.next')?.href")

    def store_data_sheet(self, shop: BrowserSession, page: Page, url: str) -> str:
        """Return the id of the PDF, which is downloaded only if the service does not have it."""
        head = shop.context.request.head(url)
        if not head.ok:
            raise RuntimeError(f"{url}: status {head.status}")
        etag = head.headers.get("etag")
        # without an ETag, find_file would return the last upload, which may be outdated
        known = self.client.find_file(url, etag) if etag else None
        if known is not None:
            return known.id
        with page.expect_download() as download:
            page.locator("a.pdf").evaluate(DOWNLOAD)
        return store_download(self.client, download.value, etag=etag).id


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("shop_url")
    shop_url: str = parser.parse_args().shop_url
    options: dict[str, Any] = {}
    if "CHROMIUM" in os.environ:  # a browser of the system, instead of Playwright's own
        options = {"executable_path": os.environ["CHROMIUM"], "args": ["--no-sandbox"]}
    with Client() as client, sync_playwright() as playwright:
        scraper = Scraper(client, shop_url)
        browser = playwright.chromium.launch(**options)
        domain = urlsplit(shop_url).hostname or ""
        with (
            client.run(GROUP, job_id=JOB) as run,  # complete, or after an exception failed
            session(
                client,
                browser,
                domain,
                login=scraper.log_in,
                login_cookies=["shop_session"],
                wait=60,
            ) as shop,
        ):
            report = client.push(GROUP, scraper.outputs(shop), run_id=run.run_id)
        browser.close()
    print(f"{report.created} created, {report.updated} updated, {report.unchanged} unchanged")


if __name__ == "__main__":
    main()
