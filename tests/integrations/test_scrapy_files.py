"""Scrapy's files pipeline with Gleanery: a real crawl of the example shop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from examples.shop import SESSION, Shop, running_shop
from tests.support.crawls import ASYNCIO, SELECT, crawl
from tests.support.service import Client, Service

pytestmark = pytest.mark.thorough


def settings_of(service: Service, client: Client, **more: Any) -> dict[str, Any]:
    return {
        "GLEANERY_URL": service.url,
        "GLEANERY_TOKEN": client.token,
        "GLEANERY_GROUP": "shop-scrapy",
        "GLEANERY_JOB": "shop",
        "GLEANERY_KEY_FIELDS": ["sku"],
        "GLEANERY_SESSIONS": True,
        "GLEANERY_FILES": True,
        "FILES_URLS_FIELD": "data_sheet",
        "FILES_RESULT_FIELD": "data_sheet",
        **more,
    }


def log_in(client: Client, shop: Shop) -> None:
    """Store the session of the shop."""
    cookie = {"domain": "127.0.0.1", "name": SESSION, "value": shop.session, "path": "/"}
    assert client.post("/v1/cookies", json=[cookie]).status_code == 200


@pytest.mark.parametrize("reactor", [ASYNCIO, SELECT], ids=["asyncio", "select"])
def test_day_two(service: Service, tmp_path: Path, reactor: str) -> None:
    client = service.client()
    settings = settings_of(service, client, TWISTED_REACTOR=reactor)
    with running_shop() as shop:
        log_in(client, shop)
        first = crawl(tmp_path, "ShopSpider", settings, url=shop.url)
        print(first.log[-6000:], shop.counts)
        assert shop.counts["pdf"] == 300
        items = client.items("shop-scrapy", limit=1000)
        assert len(items) == 300
        print(items[0])
        shop.day = 2
        shop.counts.clear()
        second = crawl(tmp_path, "ShopSpider", settings, url=shop.url)
        print(second.log[-6000:], shop.counts)
        assert "pdf" not in shop.counts
        assert second.stats["gleanery/updated"] == 12
