"""Field statistics: rates, kinds and ranges of the stored outputs, runs and drift."""

from __future__ import annotations

import random
import sys
from collections import Counter
from typing import Any

import pytest

from gleanery.service.resources.fields import reading, reports, shapes
from tests.support.databases import execute_sql
from tests.support.history import read_rows
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
    assert fields["price"]["range"] == {"min": -1, "max": 10**30}
    assert fields["price"]["length"] is None
    assert fields["title"]["filled"] == 2
    assert fields["title"]["fill_rate"] == 0.6667
    assert fields["title"]["range"] is None
    assert fields["title"]["length"] == {"min": 7, "median": 7, "max": 7}
    assert fields["tags"]["length"] == {"min": 2, "median": 2, "max": 2}
    assert found["drift"] == []


@pytest.mark.parametrize(
    "data", [{"n" * 9000: [1]}, {"o": {"n" * 300: 1}}, {f"n{n}": 1 for n in range(700)}]
)
def test_outputs_are_counted_without_fields_that_are_too_long_or_too_many(
    client: Client, data: dict[str, Any]
) -> None:
    store(client, {"a": 1}, data, data | {"a": "text"})
    found = read(client)
    assert (found["outputs"], found["counted_outputs"]) == (3, 3)
    fields = by_path(found["fields"])
    assert fields["a"]["kinds"] == {"integer": 1, "string": 1}
    assert len(fields) <= 256
    assert "properties" not in found["schema"]
    for item in client.items("group"):
        if len(item["data"]) != 1 or "a" not in item["data"]:
            client.delete(f"/v1/outputs/group/{item['output_id']}")
    found = read(client)
    assert (found["counted_outputs"], by_path(found["fields"]).keys()) == (1, {"a"})
    assert found["schema"]["required"] == ["a"]


def test_unlisted_fields_may_be_empty_in_some_outputs_of_a_batch(client: Client) -> None:
    """Many outputs with the same fields, of which one is too long to be listed."""
    texts = ("", "text", "", "longer")
    store(client, *({"a": n, "n" * 300: texts[n % 4]} for n in range(20)))
    store(client, *({"a": -n, "o": {"n" * 300: texts[n % 4]}} for n in range(20)), first=20)
    found = read(client)
    assert (found["outputs"], found["counted_outputs"]) == (40, 40)
    assert by_path(found["fields"])["a"]["range"] == {"min": -19, "max": 19}


def test_integers_of_any_size_have_an_exact_range(client: Client) -> None:
    for number in (2**53 + 1, 2**63 + 1, 10**30 + 1):
        store(client, {"n": -number}, {"n": 7.5}, {"n": number})
        assert by_path(read(client)["fields"])["n"]["range"] == {"min": -number, "max": number}
    store(client, {"n": 10**400})  # beyond the range of a double
    assert by_path(read(client)["fields"])["n"]["range"]["max"] == int(sys.float_info.max)


def test_a_job_has_its_own_statistics(client: Client) -> None:
    store(client, {"a": 1}, {"a": 2}, job="one")
    store(client, {"a": "text", "b": 1}, job="two")
    assert by_path(read(client)["fields"])["a"]["kinds"] == {"integer": 2, "string": 1}
    two = read(client, job_id="two")
    assert (two["job_id"], two["outputs"]) == ("two", 1)
    assert by_path(two["fields"]).keys() == {"a", "b"}
    assert [run["job_id"] for run in two["runs"]] == ["two"]

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
    monkeypatch.setattr(reading, "_MAX_NAMES", 3)
    store(client, {"a": 1, "b": 2}, {"a": 2, "b": 2}, {"a": 1, "id 1": 1, "id 2": 1}, job="one")
    found = by_path(read(client)["fields"])
    assert found["a"]["kinds"] == {"integer": 3}
    assert found["b"]["kinds"] == {"integer": 2}
    assert len(found) == 3
    store(client, {"c": 1}, job="two")
    monkeypatch.setattr(reports, "_MAX_SUMMED_FIELDS", 1)
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
    assert (found["outputs"], found["counted_outputs"]) == (5, 5)
    assert by_path(found["fields"])['["id 0"]']["kinds"] == {"integer": 1, "object": 1}
    assert "properties" not in found["schema"]


def test_changes_and_deletions_are_subtracted(client: Client) -> None:
    store(client, {"price": 1}, {"price": 2}, {"price": 3})
    store(client, {"price": "2"}, first=1)
    assert by_path(read(client)["fields"])["price"]["kinds"] == {"integer": 2, "string": 1}
    [item, *_] = client.items("group")
    client.delete(f"/v1/outputs/group/{item['output_id']}")
    found = read(client)
    assert found["outputs"] == 2
    assert by_path(found["fields"])["price"]["kinds"] == {"integer": 1, "string": 1}
    [run] = found["runs"]
    assert run["outputs"] == 3
    assert by_path(run["fields"])["price"]["kinds"] == {"integer": 2, "string": 1}


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
    assert fields["number"]["range"] == {"min": 0, "max": 10**20}
    assert fields["text"]["length"] == {"min": 500, "median": 500, "max": 500}


