"""Scrapers of the example shop, each of which fills a group of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from examples.shop import Shop
from gleanery.client import Client
from tests.support.browser import chromium_path
from tests.support.process import environment

Scraper = Callable[[str, Shop, Client, str], None]
"""Stores the products of a shop in a group, with a client and its token."""

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
JOB = "shop"
DATA_MEMBERS = ["sku", "name", "price", "in_stock", "url", "data_sheet"]
_TIMEOUT_SECONDS = 600


def example(*command: str) -> Scraper:
    """The scraper that a command runs. ``{shop}`` in it is the address of the shop."""

    def run(group: str, shop: Shop, client: Client, token: str) -> None:
        arguments = [argument.format(shop=shop.url) for argument in command]
        variables = {
            "GLEANERY_URL": client.base_url,
            "GLEANERY_TOKEN": token,
            "CHROMIUM": chromium_path(),
        }
        try:
            done = subprocess.run(
                [sys.executable, *arguments],
                cwd=EXAMPLES,
                env=environment(**variables),
                capture_output=True,
                text=True,
                timeout=_TIMEOUT_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise AssertionError((error.stdout or b"", error.stderr or b"")) from error
        assert done.returncode == 0, done.stdout + done.stderr

    return run


SCRAPERS = {
    "shop-scrapy": example("-m", "scrapy", "runspider", "scrapy_shop.py", "-a", "shop={shop}"),
    "shop-crawlee": example("crawlee_shop.py", "{shop}"),
    "shop-playwright": example("playwright_shop.py", "{shop}"),
}
