"""Crawlee with a real service: datasets as outputs, batches and purges."""

from __future__ import annotations

import asyncio
import logging
import signal
import subprocess
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest
from crawlee.configuration import Configuration
from crawlee.storage_clients import MemoryStorageClient
from crawlee.storages import Dataset

from examples import shop
from gleanery import AsyncClient, Client
from gleanery.client import PushFailed
from gleanery.client._async.pusher import AsyncPusher
from gleanery.client.models import Fields
from gleanery.integrations.crawlee import GleaneryStorageClient
from gleanery.integrations.crawlee.dataset_client import GleaneryDatasetClient
from tests.support.faulty_server import CLOSE, faulty_server, respond
from tests.support.process import environment
from tests.support.service import Service
from tests.support.shop_runs import check_two_days
from tests.support.shop_scrapers import EXAMPLES
from tests.support.waiting import wait_for_next_second

ON_SQLITE = pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
HOST = "shop.example"
URL = f"https://{HOST}/listing"
STORED = {"created": 1, "updated": 0, "unchanged": 0, "lines": 1, "skipped": 0, "errors": []}
T = TypeVar("T")


def item(number: int, **members: Any) -> dict[str, Any]:
    return {"url": f"https://{HOST}/{number}", "sku": number, "price": number, **members}


class Storage:
    """A storage client for a new organization, and a client that looks at what it has stored."""

    def __init__(self, service: Service, token: str | None = None) -> None:
        self.url, self.token = service.url, token or service.token()
        self.client = Client(self.url, self.token)
        self.storage: GleaneryStorageClient

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run(work)

    def open(self, **options: Any) -> GleaneryStorageClient:
        client = AsyncClient(self.url, self.token, max_retries=1)
        self.storage = GleaneryStorageClient(
            "prices",
            "shop",
            client=client,
            storage_client=MemoryStorageClient(),
            **{"key_field": "sku", **options},
        )
        return self.storage

    def stored(self, job: str = "shop") -> list[Any]:
        return [output.data["price"] for output in self.client.outputs("prices", job_id=job)]


@pytest.fixture
def storage(service: Service) -> Storage:
    return Storage(service)


async def prices(dataset: GleaneryDatasetClient, **options: Any) -> list[Any]:
    return [found["price"] async for found in dataset.iterate_items(**options)]


def test_items_are_stored_when_push_data_returns(storage: Storage) -> None:
    async def push() -> None:
        dataset = await storage.open().create_dataset_client()
        await dataset.push_data(item(1))
        assert await asyncio.to_thread(storage.stored) == [1]
        await dataset.push_data([item(2), item(3), item(1, price=10)])
        assert (await dataset.get_metadata()).item_count == 4
        assert await prices(dataset) == [2, 3, 10]

    storage.run(push())
    assert storage.stored() == [2, 3, 10]
    report = storage.storage.report
    assert (report.created, report.updated, report.unchanged) == (3, 1, 0)


@ON_SQLITE
def test_concurrent_calls_share_requests(storage: Storage) -> None:
    async def push() -> None:
        dataset = await storage.open().create_dataset_client()
        await asyncio.gather(*(dataset.push_data(item(number)) for number in range(300)))
        await dataset.push_data([item(number) for number in range(300, 2500)])

    storage.run(push())
    assert sorted(storage.stored()) == list(range(2500))
    assert storage.storage.report.batches <= 5


@ON_SQLITE
def test_an_invalid_item_is_logged_and_others_are_stored(
    storage: Storage, caplog: pytest.LogCaptureFixture
) -> None:
    async def push() -> None:
        dataset = await storage.open().create_dataset_client()
        invalid = [{"url": "https://shop.example/x", "price": 5}, item(6, photo=b"bytes")]
        await asyncio.gather(dataset.push_data([item(1), *invalid]), dataset.push_data(item(2)))
        await dataset.push_data({"price": 7})

    storage.run(push())
    assert storage.stored() == [1, 2]
    assert storage.storage.report.skipped == 3
    assert "'https://shop.example/x' is not stored: sku: is missing" in caplog.text
    assert "sku 6 is not stored: photo: bytes has no JSON form" in caplog.text
    assert "with the members price is not stored" in caplog.text


