"""Reading outputs with the client: filters, pages and positions."""

from __future__ import annotations

import asyncio
import json
import sys
from datetime import UTC, date, datetime, timedelta, timezone

import pytest

from gleanery import AsyncClient, Client
from gleanery.client import FieldChange, NotFound, Output, Update
from gleanery.tables import ExportError
from tests.support.service import Client as HttpClient
from tests.support.service import Service


@pytest.fixture
def stored(client: HttpClient) -> HttpClient:
    client.store(
        "prices",
        *(
            {"job_id": "shop", "source_url": f"https://shop.example/{n}", "data": {"n": n}}
            for n in range(7)
        ),
    )
    return client


@pytest.fixture
def reader(service: Service, stored: HttpClient) -> Client:
    return Client(service.url, stored.token)


def test_all_outputs_are_read_in_pages(reader: Client) -> None:
    found = list(reader.outputs("prices", page_size=3))
    assert [output.data["n"] for output in found] == list(range(7))
    assert isinstance(found[0], Output)
    assert datetime.now(UTC) - found[0].create_date < timedelta(hours=1)


def test_the_cursor_advances_only_after_a_page_was_consumed(reader: Client) -> None:
    pager = reader.outputs("prices", page_size=3)
    pages = pager.pages()
    next(pages)
    assert pager.cursor == 0
    next(pages)
    rest = reader.outputs("prices", cursor=pager.cursor)
    assert [output.data["n"] for output in rest] == [3, 4, 5, 6]


def test_a_second_iteration_begins_where_the_first_one_began(reader: Client) -> None:
    pager = reader.outputs("prices", page_size=3, limit=5)
    assert list(pager) == list(pager)
    assert len(list(pager.raw())) == 5


def test_a_limit_ends_with_an_exact_cursor(reader: Client) -> None:
    pager = reader.outputs("prices", page_size=3, limit=4)
    assert [output.data["n"] for output in pager] == [0, 1, 2, 3]
    rest = reader.outputs("prices", cursor=pager.cursor)
    assert [output.data["n"] for output in rest] == [4, 5, 6]


def test_raw_items_are_the_bytes_of_the_service(reader: Client, stored: HttpClient) -> None:
    raw = list(reader.outputs("prices", page_size=3).raw())
    body = stored.get("/v1/outputs/prices?limit=1000").content
    assert all(item in body for item in raw)
    assert [json.loads(item)["data"]["n"] for item in raw] == list(range(7))


def test_filters_accept_dates_and_truth_values(reader: Client) -> None:
    now, hour = datetime.now(UTC), timedelta(hours=1)
    past: list[date] = [
        now - hour,
        (now - hour).replace(tzinfo=None),
        now.date() - timedelta(days=1),
    ]
    dates: list[date | str] = [*past, "2020-01-01", "2020-01-01T00:00:00Z"]
    for chosen in (*dates, "2020-01-01T00:00:00Z"):
        assert len(list(reader.outputs("prices", created_after=chosen))) == 7
    zone = timezone(timedelta(hours=5, minutes=30))
    assert list(reader.outputs("prices", created_after=(now + hour).astimezone(zone))) == []
    assert list(reader.outputs("prices", approved=True)) == []
    assert len(list(reader.outputs("prices", approved=False, job_id="shop"))) == 7
    assert len(list(reader.outputs("prices", url="https://shop.example/3"))) == 1


def test_the_approved_view_has_the_last_approved_versions(
    reader: Client, stored: HttpClient
) -> None:
    assert list(reader.outputs("prices", view="approved")) == []
    stored.post("/v1/reviews/prices", json={"job_id": "shop", "status": "approved"})
    [first, *_] = stored.items("prices", approved="true")
    newer = {"job_id": "shop", "source_url": first["source_url"], "data": {"n": "new"}}
    stored.store("prices", newer)
    for page_size in (1, 1000):
        view = reader.outputs("prices", view="approved", page_size=page_size)
        assert [output.data["n"] for output in view] == list(range(7))
    [batch] = reader.outputs("prices", view="approved").to_arrow_batches(fields=["n"])
    assert batch.column(0).to_pylist() == list(range(7))
    assert len(list(reader.outputs("prices", view="approved", url=first["source_url"]))) == 1
    assert next(iter(reader.outputs("prices", view="full"))).data["n"] == 1


