"""Runs of Scrapy in a process of its own, and the stats of each run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.process import environment

ADDON = {"gleanery.integrations.scrapy.Addon": 500}
_WAIT_SECONDS = 180
_MODULES = os.pathsep.join(
    filter(None, [str(Path(__file__).parent.parent.parent), os.environ.get("PYTHONPATH")])
)
_HEADER = """
from pathlib import Path
import scrapy

class Base(scrapy.Spider):
    name = "shop"
    start_urls = ["data:,"]  # a response without a network

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
        self.log = folder / "log"
        folder.mkdir(parents=True, exist_ok=True)
        self.settings: dict[str, Any] = {
            "ADDONS": ADDON,
            "GLEANERY_URL": url,
            "GLEANERY_TOKEN": token,
            "GLEANERY_GROUP": "items",
            "GLEANERY_CLOSE_SECONDS": 0,
            "TELNETCONSOLE_ENABLED": False,
            "LOG_LEVEL": "INFO",
            "STATS_CLASS": "tests.support.scrapy_stats.WrittenStats",
            **settings,
        }

    def start(self, spider: str, *arguments: str, **settings: Any) -> subprocess.Popen[bytes]:
        """Start a spider: a path, or the body of a class."""
        path = self.folder / "spider.py"
        if spider.endswith(".py"):
            path = Path(spider)
        else:
            path.write_text(f"{_HEADER}class Shop(Base):\n{spider}")
        (self.folder / "stats.json").unlink(missing_ok=True)
        options = [f"{name}={_as_text(v)}" for name, v in {**self.settings, **settings}.items()]
        pairs = [part for option in options for part in ("-s", option)]
        command = [sys.executable, "-m", "scrapy", "runspider", str(path), *pairs, *arguments]
        # not to a pipe: one that nobody reads stops the spider
        with self.log.open("wb") as log:
            return subprocess.Popen(
                command, cwd=self.folder, env=environment(PYTHONPATH=_MODULES), stderr=log
            )

    def finish(self, process: subprocess.Popen[bytes]) -> Run:
        """Wait for the end of a run."""
        try:
            process.wait(timeout=_WAIT_SECONDS)
        finally:
            process.kill()
        stats = self.folder / "stats.json"
        return Run(json.loads(stats.read_text()) if stats.exists() else {}, self.log.read_text())

    def run(self, spider: str, *arguments: str, **settings: Any) -> Run:
        return self.finish(self.start(spider, *arguments, **settings))

    def spooled(self) -> list[Path]:
        """Return the batches on disk."""
        return sorted(self.folder.glob(".scrapy/gleanery/*/*/*.jsonl"))


def _as_text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value)