def test_an_implicit_run_ends_after_a_pause(timed: Client, clock: Clock) -> None:
    store(timed, {"a": 1}, {"a": 2})
    clock.move(seconds=HOUR / 3)
    store(timed, {"a": 2}, {"a": 3}, first=1)
    [run] = read(timed)["runs"]
    assert (run["outputs"], run["status"]) == (3, "running")

    clock.move(seconds=HOUR)
    store(timed, {"a": 1})
    store(timed, {"a": 1}, {"b": 2})
    newest, oldest = read(timed)["runs"]
    assert oldest == run | {"status": "unknown"}
    assert newest["outputs"] == 2
    assert newest["start_date"] > run["last_date"] > run["start_date"]
    assert by_path(newest["fields"]).keys() == {"a", "b"}


def test_drift_is_a_departure_from_earlier_runs(timed: Client, clock: Clock) -> None:
    def run(filled: int, count: int = 100) -> list[dict[str, Any]]:
        clock.move(seconds=HOUR)
        values = ({"title": "a", "price": n if n < filled else None} for n in range(count))
        store(timed, *values)
        found: list[dict[str, Any]] = read(timed)["drift"]
        return found

    assert run(99) == run(98) == run(100) == run(95) == []
    drifted = {"job_id": "job", "path": "price", "before": 0.985, "now": 0.61}
    assert run(61) == [drifted]
    assert run(99) == []
    assert run(0, count=49) == []  # too few outputs


def test_old_runs_and_their_shapes_are_forgotten(timed: Client, clock: Clock) -> None:
    for number in range(40):
        store(timed, {f"field {number}": 1})
        clock.move(seconds=HOUR)
    found = read(timed)
    assert len(found["runs"]) == 10
    assert by_path(found["fields"]).keys() == {'["field 39"]'}


@pytest.mark.thorough
@pytest.mark.parametrize("names", [300, 700])
def test_fields_that_no_output_has_any_more_leave_no_trace(client: Client, names: int) -> None:
    """Even if they were more than a job can list, in the same run."""
    store(client, *({f"field{number}": number} for number in range(names)), {"field1": "text"})
    found = read(client)
    assert (found["outputs"], found["counted_outputs"]) == (names + 1, names + 1)
    assert by_path(found["fields"])["field1"]["kinds"] == {"integer": 1, "string": 1}
    for item in client.items("group", limit=1000):
        client.delete(f"/v1/outputs/group/{item['output_id']}")
    found = read(client)
    assert (found["outputs"], found["counted_outputs"], found["fields"]) == (0, 0, [])

    ordinary = {f"name {number}": number for number in range(240)}
    store(client, *({"number": number} | ordinary for number in range(500)))
    found = read(client)
    assert (found["outputs"], found["counted_outputs"]) == (500, 500)
    assert all(field["kinds"] == {"integer": 500} for field in found["fields"])
    assert found["schema"]["properties"]["number"] == {"type": "integer"}


def combination(number: int) -> dict[str, Any]:
    """A value with one of 512 sets of members, in one of two orders."""
    members = [(f"m{bit}", number) for bit in range(9) if number >> bit & 1]
    return {"name": "text", "attributes": dict(members if number % 3 else reversed(members))}


def filled(values: list[dict[str, Any]], name: str) -> int:
    return sum(name in value["attributes"] for value in values)


@pytest.mark.thorough
def test_combinations_of_nested_members_are_counted_by_field(client: Client) -> None:
    """The rates are exact, whatever the number of sets of fields is."""
    values = [combination(number) for number in range(1, 512)]
    store(client, *values, *values)
    store(client, *values, *values[:100], first=len(values))  # the same values, and some others
    stored = [*values, *values, *values[:100]]
    found = read(client)
    assert (found["outputs"], found["counted_outputs"]) == (len(stored), len(stored))
    fields = by_path(found["fields"])
    for bit in range(9):
        count = filled(stored, f"m{bit}")
        assert fields[f"attributes.m{bit}"]["kinds"] == {"integer": count}
    assert fields["attributes.m1"]["range"] == {"min": 2, "max": 511}
    assert found["schema"]["properties"]["attributes"]["properties"].keys() == {
        f"m{bit}" for bit in range(9)
    }


