"""Field statistics: rates, kinds and ranges of the stored outputs, scrapes and drift."""

from __future__ import annotations

from typing import Any

import pytest

from gleanery.storage.statistics import fields as fields_module
from gleanery.storage.statistics import shapes, summary
from tests.support.databases import execute_sql
from tests.support.outputs import output
from tests.support.service import Client, Clock, Service

HOUR = 3600
ROUTE = "/v1/groups/group/fields"
OF_JOB = "job_id = (SELECT job_id FROM outputs WHERE identity = $1)"


def read(client: Client, **query: Any) -> dict[str, Any]:
    answer = client.get(ROUTE, params=query)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def by_path(fields: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {field["path"]: field for field in fields}


def store(client: Client, *values: dict[str, Any], job: str = "job", first: int = 0) -> None:
    numbered = enumerate(values, first)
    client.store("group", *(output(number, data=data, job_id=job) for number, data in numbered))


def test_fields_have_rates_kinds_and_ranges(client: Client) -> None:
    offer = {"price": 3, "seller.id": "a"}
    store(
        client,
        {"title": "a title", "price": 2.5, "offer": offer, "tags": ["a", "b"], "sold": True},
        {"title": "", "price": -1, "offer": {}, "tags": [], "sold": None},
        {"title": "another", "price": 10**30},
    )
    found = read(client)
    assert found["group_id"] == "group"
    assert found["job_id"] is None
    assert (found["outputs"], found["counted_outputs"]) == (3, 3)
    fields = by_path(found["fields"])
    assert {path: field["kinds"] for path, field in fields.items()} == {
        "offer": {"empty_object": 1, "object": 1},
        "offer.price": {"integer": 1},
        'offer["seller.id"]': {"string": 1},
        "price": {"integer": 2, "number": 1},
        "sold": {"boolean": 1, "null": 1},
        "tags": {"array": 1, "empty_array": 1},
        "title": {"empty_string": 1, "string": 2},
    }
    assert fields["price"]["fill_rate"] == 1.0
    assert fields["price"]["range"] == {"min": -1, "max": 1e30}
    assert fields["price"]["length"] is None
    assert fields["title"]["filled"] == 2
    assert fields["title"]["fill_rate"] == 0.6667
    assert fields["title"]["range"] is None
    assert fields["title"]["length"] == {"min": 7, "median": 7, "max": 7}
    assert fields["tags"]["length"] == {"min": 2, "median": 2, "max": 2}
    assert found["drift"] == []


@pytest.mark.parametrize("data", [{"n" * 9000: [1]}, {f"{n:050}": {"a": n} for n in range(120)}])
def test_outputs_with_long_names_are_stored_and_not_counted(
    client: Client, data: dict[str, Any]
) -> None:
    store(client, data, {"a": 1}, data | {"b": "text"})
    found = read(client)
    assert (found["outputs"], found["counted_outputs"]) == (3, 1)
    assert [field["path"] for field in found["fields"]] == ["a"]
    assert "properties" not in found["schema"]


def test_a_job_has_its_own_statistics(client: Client) -> None:
    store(client, {"a": 1}, {"a": 2}, job="one")
    store(client, {"a": "text", "b": 1}, job="two")
    assert by_path(read(client)["fields"])["a"]["kinds"] == {"integer": 2, "string": 1}
    two = read(client, job_id="two")
    assert (two["job_id"], two["outputs"]) == ("two", 1)
    assert by_path(two["fields"]).keys() == {"a", "b"}
    assert [scrape["job_id"] for scrape in two["scrapes"]] == ["two"]

    assert client.get(ROUTE, params={"job_id": "three"}).status_code == 404
    assert client.get("/v1/groups/other/fields").status_code == 404
    client.delete("/v1/groups/group/jobs/two")
    assert client.get(ROUTE, params={"job_id": "two"}).status_code == 404
    assert by_path(read(client)["fields"])["a"]["kinds"] == {"integer": 2}
    client.delete("/v1/groups/group")
    store(client, {"c": 1}, job="one")
    assert by_path(read(client)["fields"]).keys() == {"c"}


def test_fields_are_read_within_limits(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Data with ids as names can have millions of fields."""
    monkeypatch.setattr(summary, "_MAX_NAMES", 3)
    store(client, {"a": 1, "b": 2}, {"a": 2, "b": 2}, {"a": 1, "id 1": 1, "id 2": 1}, job="one")
    found = by_path(read(client)["fields"])
    assert found["a"]["kinds"] == {"integer": 3}
    assert found["b"]["kinds"] == {"integer": 2}
    assert len(found) == 3
    store(client, {"c": 1}, job="two")
    monkeypatch.setattr(fields_module, "_MAX_SUMMED_FIELDS", 1)
    limited = read(client)
    assert (limited["outputs"], limited["counted_outputs"]) == (4, 3)
    assert "properties" not in limited["schema"]
    assert read(client, job_id="two")["counted_outputs"] == 1


@pytest.mark.thorough
def test_a_batch_classifies_a_limited_number_of_fields(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ids as names of objects and of their members could give a batch a million fields."""
    monkeypatch.setattr(shapes, "_MAX_FIELDS", 20)
    store(
        client, *({f"id {n}": {f"id {n} {m}": m for m in range(9)}} for n in range(4)), {"id 0": 1}
    )
    found = read(client)
    assert (found["outputs"], found["counted_outputs"]) == (5, 3)


def test_changes_and_deletions_are_subtracted(client: Client) -> None:
    store(client, {"price": 1}, {"price": 2}, {"price": 3})
    store(client, {"price": "2"}, first=1)
    assert by_path(read(client)["fields"])["price"]["kinds"] == {"integer": 2, "string": 1}
    [item, *_] = client.items("group")
    client.delete(f"/v1/outputs/group/{item['output_id']}")
    found = read(client)
    assert found["outputs"] == 2
    assert by_path(found["fields"])["price"]["kinds"] == {"integer": 1, "string": 1}
    [scrape] = found["scrapes"]
    assert scrape["outputs"] == 3
    assert by_path(scrape["fields"])["price"]["kinds"] == {"integer": 2, "string": 1}


@pytest.mark.thorough
def test_a_large_batch_has_statistics(client: Client) -> None:
    """It is prepared in another process."""
    count = 9000
    body = [
        output(number, data={"text": "x" * 500, "number": 10**20 if number == 7 else number})
        for number in range(count)
    ]
    assert client.post("/v1/outputs/group", json=body).status_code == 200
    found = read(client)
    assert found["counted_outputs"] == count
    fields = by_path(found["fields"])
    assert fields["number"]["range"] == {"min": 0, "max": 1e20}
    assert fields["text"]["length"] == {"min": 500, "median": 500, "max": 500}


def test_a_scrape_ends_after_a_pause(timed: Client, clock: Clock) -> None:
    store(timed, {"a": 1}, {"a": 2})
    clock.move(seconds=HOUR / 3)
    store(timed, {"a": 2}, {"a": 3}, first=1)
    [scrape] = read(timed)["scrapes"]
    assert scrape["outputs"] == 3

    clock.move(seconds=HOUR)
    store(timed, {"a": 1})
    store(timed, {"a": 1}, {"b": 2})
    newest, oldest = read(timed)["scrapes"]
    assert oldest == scrape
    assert newest["outputs"] == 2
    assert newest["started"] > scrape["last_seen"] > scrape["started"]
    assert by_path(newest["fields"]).keys() == {"a", "b"}


def test_drift_is_a_departure_from_earlier_scrapes(timed: Client, clock: Clock) -> None:
    def scrape(filled: int, count: int = 100) -> list[dict[str, Any]]:
        clock.move(seconds=HOUR)
        values = ({"title": "a", "price": n if n < filled else None} for n in range(count))
        store(timed, *values)
        found: list[dict[str, Any]] = read(timed)["drift"]
        return found

    assert scrape(99) == scrape(98) == scrape(100) == scrape(95) == []
    drifted = {"job_id": "job", "path": "price", "before": 0.985, "now": 0.61}
    assert scrape(61) == [drifted]
    assert scrape(99) == []
    assert scrape(0, count=49) == []  # too few outputs


def test_old_scrapes_and_their_shapes_are_forgotten(timed: Client, clock: Clock) -> None:
    for number in range(40):
        store(timed, {f"field {number}": 1})
        clock.move(seconds=HOUR)
    found = read(timed)
    assert len(found["scrapes"]) == 10
    assert by_path(found["fields"]).keys() == {'["field 39"]'}


@pytest.mark.extended
@pytest.mark.thorough
def test_many_shapes_are_counted_together(client: Client) -> None:
    store(client, *({f"field{number}": number} for number in range(300)), {"field1": "text"})
    found = read(client)
    assert (found["outputs"], found["counted_outputs"]) == (301, 256)
    assert len(found["fields"]) == 256
    assert found["schema"]["properties"]["field1"] == {
        "type": ["integer", "string"],
        "minLength": 1,
    }
    for item in client.items("group", limit=1000):
        client.delete(f"/v1/outputs/group/{item['output_id']}")
    found = read(client)
    assert (found["outputs"], found["counted_outputs"], found["fields"]) == (0, 0, [])


def combination(number: int) -> dict[str, Any]:
    """A value with one of 512 sets of members, in one of two orders."""
    members = [(f"m{bit}", number) for bit in range(9) if number >> bit & 1]
    return {"name": "text", "attributes": dict(members if number % 3 else reversed(members))}


def filled(values: list[dict[str, Any]], name: str) -> int:
    return sum(name in value["attributes"] for value in values)


@pytest.mark.thorough
def test_combinations_of_nested_members_are_counted_by_field(client: Client) -> None:
    """The rates are exact up to the limit of shapes; beyond it, all outputs are still counted."""
    values = [combination(number) for number in range(1, 257)]
    store(client, *values, *values)
    found = read(client)
    assert (found["outputs"], found["counted_outputs"]) == (512, 512)
    fields = by_path(found["fields"])
    for bit in range(9):
        assert fields[f"attributes.m{bit}"]["filled"] == 2 * filled(values, f"m{bit}")
    assert fields["attributes.m0"]["range"] == {"min": 1, "max": 255}

    more = [combination(number) for number in range(257, 512)]
    store(client, *more, first=512)
    store(client, *more, *values[:100], first=512)  # the same values again, and some new ones
    found = read(client)
    assert (found["outputs"], found["counted_outputs"]) == (512 + 255 + 100, 512 + 100)
    fields = by_path(found["fields"])
    count = 2 * filled(values, "m1") + filled(values[:100], "m1")
    assert fields["attributes.m1"]["kinds"] == {"integer": count}
    assert fields["attributes.m1"]["range"] == {"min": 2, "max": 511}
    assert found["schema"]["properties"]["attributes"]["properties"].keys() == {
        f"m{bit}" for bit in range(9)
    }


@pytest.mark.thorough
def test_names_that_vary_without_end_are_stored_and_not_counted(client: Client) -> None:
    values = [{"price": n, "prices": {f"{n}-{k}": k for k in range(5)}} for n in range(300)]
    store(client, *values)
    found = read(client)
    assert found["outputs"] == 300
    assert 0 < found["counted_outputs"] <= 256
    assert len(found["fields"]) == 256
    assert by_path(found["fields"])["price"]["filled"] == found["counted_outputs"]


def test_outputs_from_before_the_statistics_are_not_counted(
    service: Service, client: Client
) -> None:
    """They are counted from their next change on, and no schema is suggested until then."""
    store(client, {"a": 1}, {"a": 2}, {"a": 3})
    ids = [item["output_id"] for item in client.items("group")]
    for table in ("job_statistics", "job_shapes"):
        execute_sql(service.settings, f"DELETE FROM {table} WHERE {OF_JOB}", bytes.fromhex(ids[0]))
    execute_sql(
        service.settings, f"UPDATE outputs SET shape = NULL WHERE {OF_JOB}", bytes.fromhex(ids[0])
    )
    found = read(client)
    assert (found["outputs"], found["counted_outputs"]) == (3, 0)

    store(client, {"a": 1}, {"a": "text"})
    client.delete(f"/v1/outputs/group/{ids[2]}")
    found = read(client)
    assert (found["outputs"], found["counted_outputs"]) == (2, 1)
    assert by_path(found["fields"])["a"]["kinds"] == {"string": 1}
    assert "properties" not in found["schema"]
    store(client, {"a": 5})
    assert read(client)["schema"]["required"] == ["a"]
