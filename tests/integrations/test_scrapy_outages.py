"""Nothing is lost if the service is down or killed during a crawl, or if the crawl is stopped."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.forwarder import Forwarder
from tests.support.process import Running, free_port, new_token
from tests.support.scrapy_runs import Project
from tests.support.service import Client, Service
from tests.support.waiting import wait_until

pytestmark = pytest.mark.thorough

_SLOW = """
    custom_settings = {"CONCURRENT_REQUESTS": 1}

    async def start(self):
        for page in range(int(self.pages)):
            yield scrapy.Request(f"data:,{page}", cb_kwargs={"page": page}, dont_filter=True)

    async def parse(self, response, page):
        import asyncio
        await asyncio.sleep(float(getattr(self, "seconds", 0)))
        for number in range(page * 50, page * 50 + 50):
            yield {"url": f"https://shop.example/{number}", "value": getattr(self, "value", "")}
        Path("page.tmp").write_text(str(page))
        Path("page.tmp").replace("page")  # the test never reads an empty file
"""
_FAST = {"GLEANERY_BATCH_SIZE": 100, "GLEANERY_BATCH_SECONDS": 0.2, "GLEANERY_MAX_RETRIES": 1}


@pytest.fixture
def gate(service: Service) -> Iterator[Forwarder]:
    """A connection to the service that a test interrupts."""
    port = int(service.url.rsplit(":", 1)[1])
    made = Forwarder(("127.0.0.1", port))
    made.start()
    yield made
    made.stop()


@pytest.fixture
def project(tmp_path: Path, gate: Forwarder, client: Client) -> Project:
    url = f"http://127.0.0.1:{gate.port}"
    return Project(tmp_path / "project", url, client.token, **_FAST)


def values(client: Client) -> dict[str, Any]:
    return {item["source_url"]: item["data"]["value"] for item in client.items("items", limit=1000)}


def urls(count: int) -> set[str]:
    return {f"https://shop.example/{number}" for number in range(count)}


def wait_for_page(project: Project, page: int) -> None:
    path = project.folder / "page"
    wait_until(lambda: path.exists() and int(path.read_text()) >= page, 60)


def test_a_crawl_goes_on_while_the_service_is_down(
    project: Project, client: Client, gate: Forwarder
) -> None:
    process = project.start(_SLOW, "-a", "pages=60", "-a", "seconds=0.1", GLEANERY_CLOSE_SECONDS=60)
    wait_for_page(project, 5)
    gate.stop()
    wait_until(project.spooled, 60)
    page = int((project.folder / "page").read_text())
    wait_for_page(project, min(page + 10, 59))  # the crawl continues
    gate.start()
    run = project.finish(process)
    assert run.stats["finish_reason"] == "finished"
    assert run.count("created") + run.count("unchanged") >= 3000
    assert run.count("spooled") == run.count("sent_from_spool") > 0
    assert run.log.count("Gleanery does not store items") >= 1
    assert "Gleanery responds again" in run.log
    assert values(client).keys() == urls(3000)
    assert not project.spooled()


def test_the_next_run_sends_first_what_an_earlier_one_could_not_send(
    project: Project, client: Client, gate: Forwarder
) -> None:
    gate.stop()
    run = project.run(_SLOW, "-a", "pages=4", "-a", "value=old")
    assert (run.count("spooled"), run.count("created")) == (200, 0)
    assert run.count("left_in_spool") == 200
    assert "200 items could not be sent: " in run.log
    assert "The next run of this spider begins with them" in run.log
    assert project.spooled()
    gate.start()
    again = project.run(_SLOW, "-a", "pages=2", "-a", "value=new")
    assert (again.count("sent_from_spool"), again.count("created")) == (200, 200), again.log
    assert (again.count("updated"), again.count("left_in_spool")) == (100, 0)
    assert values(client) == {url: "new" if url in urls(100) else "old" for url in urls(200)}
    assert not project.spooled()
    assert list(project.folder.glob(".scrapy/gleanery/*")) == []


def test_a_clock_that_is_behind_loses_nothing(
    project: Project, client: Client, gate: Forwarder
) -> None:
    """What an earlier run has scraped is stored, whatever the time of its computer was."""
    older = [
        {"job_id": "shop", "source_url": url, "data": {"url": url, "value": "older"}}
        for url in sorted(urls(50))
    ]
    client.store("items", *older)
    gate.stop()
    project.run(_SLOW, "-a", "pages=2", "-a", "value=newer")
    [batch] = project.spooled()
    batch.rename(batch.with_name(f"{int(batch.stem) - 300 * 10**9:020}.jsonl"))
    gate.start()
    run = project.run(_SLOW, "-a", "pages=0")
    assert (run.count("updated"), run.count("created")) == (50, 50), run.log
    assert values(client) == dict.fromkeys(urls(100), "newer")


def test_a_spider_that_is_stopped_by_force_keeps_its_items(
    project: Project, client: Client, gate: Forwarder
) -> None:
    gate.freeze()
    process = project.start(
        _SLOW, "-a", "pages=400", "-a", "seconds=0.05", GLEANERY_BATCH_SECONDS=0.1
    )
    wait_for_page(project, 10)
    process.send_signal(signal.SIGINT)
    time.sleep(1)
    page = int((project.folder / "page").read_text())
    process.send_signal(signal.SIGINT)
    process.wait(60)
    assert project.spooled()
    lines = [line for path in project.spooled() for line in path.read_bytes().splitlines()]
    stored = {json.loads(line)["source_url"] for line in lines}
    assert stored >= urls(page * 50)


def test_a_service_that_does_not_respond_holds_back_the_spider(
    project: Project, client: Client, gate: Forwarder
) -> None:
    gate.freeze()
    process = project.start(_SLOW, "-a", "pages=100")
    wait_for_page(project, 10)
    last = -1
    while (page := int((project.folder / "page").read_text())) > last:
        last = page
        time.sleep(2)
    assert last < 25  # 8 batches of 100 items in memory, and some in Scrapy
    gate.thaw()
    run = project.finish(process)
    assert (run.count("created"), run.count("spooled")) == (5000, 0), run.log


def start_service(data: Path, port: int) -> Running:
    running = Running("serve", "--data", str(data), "--port", str(port))
    running.wait_ready(f"http://127.0.0.1:{port}")
    return running


@pytest.mark.parametrize("seconds", [0, 30])
def test_nothing_is_lost_when_the_service_is_killed(tmp_path: Path, seconds: int) -> None:
    port, data = free_port(), tmp_path / "data"
    running = start_service(data, port)
    token = new_token(["--data", str(data)])
    url = f"http://127.0.0.1:{port}"
    project = Project(tmp_path / "project", url, token, GLEANERY_BATCH_SECONDS=0.2)
    process = project.start(
        _SLOW, "-a", "pages=100", "-a", "seconds=0.1", GLEANERY_CLOSE_SECONDS=60
    )
    wait_for_page(project, 10)
    running.stop(signal.SIGKILL)
    time.sleep(seconds)
    with start_service(data, port), Client(url, token) as client:
        run = project.finish(process)
        assert values(client).keys() == urls(5000), run.log
    assert run.stats["finish_reason"] == "finished"
    assert not project.spooled()


def test_a_revoked_token_keeps_the_items(project: Project, client: Client) -> None:
    run = project.run(_SLOW, "-a", "pages=3", GLEANERY_TOKEN="unknown", GLEANERY_CLOSE_SECONDS=60)
    assert run.count("spooled") == 150
    assert "ERROR: Gleanery does not store items: " in run.log
    assert project.run(_SLOW, "-a", "pages=0").count("created") == 150
    assert values(client).keys() == urls(150)


def test_two_runs_at_once_have_spools_of_their_own(
    project: Project, client: Client, gate: Forwarder
) -> None:
    gate.stop()
    processes: list[subprocess.Popen[bytes]] = [
        project.start(_SLOW, "-a", "pages=8", "-a", "seconds=0.2") for _ in range(2)
    ]
    for process in processes:
        project.finish(process)
    assert len({path.parent for path in project.spooled()}) == 2
    gate.start()
    run = project.run(_SLOW, "-a", "pages=0")
    assert run.count("sent_from_spool") == 800
    assert values(client).keys() == urls(400)