@pytest.mark.thorough
def test_names_that_vary_without_end_do_not_hide_the_others(client: Client) -> None:
    values = [{"price": n, "prices": {f"{n}-{k}": k for k in range(5)}} for n in range(300)]
    store(client, *values)
    found = read(client)
    assert (found["outputs"], found["counted_outputs"]) == (300, 300)
    assert len(found["fields"]) == 256
    fields = by_path(found["fields"])
    assert (fields["price"]["filled"], fields["prices"]["filled"]) == (300, 300)
    store(client, {"title": "a"}, {"title": ""}, first=300)
    assert by_path(read(client)["fields"])["title"]["filled"] == 1


def attributes(number: int, names: int, share: float) -> dict[str, Any]:
    """A value in which this share of the attributes is filled, chosen at random."""
    numbers = random.Random(number)
    filled = [name for name in range(names) if numbers.random() < share]
    return {"title": "a", "attributes": {f"a{name}": number for name in filled}}


def kinds_of(values: list[dict[str, Any]]) -> dict[str, int]:
    """The number of values in which each attribute is filled."""
    return Counter(name for value in values for name in value["attributes"])


@pytest.mark.thorough
def test_optional_attributes_have_exact_rates_in_each_run(timed: Client, clock: Clock) -> None:
    outputs = 100
    for run in range(10):
        values = [attributes(run * outputs + n, 15, 0.9) for n in range(outputs)]
        store(timed, *values)
        found = read(timed)
        assert (found["outputs"], found["counted_outputs"]) == (outputs, outputs)
        for fields in (found["fields"], found["runs"][0]["fields"]):
            filled = {one["path"]: one["filled"] for one in fields if "." in one["path"]}
            expected = kinds_of(values).items()
            assert filled == {f"attributes.{name}": count for name, count in expected}
        clock.move(seconds=HOUR)


@pytest.mark.thorough
def test_thousands_of_sets_are_counted_exactly(client: Client) -> None:
    values = [attributes(number, 40, 0.5) for number in range(3000)]
    assert len({tuple(value["attributes"]) for value in values}) > 2900
    for start in range(0, len(values), 1000):
        store(client, *values[start : start + 1000], first=start)
    found = read(client)
    assert (found["outputs"], found["counted_outputs"]) == (3000, 3000)
    filled = {one["path"]: one["filled"] for one in found["fields"] if "." in one["path"]}
    assert filled == {f"attributes.{name}": count for name, count in kinds_of(values).items()}
    sample = client.get("/v1/reviews/group/sample", params={"job_id": "job"})
    assert "rare_shape" not in {one["reason"] for one in sample.json()["sample"]}


def test_outputs_of_an_older_program_are_counted_when_they_are_stored_again(
    service: Service, client: Client
) -> None:
    """No schema is suggested until all are counted. Unchanged outputs are counted as well."""
    values = [{"a": number} for number in range(20)]  # so many that unchanged ones are not parsed
    store(client, *values)
    ids = [item["output_id"] for item in client.items("group")]
    for change in (
        "UPDATE job_statistics SET field_counts = '[]'",
        "UPDATE runs SET created_count = 0, slot_counts = '[]'",
        "UPDATE outputs SET fields = NULL, shape = 5, run_id = 0, run_change = 0",
    ):
        execute_sql(service.settings, f"{change} WHERE {OF_JOB}", bytes.fromhex(ids[0]))
    found = read(client)
    assert (found["outputs"], found["counted_outputs"], found["fields"]) == (20, 0, [])
    assert client.get("/v1/reviews/group/sample", params={"job_id": "job"}).status_code == 200

    store(client, {"a": "text"})
    client.delete(f"/v1/outputs/group/{ids[19]}")
    found = read(client)
    assert (found["outputs"], found["counted_outputs"]) == (19, 1)
    assert by_path(found["fields"])["a"]["kinds"] == {"string": 1}
    assert "properties" not in found["schema"]
    store(client, *values[1:19], first=1)
    for _ in range(2):
        found = read(client)
        assert (found["outputs"], found["counted_outputs"]) == (19, 19)
        assert by_path(found["fields"])["a"]["kinds"] == {"integer": 18, "string": 1}
        assert found["runs"][0]["outputs"] == 19
        assert found["schema"]["required"] == ["a"]
        store(client, *values[1:19], first=1)  # they are counted once


