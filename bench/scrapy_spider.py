"""A spider with many items per page, so that the speed depends on what stores them."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import scrapy
from scrapy.http import Response


class Products(scrapy.Spider):
    """Reads the same page again and again; each time, its products have other URLs."""

    name = "products"
    custom_settings = {"LOG_LEVEL": "WARNING", "TELNETCONSOLE_ENABLED": False}  # noqa: RUF012

    site: str
    pages: str
    stats: str

    async def start(self) -> AsyncIterator[Any]:
        for number in range(int(self.pages)):
            yield scrapy.Request(f"{self.site}?page={number}", cb_kwargs={"number": number})

    def parse(self, response: Response, number: int) -> Iterator[dict[str, Any]]:
        for product in response.css("li"):
            path = product.css("a::attr(href)").get("")
            yield {
                "url": f"{response.urljoin(path)}/{number}",
                "name": product.css("a::text").get(),
                "price": float(product.css("b::text").get("0")),
                "currency": "EUR",
                "in_stock": True,
                "categories": ["kitchen", "kettles"],
                "description": "A kettle with a whistle, for every stove. " * 5,
            }

    def closed(self, reason: str) -> None:
        assert self.crawler.stats is not None
        stats = self.crawler.stats.get_stats()
        seconds = (datetime.now(UTC) - stats["start_time"]).total_seconds()
        own = {"seconds": seconds, "processor_seconds": time.process_time()}
        stats = {**stats, **own, "reason": reason}
        Path(self.stats).write_text(json.dumps(stats, default=str))
