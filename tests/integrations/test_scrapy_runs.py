"""A crawl of Scrapy is a run: complete if nothing went wrong, else partial or failed."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.file_site import running_file_site
from tests.support.forwarder import Forwarder
from tests.support.process import free_port, gleanery
from tests.support.scrapy_runs import Project
from tests.support.service import Client, Service
from tests.support.waiting import wait_until

pytestmark = pytest.mark.thorough

ON_SQLITE = pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
_ITEMS = """
    def parse(self, response):
        for number in range({count}):
            yield {{"url": f"https://shop.example/{{number}}", "number": number}}
"""
_PAGES = """
    custom_settings = {"CONCURRENT_REQUESTS": 1}

    async def start(self):
        for page in range(int(self.pages)):
            yield scrapy.Request(f"data:,{page}", cb_kwargs={"page": page})

    async def parse(self, response, page):
        import asyncio
        await asyncio.sleep(float(getattr(self, "seconds", 0)))
        if page == int(getattr(self, "broken", -1)):
            raise RuntimeError("another layout")
        yield {"url": f"https://shop.example/{page}"}
        Path("page.tmp").write_text(str(page))
        Path("page.tmp").replace("page")  # the test never reads an empty file
"""


@pytest.fixture
def project(tmp_path: Path, service: Service, client: Client) -> Project:
    return Project(tmp_path / "project", service.url, client.token, GLEANERY_BATCH_SECONDS=0.2)


@pytest.fixture
def gate(service: Service) -> Iterator[Forwarder]:
    """A connection to the service that a test interrupts."""
    port = int(service.url.rsplit(":", 1)[1])
    made = Forwarder(("127.0.0.1", port))
    made.start()
    yield made
    made.stop()


def items(count: int) -> str:
    return _ITEMS.format(count=count)


def runs(client: Client, group: str = "items") -> list[dict[str, Any]]:
    """Return the runs of a group, oldest first."""
    found: list[dict[str, Any]] = client.get(f"/v1/runs/{group}").json()["runs"]
    return found[::-1]


def last_run(client: Client) -> dict[str, Any]:
    return runs(client)[-1]


def wait_for_page(project: Project, page: int) -> None:
    path = project.folder / "page"
    wait_until(lambda: path.exists() and int(path.read_text()) >= page, 60)


@pytest.mark.parametrize(
    "reactor", ["asyncioreactor.AsyncioSelectorReactor", "selectreactor.SelectReactor"]
)
def test_a_crawl_without_problems_is_a_complete_run(
    project: Project, client: Client, reactor: str
) -> None:
    settings = {
        "GLEANERY_RUN_LABELS": {"country": "NO", "pages": 1},
        "TWISTED_REACTOR": f"twisted.internet.{reactor}",
    }
    log = project.run(items(3), **settings).log
    project.run(items(2), **settings)
    first, second = runs(client)
    assert (first["status"], first["message"], first["is_implicit"]) == ("complete", None, False)
    assert (first["job_id"], first["labels"]) == ("shop", {"country": "NO", "pages": "1"})
    assert first["counts"] | {"missing": 0} == first["counts"]
    assert (first["counts"]["created"], second["counts"]["unchanged"]) == (3, 2)
    assert (second["status"], second["counts"]["missing"]) == ("complete", 1)
    assert f"The run {first['run_id']} is complete" in log


@ON_SQLITE
def test_a_crawl_without_items_is_an_empty_run(project: Project, client: Client) -> None:
    project.run(items(0))
    run = last_run(client)
    assert (run["status"], set(run["counts"].values())) == ("complete", {0})


@ON_SQLITE
def test_runs_can_be_switched_off(project: Project, client: Client) -> None:
    project.run(items(2), GLEANERY_RUN=False)
    [run] = runs(client)
    assert (run["is_implicit"], run["status"], run["counts"]["created"]) == (True, "running", 2)


_PROBLEMS = """
    custom_settings = {{"RETRY_TIMES": 1, "RETRY_HTTP_CODES": []}}

    def parse(self, response):
        yield {{"url": "https://shop.example/1"}}
        yield {{"name": "no URL"}}
        yield {{"url": "https://shop.example/2", "price": 5}}
        for status in (503, 404, 410, 403):
            yield scrapy.Request(f"{site}/status/{{status}}", callback=self.parse_page)
        yield scrapy.Request("http://127.0.0.1:{port}/", callback=self.parse_page)
        yield scrapy.Request("data:,other", callback=self.parse_page)
        yield scrapy.Request("data:,other", callback=self.parse_page)  # a duplicate is no problem

    def parse_page(self, response):
        yield {{"url": "https://shop.example/3"}}
        raise RuntimeError("another layout")
