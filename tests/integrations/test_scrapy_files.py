"""Scrapy's files pipeline with Gleanery: real crawls of the example shop and of a small site."""

from __future__ import annotations

import hashlib
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from examples.shop import SESSION, Shop, data_sheet, running_shop
from tests.support.crawls import ASYNCIO, SELECT, Crawl, RunningCrawl, crawl
from tests.support.file_site import FileSite, running_file_site
from tests.support.forwarder import Forwarder
from tests.support.service import Client, Service
from tests.support.waiting import wait_until

pytestmark = pytest.mark.thorough

GROUP = "shop-scrapy"


@pytest.fixture
def site() -> Iterator[FileSite]:
    with running_file_site() as site:
        yield site


def settings_of(service: Service, client: Client, **more: Any) -> dict[str, Any]:
    return {
        "GLEANERY_URL": service.url,
        "GLEANERY_TOKEN": client.token,
        "GLEANERY_GROUP": GROUP,
        "GLEANERY_FILES": True,
        **more,
    }


def shop_settings(service: Service, client: Client, **more: Any) -> dict[str, Any]:
    return settings_of(
        service,
        client,
        GLEANERY_JOB="shop",
        GLEANERY_KEY_FIELDS=["sku"],
        GLEANERY_SESSIONS=True,
        FILES_URLS_FIELD="data_sheet",
        FILES_RESULT_FIELD="data_sheet",
        **more,
    )


def log_in(client: Client, shop: Shop) -> None:
    """Store the session of the shop."""
    cookie = {"domain": "127.0.0.1", "name": SESSION, "value": shop.session, "path": "/"}
    assert client.post("/v1/cookies", json=[cookie]).status_code == 200


def checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_a_file_that_the_service_has_is_not_downloaded(
    service: Service, client: Client, tmp_path: Path
) -> None:
    settings = shop_settings(service, client)
    with running_shop() as shop:
        log_in(client, shop)
        first = crawl(tmp_path, "ShopSpider", settings, url=shop.url)
        assert first.stats["file_status_count/downloaded"] == shop.counts["pdf"] == 300
        items = client.items(GROUP, limit=1000)
        assert len(items) == 300
        for item in items:
            [file] = item["files"]
            assert file["field"] == "data_sheet"
            assert file["id"] == item["data"]["data_sheet"]
            assert file["file_type"] == "application/pdf"
            number = int(item["data"]["sku"].removeprefix("SKU-"))
            assert file["file_checksum"] == checksum(data_sheet(number))
        shop.day = 2
        second = crawl(tmp_path, "ShopSpider", settings, url=shop.url)
        assert shop.counts["pdf"] == 300
        assert second.stats["file_status_count/uptodate"] == 300
        assert "gleanery/files_stored" not in second.stats
        assert second.stats["gleanery/updated"] == 12
        assert second.stats["gleanery/unchanged"] == 288


@pytest.mark.extended
def test_another_reactor(service: Service, client: Client, tmp_path: Path) -> None:
    settings = shop_settings(service, client, TWISTED_REACTOR=SELECT)
    with running_shop() as shop:
        log_in(client, shop)
        for _ in range(2):
            crawl(tmp_path, "ShopSpider", settings, url=shop.url, pages="1")
        assert shop.counts["pdf"] == 20
    assert all(item["files"] for item in client.items(GROUP, limit=100))


@pytest.fixture
def gate(service: Service) -> Iterator[Forwarder]:
    """A connection to the service that a test interrupts."""
    made = Forwarder(("127.0.0.1", int(service.url.rsplit(":", 1)[1])))
    made.start()
    yield made
    made.stop()


def scrape(service: Service, client: Client, folder: Path, *urls: str, **more: Any) -> Crawl:
    settings = settings_of(service, client, TWISTED_REACTOR=ASYNCIO, **more)
    return crawl(folder, "FileSpider", settings, urls=" ".join(urls))


def files_of(client: Client) -> list[tuple[str, str]]:
    """Return the fields and checksums of the files of the only output."""
    [item] = client.items(GROUP)
    return [(file["field"], file["file_checksum"]) for file in item["files"]]


@pytest.mark.extended
@pytest.mark.parametrize(
    "headers", [{"ETag": 'W/"1"'}, {"Last-Modified": "Tue, 17 Nov 2026 00:00:00 GMT"}]
)
def test_a_new_version_is_downloaded(
    service: Service,
    client: Client,
    site: FileSite,
    tmp_path: Path,
    headers: dict[str, str],
) -> None:
    site.headers = headers
    url = f"{site.url}/a.txt"
    scrape(service, client, tmp_path, url)
    scrape(service, client, tmp_path, url)
    assert site.requests == ["HEAD", "GET", "HEAD"]
    site.headers = {name: value.replace("1", "2", 1) for name, value in headers.items()}
    site.content = b"second"
    scrape(service, client, tmp_path, url)
    assert site.requests[3:] == ["HEAD", "GET"]
    assert files_of(client) == [("files[0]", checksum(b"second"))]


@pytest.mark.extended
def test_a_site_without_versions_or_head_requests(
    service: Service, client: Client, site: FileSite, tmp_path: Path
) -> None:
    scrape(service, client, tmp_path, f"{site.url}/a")
    site.headers, site.has_head = {"ETag": '"1"'}, False
    scrape(service, client, tmp_path, f"{site.url}/a")
    assert site.requests == ["HEAD", "GET", "HEAD", "GET"]
    assert files_of(client) == [("files[0]", checksum(b"first"))]


