"""Spiders of the example shop, which tests run with Scrapy in a process of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import scrapy
from scrapy.http import Response


class ShopSpider(scrapy.Spider):
    """Scrapes all products. It does not log in: the session comes from the middleware."""

    name = "shop"
    url = ""
    pages = ""
    """Number of listing pages to read; empty for all."""
    meta: dict[str, Any] = {}

    async def start(self) -> AsyncIterator[Any]:
        yield scrapy.Request(f"{self.url}/", self.parse, meta=dict(self.meta))

    def parse(self, response: Response) -> Iterator[Any]:
        for link in response.css("a.product"):
            yield response.follow(link, self.parse_product, meta=dict(self.meta))
        following = response.css("a.next")
        if following and self.pages != "1":
            yield response.follow(following[0], self.parse, meta=dict(self.meta))

    def parse_product(self, response: Response) -> Iterator[Any]:
        sku = response.css(".sku::text").get()
        if sku is None:
            self.crawler.stats.inc_value("shop/not_logged_in")
            return
        yield {
            "sku": sku,
            "name": response.css("h1::text").get(),
            "price": float(response.css(".price::text").get()),
            "in_stock": response.css(".stock::text").get() == "In stock",
            "url": response.url,
            "data_sheet": response.urljoin(response.css("a.pdf::attr(href)").get()),
        }


class BrowserSpider(ShopSpider):
    """Scrapes the first products in a browser, with scrapy-playwright."""

    name = "browser"
    meta = {"playwright": True}
    pages = "1"


class PageSpider(scrapy.Spider):
    """Requests the URLs of its argument, and counts their statuses. It yields an item for each."""

    name = "page"
    urls = ""
    profile = ""

    async def start(self) -> AsyncIterator[Any]:
        meta = {"gleanery_profile": self.profile} if self.profile else {}
        for url in self.urls.split():
            yield scrapy.Request(url, dont_filter=True, meta=dict(meta), errback=self.fail)

    def parse(self, response: Response) -> Iterator[Any]:
        yield {"url": response.url}

    def fail(self, failure: Any) -> None:
        self.crawler.stats.inc_value(f"page/{failure.type.__name__}")


class ItemSpider(scrapy.Spider):
    """Yields items without a network: so many, of which the last ones have no URL."""

    name = "items"
    start_urls = ["data:,"]
    number = "5"
    invalid = "0"

    def parse(self, response: Response) -> Iterator[Any]:
        number, invalid = int(self.number), int(self.invalid)
        for index in range(number):
            yield {"url": f"https://shop.example/{index}", "sku": f"é{index}", "price": index}
        for index in range(invalid):
            yield {"sku": f"x{index}"}