@pytest.mark.thorough
def test_outputs_are_read_as_tables(reader: Client, stored: HttpClient) -> None:
    stored.store("prices", {"job_id": "b", "source_url": "https://b.example", "data": {"n": "x"}})
    batches = list(reader.outputs("prices", page_size=3).to_arrow_batches(fields=["id", "n"]))
    assert [batch.num_rows for batch in batches] == [3, 3, 2]
    assert batches[0].to_pydict()["data_n"] == [0, 1, 2]
    expected = ["0", "1", "2", "3", "4", "5", "6", '"x"']
    arrow = reader.outputs("prices", page_size=3).to_arrow(fields=["n"])
    assert arrow.to_pydict() == {"data_n": expected}


@pytest.mark.extended
def test_outputs_are_read_as_data_frames(
    service: Service, reader: Client, stored: HttpClient
) -> None:
    stored.store("prices", {"job_id": "b", "source_url": "https://b.example", "data": {"n": "x"}})
    expected = ["0", "1", "2", "3", "4", "5", "6", '"x"']
    polars = reader.outputs("prices", page_size=3).to_polars()
    assert polars["data_n"].to_list() == expected
    pandas = reader.outputs("prices", page_size=3, limit=2).to_pandas(data="json")
    assert list(pandas["data"]) == ['{"n":0}', '{"n":1}']

    async def read() -> list[str]:
        async with AsyncClient(service.url, stored.token) as client:
            frame = await client.outputs("prices").to_polars(fields=["n"])
            return frame["data_n"].to_list()

    assert asyncio.run(read()) == expected


def test_a_table_without_its_library_says_what_to_install(
    reader: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "gleanery.tables.arrow", raising=False)
    monkeypatch.delitem(sys.modules, "gleanery.tables.arrow", raising=False)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ExportError, match=r"pip install 'gleanery\[pandas\]'"):
        reader.outputs("prices").to_pandas()


def test_one_output_is_read_by_its_id(reader: Client) -> None:
    first = next(iter(reader.outputs("prices", limit=1)))
    assert reader.output("prices", first.output_id) == first


def test_an_unknown_group_is_not_found(reader: Client) -> None:
    with pytest.raises(NotFound, match=r"There is no group \.\./other group"):
        list(reader.outputs("../other group"))


def test_the_asynchronous_client_reads_the_same(service: Service, stored: HttpClient) -> None:
    async def read() -> list[Output]:
        async with AsyncClient(service.url, stored.token) as client:
            return [output async for output in client.outputs("prices", page_size=3)]

    with Client(service.url, stored.token) as client:
        assert asyncio.run(read()) == list(client.outputs("prices"))


def test_the_history_of_an_output_is_read(reader: Client, stored: HttpClient) -> None:
    output = next(iter(reader.outputs("prices")))
    again = {"job_id": "shop", "source_url": output.source_url}
    for number in range(3):
        stored.store("prices", {**again, "data": {"n": number + 10}})
    versions = list(reader.history("prices", output.output_id, page_size=2))
    assert [version.change for version in versions] == ["update", "update", "update", "create"]
    assert versions[0].fields == [FieldChange(path="n", kind="changed", before=11, after=12)]
    assert reader.output("prices", output.output_id, at=versions[-1].cursor) == output
    present = reader.output("prices", output.output_id)
    assert reader.output("prices", output.output_id, at=versions[0].version_date) == present
    reader.delete_output("prices", output.output_id)
    deletion = next(iter(reader.history("prices", output.output_id, limit=1)))
    assert (deletion.change, deletion.fields) == ("delete", None)
    with pytest.raises(NotFound):
        reader.output("prices", output.output_id, at=date(2020, 1, 1))


def test_changes_list_changed_fields(reader: Client, stored: HttpClient) -> None:
    output = next(iter(reader.outputs("prices")))
    stored.store("prices", {"job_id": "shop", "source_url": output.source_url, "data": {"n": 9}})
    last = list(reader.changes("prices", diff=True))[-1]
    assert isinstance(last, Update)
    assert last.fields == [FieldChange(path="n", kind="changed", before=0, after=9)]