"""


@ON_SQLITE
def test_the_message_of_a_partial_run_says_what_is_missing(
    project: Project, client: Client
) -> None:
    client.put("/v1/groups/items", json={"schema": {"properties": {"price": {"type": "string"}}}})
    with running_file_site() as site:
        log = project.run(_PROBLEMS.format(site=site.url, port=free_port())).log
    run = last_run(client)
    assert (run["status"], run["counts"]["created"]) == ("partial", 2), log
    assert run["message"] == "3 requests failed, 1 callback failed, 2 items were not stored", log
    assert run["counts"]["rejected"] == 1


@ON_SQLITE
def test_an_item_that_the_project_drops_is_no_problem(project: Project, client: Client) -> None:
    spider = """
    class Filter:
        def process_item(self, item, spider=None):
            from scrapy.exceptions import DropItem
            if item["number"] == 1:
                raise DropItem("not wanted")
            return item

    custom_settings = {"ITEM_PIPELINES": {Filter: 300}}
"""
    project.run(spider + items(3))
    run = last_run(client)
    assert (run["status"], run["counts"]["created"]) == ("complete", 2)


_MIDDLEWARE = """
    class Middleware:
        def process_request(self, request, spider=None):
            if request.url == "data:,request":
                raise {error}

        def process_response(self, request, response, spider=None):
            if request.url == "data:,again":
                return request.replace(url="data:,fine")
            if request.url == "data:,response":
                raise {error}
            return response

        def process_exception(self, request, exception, spider=None):
            if request.url == "data:,request":
                raise RuntimeError("of a handler of exceptions")

    custom_settings = {{"DOWNLOADER_MIDDLEWARES": {{Middleware: 543}}}}

    def parse(self, response):
        yield {{"url": "https://shop.example/1"}}
        for page in ("fine", "again", "response"{more}):
            yield scrapy.Request(f"data:,{{page}}", self.parse_page, errback=self.{errback})

    def parse_page(self, response):
        yield {{"url": response.url}}

    def ignore_error(self, failure):
        pass
"""


@pytest.mark.parametrize(
    ("error", "more", "message"),
    [
        ("RuntimeError()", ', "request"', "2 requests failed"),
        ("RuntimeError()", "", "1 request failed"),
        ("scrapy.exceptions.IgnoreRequest()", "", None),
    ],
)
@pytest.mark.parametrize("errback", ["ignore_error", "no_error"])
@ON_SQLITE
def test_an_error_of_a_middleware_is_a_failed_request(
    project: Project, client: Client, error: str, more: str, message: str | None, errback: str
) -> None:
    """A page that a middleware of the project ignores is left out on purpose."""
    spider = _MIDDLEWARE.format(error=error, more=more, errback=errback)
    log = project.run(f"{spider}\n    no_error = None\n").log
    run = last_run(client)
    assert (run["message"], run["counts"]["created"]) == (message, 2), log
    assert run["status"] == ("partial" if message else "complete")


@ON_SQLITE
def test_a_page_that_scrapy_gives_up_is_a_failed_request(project: Project, client: Client) -> None:
    """A page that robots.txt forbids is left out on purpose."""
    spider = """
    def parse(self, response):
        yield {{"url": "https://shop.example/1"}}
        yield scrapy.Request("{url}/status/302", self.parse_page, dont_filter=True)
        yield scrapy.Request("{url}/private", self.parse_page)
        yield scrapy.Request("{url}/page", self.parse_page)

    def parse_page(self, response):
        yield {{"url": response.url}}
