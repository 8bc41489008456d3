"""The block of a storage client of Crawlee is a run: complete, partial or failed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from crawlee.configuration import Configuration
from crawlee.crawlers import BasicCrawler, BasicCrawlingContext
from crawlee.storage_clients import FileSystemStorageClient, MemoryStorageClient, StorageClient

from gleanery import AsyncClient, Client
from gleanery.client import RunRecord
from gleanery.integrations.crawlee import GleaneryStorageClient
from tests.support.service import Service

ON_SQLITE = pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
HOST = "https://shop.example"
Handler = Callable[[BasicCrawlingContext], Awaitable[None]]


class Shop:
    """Crawls of a shop, and a client that looks at their runs."""

    def __init__(self, service: Service) -> None:
        self.url, self.token = service.url, service.token()
        self.client = Client(self.url, self.token)

    def storage(self, others: StorageClient | None = None, **options: Any) -> GleaneryStorageClient:
        client = AsyncClient(self.url, self.token, max_retries=1)
        others = others or MemoryStorageClient()
        return GleaneryStorageClient(
            "prices", "shop", client=client, storage_client=others, **options
        )

    def crawl(
        self,
        handler: Handler,
        *paths: str,
        others: StorageClient | None = None,
        crawler: dict[str, Any] | None = None,
        configuration: Configuration | None = None,
        **options: Any,
    ) -> None:
        async def work() -> None:
            async with self.storage(others, **options) as storage:
                made = BasicCrawler(
                    request_handler=handler,
                    storage_client=storage,
                    configuration=configuration,
                    configure_logging=False,
                    **{"max_request_retries": 0, **(crawler or {})},
                )
                await made.run([f"{HOST}/{path}" for path in paths])

        asyncio.run(work())

    def runs(self) -> list[RunRecord]:
        """Return the runs, oldest first."""
        return [*self.client.runs("prices")][::-1]


@pytest.fixture
def shop(service: Service) -> Shop:
    return Shop(service)


async def scrape(context: BasicCrawlingContext) -> None:
    if context.request.url.endswith("broken"):
        raise RuntimeError("another layout")
    await context.push_data({"url": context.request.url})


def summary(run: RunRecord) -> tuple[str, str | None, int, int]:
    return run.status, run.message, run.counts.outputs, run.counts.missing


def test_a_block_without_problems_is_a_complete_run(shop: Shop) -> None:
    shop.crawl(scrape, "1", "2", "3", labels={"country": "NO"})
    shop.crawl(scrape, "1", "2")
    first, second = shop.runs()
    assert (summary(first), first.labels) == (("complete", None, 3, 0), {"country": "NO"})
    assert (first.is_implicit, first.job_id) == (False, "shop")
    assert summary(second) == ("complete", None, 2, 1)


@ON_SQLITE
def test_a_block_without_items_is_an_empty_run(shop: Shop) -> None:
    async def nothing(context: BasicCrawlingContext) -> None:
        pass

    shop.crawl(scrape, "1")
    shop.crawl(nothing, "1")
    assert summary(shop.runs()[-1]) == ("complete", None, 0, 1)


@ON_SQLITE
def test_failed_requests_and_invalid_items_make_a_run_partial(shop: Shop) -> None:
    async def scrape_all(context: BasicCrawlingContext) -> None:
        await scrape(context)
        await context.push_data({"name": "no URL"})

    shop.crawl(scrape_all, "1", "broken")
    shop.crawl(scrape, "1", "broken")
    first, second = shop.runs()
    message = "1 request failed, 1 item was not stored"
    assert summary(first) == ("partial", message, 1, 0)
    assert summary(second) == ("partial", "1 request failed", 1, 0)


@ON_SQLITE
def test_requests_that_are_left_make_a_run_partial(shop: Shop, tmp_path: Path) -> None:
    """The next crawl has only the rest, so it is not complete either."""
    configuration = Configuration(storage_dir=str(tmp_path), purge_on_start=False)
    options: dict[str, Any] = {"configuration": configuration}
    one = {"max_requests_per_crawl": 1}
    shop.crawl(scrape, "1", "2", others=FileSystemStorageClient(), crawler=one, **options)
    [run] = shop.runs()
    assert (run.status, run.message, run.counts.missing) == ("partial", "1 request is left", 0)
    shop.crawl(scrape, "1", "2", others=FileSystemStorageClient(), **options)
    run = shop.runs()[-1]
    assert (run.status, run.message) == ("partial", "The crawl continues an earlier one")


@ON_SQLITE
def test_an_exception_fails_the_run(shop: Shop) -> None:
    async def work() -> None:
        async with shop.storage() as storage:
            dataset = await storage.create_dataset_client()
            await dataset.push_data({"url": f"{HOST}/1"})
            raise RuntimeError("no such shop")

    with pytest.raises(RuntimeError):
        asyncio.run(work())
    [run] = shop.runs()
    assert summary(run) == ("failed", "RuntimeError: no such shop", 1, 0)


@ON_SQLITE
def test_each_dataset_has_the_run_of_its_job(shop: Shop) -> None:
    async def work() -> None:
        async with shop.storage() as storage:
            named = await storage.create_dataset_client(name="reviews")
            await named.push_data({"url": f"{HOST}/1"})
            await named.push_data({"name": "no URL"})

    asyncio.run(work())
    by_job = {run.job_id: summary(run) for run in shop.runs()}
    assert by_job == {
        "shop": ("complete", None, 0, 0),
        "reviews": ("partial", "1 item was not stored", 1, 0),
    }


@ON_SQLITE
def test_a_run_is_optional_and_can_be_finished_by_hand(shop: Shop) -> None:
    async def work(**options: Any) -> None:
        async with shop.storage(**options) as storage:
            dataset = await storage.create_dataset_client()
            await dataset.push_data({"url": f"{HOST}/1"})
            if not options:
                await storage.finish("partial", "only the first page")

    asyncio.run(work(run=False))
    [run] = shop.runs()
    assert (run.is_implicit, run.status) == (True, "running")
    asyncio.run(work())
    assert summary(shop.runs()[-1]) == ("partial", "only the first page", 1, 0)


@ON_SQLITE
def test_items_are_stored_if_the_run_has_ended(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        async with shop.storage() as storage:
            [run] = shop.runs()
            shop.client.finish_run("prices", run.run_id, "failed", "by hand")
            dataset = await storage.create_dataset_client()
            await dataset.push_data({"url": f"{HOST}/1"})

    asyncio.run(work())
    ended, implicit = shop.runs()
    assert (ended.status, ended.counts.outputs) == ("failed", 0)
    assert (implicit.is_implicit, implicit.counts.created) == (True, 1)
    assert f"Items are stored without the run {ended.run_id}" in caplog.text


@pytest.mark.parametrize("path", ["1", "broken"])
@ON_SQLITE
def test_a_crawl_belongs_to_the_run_of_the_command_that_starts_it(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    started = shop.client.start_run("prices", "shop")
    monkeypatch.setenv("GLEANERY_RUN_ID", started.run_id)
    monkeypatch.setenv("GLEANERY_GROUP", "prices")
    monkeypatch.setenv("GLEANERY_JOB", "shop")
    shop.crawl(scrape, "1", path)
    [run] = shop.runs()
    expected = ("running", None) if path == "1" else ("partial", "1 request failed")
    assert (run.status, run.message, run.counts.created) == (*expected, 1)


@ON_SQLITE
def test_items_without_a_block_belong_to_the_run_of_the_command(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = shop.client.start_run("prices", "shop")
    monkeypatch.setenv("GLEANERY_RUN_ID", started.run_id)
    monkeypatch.setenv("GLEANERY_GROUP", "prices")
    monkeypatch.setenv("GLEANERY_JOB", "shop")

    async def push(number: int, dataset: str | None = None, **options: Any) -> None:
        storage = shop.storage(**options)
        opened = await storage.create_dataset_client(name=dataset)
        await opened.push_data({"url": f"{HOST}/{number}"})
        await storage.close()

    asyncio.run(push(1))
    asyncio.run(push(2, dataset="other"))
    asyncio.run(push(3, run=False))
    found = {(run.job_id, run.is_implicit): run.counts.created for run in shop.runs()}
    assert found == {("shop", False): 1, ("other", True): 1, ("shop", True): 1}
    shop.client.finish_run("prices", started.run_id, "complete")
    asyncio.run(push(4))
    assert len([*shop.client.outputs("prices")]) == 4