@ON_SQLITE
def test_an_invalid_item_can_be_an_error_of_its_call_alone(storage: Storage) -> None:
    async def push() -> list[Any]:
        dataset = await storage.open(on_error="fail").create_dataset_client()
        calls = [dataset.push_data(one) for one in (item(1), {"url": "https://x/"}, item(3))]
        return await asyncio.gather(*calls, return_exceptions=True)

    first, second, third = storage.run(push())
    assert (first, third) == (None, None)
    assert isinstance(second, PushFailed)
    assert storage.stored() == [1, 3]


@ON_SQLITE
def test_a_cancelled_call_does_not_stop_others(storage: Storage) -> None:
    async def push() -> None:
        dataset = await storage.open().create_dataset_client()
        calls = [asyncio.create_task(dataset.push_data(item(number))) for number in range(4)]
        await asyncio.sleep(0)
        calls[0].cancel()
        await asyncio.wait(calls)
        assert [call.cancelled() for call in calls] == [True, False, False, False]

    storage.run(push())
    assert set(storage.stored()) >= {1, 2, 3}


def test_a_call_fails_if_the_service_cannot_store_its_items() -> None:
    async def push(url: str) -> None:
        async with GleaneryStorageClient(
            "prices", "shop", client=AsyncClient(url, "t", max_retries=0), run=False
        ) as storage:
            dataset = await storage.create_dataset_client(name="named")
            with pytest.raises(PushFailed, match="not known whether the first batch is stored"):
                await dataset.push_data(item(1))
            await dataset.push_data(item(1))
            assert (await dataset.get_metadata()).item_count == 1

    with faulty_server(CLOSE, respond(200, STORED)) as server:
        asyncio.run(push(server.url))


@ON_SQLITE
def test_a_storage_client_works_in_one_event_loop_after_the_other(storage: Storage) -> None:
    opened = storage.open()
    dataset = storage.run(opened.create_dataset_client())
    storage.run(dataset.push_data(item(1)))
    storage.run(dataset.push_data(item(2)))
    assert storage.stored() == [1, 2]


def test_a_purge_starts_anew_and_deletes_nothing(storage: Storage) -> None:
    async def run(*numbers: int) -> list[Any]:
        dataset = await storage.open().create_dataset_client()
        assert await prices(dataset) == []
        for number in numbers:
            await dataset.push_data(item(number))
        return await prices(dataset)

    assert storage.run(run(1, 2, 3)) == [1, 2, 3]
    wait_for_next_second()
    assert storage.run(run(2, 4)) == [2, 4], "2 is unchanged, and part of this run"
    assert storage.stored() == [1, 2, 3, 4]
    assert len(list(storage.client.changes("prices"))) == 4