"""
    with running_file_site() as site:
        site.headers = {"Location": "/status/302"}
        site.content = b"User-agent: *\nDisallow: /private"
        settings = {"ROBOTSTXT_OBEY": True, "REDIRECT_MAX_TIMES": 2}
        done = project.run(spider.format(url=site.url), **settings)
    run = last_run(client)
    assert (run["status"], run["message"]) == ("partial", "1 request failed"), done.log
    assert run["counts"]["created"] == 2
    assert done.stats["robotstxt/forbidden"] == 1


@pytest.mark.parametrize(
    ("start", "status", "message"),
    [
        ("raise RuntimeError('no such shop')\n        yield", "failed", "The spider failed at its"),
        ("yield {'url': 'u:1'}\n        raise RuntimeError('x')", "partial", "The spider failed"),
        (
            "from scrapy.exceptions import CloseSpider\n"
            "        yield {'url': 'u:1'}\n"
            "        raise CloseSpider('blocked')",
            "partial",
            "The spider was closed with the reason blocked",
        ),
    ],
)
@ON_SQLITE
def test_a_spider_that_fails_at_its_start_has_no_complete_run(
    project: Project, client: Client, start: str, status: str, message: str
) -> None:
    log = project.run(f"    async def start(self):\n        {start}\n").log
    run = last_run(client)
    assert run["status"] == status, log
    assert run["message"].startswith(message), log


@ON_SQLITE
def test_a_crawl_that_is_stopped_is_partial(project: Project, client: Client) -> None:
    process = project.start(_PAGES, "-a", "pages=1000", "-a", "seconds=0.1")
    wait_for_page(project, 3)
    process.send_signal(signal.SIGINT)
    project.finish(process)
    run = last_run(client)
    assert (run["status"], run["message"]) == ("partial", "The crawl was stopped")
    assert run["counts"]["created"] >= 3


@ON_SQLITE
def test_a_killed_crawl_leaves_a_running_run(project: Project, client: Client) -> None:
    process = project.start(_PAGES, "-a", "pages=1000", "-a", "seconds=0.1")
    wait_until(lambda: client.items("items") if runs_exist(client) else None, 60)
    process.kill()
    project.finish(process)
    [run] = runs(client)
    assert (run["status"], run["is_implicit"]) == ("running", False)


def runs_exist(client: Client) -> bool:
    response = client.get("/v1/runs/items")
    return bool(response.status_code == 200 and response.json()["runs"])


# --- items that are sent later ------------------------------------------------------------------


@ON_SQLITE
def test_items_of_the_spool_belong_to_the_run_if_it_goes_on(
    project: Project, client: Client, gate: Forwarder
) -> None:
    project.settings["GLEANERY_URL"] = f"http://127.0.0.1:{gate.port}"
    options = {"GLEANERY_MAX_RETRIES": 0, "GLEANERY_CLOSE_SECONDS": 60}
    process = project.start(_PAGES, "-a", "pages=60", "-a", "seconds=0.1", **options)
    wait_for_page(project, 5)
    gate.stop()
    wait_until(project.spooled, 60)
    gate.start()
    log = project.finish(process).log
    [run] = runs(client)
    assert (run["status"], run["message"]) == ("complete", None), log
    assert run["counts"]["created"] + run["counts"]["unchanged"] == 60


def make_unreadable(path: Path) -> None:
    """Put a folder in the place of a file; permissions would not stop root."""
    path.unlink()
    path.mkdir()


@ON_SQLITE
def test_a_crawl_whose_items_on_disk_cannot_be_read_is_partial(
    project: Project, client: Client, gate: Forwarder
) -> None:
    project.settings["GLEANERY_URL"] = f"http://127.0.0.1:{gate.port}"
    options = {"GLEANERY_MAX_RETRIES": 0, "GLEANERY_CLOSE_SECONDS": 60, "GLEANERY_BATCH_SIZE": 1}
    process = project.start(_PAGES, "-a", "pages=60", "-a", "seconds=0.1", **options)
    wait_for_page(project, 5)
    gate.stop()
    wait_until(lambda: len(project.spooled()) > 3, 60)
    make_unreadable(project.spooled()[2])
    gate.start()
    done = project.finish(process)
    [run] = runs(client)
    assert (run["status"], run["message"]) == ("partial", "1 item was not stored"), done.log
    assert run["counts"]["created"] == 59
    assert done.count("lost") == 1


@ON_SQLITE
def test_a_feed_whose_items_on_disk_cannot_be_read_is_partial(
    project: Project, client: Client, gate: Forwarder
) -> None:
    gate.stop()
    process = project.start(
        items(6),
        *("-O", "gleanery://fed/daily:jsonlines"),
        GLEANERY_URL=f"http://127.0.0.1:{gate.port}",
        GLEANERY_GROUP="",
        ITEM_PIPELINES={},
        GLEANERY_BATCH_SIZE=2,
        GLEANERY_MAX_RETRIES=30,
    )
    wait_until(lambda: len(project.spooled()) == 3, 60)
    make_unreadable(project.spooled()[1])
    gate.start()
    log = project.finish(process).log
    [run] = runs(client, "fed")
    assert (run["status"], run["message"]) == ("partial", "2 items were not stored"), log
    assert run["counts"]["created"] == 4
    [kept] = project.folder.glob(".scrapy/gleanery/feeds/*.jsonl")
    place = kept.relative_to(project.folder)
    assert f"2 items are in a file that cannot be read. The feed is kept in {place}" in log
    assert len(kept.read_text().splitlines()) == 6


@ON_SQLITE
def test_items_of_an_earlier_crawl_belong_to_the_implicit_run(
    project: Project, client: Client, gate: Forwarder
) -> None:
    """The first crawl cannot finish its run: the service is away. The second one is complete."""
    url = f"http://127.0.0.1:{gate.port}"
    process = project.start(
        _PAGES, "-a", "pages=40", "-a", "seconds=0.1", GLEANERY_URL=url, GLEANERY_MAX_RETRIES=0
    )
    wait_until(lambda: runs_exist(client), 60)
    gate.stop()
    log = project.finish(process).log
    assert "is not finished, and will be abandoned" in log
    gate.start()
    again = project.run(_PAGES, "-a", "pages=10", GLEANERY_URL=url)
    assert again.count("sent_from_spool") > 0, again.log
    by_kind = {(run["is_implicit"], run["status"]): run["counts"] for run in runs(client)}
    assert by_kind.keys() == {(False, "running"), (True, "running"), (False, "complete")}
    complete = by_kind[False, "complete"]
    assert sum(complete[name] for name in ("created", "updated", "unchanged")) == 10
    assert complete["missing"] == 30  # what only the first crawl has sent
    assert by_kind[True, "running"]["created"] == again.count("sent_from_spool")


@ON_SQLITE
def test_items_are_stored_if_the_run_has_ended(project: Project, client: Client) -> None:
    process = project.start(_PAGES, "-a", "pages=60", "-a", "seconds=0.1")
    wait_until(lambda: runs_exist(client), 60)
    [run] = runs(client)
    finished = client.post(
        f"/v1/runs/items/{run['run_id']}/finish", json={"status": "failed", "message": "by hand"}
    )
    assert finished.status_code == 200
    done = project.finish(process)
    assert len(client.items("items")) == 60, done.log
    assert f"Items are stored without the run {run['run_id']}" in done.log
    ended, implicit = runs(client)
    assert (ended["status"], ended["message"]) == ("failed", "by hand")
    assert implicit["is_implicit"]


# --- crawls in several parts --------------------------------------------------------------------


def start_part(project: Project, *arguments: str) -> Any:
    (project.folder / "page").unlink(missing_ok=True)
    part = ("-a", "pages=30", "-a", "seconds=0.1", "-s", "JOBDIR=job", *arguments)
    return project.start(_PAGES, *part)


@pytest.mark.parametrize("broken", ["-1", "2"])
@ON_SQLITE
def test_a_crawl_in_two_parts_is_one_run(project: Project, client: Client, broken: str) -> None:
    process = start_part(project, "-a", f"broken={broken}")
    wait_for_page(project, 5)
    process.send_signal(signal.SIGINT)
    first = project.finish(process)
    [run] = runs(client)
    assert run["status"] == "running"
    assert f"The run {run['run_id']} goes on with the next crawl in JOBDIR" in first.log
    second = project.finish(start_part(project))
    [run] = runs(client)
    expected = ("complete", None, 30) if broken == "-1" else ("partial", "1 callback failed", 29)
    assert (run["status"], run["message"], run["counts"]["created"]) == expected, second.log


@ON_SQLITE
def test_the_rest_of_a_crawl_whose_run_has_ended_is_not_complete(
    project: Project, client: Client
) -> None:
    process = start_part(project)
    wait_for_page(project, 5)
    process.send_signal(signal.SIGINT)
    project.finish(process)
    [run] = runs(client)
    client.post(f"/v1/runs/items/{run['run_id']}/finish", json={"status": "partial"})
    project.finish(start_part(project))
    _, second = runs(client)
    assert (second["status"], second["counts"]["missing"]) == ("partial", 0)
    assert second["message"] == "The crawl continues an earlier one, whose run has ended"
    assert len(client.items("items")) == 30
    project.finish(start_part(project))  # nothing is left to do in this folder
    third = last_run(client)
    assert third["status"] == "failed"
    assert third["message"] == second["message"]


@ON_SQLITE
def test_a_crawl_that_continues_after_a_kill_is_partial(project: Project, client: Client) -> None:
    """Scrapy loses the requests that were in progress."""
    process = start_part(project)
    wait_for_page(project, 5)
    process.kill()
    project.finish(process)
    project.finish(start_part(project))
    [run] = runs(client)
    assert run["status"] == "partial"
    assert run["message"].startswith("An earlier part of the crawl was killed")


# --- feeds, and runs of others ------------------------------------------------------------------


@ON_SQLITE
def test_a_feed_is_a_run(project: Project, client: Client) -> None:
    feed = ("-O", "gleanery://fed/daily:jsonlines")
    spider = items(3) + "        yield {'name': 'no URL'}\n"
    project.run(items(3), *feed, GLEANERY_GROUP="", ITEM_PIPELINES={})
    project.run(items(0), *feed, GLEANERY_GROUP="", ITEM_PIPELINES={})
    project.run(spider, *feed, GLEANERY_GROUP="", ITEM_PIPELINES={})
    first, empty, last = runs(client, "fed")
    assert (first["job_id"], first["status"], first["counts"]["created"]) == (
        "daily",
        "complete",
        3,
    )
    assert (empty["status"], empty["counts"]["missing"]) == ("complete", 3)
    assert (last["status"], last["message"]) == ("partial", "1 item was not stored")


@pytest.mark.parametrize(
    "reactor", ["asyncioreactor.AsyncioSelectorReactor", "selectreactor.SelectReactor"]
)
@ON_SQLITE
def test_an_empty_feed_that_scrapy_does_not_store_is_a_run(
    project: Project, client: Client, reactor: str
) -> None:
    settings = {
        "GLEANERY_GROUP": "",
        "ITEM_PIPELINES": {},
        "FEED_STORE_EMPTY": False,
        "GLEANERY_KEY_FIELDS": "number,country",
        "TWISTED_REACTOR": f"twisted.internet.{reactor}",
    }
    feed = ("-O", "gleanery://fed/daily:jsonlines")
    project.run(items(0), *feed, **settings)
    broken = items(0) + "        raise RuntimeError('another layout')\n"
    project.run(broken, *feed, **settings)
    first, second = runs(client, "fed")
    assert (first["job_id"], first["status"], first["message"]) == ("daily", "complete", None)
    assert (second["status"], second["message"]) == ("failed", "1 callback failed")
    assert client.get("/v1/groups/fed").json()["key_fields"] == ["number", "country"]


@ON_SQLITE
def test_an_empty_feed_of_a_service_that_is_down_ends(project: Project, gate: Forwarder) -> None:
    gate.stop()
    log = project.run(
        items(0),
        *("-O", "gleanery://fed/daily:jsonlines"),
        GLEANERY_URL=f"http://127.0.0.1:{gate.port}",
        GLEANERY_GROUP="",
        ITEM_PIPELINES={},
        FEED_STORE_EMPTY=False,
    ).log
    assert "The crawl has no run: " in log
    assert "Spider closed (finished)" in log
    assert "Traceback" not in log


@ON_SQLITE
def test_a_feed_and_the_pipeline_have_the_same_run(project: Project, client: Client) -> None:
    project.run(items(3), "-O", "gleanery://items/shop:jsonlines")
    [run] = runs(client)
    assert (run["status"], run["counts"]["created"]) == ("complete", 3)


@pytest.mark.parametrize("broken", [False, True])
@ON_SQLITE
def test_a_crawl_belongs_to_the_run_of_the_command_that_starts_it(
    project: Project, client: Client, broken: bool
) -> None:
    started = client.post("/v1/runs/items", json={"job_id": "shop"}).json()
    spider = items(2) + ("        raise RuntimeError('another layout')\n" if broken else "")
    project.run(spider, GLEANERY_RUN_ID=started["run_id"])
    [run] = runs(client)
    assert run["counts"]["created"] == 2
    expected = ("partial", "1 callback failed") if broken else ("running", None)
    assert (run["status"], run["message"]) == expected


@ON_SQLITE
def test_the_exit_status_does_not_hide_problems_of_a_crawl(
    project: Project, client: Client, service: Service
) -> None:
    """``scrapy`` exits with 0 although callbacks have failed."""
    spider = project.folder / "spider.py"
    project.run(items(1) + "        raise RuntimeError('another layout')\n", GLEANERY_RUN=False)
    del project.settings["STATS_CLASS"]
    settings = [f"{name}={_as_text(value)}" for name, value in project.settings.items()]
    pairs = [part for setting in settings for part in ("-s", setting)]
    scrapy = (sys.executable, "-m", "scrapy", "runspider", str(spider), *pairs)
    done = gleanery(
        *("run", "exec", "items", "shop", "--", *scrapy),
        GLEANERY_URL=service.url,
        GLEANERY_TOKEN=str(client.token),
    )
    run = last_run(client)
    assert (run["status"], run["message"]) == ("partial", "1 callback failed"), done.stderr


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
