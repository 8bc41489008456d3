"""Measurement of Scrapy: the same spider with the item pipeline and with a JSON Lines feed."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from functools import partial
from pathlib import Path

from bench import servers
from bench.deployments import Service
from bench.environment import Environment
from bench.load_generator import LOAD_CORE, NotMeasured, pin_to_core
from bench.measurement import Comparison
from bench.results import at_least

PAGES = 100
ITEMS_PER_PAGE = 300
_SPIDER = Path(__file__).parent / "scrapy_spider.py"
_PIPELINE, _FEED = "pipeline", "feed"
_LABEL = "Scrapy with the item pipeline: ratio to a JSON Lines feed"
_CLOCKS = {"seconds": _LABEL, "processor_seconds": f"{_LABEL}, processor time of Scrapy"}
"""Stats that a round is divided by. Other work on the machine disturbs the second one less."""


def measure(environment: Environment) -> None:
    folder = environment.new_folder("scrapy")
    (folder / "index.html").write_text(_page())
    port = servers.free_port()
    site = f"http://127.0.0.1:{port}/"
    command = [sys.executable, "-m", "http.server", "-b", "127.0.0.1", "-d", str(folder), str(port)]
    feed = {"FEEDS": json.dumps({str(folder / "items.jsonl"): {"format": "jsonlines"}})}
    groups = itertools.count()
    with (
        servers.run_server(command, site),
        environment.new_deployment("scrapy").serve() as service,
    ):
        for clock, label in _CLOCKS.items():

            def with_pipeline(clock: str = clock) -> float:
                # every round stores new outputs, which costs the service most
                options = _pipeline_options(service, f"round-{next(groups)}")
                return _rate(site, folder, options, "gleanery/created", clock)

            with_feed = partial(_rate, site, folder, feed, "item_scraped_count", clock)
            comparison = Comparison({_PIPELINE: with_pipeline, _FEED: with_feed}).run()
            suffix = f" (items per second, of {PAGES * ITEMS_PER_PAGE:,})"
            environment.report.add_ratio(label, at_least(0.9), comparison, _PIPELINE, _FEED, suffix)


def _pipeline_options(service: Service, group: str) -> dict[str, str]:
    return {
        "ADDONS": json.dumps({"gleanery.integrations.scrapy.Addon": 500}),
        "GLEANERY_URL": service.url,
        "GLEANERY_TOKEN": service.token,
        "GLEANERY_GROUP": group,
    }


def _page() -> str:
    return "".join(
        f'<li><a href="/p/{number}">Product {number}</a><b>{number / 4:.2f}</b></li>'
        for number in range(ITEMS_PER_PAGE)
    )


def _rate(site: str, folder: Path, options: dict[str, str], counted: str, clock: str) -> float:
    """Return the items per second of one run, from its start until everything is stored."""
    stats = folder / "stats.json"
    stats.unlink(missing_ok=True)
    pairs = [part for name, value in options.items() for part in ("-s", f"{name}={value}")]
    spider = ["-a", f"site={site}", "-a", f"pages={PAGES}", "-a", f"stats={stats}"]
    command = [sys.executable, "-m", "scrapy", "runspider", str(_SPIDER), *spider, *pairs]
    run = subprocess.run(
        pin_to_core(LOAD_CORE, *command), cwd=folder, capture_output=True, text=True, check=False
    )
    if not stats.exists():
        raise NotMeasured(f"scrapy: {' '.join(run.stderr.split())[-200:]}")
    found = json.loads(stats.read_text())
    if found.get(counted) != PAGES * ITEMS_PER_PAGE:
        raise NotMeasured(f"scrapy: {found.get(counted)} of {PAGES * ITEMS_PER_PAGE} items")
    return PAGES * ITEMS_PER_PAGE / float(found[clock])
