"""A Scrapy project that scrapes the shop of the examples, in a folder as a scheduler finds it."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from tests.support.process import environment

ROOT = Path(__file__).parent.parent.parent
_PROGRAMS = {
    "gleanery": "-m gleanery",
    "python": "",
    "scrapy": "-m scrapy",
}
_SETTINGS = """
SPIDER_MODULES = ["shop_spider"]
ADDONS = {"gleanery.integrations.scrapy.Addon": 500}
GLEANERY_GROUP = "another"
GLEANERY_KEY_FIELDS = ["sku"]
GLEANERY_MAX_RETRIES = 1
GLEANERY_CLOSE_SECONDS = 1
TELNETCONSOLE_ENABLED = False
CONCURRENT_REQUESTS_PER_DOMAIN = 16
DOWNLOAD_DELAY = 0
"""
_SPIDER = """
import os

import scrapy


class Shop(scrapy.Spider):
    name = "shop"

    async def start(self):
        form = {"user": "ada", "password": "lovelace"}
        yield scrapy.FormRequest(os.environ["SHOP_URL"] + "/login", formdata=form)

    def parse(self, response):
        yield response.follow("/", self.parse_listing)

    def parse_listing(self, response):
        yield from response.follow_all(css="a.product", callback=self.parse_product)
        yield from response.follow_all(css="a.next", callback=self.parse_listing)

    def parse_product(self, response):
        price = float(response.css(".price::text").get())
        yield {"url": response.url, "sku": response.css(".sku::text").get(), "price": price}
"""


def create_project(folder: Path) -> Path:
    """Writes the project, and the programs of its virtual environment."""
    programs = folder / "venv" / "bin"
    programs.mkdir(parents=True)
    for name, arguments in _PROGRAMS.items():
        (programs / name).write_text(f'#!/bin/sh\nexec {sys.executable} {arguments} "$@"\n')
        (programs / name).chmod(0o755)
    (folder / "scrapy.cfg").write_text("[settings]\ndefault = shop_settings\n")
    (folder / "shop_settings.py").write_text(_SETTINGS)
    (folder / "shop_spider.py").write_text(_SPIDER)
    shutil.copy(ROOT / "examples" / "daily.sh", folder)
    return folder


def project_environment(shop_url: str, service_url: str, token: str) -> dict[str, str]:
    """Environment in which a scheduler runs the project."""
    return environment(
        SHOP_URL=shop_url, GLEANERY_URL=service_url, GLEANERY_TOKEN=token, RETRY_SECONDS="0"
    )