def test_a_file_that_fails_is_left_out(
    service: Service, client: Client, site: FileSite, tmp_path: Path
) -> None:
    urls = (f"{site.url}/status/404", f"{site.url}/a")
    done = scrape(service, client, tmp_path, *urls)
    assert done.stats["gleanery/files_failed"] == 1
    assert "the status is 404" in done.log
    assert files_of(client) == [("files[0]", checksum(b"first"))]
    again = scrape(service, client, tmp_path, urls[0], GLEANERY_FILES_REQUIRED=True)
    assert again.stats["item_dropped_count"] == 1
    assert files_of(client) == [("files[0]", checksum(b"first"))]


def test_the_log_has_no_line_for_each_request_to_the_service(
    service: Service, client: Client, site: FileSite, tmp_path: Path
) -> None:
    done = scrape(service, client, tmp_path, f"{site.url}/a", LOG_LEVEL="DEBUG")
    assert "[gleanery.integrations.scrapy.files] DEBUG" in done.log
    assert "[httpx2]" not in done.log
    assert "[httpcore2" not in done.log


@pytest.mark.extended
def test_a_file_waits_until_the_service_responds_again(
    service: Service, client: Client, site: FileSite, gate: Forwarder, tmp_path: Path
) -> None:
    gate.stop()
    url = f"http://127.0.0.1:{gate.port}"
    settings = settings_of(service, client, GLEANERY_URL=url, GLEANERY_MAX_RETRIES=0)
    running = RunningCrawl(tmp_path, "FileSpider", settings, urls=f"{site.url}/a")
    wait_until(lambda: "wait until Gleanery responds" in running.log)
    gate.start()
    done = running.wait()
    assert site.requests == ["HEAD", "GET"]
    assert "gleanery/files_failed" not in done.stats
    assert files_of(client) == [("files[0]", checksum(b"first"))]


@pytest.fixture(params=[True, False], ids=["from pages", "from start"])
def stopped_crawl(
    request: pytest.FixtureRequest, service: Service, client: Client, site: FileSite, tmp_path: Path
) -> Iterator[RunningCrawl]:
    """A crawl that closes while the first two of its five files are downloaded."""
    settings = settings_of(service, client, CONCURRENT_REQUESTS=2, GLEANERY_BATCH_SECONDS=0.1)
    site.is_open.clear()
    arguments = {"urls": f"{site.url}/{{number}}", "number": "5", "has_pages": request.param}
    running = RunningCrawl(tmp_path, "FileSpider", settings, **arguments)
    wait_until(lambda: len(site.requests) == 2)
    running.process.send_signal(signal.SIGINT)
    wait_until(lambda: "Closing spider (shutdown)" in running.log)
    site.is_open.set()
    yield running
    running.process.kill()
    running.process.wait()


def test_files_are_stored_after_the_crawl_is_stopped(
    client: Client, stopped_crawl: RunningCrawl
) -> None:
    """It does not wait for the end: Scrapy 2.19 never ends if an item of start() is pending."""
    path = f"/v1/outputs/{GROUP}"
    wait_until(lambda: len(client.get(path).json().get("items", ())) == 5)
    assert [len(item["files"]) for item in client.items(GROUP)] == [1] * 5
    assert "Dropped" not in stopped_crawl.log
    assert "ERROR" not in stopped_crawl.log


@pytest.mark.extended
def test_an_item_without_its_files_replaces_nothing_if_the_crawl_ends_in_an_outage(
    service: Service, client: Client, site: FileSite, gate: Forwarder, tmp_path: Path
) -> None:
    url = f"{site.url}/{{number}}"
    scrape(service, client, tmp_path, url.format(number=1))
    site.content = b"second"
    settings = settings_of(
        service,
        client,
        GLEANERY_URL=f"http://127.0.0.1:{gate.port}",
        GLEANERY_CLOSE_SECONDS=0,
        CONCURRENT_REQUESTS=2,
    )
    gate.stop()
    running = RunningCrawl(tmp_path, "FileSpider", settings, urls=url, number="5")
    wait_until(lambda: "wait until Gleanery responds" in running.log)
    running.process.send_signal(signal.SIGINT)
    wait_until(lambda: running.log.count("Dropped") == 5)
    gate.start()
    done = running.wait()
    assert done.stats["item_dropped_count"] == 5
    assert done.stats["finish_reason"] == "shutdown"
    assert files_of(client) == [("files[0]", checksum(b"first"))]


@pytest.mark.extended
def test_an_item_is_dropped_if_the_token_cannot_store_its_files(
    service: Service, site: FileSite, tmp_path: Path
) -> None:
    client = service.client(organization="files")
    scrape(service, client, tmp_path, f"{site.url}/a")
    writer = service.client(organization="files", scopes=frozenset({"outputs:write"}))
    done = scrape(service, writer, tmp_path, f"{site.url}/a")
    assert done.stats["item_dropped_count"] == 1
    assert "outputs:read" in done.log
    assert files_of(client) == [("files[0]", checksum(b"first"))]
