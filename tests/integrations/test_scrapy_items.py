"""Scrapy's items become outputs: every type of item, invalid ones, keys and references to files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.scrapy_runs import Project
from tests.support.service import Client, Service

pytestmark = pytest.mark.thorough

_WITHOUT_FEED_STORAGE = {"FEED_STORAGES": {"gleanery": None}}
_NUMBERED = """
    def parse(self, response):
        for number in range({count}):
            yield {{"url": f"https://shop.example/{{number}}", "number": number}}
"""


@pytest.fixture
def project(tmp_path: Path, service: Service, client: Client) -> Project:
    return Project(tmp_path / "project", service.url, client.token)


def numbered(count: int) -> str:
    return _NUMBERED.format(count=count)


def data(client: Client, group: str = "items") -> list[dict[str, Any]]:
    return [item["data"] for item in client.items(group, limit=1000)]


@pytest.mark.parametrize(
    "reactor", ["asyncioreactor.AsyncioSelectorReactor", "selectreactor.SelectReactor"]
)
def test_all_items_are_stored(project: Project, client: Client, reactor: str) -> None:
    run = project.run(numbered(2500), TWISTED_REACTOR=f"twisted.internet.{reactor}")
    assert run.stats["finish_reason"] == "finished", run.log
    assert (run.count("created"), run.count("batches")) == (2500, 3), run.log
    assert run.stats["item_scraped_count"] == 2500
    stored = client.items("items", limit=1000)
    assert sorted(item["data"]["number"] for item in stored) == list(range(2500))
    assert {item["root_job_id"] for item in stored} == {"shop"}
    again = project.run(numbered(2500))
    assert (again.count("created"), again.count("unchanged")) == (0, 2500)
    assert not (project.folder / ".scrapy" / "gleanery").exists()


_TYPES = """
    def parse(self, response):
        import dataclasses, datetime, decimal
        from typing import Optional
        import attrs, pydantic

        class Declared(scrapy.Item):
            url = scrapy.Field()
            price = scrapy.Field(serializer=lambda value: f"{value} EUR")
            missing = scrapy.Field()

        @dataclasses.dataclass
        class Data:
            url: str
            sold: datetime.date
            price: int = dataclasses.field(default=0, metadata={"serializer": str})

        @attrs.define
        class Attrs:
            url: str
            time: datetime.datetime

        class Model(pydantic.BaseModel):
            url: str
            name: str | None = None

        moment = datetime.datetime(2026, 11, 17, 1, 2, 3)
        yield {
            "url": "u:dict", "price": decimal.Decimal("1.10"), "sizes": {"m", "l", "s"},
            "time": moment.time(), "page": response, "name": "Bl\\u00e5 \\u2028",
            "nested": [Model(url="inner"), Data("inner", moment.date())],
        }
        yield Declared(url="u:item", price=3)
        yield Data("u:dataclass", moment.date(), 5)
        yield Attrs("u:attrs", moment)
        yield Model(url="u:pydantic")
"""


def test_items_of_every_type_are_serialized_like_scrapy_does(
    project: Project, client: Client
) -> None:
    run = project.run(_TYPES, "-O", "feed.jsonl", **_WITHOUT_FEED_STORAGE)
    assert run.count("created") == 5, run.log
    stored = {one["url"]: one for one in data(client)}
    fed = {one["url"]: one for one in map(json.loads, (project.folder / "feed.jsonl").open())}
    assert stored["u:dict"].pop("sizes") == ["l", "m", "s"] == sorted(fed["u:dict"].pop("sizes"))
    assert stored == fed
    assert stored["u:item"] == {"url": "u:item", "price": "3 EUR"}
    assert stored["u:dataclass"] == {"url": "u:dataclass", "sold": "2026-11-17", "price": "5"}


def test_only_the_invalid_items_of_a_batch_are_left_out(project: Project, client: Client) -> None:
    schema = {"properties": {"number": {"maximum": 7}}}
    assert client.put("/v1/groups/items", json={"schema": schema}).status_code == 200
    run = project.run(numbered(10))
    assert (run.count("created"), run.count("invalid"), run.count("spooled")) == (8, 2, 0)
    assert sorted(one["number"] for one in data(client)) == list(range(8))
    for number in (8, 9):
        assert f'"number":{number}' in run.log
    assert run.log.count("Invalid item: data.number: ") == 2


_UNUSABLE = """
    def parse(self, response):
        yield {"url": "u:1", "value": float("nan")}
        yield {"url": "u:2", "value": object()}
        yield {"name": "no URL"}
        yield {"url": "u:3", "value": "\\ud800"}
        yield {"url": "u:4"}