def test_a_run_counts_an_output_once_that_is_deleted_and_stored_again(
    timed: Client, clock: Clock
) -> None:
    def run() -> tuple[int, dict[str, Any]]:
        newest = read(timed)["runs"][0]
        return newest["outputs"], {one["path"]: one["kinds"] for one in newest["fields"]}

    def delete_all() -> None:
        for item in timed.items("group"):
            timed.delete(f"/v1/outputs/group/{item['output_id']}")

    store(timed, {"a": 1}, {"a": 2})
    delete_all()
    assert run() == (2, {"a": {"integer": 2}})
    store(timed, {"a": 1})
    assert run() == (2, {"a": {"integer": 2}})
    delete_all()
    store(timed, {"a": "other"}, {"b": 1})
    assert run() == (2, {"a": {"string": 1}, "b": {"integer": 1}})
    delete_all()
    clock.move(seconds=HOUR)
    store(timed, {"a": 1})
    assert run() == (1, {"a": {"integer": 1}})
    assert read(timed)["runs"][1]["outputs"] == 2


@pytest.mark.parametrize("is_ended", [False, True])
def test_deleted_outputs_are_remembered_only_during_the_run(
    timed_service: Service, timed: Client, clock: Clock, is_ended: bool
) -> None:
    """Nothing remains of them if the job begins no other run. The run keeps its counts."""

    def count_remembered() -> int:
        sql = "SELECT count(*) FROM run_sightings WHERE organization_id = $1"
        return int(read_rows(timed_service, timed, sql)[0][0])

    store(timed, *({"a": number} for number in range(5)))
    clock.move(seconds=HOUR if is_ended else 60)
    for item in timed.items("group")[:3]:
        timed.delete(f"/v1/outputs/group/{item['output_id']}")
    assert count_remembered() == (0 if is_ended else 3)
    timed_service.sweep(clock)
    assert count_remembered() == (0 if is_ended else 3)
    clock.move(seconds=2 * HOUR)
    timed_service.sweep(clock)
    assert count_remembered() == 0
    assert read(timed)["runs"][0]["outputs"] == 5
    store(timed, {"a": 1})
    assert [run["outputs"] for run in read(timed)["runs"]] == [1, 5]


@pytest.mark.parametrize("is_ended", [False, True])
def test_expired_outputs_are_not_remembered(
    timed_service: Service, timed: Client, clock: Clock, is_ended: bool
) -> None:
    """A run without a pause forgets them; one that has ended keeps its counts."""
    store(timed, *({"a": number} for number in range(5)))
    timed.put("/v1/groups/group", json={"retain_days": 1})
    for _ in range(0 if is_ended else 75):
        clock.move(seconds=20 * 60)
        store(timed, {"a": 0})
    if is_ended:
        clock.move(seconds=25 * HOUR)
        store(timed, {"a": 0})
        clock.move(seconds=HOUR)
    timed_service.sweep(clock)
    assert len(timed.items("group")) == 1
    sql = "SELECT count(*) FROM run_sightings WHERE organization_id = $1"
    assert read_rows(timed_service, timed, sql)[0][0] == 0
    assert read(timed)["runs"][-1]["outputs"] == (5 if is_ended else 1)


def test_the_end_of_a_run_leaves_the_fields_of_another_run(client: Client) -> None:
    """Even those of an output that was deleted since then."""

    def start() -> str:
        return str(client.post("/v1/runs/group", json={"job_id": "job"}).json()["run_id"])

    def push(number: int, data: dict[str, Any]) -> str:
        body = [output(number, data=data)]
        answer = client.post("/v1/outputs/group", params={"run_id": other}, json=body)
        return str(answer.json()["results"][0]["output_id"])

    def kinds() -> dict[str, Any]:
        [found] = [run for run in read(client)["runs"] if run["run_id"] == other]
        return {one["path"]: one["kinds"] for one in found["fields"]}

    ended, other = start(), start()
    push(1, {"a": 1})
    client.delete(f"/v1/outputs/group/{push(2, {'b': 1})}")
    assert client.post(f"/v1/runs/group/{ended}/finish", json={"status": "partial"}).is_success
    assert kinds() == {"a": {"integer": 1}, "b": {"integer": 1}}
    push(3, {"c": 1})
    push(2, {"a": 1})
    assert kinds() == {"a": {"integer": 2}, "c": {"integer": 1}}


def test_a_run_counts_the_value_that_another_run_has_changed_since_then(client: Client) -> None:
    """It sends the new value, which is not a change any more."""
    store(client, {"a": 1}, {"a": 2})
    run_id = client.post("/v1/runs/group", json={"job_id": "job"}).json()["run_id"]
    body = [output(0, data={"b": 1})]
    client.post("/v1/outputs/group", params={"run_id": run_id}, json=body)
    store(client, {"b": 1}, {"a": 2})
    [found] = [run for run in read(client)["runs"] if run["run_id"] != run_id]
    kinds = {one["path"]: one["kinds"] for one in found["fields"]}
    assert kinds == {"a": {"integer": 1}, "b": {"integer": 1}}
