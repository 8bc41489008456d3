"""The pipeline ends, and says why, if something around it fails: other components, the disk."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from tests.support.process import free_port
from tests.support.scrapy_runs import Project
from tests.support.waiting import wait_until

pytestmark = pytest.mark.thorough

_ONE_ITEM = """
    def parse(self, response):
        yield {"url": "https://shop.example/1"}
"""
_BROKEN_PIPELINE = """
    class Broken:
        def open_spider(self, spider=None):
            raise RuntimeError("the database of the project is not reachable")

        def process_item(self, item, spider=None):
            return item

    custom_settings = {"ITEM_PIPELINES": {Broken: 300}}
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project whose service does not run."""
    url = f"http://127.0.0.1:{free_port()}"
    return Project(tmp_path / "project", url, "token", GLEANERY_MAX_RETRIES=0)


def test_a_crawl_ends_if_another_pipeline_cannot_be_opened(project: Project) -> None:
    run = project.run(_BROKEN_PIPELINE + _ONE_ITEM)
    assert "RuntimeError: the database of the project is not reachable" in run.log


def test_a_crawl_ends_if_the_spool_cannot_be_opened(project: Project) -> None:
    project.run(_ONE_ITEM)
    [batch] = project.spooled()
    lock = batch.parent.with_name(f"{batch.parent.name}.lock")
    lock.unlink()
    lock.mkdir()  # it cannot be opened; permissions would not stop root
    run = project.run(_ONE_ITEM)
    assert "IsADirectoryError" in run.log
    assert str(lock.relative_to(project.folder)) in run.log


_ENDLESS = """
    def parse(self, response):
        for number in range(1000):
            Path("number").write_text(str(number))
            yield {"url": f"https://shop.example/{number}"}
"""


@pytest.mark.extended
def test_a_crawl_can_be_stopped_if_neither_the_service_nor_the_disk_takes_items(
    project: Project,
) -> None:
    (project.folder / "file").write_text("")
    process = project.start(
        _ENDLESS,
        GLEANERY_SPOOL=str(project.folder / "file" / "spool"),
        GLEANERY_BATCH_SIZE=10,
        GLEANERY_CLOSE_SECONDS=1,
    )
    wait_until(lambda: "Items cannot be written" in project.log.read_text(), 60)
    time.sleep(2)  # the spider waits
    yielded = int((project.folder / "number").read_text())
    assert yielded < 500
    process.send_signal(signal.SIGINT)
    run = project.finish(process)
    assert run.stats["finish_reason"] == "shutdown", run.log
    assert run.count("lost") == 1000
    assert "items are lost: neither Gleanery nor the disk takes items" in run.log
