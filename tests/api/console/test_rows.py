"""The rows of the console's grid: both directions, filters, cells, changed cells and bounds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from gleanery.service.resources.outputs import search
from tests.support.console import ConsoleClient
from tests.support.files import store_file
from tests.support.outputs import output
from tests.support.service import Client, Service


@pytest.fixture
def console(service: Service, client: Client) -> Iterator[ConsoleClient]:
    """A session of the organization of ``client``."""
    assert client.token is not None
    with closing(ConsoleClient(service.url, client.token)) as made:
        yield made


def rows(console: ConsoleClient, *columns: str, group: str = "group", **query: Any) -> Any:
    query = {"columns": json.dumps(columns), **query}
    answer = console.get(f"/console/api/rows/{group}", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def numbers(page: Any) -> list[int]:
    """The first column of each row."""
    return [int(row["cells"][0][1]) for row in page["rows"]]


def walk_down(console: ConsoleClient, **query: Any) -> list[int]:
    page = rows(console, "number", **query)
    assert page["newer"] is None
    found = numbers(page)
    while page["older"] is not None:
        page = rows(console, "number", before=page["older"], **query)
        found += numbers(page)
    return found


def walk_up(console: ConsoleClient, **query: Any) -> list[int]:
    page = rows(console, "number", after=0, **query)
    found = numbers(page)
    while page["newer"] is not None:
        page = rows(console, "number", after=page["newer"], **query)
        found = numbers(page) + found
    return found


def review(client: Client, job: str) -> None:
    body = {"job_id": job, "status": "approved"}
    assert client.post("/v1/reviews/group", json=body).status_code == 200


def test_the_newest_output_is_the_first_row(client: Client, console: ConsoleClient) -> None:
    client.store("group", *(output(number) for number in range(5)))
    page = rows(console, "number", limit=2)
    [newest] = client.items("group", limit=1000)[-1:]
    assert page["rows"][0] == {
        "output_id": newest["output_id"],
        "cursor": page["newest"],
        "value_cursor": page["newest"],
        "job_id": "job",
        "source_url": ["s", "https://shop.example/4"],
        "approved": False,
        "update_date": newest["update_date"],
        "cells": [["n", "4"]],
        "changed": {},
        "changed_inside": [],
        "changes": 0,
    }
    assert numbers(page) == [4, 3]
    assert page["newer"] is None
    assert page["oldest"] < page["older"] <= page["rows"][1]["cursor"]


def test_both_directions_find_every_output(client: Client, console: ConsoleClient) -> None:
    client.store("group", *(output(number) for number in range(23)))
    assert walk_down(console, limit=5) == [*range(22, -1, -1)]
    assert walk_up(console, limit=5) == [*range(22, -1, -1)]


def test_a_position_is_one_request(client: Client, console: ConsoleClient) -> None:
    client.store("group", *(output(number) for number in range(9)))
    cursors = [row["cursor"] for row in rows(console)["rows"]]
    page = rows(console, "number", before=cursors[4] + 1, limit=2)
    assert numbers(page) == [4, 3]
    above = rows(console, "number", after=page["newer"], limit=2)
    assert numbers(above) == [6, 5]
    assert numbers(rows(console, "number", before=above["older"], limit=1)) == [4]
    below_all = rows(console, "number", before=1)
    assert (below_all["rows"], below_all["older"]) == ([], None)
    assert numbers(rows(console, "number", after=below_all["newer"], limit=1)) == [0]


FILTERS: list[dict[str, str]] = [
    {"job_id": "job 1"},
    {"country": "France"},
    {"job_id": "job 1", "country": "France"},
    {"job_id": "job 1", "country": "FR", "approved": "true"},
    {"job_id": "job 2", "approved": "false", "region": "FR-02"},
    {"view": "approved"},
    {"view": "approved", "job_id": "job 1"},
    {"view": "approved", "job_id": "job 1", "country": "France"},
    {"view": "approved", "region": "FR-02"},
    {"url": "https://shop.example/7"},
    {"job_id": "nobody"},
]


def store_mixture(client: Client) -> None:
    places = [{"country": "Germany", "region": "DE-01"}, {"country": "France", "region": "FR-02"}]
    batch = [
        output(number, job_id=f"job {number % 3}", tags=places[number % 2]) for number in range(30)
    ]
    client.store("group", *batch)
    review(client, "job 1")
    changed = [one | {"data": {"number": 100 + number}} for number, one in enumerate(batch)]
    client.store("group", *changed[::4])


@pytest.mark.thorough
@pytest.mark.parametrize("filters", FILTERS, ids=lambda filters: "+".join(filters))
def test_filters_find_what_the_api_finds(
    client: Client, console: ConsoleClient, filters: dict[str, str]
) -> None:
    store_mixture(client)
    newest_first = [item["data"]["number"] for item in client.items("group", **filters)][::-1]
    for limit in (1, 4, 200):
        assert walk_down(console, limit=limit, **filters) == newest_first
        assert walk_up(console, limit=limit, **filters) == newest_first


def test_created_after_is_a_lower_bound(client: Client, console: ConsoleClient) -> None:
    client.store("group", output(1))
    future = {"created_after": "2999-01-01"}
    assert walk_down(console, **future) == walk_up(console, **future) == []
    past = {"created_after": "2020-01-01"}
    assert walk_down(console, **past) == walk_up(console, **past) == [1]


def test_few_matches_end_a_page_early(
    client: Client, console: ConsoleClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "_MAX_EXTRA_STEPS", 3)
    store_mixture(client)
    filters = {"job_id": "job 2", "region": "FR-02", "approved": "false"}
    expected = [item["data"]["number"] for item in client.items("group", **filters)][::-1]
    page = rows(console, "number", limit=1, **filters)
    assert page["older"] is not None
    assert walk_down(console, limit=1, **filters) == expected
    assert walk_up(console, limit=1, **filters) == expected


def test_cells_are_exact_and_short(client: Client, console: ConsoleClient) -> None:
    body = """[{"job_id": "j", "source_url": "https://shop.example/1", "data": {
        "price": 12.90, "id": 12345678901234567890, "text": "%s", "a.b": {"c d": [1, null]}}}]"""
    content = (body % ("x" * 5000)).encode()
    headers = {"Content-Type": "application/json"}
    assert client.post("/v1/outputs/group", content=content, headers=headers).status_code == 200
    columns = ("price", "id", "text", '["a.b"]["c d"]', "missing", "price.inner")
    [row] = rows(console, *columns)["rows"]
    price, id_, text, nested, missing, inner = row["cells"]
    assert price[0] == "n"
    assert float(price[1]) == 12.9
    assert id_ == ["n", "12345678901234567890"]
    assert text == ["s", "x" * 120, 5000]
    assert nested == ["a", [["n", "1"], ["z"]], 2]
    assert (missing, inner) == (None, None)


def test_changed_cells_have_their_earlier_value(client: Client, console: ConsoleClient) -> None:
    data = {"price": 1, "offer": {"stock": 3}, "same": "x"}
    client.store("group", output(1, data=data), output(2, data=data))
    client.store("group", output(1, data={"price": 2, "offer": {"stock": 4}, "same": "x", "n": 1}))
    updated, created = rows(console, "price", "offer", "same", "n", changes="true")["rows"]
    assert updated["changed"] == {"price": ["n", "1"], "n": None}
    assert updated["changed_inside"] == ["offer"]
    assert updated["changes"] == 3
    assert (created["changed"], created["changed_inside"], created["changes"]) == ({}, [], 0)
    assert rows(console, "price")["rows"][0]["changed"] == {}


def test_changed_cells_show_only_the_newest_version(client: Client, console: ConsoleClient) -> None:
    for price in range(40):
        client.store("group", output(1, data={"price": price, "last": price // 39}))
    [row] = rows(console, "price", "last", changes="true")["rows"]
    assert row["changed"] == {"price": ["n", "38"], "last": ["n", "0"]}
    review(client, "job")
    [approved] = rows(console, "price", changes="true")["rows"]
    assert (approved["changed"], approved["changes"]) == ({"price": ["n", "38"]}, 2)
    assert row["value_cursor"] == row["cursor"] == approved["value_cursor"] < approved["cursor"]
    [in_view] = rows(console, "price", changes="true", view="approved")["rows"]
    assert in_view["changed"] == {}
    client.store("group", output(1, data={"price": 99, "last": 1}))
    [unapproved] = rows(console, "price", changes="true")["rows"]
    assert (unapproved["approved"], unapproved["changes"]) == (False, 1)


def test_the_usual_columns_are_names_numbers_and_short_texts(
    client: Client, console: ConsoleClient
) -> None:
    common = {
        "description": "x" * 100,
        "images": ["a"],
        "brand": "A",
        "offer": {"price": 1.5, "a.b": "c"},
        "stock": 3,
        "sold": None,
    }
    client.store("group", *(output(number, data=common | {"title": "A"}) for number in range(3)))
    client.store("group", output(3, data=common | {"rare": "A", "title": None}))
    answer = console.get("/console/api/rows/group").json()
    assert answer["columns"] == [
        {"path": "title", "kind": "string"},
        {"path": "stock", "kind": "number"},
        {"path": "brand", "kind": "string"},
        {"path": "offer.price", "kind": "number"},
        {"path": 'offer["a.b"]', "kind": "string"},
    ]
    cells = [["s", "A"], ["n", "3"], ["s", "A"], ["n", "1.5"], ["s", "c"]]
    assert answer["rows"][1]["cells"] == cells
    assert answer["rows"][0]["cells"] == [["z"], *cells[1:]]
    again = rows(console, *(one["path"] for one in answer["columns"]))
    assert again == answer | {"columns": None}
    before = console.get("/console/api/rows/group", params={"before": 1}).json()
    assert (before["rows"], before["columns"]) == ([], [])


def test_tags_are_columns(client: Client, console: ConsoleClient) -> None:
    tags = {"country": "DE", "shop name": "Mugs", "none": None}
    client.store("group", output(1, tags=tags, data={"country": "FR"}))
    client.store("group", output(1, tags=tags | {"country": "PT"}, data={"country": "FR"}))
    paths = ("country", "$.tags.country", '$.tags["shop name"]', "$.tags.other", "$.tags")
    [row] = rows(console, *paths, changes="true")["rows"]
    assert row["cells"][:4] == [["s", "FR"], ["s", "PT"], ["s", "Mugs"], None]
    assert row["cells"][4][1][0] == ["country", ["s", "PT"]]
    assert row["changed"] == {"$.tags.country": ["s", "DE"]}


def test_an_unknown_country_is_rejected_unless_an_output_has_it(
    client: Client, console: ConsoleClient
) -> None:
    client.store("group", output(1, tags={"country": "Germny"}))
    answers = {
        name: console.get("/console/api/rows/group", params={"country": name})
        for name in ("Germny", "France", "Frnce", "Nowhere at all")
    }
    assert [answer.status_code for answer in answers.values()] == [200, 200, 422, 422]
    [detail] = answers["Frnce"].json()["detail"]
    assert detail["loc"] == ["query", "country"]
    assert detail["msg"].endswith("Do you mean France?")
    assert "Do you mean" not in answers["Nowhere at all"].text


@pytest.mark.thorough
def test_large_outputs_end_a_page_early(client: Client, console: ConsoleClient) -> None:
    for number in range(12):
        data = {"number": number, "text": f"{number}" * 1_000_000}
        client.store("group", output(number, data=data))
    answer = console.get("/console/api/rows/group", params={"columns": '["number", "text"]'})
    page = answer.json()
    assert 1 < len(page["rows"]) < 12
    assert len(answer.content) < 20_000
    assert walk_down(console) == walk_up(console) == [*range(11, -1, -1)]


def test_outputs_with_files_are_rows(client: Client, console: ConsoleClient) -> None:
    client.store("group", output(1, files=[{"field": "image", "id": store_file(client, 1)}]))
    client.store("group", output(1, files=[], data={"number": 2}))
    [row] = rows(console, "number", changes="true")["rows"]
    assert row["changed"] == {"number": ["n", "1"]}
    assert row["changes"] == 2


def test_the_extent_is_of_the_group_or_the_job(client: Client, console: ConsoleClient) -> None:
    client.store("group", output(1, job_id="a"), output(2, job_id="b"), output(3, job_id="a"))
    third, second, first = (row["cursor"] for row in rows(console)["rows"])
    page = rows(console, country="France")
    assert (page["newest"], page["oldest"]) == (third, first)
    page = rows(console, job_id="b")
    assert (page["newest"], page["oldest"]) == (second, second)
    page = rows(console, job_id="nobody")
    assert (page["newest"], page["oldest"], page["newer"], page["older"]) == (None,) * 4


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ({"columns": "price"}, "columns"),
        ({"columns": '["a..b"]'}, "columns"),
        ({"columns": '["$.files"]'}, "columns"),
        ({"columns": '["$.tagscountry"]'}, "columns"),
        ({"columns": "[1]"}, "columns"),
        ({"columns": json.dumps(["a"] * 31)}, "columns"),
        ({"limit": "201"}, "limit"),
        ({"before": "-1"}, "before"),
        ({"offset": "3"}, "offset"),
    ],
)
def test_invalid_queries_are_rejected(
    client: Client, console: ConsoleClient, query: dict[str, str], name: str
) -> None:
    client.store("group", output(1))
    answer = console.get("/console/api/rows/group", params=query)
    assert answer.status_code == 422
    assert answer.json()["detail"][0]["loc"] == ["query", name]


def test_an_unknown_group_is_404(console: ConsoleClient) -> None:
    assert console.get("/console/api/rows/nothing").status_code == 404


def test_rows_need_a_session_with_the_scope(service: Service, client: Client) -> None:
    client.store("group", output(1))
    assert client.get("/console/api/rows/group").status_code == 401
    limited = service.token(scopes=frozenset({"reviews:read"}))
    with closing(ConsoleClient(service.url, limited)) as console:
        assert console.get("/console/api/rows/group").status_code == 403


def test_another_organization_sees_nothing(service: Service, client: Client) -> None:
    client.store("group", output(1))
    with closing(ConsoleClient(service.url, service.token())) as other:
        assert other.get("/console/api/rows/group").status_code == 404
