"""Crawls: Scrapy in a process of its own, with its statistics and its log."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.process import environment
from tests.support.waiting import TIMEOUT_SECONDS

SPIDERS = "tests.support.shop_spider"
ASYNCIO = "twisted.internet.asyncioreactor.AsyncioSelectorReactor"
SELECT = "twisted.internet.selectreactor.SelectReactor"
ADDONS = {"gleanery.integrations.scrapy.Addon": 500}
_ROOT = Path(__file__).parents[2]
_PROGRAM = """
import json, sys
from importlib import import_module
from scrapy.crawler import CrawlerProcess

given = json.loads(sys.argv[1])
process = CrawlerProcess(given["settings"])
spider = getattr(import_module(given["module"]), given["spider"])
crawler = process.create_crawler(spider)
process.crawl(crawler, **given["arguments"])
process.start()
with open(given["stats"], "w") as file:
    json.dump(crawler.stats.get_stats(), file, default=str)
"""


class Crawl(NamedTuple):
    """Statistics and log of a crawl that has ended."""

    stats: dict[str, Any]
    log: str


class RunningCrawl:
    """Crawl that may have not ended."""

    def __init__(
        self, folder: Path, spider: str, settings: dict[str, Any], **arguments: Any
    ) -> None:
        self._stats = folder / "stats.json"
        self._stats.unlink(missing_ok=True)
        self._log = folder / "crawl.log"
        given = {
            "module": SPIDERS,
            "spider": spider,
            "stats": str(self._stats),
            "arguments": arguments,
            "settings": {"ADDONS": ADDONS, "TELNETCONSOLE_ENABLED": False, **settings},
        }
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, json.dumps(given)],
                stdout=log,
                stderr=log,
                cwd=folder,
                env=environment(PYTHONPATH=f"{_ROOT / 'src'}:{_ROOT}"),
            )

    @property
    def log(self) -> str:
        return self._log.read_text()

    def wait(self) -> Crawl:
        """Wait until it has ended."""
        try:
            self.process.wait(TIMEOUT_SECONDS * 2)
        finally:
            self.process.kill()
        assert self._stats.exists(), self.log
        return Crawl(json.loads(self._stats.read_text()), self.log)


def crawl(folder: Path, spider: str, settings: dict[str, Any], **arguments: Any) -> Crawl:
    """Run a crawl until it has ended."""
    return RunningCrawl(folder, spider, settings, **arguments).wait()
