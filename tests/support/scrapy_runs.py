"""Runs of Scrapy in a process of its own, and the stats of each run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.process import environment

ADDON = {"gleanery.integrations.scrapy.Addon": 500}
_WAIT_SECONDS = 180
_HEADER = """
import json
from pathlib import Path
import scrapy

class Base(scrapy.Spider):
    name = "shop"
    start_urls = ["data:,"]  # a response without a network

    def closed(self, reason):
        stats = {"reason": reason, **self.crawler.stats.get_stats()}
        Path("stats.json").write_text(json.dumps(stats, default=str))

"""


class Run(NamedTuple):
    """Ended run of a spider."""

    stats: dict[str, Any]
    log: str

    def count(self, name: str) -> int:
        """Return a number that the integration has counted."""
        return int(self.stats.get(f"gleanery/{name}", 0))


class Project:
    """Folder with one spider, whose runs share their data folder."""

    def __init__(self, folder: Path, url: str, token: str | None, **settings: Any) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.settings: dict[str, Any] = {
            "ADDONS": ADDON,
            "GLEANERY_URL": url,
            "GLEANERY_TOKEN": token,
            "GLEANERY_GROUP": "items",
            "GLEANERY_CLOSE_SECONDS": 0,
            "TELNETCONSOLE_ENABLED": False,
            **settings,
        }

    def start(self, spider: str, *arguments: str, **settings: Any) -> subprocess.Popen[str]:
        """Start a spider: a path, or the body of a class."""
        path = self.folder / "spider.py"
        if spider.endswith(".py"):
            path = Path(spider)
        else:
            path.write_text(f"{_HEADER}class Shop(Base):\n{spider}")
        (self.folder / "stats.json").unlink(missing_ok=True)
        options = [f"{name}={_as_text(v)}" for name, v in {**self.settings, **settings}.items()]
        pairs = [part for option in options for part in ("-s", option)]
        return subprocess.Popen(
            [sys.executable, "-m", "scrapy", "runspider", str(path), *pairs, *arguments],
            cwd=self.folder,
            env=environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def finish(self, process: subprocess.Popen[str]) -> Run:
        """Wait for the end of a run."""
        try:
            _, log = process.communicate(timeout=_WAIT_SECONDS)
        finally:
            process.kill()
        stats = self.folder / "stats.json"
        return Run(json.loads(stats.read_text()) if stats.exists() else {}, log)

    def run(self, spider: str, *arguments: str, **settings: Any) -> Run:
        return self.finish(self.start(spider, *arguments, **settings))

    def spooled(self) -> list[Path]:
        """Return the batches on disk."""
        return sorted(self.folder.glob(".scrapy/gleanery/*/*/*.jsonl"))


def _as_text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value)