"""


def test_an_item_without_json_is_an_error_of_that_item(project: Project, client: Client) -> None:
    run = project.run(_UNUSABLE)
    assert (run.count("created"), run.count("invalid")) == (1, 4)
    assert run.log.count("Error processing") == 4
    assert run.log.count("InvalidItem: The field 'value': ") == 3
    for reason in ("NaN", "type object is not JSON", "GLEANERY_URL_FIELD", "surrogate"):
        assert reason in run.log
    assert data(client) == [{"url": "u:4"}]


_KEYED = """
    def parse(self, response):
        for country in ("no", "se"):
            for sku in (1, 2):
                yield {"link": f"https://shop.example/{self.day}", "sku": sku, "country": country}
        yield {"link": "https://shop.example/", "country": "no"}
"""


def identities(client: Client) -> set[str]:
    return {item["output_id"] for item in client.items("items", limit=1000)}


@pytest.mark.parametrize("is_key_of_group", [False, True])
def test_one_key_field_makes_the_keys(
    project: Project, client: Client, is_key_of_group: bool
) -> None:
    if is_key_of_group:
        client.put("/v1/groups/items", json={"key_fields": ["sku"]})
    query = {"job_id": "shop", "url_field": "link"}
    if not is_key_of_group:
        query["key_field"] = "sku"
    pushed = [{"link": "https://x.example/", "sku": sku} for sku in (1, 2)]
    client.post("/v1/outputs/items", params=query, json=pushed)
    before = identities(client)
    run = project.run(_KEYED, "-a", "day=1", GLEANERY_URL_FIELD="link", GLEANERY_KEY_FIELDS="sku")
    assert (run.count("created"), run.count("invalid")) == (0, 1), run.log
    assert identities(client) == before
    assert "sku is missing" in run.log


@pytest.mark.extended
def test_several_key_fields_are_those_of_the_group(project: Project, client: Client) -> None:
    names = {"GLEANERY_URL_FIELD": "link", "GLEANERY_KEY_FIELDS": "country,sku"}
    run = project.run(_KEYED, "-a", "day=1", **names)
    assert (run.count("created"), run.count("invalid")) == (4, 1), run.log
    again = project.run(_KEYED, "-a", "day=2", **names)
    assert (again.count("created"), again.count("updated")) == (0, 4)
    assert client.get("/v1/groups/items").json()["key_fields"] == ["country", "sku"]


@pytest.mark.extended
def test_other_key_fields_than_those_of_the_group_are_an_error(
    project: Project, client: Client
) -> None:
    client.put("/v1/groups/items", json={"key_fields": ["country"]})
    names = {"GLEANERY_URL_FIELD": "link", "GLEANERY_KEY_FIELDS": "country,sku"}
    run = project.run(_KEYED, "-a", "day=1", GLEANERY_CLOSE_SECONDS=60, **names)
    assert run.count("spooled") == 4  # they are kept for a run with the right settings
    assert "The key fields of the group items are country, and GLEANERY_KEY_FIELDS" in run.log
    client.put("/v1/groups/items", json={"key_fields": ["country", "sku"]})
    assert project.run(_KEYED, "-a", "day=1", **names).count("created") == 4


def test_outputs_refer_to_the_files_of_their_items(project: Project, client: Client) -> None:
    stored = client.post(
        "/v1/files", content=b"%PDF", headers={"content-type": "application/pdf"}
    ).json()
    spider = f"""
    def parse(self, response):
        yield {{"url": "u:1", "data_sheet": "{stored["id"]}"}}
        yield {{"url": "u:2", "files": [{{"id": "{stored["id"]}", "status": "uploaded"}}, {{}}]}}
        yield {{"url": "u:3", "data_sheet": None}}
"""
    run = project.run(spider, GLEANERY_FILE_FIELDS="data_sheet,files")
    assert run.count("created") == 3, run.log
    found = {
        item["source_url"]: [(file["field"], file["id"]) for file in item["files"]]
        for item in client.items("items")
    }
    assert found == {
        "u:1": [("data_sheet", stored["id"])],
        "u:2": [("files[0]", stored["id"])],
        "u:3": [],
    }


@pytest.mark.extended
def test_batches_are_sent_when_they_are_old(project: Project, client: Client) -> None:
    spider = """
    async def parse(self, response):
        import asyncio
        yield {"url": "u:1"}
        for _ in range(100):
            await asyncio.sleep(0.1)
            if self.crawler.stats.get_value("gleanery/created"):
                break
        yield {"url": "u:2"}
"""
    run = project.run(spider, GLEANERY_BATCH_SECONDS=0.2)
    assert (run.count("created"), run.count("batches")) == (2, 2), run.log
