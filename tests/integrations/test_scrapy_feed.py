"""Scrapy's feed exports into a group: ``gleanery://group/job``."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from scrapy.exceptions import NotConfigured
from scrapy.settings import Settings

from gleanery.integrations.scrapy.feed import GleaneryFeedStorage
from tests.support.crawls import ASYNCIO, SELECT, SPIDERS, crawl
from tests.support.forwarder import Forwarder
from tests.support.process import environment, gleanery_in_process
from tests.support.service import Client, Service
from tests.support.shop_spider import ItemSpider

pytestmark = pytest.mark.thorough

URI = "gleanery://Shop%20prices/shop.example"
STORAGE = "GleaneryFeedStorage"


def settings_of(service: Service, client: Client, **more: Any) -> dict[str, Any]:
    return {
        "GLEANERY_URL": service.url,
        "GLEANERY_TOKEN": client.token,
        "FEEDS": {URI: {"format": "jsonlines"}},
        **more,
    }


def kept(folder: Path) -> list[Path]:
    return list(folder.glob(".scrapy/gleanery/feeds/*"))


@pytest.mark.parametrize(
    "reactor",
    [ASYNCIO, pytest.param(SELECT, marks=pytest.mark.extended)],
    ids=["asyncio", "select"],
)
def test_a_feed_is_stored(service: Service, client: Client, tmp_path: Path, reactor: str) -> None:
    settings = settings_of(service, client, TWISTED_REACTOR=reactor)
    done = crawl(tmp_path, "ItemSpider", settings, number=2500)
    assert done.stats[f"feedexport/success_count/{STORAGE}"] == 1
    assert done.stats["gleanery/feed_created"] == 2500
    items = client.items("Shop prices", limit=1000)
    assert len(items) == 2500
    assert {item["root_job_id"] for item in items} == {"shop.example"}
    assert items[3]["data"] == {"url": "https://shop.example/3", "sku": "é3", "price": 3}
    assert kept(tmp_path) == []
    again = crawl(tmp_path, "ItemSpider", settings, number=2500)
    assert again.stats["gleanery/feed_unchanged"] == 2500


@pytest.mark.extended
def test_keys_are_those_of_the_item_pipeline(
    service: Service, client: Client, tmp_path: Path
) -> None:
    settings = settings_of(service, client, GLEANERY_KEY_FIELDS=["sku"])
    crawl(tmp_path, "ItemSpider", settings)
    both = {**settings, "FEEDS": {}, "GLEANERY_GROUP": "Shop prices"}
    done = crawl(tmp_path, "ItemSpider", {**both, "GLEANERY_JOB": "shop.example"})
    assert done.stats["gleanery/unchanged"] == 5


def test_items_that_are_no_outputs_are_logged_and_kept(
    service: Service, client: Client, tmp_path: Path
) -> None:
    done = crawl(tmp_path, "ItemSpider", settings_of(service, client), invalid=2)
    assert done.stats[f"feedexport/failed_count/{STORAGE}"] == 1
    assert done.stats["gleanery/feed_created"] == 5
    assert done.stats["gleanery/feed_invalid"] == 2
    assert "invalid item: url is missing" in done.log
    assert kept(tmp_path) == []
    [path] = tmp_path.glob(".scrapy/gleanery/invalid/*")
    assert str(path.relative_to(tmp_path)) in done.log
    assert [json.loads(line) for line in path.open()] == [{"sku": "x0"}, {"sku": "x1"}]
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.extended
def test_the_advised_command_stores_what_was_rejected(
    service: Service, client: Client, tmp_path: Path
) -> None:
    rules = {"key_fields": ["sku"], "schema": {"properties": {"price": {"maximum": 2}}}}
    client.put("/v1/groups/Shop%20prices", json=rules)
    settings = settings_of(service, client, GLEANERY_KEY_FIELDS=["sku"])
    done = crawl(tmp_path, "ItemSpider", settings)
    assert done.stats["gleanery/feed_created"] == 3
    assert "invalid item: data.price: " in done.log
    client.put("/v1/groups/Shop%20prices", json={"key_fields": ["sku"]})
    found = re.search(r"store them with: gleanery (.*)$", done.log, re.MULTILINE)
    assert found is not None
    group, path = shlex.split(found[1])[1:]
    sent = gleanery_in_process(
        *("push", group, str(tmp_path / path)),
        GLEANERY_URL=service.url,
        GLEANERY_TOKEN=str(client.token),
    )
    assert sent.returncode == 0, sent.stderr
    again = crawl(tmp_path, "ItemSpider", settings)
    assert again.stats["gleanery/feed_unchanged"] == 5


@pytest.mark.extended
def test_the_next_run_sends_a_feed_that_could_not_be_sent(
    service: Service, client: Client, tmp_path: Path
) -> None:
    """The group has the key field, which the first run could not know."""
    client.put("/v1/groups/Shop%20prices", json={"key_fields": ["sku"]})
    settings = settings_of(service, client, GLEANERY_MAX_RETRIES=0, GLEANERY_KEY_FIELDS="sku")
    gate = Forwarder(("127.0.0.1", int(service.url.rsplit(":", 1)[1])))
    settings["GLEANERY_URL"] = f"http://127.0.0.1:{gate.port}"
    done = crawl(tmp_path, "ItemSpider", settings)
    assert done.stats[f"feedexport/failed_count/{STORAGE}"] == 1
    assert client.token not in done.log
    assert "the next run with this group and job sends them first" in done.log
    assert kept(tmp_path) == []
    gate.start()
    again = crawl(tmp_path, "ItemSpider", settings, number=2)
    gate.stop()
    assert again.stats[f"feedexport/success_count/{STORAGE}"] == 1, again.log
    assert again.stats["gleanery/feed_created"] == 5
    assert again.stats["gleanery/feed_unchanged"] == 2
    assert len(client.items("Shop prices")) == 5
    assert list(tmp_path.glob(".scrapy/gleanery/*/*")) == []


@pytest.mark.extended
def test_the_command_line_of_scrapy(service: Service, client: Client, tmp_path: Path) -> None:
    (tmp_path / "spider.py").write_text(
        f"from {SPIDERS} import ItemSpider\nclass Mine(ItemSpider):\n  pass\n"
    )
    root = Path(__file__).parents[2]
    options = ["-s", 'ADDONS={"gleanery.integrations.scrapy.Addon": 500}']
    options += ["-O", "gleanery://prices/shop:jsonlines"]
    done = subprocess.run(
        [sys.executable, "-m", "scrapy", "runspider", "spider.py", *options],
        cwd=tmp_path,
        env=environment(
            PYTHONPATH=f"{root / 'src'}:{root}",
            GLEANERY_URL=service.url,
            GLEANERY_TOKEN=str(client.token),
        ),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert len(client.items("prices")) == 5, done.stderr


@pytest.mark.parametrize(
    ("uri", "options", "reason"),
    [
        (URI, {"format": "csv"}, "needs the format jsonlines"),
        ("gleanery:///shop", {"format": "jsonlines"}, "gleanery://GROUP/JOB"),
        (
            URI,
            {
                "format": "jsonlines",
                "postprocessing": ["scrapy.extensions.postprocessing.GzipPlugin"],
            },
            "remove postprocessing",
        ),
    ],
)
def test_a_wrong_feed_is_an_error(uri: str, options: dict[str, Any], reason: str) -> None:
    values = {"GLEANERY_URL": "http://127.0.0.1:9", "GLEANERY_TOKEN": "token"}
    crawler: Any = SimpleNamespace(settings=Settings(values), spider=ItemSpider(), stats=None)
    with pytest.raises(NotConfigured, match=reason):
        GleaneryFeedStorage.from_crawler(crawler, uri, feed_options=options)