@pytest.mark.thorough
@ON_SQLITE
def test_no_item_is_missing_after_a_purge_if_a_call_takes_seconds(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = AsyncPusher._send

    async def send_slowly(pusher: AsyncPusher, batch: Any) -> None:
        await send(pusher, batch)
        wait_for_next_second()

    text = "x" * 600_000  # so each item has a request of its own

    async def run(*numbers: int) -> list[Any]:
        dataset = await storage.open().create_dataset_client()
        await dataset.push_data([item(number, url=URL, text=text) for number in numbers])
        return await prices(dataset)

    assert storage.run(run(1, 2)) == [1, 2]
    wait_for_next_second()
    monkeypatch.setattr(AsyncPusher, "_send", send_slowly)
    assert storage.run(run(2, 3)) == [2, 3]


@ON_SQLITE
def test_no_item_is_missing_after_a_purge_if_another_crawler_stores_at_the_same_time(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_fields = AsyncClient.fields

    async def read_late(client: AsyncClient, group: str, job: str) -> Fields:
        wait_for_next_second()
        storage.client.push(group, [item(9)], job_id=job, key_field="sku")
        return await read_fields(client, group, job)

    monkeypatch.setattr(AsyncClient, "fields", read_late)

    async def run() -> list[Any]:
        dataset = await storage.open().create_dataset_client()
        await dataset.push_data([item(1), item(2)])
        return await prices(dataset)

    assert sorted(storage.run(run())) == [1, 2, 9]
    assert storage.storage.report.created == 2
    assert storage.storage.report.unchanged == 0


@ON_SQLITE
def test_a_first_batch_can_have_many_invalid_items(storage: Storage) -> None:
    async def run() -> list[Any]:
        dataset = await storage.open().create_dataset_client()
        invalid = [{"price": number} for number in range(150)]
        await dataset.push_data([*invalid, item(1), item(2), *invalid])
        return await prices(dataset)

    assert storage.run(run()) == [1, 2]
    report = storage.storage.report
    assert (report.skipped, report.items) == (300, 302)
    assert report.batches < 20, "not a request for each item"


@ON_SQLITE
def test_without_a_purge_a_dataset_has_all_outputs_of_its_job(storage: Storage) -> None:
    async def run(number: int) -> list[Any]:
        dataset = await storage.open().create_dataset_client(
            configuration=Configuration(purge_on_start=False)
        )
        await dataset.push_data(item(number))
        return await prices(dataset)

    storage.run(run(1))
    assert storage.run(run(2)) == [1, 2]


@ON_SQLITE
def test_datasets_with_a_name_or_an_alias_are_jobs(storage: Storage) -> None:
    async def run() -> None:
        opened = storage.open()
        datasets: list[dict[str, Any]] = [{"name": "offers"}, {"alias": "drafts"}, {}]
        for options in datasets:
            dataset = await Dataset.open(**options, storage_client=opened)
            await dataset.push_data(item(1))
        named = await opened.create_dataset_client(name="offers")
        assert await prices(named) == [1], "a named dataset is not purged"
        assert (await opened.create_dataset_client(id="prices/offers"))._metadata.name == "offers"
        assert (await opened.create_dataset_client(id="prices/shop"))._metadata.name is None
        with pytest.raises(ValueError, match="an id is prices/JOB"):
            await opened.create_dataset_client(id="other/offers")
        with pytest.raises(NotImplementedError, match=r"delete_job\('prices', 'offers'\)"):
            await named.drop()
        unnamed = await opened.create_dataset_client()
        await unnamed.drop()
        assert await prices(unnamed) == []

    storage.run(run())
    assert [storage.stored(job) for job in ("shop", "offers", "drafts")] == [[1], [1], [1]]


@ON_SQLITE
def test_storage_clients_with_two_tokens_store_in_two_organizations(service: Service) -> None:
    first, second = Storage(service), Storage(service)

    async def push(storage: Storage, number: int) -> None:
        dataset = await Dataset.open(storage_client=storage.open())
        await dataset.push_data(item(number))

    async def run() -> None:
        await push(first, 1)
        await push(second, 2)

    asyncio.run(run())
    assert (first.stored(), second.stored()) == ([1], [2])
    assert (first.storage.report.created, second.storage.report.created) == (1, 1)


@ON_SQLITE
def test_a_storage_client_can_be_used_after_another_one_is_closed(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = service.token()
    monkeypatch.setenv("GLEANERY_URL", service.url)
    monkeypatch.setenv("GLEANERY_TOKEN", token)

    async def run(number: int) -> int:
        async with GleaneryStorageClient(
            "prices", "shop", storage_client=MemoryStorageClient()
        ) as storage:
            await (await Dataset.open(storage_client=storage)).push_data(item(number))
        return storage.report.created

    async def run_twice() -> list[int]:
        return [await run(1), await run(2)]

    assert asyncio.run(run_twice()) == [1, 1]


@ON_SQLITE
def test_reading_has_offset_limit_order_and_fields(storage: Storage) -> None:
    async def run() -> None:
        dataset = await storage.open().create_dataset_client()
        await dataset.push_data([item(number, **{"#hidden": 1}) for number in range(5)])
        page = await dataset.get_data(offset=1, limit=2)
        assert [found["price"] for found in page.items] == [1, 2]
        assert (page.total, page.count, page.offset, page.limit) == (5, 2, 1, 2)
        page = await dataset.get_data(offset=1, limit=2, desc=True)
        assert [found["price"] for found in page.items] == [3, 2]
        assert page.total == 5
        assert (await dataset.get_data(limit=None)).count == 5
        assert await prices(dataset, offset=3) == [3, 4]
        assert await prices(dataset, limit=2, desc=True) == [4, 3]
        fields = await dataset.get_data(limit=1, fields=["price", "url"], omit=["url"])
        assert fields.items == [{"price": 0}]
        assert (await dataset.get_data(limit=1, clean=True)).items == [item(0)]
        with pytest.raises(NotImplementedError, match="no descending order: iterate with a limit"):
            await prices(dataset, desc=True)
        with pytest.raises(NotImplementedError, match="unwind, view: not supported"):
            await dataset.get_data(unwind=["a"], view="b")

    storage.run(run())


@ON_SQLITE
def test_items_reference_their_files(storage: Storage) -> None:
    file_id = storage.client.upload(b"a photo", filename="a.txt").id

    async def run() -> None:
        dataset = await storage.open(file_fields=["sheet", "photos"]).create_dataset_client()
        await dataset.push_data(
            [
                item(1, sheet=file_id, photos=[file_id]),
                item(2, sheet=None),
                item(3, photos=3),
                item(4, sheet="0" * 32),
                item(True),
                {"sku": 6},
            ]
        )

    storage.run(run())
    first, second = storage.client.outputs("prices")
    assert [(file.field, file.id) for file in first.files] == [
        ("sheet", file_id),
        ("photos[0]", file_id),
    ]
    assert second.files == []
    assert storage.storage.report.skipped == 4
    plain = Storage.__new__(Storage)
    plain.__dict__ = dict(storage.__dict__)

    async def push_again() -> None:
        await (await plain.open().create_dataset_client()).push_data(item(2, sheet=None))

    plain.run(push_again())
    assert plain.storage.report.unchanged == 1, "the key is the same as without files"


@ON_SQLITE
def test_a_token_that_cannot_read_can_store(service: Service) -> None:
    writer = Storage(service, service.token(scopes=frozenset({"outputs:write"})))

    async def run() -> None:
        dataset = await writer.open().create_dataset_client()
        await dataset.push_data(item(1))
        with pytest.raises(Exception, match="outputs:read"):
            await prices(dataset)

    writer.run(run())
    assert writer.storage.report.created == 1


@pytest.mark.parametrize("tool", ["crawlee", "playwright"])
def test_a_missing_library_is_named(tool: str) -> None:
    program = f"import sys; sys.modules[{tool!r}] = None; import gleanery.integrations.{tool}"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert f"pip install 'gleanery[{tool}]'" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("name", ["crawlee_shop.py", "playwright_shop.py"])
def test_an_example_without_its_argument_prints_its_usage(name: str) -> None:
    done = subprocess.run(
        [sys.executable, EXAMPLES / name], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith(f"usage: {name} [-h] shop_url\n")


@pytest.mark.thorough
def test_the_shop_is_scraped_on_two_days(service: Service, tmp_path: Path) -> None:
    check_two_days("crawlee_shop.py", "shop-crawlee", service, tmp_path)


_CRAWL = """
import asyncio, os, signal, sys
from crawlee import ConcurrencySettings
from crawlee.crawlers import ParselCrawler
from gleanery.integrations.crawlee import GleaneryStorageClient

shop, last = sys.argv[1], int(sys.argv[2])
handled = 0

async def scrape(context):
    global handled
    handled += 1
    if handled == last:
        os.kill(os.getpid(), signal.SIGKILL)
    urls = [f"{shop}{path}" for path in context.selector.css("a.product::attr(href)").getall()]
    await context.push_data([{"url": url} for url in urls])

async def main():
    storage_client = GleaneryStorageClient("names", "shop")
    crawler = ParselCrawler(
        request_handler=scrape,
        storage_client=storage_client,
        concurrency_settings=ConcurrencySettings(desired_concurrency=2, max_concurrency=2),
    )
    await crawler.run([f"{shop}/?page={page}" for page in range(1, 16)])

asyncio.run(main())
"""


@pytest.mark.extended
@pytest.mark.thorough
@ON_SQLITE
def test_a_crawler_that_is_killed_continues_without_a_loss(
    service: Service, tmp_path: Path
) -> None:
    token = service.token()
    variables = {"GLEANERY_URL": service.url, "GLEANERY_TOKEN": token}

    def crawl(shop_url: str, last: int, **more: str) -> int:
        program = [sys.executable, "-c", _CRAWL, shop_url, str(last)]
        done = subprocess.run(
            program, env=environment(**variables, **more), cwd=tmp_path, check=False
        )
        return done.returncode

    with shop.running_shop() as site:
        assert crawl(site.url, last=8) == -signal.SIGKILL
        with Client(service.url, token) as client:
            assert 0 < client.group("names").outputs < shop.PRODUCTS
            assert crawl(site.url, last=0, CRAWLEE_PURGE_ON_START="0") == 0
            assert client.group("names").outputs == shop.PRODUCTS
        assert site.counts["listing"] < 2 * 15


def test_requests_to_the_service_are_not_logged(storage: Storage) -> None:
    storage.open()
    assert logging.getLogger("httpx2").level >= logging.WARNING
