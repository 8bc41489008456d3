"""The example scrapers store no wrong data sheet when the shop is not as expected."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from examples import shop as shop_module
from examples.shop import Shop, running_shop
from tests.support.browser import chromium_path
from tests.support.process import environment
from tests.support.service import Client, Service
from tests.support.shop_scrapers import EXAMPLES

pytestmark = [
    pytest.mark.extended,
    pytest.mark.parametrize("engine", ["sqlite"], indirect=True, scope="session"),
]
COMMANDS = {
    "shop-crawlee": ["crawlee_shop.py"],
    "shop-playwright": ["playwright_shop.py"],
    "shop-scrapy": ["-m", "scrapy", "runspider", "scrapy_shop.py", "-a"],
}
each_scraper = pytest.mark.parametrize("group", COMMANDS)
_send = shop_module._Connection._send


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    monkeypatch.setattr(shop_module, "PRODUCTS", 2)
    with running_shop() as shop:
        yield shop


def run(group: str, shop: Shop, service: Service, client: Client) -> int:
    url = f"shop={shop.url}" if group == "shop-scrapy" else shop.url
    variables = {"GLEANERY_URL": service.url, "GLEANERY_TOKEN": client.token or ""}
    if group == "shop-playwright":
        variables["CHROMIUM"] = chromium_path()
    command = [sys.executable, *COMMANDS[group], url]
    done = subprocess.run(
        command,
        cwd=EXAMPLES,
        env=environment(**variables),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return done.returncode


def sheets(client: Client, group: str) -> dict[str, str]:
    """Content of the data sheet of each product."""
    if not any(item["group_id"] == group for item in client.get("/v1/groups").json()):
        return {}
    return {
        item["data"]["sku"]: client.get(item["files"][0]["blob_url"]).text
        for item in client.items(group)
    }


@each_scraper
def test_a_product_without_a_data_sheet_is_not_stored_with_another_file(
    group: str, shop: Shop, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    def send(self, kind, status, content, headers) -> None:  # type: ignore[no-untyped-def]
        is_changed = self.path == "/products/2"
        _send(
            self,
            kind,
            status,
            content.replace(b'class="pdf"', b"") if is_changed else content,
            headers,
        )

    monkeypatch.setattr(shop_module._Connection, "_send", send)
    with service.client() as client:
        status = run(group, shop, service, client)
        assert "SKU-0002" not in sheets(client, group)
    assert status != 0 or group == "shop-scrapy"  # Scrapy logs the error, and ends with 0


@each_scraper
def test_a_changed_data_sheet_without_an_etag_is_stored(
    group: str, shop: Shop, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    def send(self, kind, status, content, headers) -> None:  # type: ignore[no-untyped-def]
        headers.pop("ETag", None)
        _send(
            self,
            kind,
            status,
            content.replace(b"Data sheet", b"Data %d" % self.server.day),
            headers,
        )

    monkeypatch.setattr(shop_module._Connection, "_send", send)
    with service.client() as client:
        for day in (1, 2):
            shop.day = day
            assert run(group, shop, service, client) == 0
            assert [f"(Data {day} SKU" in text for text in sheets(client, group).values()] == [
                True
            ] * 2


@pytest.mark.parametrize("group", ["shop-crawlee", "shop-playwright"])
def test_a_failed_head_request_is_an_error(
    group: str, shop: Shop, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    def send(self, kind, status, content, headers) -> None:  # type: ignore[no-untyped-def]
        _send(self, kind, 403 if kind == "pdf head" else status, content, headers)

    monkeypatch.setattr(shop_module._Connection, "_send", send)
    with service.client() as client:
        assert run(group, shop, service, client) != 0
        assert sheets(client, group) == {}
