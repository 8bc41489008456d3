"""Scrapes the shop of shop.py with Crawlee into the group shop-crawlee.

Run it with ``python crawlee_shop.py http://127.0.0.1:8080``. It needs GLEANERY_URL and
GLEANERY_TOKEN. It logs in once: the next run uses the stored login.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from urllib.parse import urljoin, urlsplit

import httpx2
from crawlee import ConcurrencySettings
from crawlee.crawlers import ParselCrawler, ParselCrawlingContext
from crawlee.http_clients import HttpResponse
from crawlee.router import Router

from gleanery import AsyncClient
from gleanery.integrations.crawlee import GleaneryStorageClient, session_pool

GROUP, JOB = "shop-crawlee", "shop"


def create_router(client: AsyncClient) -> Router[ParselCrawlingContext]:
    router: Router[ParselCrawlingContext] = Router()

    @router.default_handler
    async def list_products(context: ParselCrawlingContext) -> None:
        await context.enqueue_links(selector="a.product", label="product")
        await context.enqueue_links(selector="a.next")

    @router.handler("product")
    async def scrape_product(context: ParselCrawlingContext) -> None:
        page, url = context.selector, context.request.loaded_url or context.request.url
        sheet_url = urljoin(url, page.css("a.pdf").attrib["href"])  # an error without the link
        await context.push_data(
            {
                "sku": page.css(".sku::text").get(),
                "name": page.css("h1::text").get(),
                "price": float(page.css(".price::text").get("")),
                "in_stock": page.css(".stock::text").get() == "In stock",
                "url": url,
                "data_sheet": await store_data_sheet(client, context, sheet_url),
            }
        )

    return router


async def store_data_sheet(client: AsyncClient, context: ParselCrawlingContext, url: str) -> str:
    """Return the id of the PDF, which is downloaded only if the service does not have it."""
    head = await context.send_request(url, method="HEAD")
    require_success(head, url)
    etag = head.headers.get("etag")
    # without an ETag, find_file would return the last upload, which may be outdated
    known = await client.find_file(url, etag) if etag else None
    if known is not None:
        return known.id
    response = await context.send_request(url)
    require_success(response, url)
    name = f"{url.split('/')[-2]}.pdf"
    stored = await client.upload(await response.read(), source_url=url, etag=etag, filename=name)
    return stored.id


def require_success(response: HttpResponse, url: str) -> None:
    if response.status_code != 200:
        raise RuntimeError(f"{url}: status {response.status_code}")


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("shop_url")
    shop_url: str = parser.parse_args().shop_url

    async def log_in(profile: str) -> httpx2.Cookies:
        async with httpx2.AsyncClient() as browser:
            form = {"user": "ada", "password": "lovelace"}
            response = await browser.post(urljoin(shop_url, "/login"), data=form)
            response.raise_for_status()
            return browser.cookies

    domain = urlsplit(shop_url).hostname or ""
    async with (
        AsyncClient() as client,
        GleaneryStorageClient(
            GROUP, JOB, key_field="sku", file_fields=["data_sheet"]
        ) as storage_client,
        session_pool(client, domain, login=log_in, login_cookies=["shop_session"], wait=60) as pool,
    ):
        crawler = ParselCrawler(
            request_handler=create_router(client),
            storage_client=storage_client,
            session_pool=pool,
            concurrency_settings=ConcurrencySettings(desired_concurrency=8),
        )
        statistics = await crawler.run([shop_url])
    report = storage_client.report
    print(f"{report.created} created, {report.updated} updated, {report.unchanged} unchanged")
    if statistics.requests_failed or report.skipped:
        sys.exit("Some pages or items are missing")


if __name__ == "__main__":
    asyncio.run(main())
