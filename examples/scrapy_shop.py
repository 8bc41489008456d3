"""A Scrapy spider that stores the products of the example shop, with their data sheets.

Run the shop with ``python shop.py``, and the spider with ``scrapy runspider scrapy_shop.py``.
``GLEANERY_URL`` and ``GLEANERY_TOKEN`` say where it stores. ``-a shop=URL`` names another shop.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import scrapy
from scrapy.http import FormRequest, Response


class Shop(scrapy.Spider):
    """Logs in, and reads every page of the listing, and every product."""

    name = "shop"
    shop = "http://127.0.0.1:8080"
    custom_settings = {  # noqa: RUF012
        "ADDONS": {"gleanery.integrations.scrapy.Addon": 500},
        "GLEANERY_GROUP": "shop-scrapy",
        "GLEANERY_KEY_FIELDS": ["sku"],
        # the files pipeline replaces the address of the data sheet by the id of the stored file
        "GLEANERY_FILES": True,
        "FILES_URLS_FIELD": "data_sheet",
        "FILES_RESULT_FIELD": "data_sheet",
    }

    async def start(self) -> AsyncIterator[Any]:
        form = {"user": "ada", "password": "lovelace"}
        yield FormRequest(f"{self.shop}/login", formdata=form, callback=self.parse_welcome)

    def parse_welcome(self, response: Response) -> Iterator[Any]:
        yield response.follow("/", self.parse)

    def parse(self, response: Response) -> Iterator[Any]:
        yield from response.follow_all(css="a.product", callback=self.parse_product)
        yield from response.follow_all(css="a.next")

    def parse_product(self, response: Response) -> Iterator[dict[str, Any]]:
        yield {
            "sku": response.css(".sku::text").get(),
            "name": response.css("h1::text").get(),
            "price": float(response.css(".price::text").get("")),
            "in_stock": response.css(".stock::text").get() == "In stock",
            "url": response.url,
            "data_sheet": response.urljoin(response.css("a.pdf").attrib["href"]),
        }
