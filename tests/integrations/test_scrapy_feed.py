"""Scrapy's feed exports into a group: ``gleanery://group/job``."""

from __future__ import annotations

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


@pytest.mark.parametrize("reactor", [ASYNCIO, SELECT], ids=["asyncio", "select"])
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


def test_invalid_items_are_logged_and_the_feed_is_kept(
    service: Service, client: Client, tmp_path: Path
) -> None:
    done = crawl(tmp_path, "ItemSpider", settings_of(service, client), invalid=2)
    assert done.stats[f"feedexport/failed_count/{STORAGE}"] == 1
    assert done.stats["gleanery/feed_created"] == 5
    assert done.stats["gleanery/feed_invalid"] == 2
    assert "item 5: url is missing" in done.log
    [path] = kept(tmp_path)
    assert len(path.read_text().splitlines()) == 7
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.extended
def test_a_feed_that_cannot_be_sent_is_kept_and_can_be_sent_later(
    service: Service, client: Client, tmp_path: Path
) -> None:
    settings = settings_of(service, client, GLEANERY_MAX_RETRIES=0)
    done = crawl(tmp_path, "ItemSpider", {**settings, "GLEANERY_URL": "http://127.0.0.1:9"})
    assert done.stats[f"feedexport/failed_count/{STORAGE}"] == 1
    assert client.token not in done.log
    [path] = kept(tmp_path)
    found = re.search(r"store it with: gleanery (.*)$", done.log, re.MULTILINE)
    assert found is not None
    arguments = shlex.split(found[1])
    arguments[arguments.index(next(one for one in arguments if one.endswith(".jsonl")))] = str(path)
    sent = gleanery_in_process(
        *arguments, GLEANERY_URL=service.url, GLEANERY_TOKEN=str(client.token)
    )
    assert sent.returncode == 0, sent.stderr
    again = crawl(tmp_path, "ItemSpider", settings)
    assert again.stats["gleanery/feed_unchanged"] == 5


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
