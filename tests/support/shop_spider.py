"""Spiders of the example shop, which tests run with Scrapy in a process of its own."""

from __future__ import annotations

import json
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

    async def start(self) -> AsyncIterator[Any]:
        yield scrapy.Request(f"{self.url}/", self.parse)

    def parse(self, response: Response) -> Iterator[Any]:
        for link in response.css("a.product"):
            yield response.follow(link, self.parse_product)
        following = response.css("a.next")
        if following and self.pages != "1":
            yield response.follow(following[0], self.parse)

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


class PageSpider(scrapy.Spider):
    """Requests the URLs of its argument, and counts their statuses. It yields an item for each."""

    name = "page"
    urls = ""
    meta = ""
    """Members of ``meta`` of each request, as JSON."""

    async def start(self) -> AsyncIterator[Any]:
        for url in self.urls.split():
            meta = json.loads(self.meta or "{}")
            yield scrapy.Request(url, dont_filter=True, meta=meta, errback=self.fail)

    def parse(self, response: Response) -> Iterator[Any]:
        yield {"url": response.url}

    def fail(self, failure: Any) -> None:
        self.crawler.stats.inc_value(f"page/{failure.type.__name__}")


class ProfileSpider(scrapy.Spider):
    """Requests a URL with each of its profiles, and passes on everything in ``meta``."""

    name = "profile"
    url = ""
    profiles = ""
    meta = ""
    """Members of ``meta`` of the first request, as JSON."""

    async def start(self) -> AsyncIterator[Any]:
        yield self._request(self.profiles.split(), json.loads(self.meta or "{}"))

    def parse(self, response: Response, following: list[str]) -> Iterator[Any]:
        if following:
            yield self._request(following, response.meta)

    def _request(self, profiles: list[str], meta: dict[str, Any]) -> scrapy.Request:
        return scrapy.Request(
            self.url,
            dont_filter=True,
            meta={**meta, "gleanery_profile": profiles[0]},
            cb_kwargs={"following": profiles[1:]},
        )


class ItemSpider(scrapy.Spider):
    """Yields items without a network: so many, of which the last ones have no URL."""

    name = "items"
    number = "5"
    invalid = "0"

    async def start(self) -> AsyncIterator[Any]:
        yield scrapy.Request("data:,")

    def parse(self, response: Response) -> Iterator[Any]:
        number, invalid = int(self.number), int(self.invalid)
        for index in range(number):
            yield {"url": f"https://shop.example/{index}", "sku": f"é{index}", "price": index}
        for index in range(invalid):
            yield {"sku": f"x{index}"}


class FileSpider(scrapy.Spider):
    """Yields items, each with files at the URLs of its argument."""

    name = "files"
    urls = ""
    number = "1"
    has_pages = True
    """If False, the items do not come from a response."""

    async def start(self) -> AsyncIterator[Any]:
        if self.has_pages:
            yield scrapy.Request("data:,")
            return
        for item in self.items():
            yield item

    def parse(self, response: Response) -> Iterator[Any]:
        yield from self.items()

    def items(self) -> Iterator[dict[str, Any]]:
        for number in range(1, int(self.number) + 1):
            urls = [url.format(number=number) for url in self.urls.split()]
            yield {"url": f"https://shop.example/{number}", "file_urls": urls}
