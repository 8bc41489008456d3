"""Groups over HTTP, on both engines: counts, settings, schemas and deletion."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import uvloop

from gleanery.service.foundation.json_schema import SchemaValidator
from tests.support.outputs import output
from tests.support.process import PROC, children
from tests.support.service import DAY, Client, Clock, Service
from tests.support.waiting import wait_until


def put(client: Client, **settings: Any) -> Any:
    return client.put("/v1/groups/group", json=settings)


def show(client: Client) -> dict[str, Any]:
    found: dict[str, Any] = client.get("/v1/groups/group").json()
    return found


def assert_counts_are_true(client: Client) -> None:
    """Incremental counts equal the counts of a full scan."""
    items = client.items("group", limit=1000)
    group = show(client)
    assert group["outputs"] == len(items)
    jobs = Counter(item["root_job_id"] for item in items)
    approved = Counter(item["root_job_id"] for item in items if item["is_approved"])
    assert {j["job_id"]: j["outputs"] for j in group["jobs"] if j["outputs"]} == jobs
    assert {j["job_id"]: j["approved"] for j in group["jobs"] if j["approved"]} == approved
    countries = Counter(i["tags"]["country"] for i in items if "country" in i["tags"])
    assert group["countries"] == countries


def test_a_group_is_shown_with_its_jobs_and_counts(client: Client) -> None:
    tags = {"country": "DE"}
    client.store("group", output(1, tags=tags), output(2), output(3, job_id="other", tags=tags))
    client.store("another", output(1))
    review = {"job_id": "job", "status": "approved", "comment": "fine"}
    made = client.post("/v1/reviews/group", json=review).json()
    group = show(client)
    last = client.items("group")[-1]
    assert isinstance(group.pop("id"), int)
    assert isinstance(group.pop("cursor"), int)
    assert group == {
        "group_id": "group",
        "display_name": None,
        "outputs": 3,
        "countries": {"DE": 2},
        "has_more_countries": False,
        "last_change": last["update_date"],
        "key_fields": None,
        "schema": None,
        "retain_days": None,
        "keep_versions": 20,
        "keep_days": 90,
        "run_timeout_minutes": 360,
        "missing": {"after_runs": None, "max_share": 0.3},
        "jobs": [
            {"job_id": "job", "outputs": 2, "approved": 2, "latest_review": made},
            {"job_id": "other", "outputs": 1, "approved": 0, "latest_review": None},
        ],
        "metadata": {"next_url": None, "next_cursor": None},
    }
    listed = client.get("/v1/groups").json()
    assert [one["group_id"] for one in listed] == ["group", "another"]
    assert listed[0] == show(client)
    assert client.get("/v1/groups/unknown").status_code == 404


def test_groups_are_listed_in_pages(client: Client) -> None:
    names = [f"group {n}" for n in range(5)]
    for name in names:
        client.store(name, output(1), output(2, job_id="second", tags={"country": "Peru"}))
    client.delete("/v1/groups/group 1")
    found, address = [], "/v1/groups?limit=2"
    while address:
        answer = client.get(address)
        assert answer.status_code == 200
        found += answer.json()
        address = answer.links.get("next", {}).get("url", "")
    assert [one["group_id"] for one in found] == [name for name in names if name != "group 1"]
    assert found == client.get("/v1/groups").json()
    assert "link" not in client.get("/v1/groups").headers
    for one in found:
        assert [job["job_id"] for job in one["jobs"]] == ["job", "second"]
        assert one["countries"] == {"PE": 1}


def test_counts_stay_right_through_every_kind_of_change(client: Client) -> None:
    def tagged(number: int, country: str, **members: Any) -> dict[str, Any]:
        return output(number, tags={"country": country}, **members)

    client.store("group", *(tagged(n, "DE", job_id=f"j{n % 3}") for n in range(30)))
    assert_counts_are_true(client)
    client.post("/v1/reviews/group", json={"job_id": "j0", "status": "approved"})
    assert_counts_are_true(client)
    client.store("group", tagged(0, "FR", job_id="j0"), output(3, job_id="j0", data={}))
    assert_counts_are_true(client)
    for item in client.items("group", limit=4)[:4]:
        client.delete(f"/v1/outputs/group/{item['output_id']}")
    assert_counts_are_true(client)
    client.post("/v1/reviews/group", json={"job_id": "j0", "status": "rejected"})
    client.delete("/v1/groups/group/jobs/j1")
    assert_counts_are_true(client)


def test_a_group_can_be_set_up_before_its_first_output(client: Client) -> None:
    answer = put(client, display_name="Prices", retain_days=7, key_fields=["sku"], schema={})
    assert answer.status_code == 200
    group = answer.json()
    assert group == show(client)
    assert (group["display_name"], group["retain_days"]) == ("Prices", 7)
    assert (group["key_fields"], group["schema"]) == (["sku"], {})
    assert (group["outputs"], group["last_change"]) == (0, None)
    assert put(client).json()["retain_days"] is None
    group = put(client, keep_versions=0, keep_days=36_500).json()
    assert (group["keep_versions"], group["keep_days"]) == (0, 36_500)
    assert put(client, keep_versions=1000).json()["keep_days"] == 90
    assert put(client).json()["keep_versions"] == 20


def test_the_settings_of_runs(client: Client) -> None:
    group = put(client, run_timeout_minutes=10, missing={"after_runs": 2, "max_share": 0}).json()
    assert group == show(client)
    assert group["run_timeout_minutes"] == 10
    assert group["missing"] == {"after_runs": 2, "max_share": 0.0}
    group = put(client, missing={"after_runs": 3}).json()
    assert group["run_timeout_minutes"] == 360
    assert group["missing"] == {"after_runs": 3, "max_share": 0.3}
    assert put(client).json()["missing"] == {"after_runs": None, "max_share": 0.3}
    put(client, run_timeout_minutes=10, missing={"after_runs": 2, "max_share": 0.5})
    client.delete("/v1/groups/group")
    group = put(client).json()
    assert group["run_timeout_minutes"] == 360
    assert group["missing"] == {"after_runs": None, "max_share": 0.3}


@pytest.mark.parametrize(
    ("wanted", "loc"),
    [
        ({"retain_days": 0}, ["body", "retain_days"]),
        ({"retain_days": "7"}, ["body", "retain_days"]),
        ({"keep_versions": -1}, ["body", "keep_versions"]),
        ({"keep_versions": 1001}, ["body", "keep_versions"]),
        ({"keep_days": 0}, ["body", "keep_days"]),
        ({"run_timeout_minutes": 0}, ["body", "run_timeout_minutes"]),
        ({"run_timeout_minutes": 525_601}, ["body", "run_timeout_minutes"]),
        ({"run_timeout_minutes": "10"}, ["body", "run_timeout_minutes"]),
        ({"missing": {"after_runs": 0}}, ["body", "missing", "after_runs"]),
        ({"missing": {"after_runs": 101}}, ["body", "missing", "after_runs"]),
        ({"missing": {"max_share": 1.01}}, ["body", "missing", "max_share"]),
        ({"missing": {"max_share": -0.1}}, ["body", "missing", "max_share"]),
        ({"missing": {"max_share": "0.5"}}, ["body", "missing", "max_share"]),
        ({"missing": {"max_share": True}}, ["body", "missing", "max_share"]),
        ({"missing": {"after": 1}}, ["body", "missing", "after"]),
        ({"missing": 3}, ["body", "missing"]),
        ({"key_fields": []}, ["body", "key_fields"]),
        ({"key_fields": ["a", "a"]}, ["body", "key_fields"]),
        ({"key_fields": [1]}, ["body", "key_fields", "0"]),
        ({"schema": {"type": 5}}, ["body", "schema", "type"]),
        ({"schema": {"$ref": "https://example.com/other.json"}}, ["body", "schema", "$ref"]),
        ({"schema": []}, ["body", "schema"]),
        ({"schema": {"description": "x" * 65536}}, ["body", "schema"]),
        ({"display_name": "x" * 201}, ["body", "display_name"]),
    ],
)
def test_invalid_settings_are_rejected(client: Client, wanted: Any, loc: list[str]) -> None:
    answer = put(client, **wanted)
    assert answer.status_code == 422
    assert [fault["loc"] for fault in answer.json()["detail"]] == [loc]
    assert client.get("/v1/groups/group").status_code == 404


def test_key_fields_make_the_key(client: Client) -> None:
    put(client, key_fields=["sku", "size"])
    batch = [
        output(1, data={"sku": 1, "size": "S", "price": 1}),
        output(2, data={"sku": 1, "size": "M", "price": 1}),
        output(3, data={"size": "S", "sku": 1.0, "price": 2}),
        output(4, key="own", data={}),
        output(5, data={"sku": 1}),  # a key field is missing, so source_url is the key
        output(5, data={"sku": 2}),
    ]
    changes = [result["change"] for result in client.store("group", *batch)["results"]]
    assert changes == ["created", "created", "updated", "created", "created", "updated"]


@pytest.mark.parametrize("value", [None, {"id": None}, [None], [{"id": None}, [None]]])
def test_a_key_field_without_a_value_merges_no_outputs(client: Client, value: Any) -> None:
    put(client, key_fields=["sku", "size"])
    batch = [output(number, data={"sku": value, "size": "S", "n": number}) for number in range(3)]
    assert client.store("group", *batch)["created"] == 3
    assert [item["data"]["n"] for item in client.items("group")] == [0, 1, 2]
    absent = [output(number, data={"size": "S", "n": number}) for number in range(3)]
    assert client.store("group", *absent)["updated"] == 3  # absent and null are the same key
    lines = b"\n".join(json.dumps(one).encode() for one in batch)
    answer = client.post(
        "/v1/outputs/group", content=lines, headers={"Content-Type": "application/x-ndjson"}
    )
    assert answer.json()["updated"] == 3


def test_a_key_field_with_a_value_beside_null_is_a_key(client: Client) -> None:
    put(client, key_fields=["variant"])
    variants: list[Any] = [{"colour": "red", "size": None}, {"colour": "blue", "size": None}]
    batch = [output(1, data={"variant": one}) for one in (*variants, [], {}, "", False, 0)]
    assert client.store("group", *batch)["created"] == 7


def test_a_null_key_is_the_same_as_no_key(client: Client) -> None:
    put(client, key_fields=["sku"])
    assert client.store("group", output(1, data={"sku": 1}))["created"] == 1
    assert client.store("group", output(2, data={"sku": 1}, key=None))["updated"] == 1
    put(client)
    assert client.store("group", output(3, key=None), output(4, key=None))["created"] == 2


def test_data_must_meet_the_schema(client: Client) -> None:
    put(
        client,
        schema={
            "type": "object",
            "required": ["price"],
            "properties": {"price": {"type": "number", "minimum": 0}},
        },
    )
    good, mark = output(1, data={"price": 5}), "never-repeat-me"
    client.store("group", good)
    bad = [good, output(2, data={}), output(3, data={"price": mark}), output(4, data={"price": -1})]
    answer = client.post("/v1/outputs/group", json=bad)
    assert answer.status_code == 422
    assert [fault["loc"] for fault in answer.json()["detail"]] == [
        ["body", "1", "data"],
        ["body", "2", "data", "price"],
        ["body", "3", "data", "price"],
    ]
    assert "properties/price/minimum" in answer.json()["detail"][2]["msg"]
    assert mark not in answer.text
    assert len(client.items("group")) == 1


def deep(levels: int) -> dict[str, Any]:
    inner: dict[str, Any] = {"leaf": True}
    for _ in range(levels):
        inner = {"next": inner}
    return inner


@pytest.mark.extended
@pytest.mark.thorough
def test_a_schema_that_costs_too_much_delays_nobody(client: Client, service: Service) -> None:
    """The validation time doubles with each level of such data."""
    twice = {"properties": {"next": {"$ref": "#"}}, "required": ["next"]}
    costly_schema = {"anyOf": [{**twice, "minProperties": 1}, {**twice, "maxProperties": 9}]}
    put(client, schema=costly_schema)
    with service.client() as other:
        other.put("/v1/groups/group", json={"schema": {"required": ["number"]}})
        with ThreadPoolExecutor() as pool:
            costly = pool.submit(
                client.post, "/v1/outputs/group", json=[output(1, data=deep(90))], timeout=300
            )
            assert other.get("/v1/groups/group").status_code == 200
            answer = costly.result()
        assert answer.status_code == 422
        assert "simpler" in answer.json()["detail"][0]["msg"]
        assert answer.json()["detail"][0]["loc"] == ["body"]
        assert other.store("group", output(1))["created"] == 1
        put(other, schema=costly_schema)
        assert other.post("/v1/outputs/group", json=[output(1, data={})]).status_code == 422
    for data in ({}, deep(90)):
        answer = client.post("/v1/outputs/group", json=[output(1, data=data)])
        assert answer.status_code == 503
        assert 0 < int(answer.headers["retry-after"]) <= 60
        assert "simpler" in answer.json()["detail"][0]["msg"]
    put(client, schema={"required": ["number"]})
    client.store("group", output(1))


def schema_processes() -> list[int]:
    """Process ids of the schema processes of all services in this process."""
    return children(os.getpid(), b"json_schema")


def test_a_schema_process_with_a_closed_pipe_is_replaced() -> None:
    """Simulates a process that was killed, and that the service has not noticed yet."""

    async def ask_twice() -> tuple[int, int]:
        schemas = SchemaValidator()
        first = await schemas.violations(1, '{"required":["a"]}', [{}])
        process = schemas._normal._worker._process
        assert process is not None
        assert process.stdin is not None
        process.stdin.transport.abort()
        await asyncio.sleep(0.01)
        second = await schemas.violations(1, '{"required":["a"]}', [{}, {}])
        await schemas.close()
        return len(first), len(second)

    assert uvloop.run(ask_twice()) == (1, 2)


@PROC
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_killed_schema_process_is_replaced(client: Client, number: int) -> None:
    put(client, schema={"required": ["number"]})
    client.store("group", output(1))
    assert schema_processes()
    for pid in schema_processes():
        os.kill(pid, number)
    assert client.store("group", output(2))["created"] == 1


@PROC
def test_the_schema_process_gets_no_credentials(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_SECRET_ACCESS_KEY", "PGPASSWORD", "GLEANERY_SECRET_KEY"):
        monkeypatch.setenv(name, "a-credential")
    for pid in schema_processes():  # their environment is older
        os.kill(pid, signal.SIGKILL)
    put(client, schema={"required": ["number"]})
    client.store("group", output(1))
    assert schema_processes()
    for pid in schema_processes():
        assert b"a-credential" not in Path(f"/proc/{pid}/environ").read_bytes()


def test_every_output_that_breaks_the_schema_is_named(client: Client) -> None:
    names = "abcdefghijklmno"
    put(client, schema={"properties": {name: {"type": "string"} for name in names}})
    broken = [output(n, data=dict.fromkeys(names, n)) for n in range(1500)]
    answer = client.post("/v1/outputs/group", json=[output(0, data={}), *broken])
    assert answer.status_code == 422
    named = Counter(fault["loc"][1] for fault in answer.json()["detail"])
    assert set(named) == {str(n) for n in range(1, 1501)}
    assert named["1"] == 10
    assert len(answer.content) < 1_000_000


def test_an_error_in_ndjson_names_its_line(client: Client) -> None:
    put(client, schema={"required": ["number"]})
    lines = ["", "", json.dumps(output(1)), "", json.dumps(output(2, data={})), ""]
    headers = {"Content-Type": "application/x-ndjson"}
    answer = client.post("/v1/outputs/group", content="\n".join(lines).encode(), headers=headers)
    assert answer.json()["detail"][0]["loc"] == ["body", "4", "data"]


def test_outputs_expire_when_no_scraper_stores_them_again(swept: Client, clock: Clock) -> None:
    put(swept, retain_days=30)
    swept.store("group", output(1), output(2))
    swept.store("kept", output(1))
    clock.move(seconds=20 * DAY)
    swept.store("group", output(1))  # the same value
    clock.move(seconds=15 * DAY)
    wait_until(lambda: len(swept.items("group")) == 1)
    assert swept.items("group")[0]["data"] == {"number": 1}
    assert len(swept.items("kept")) == 1
    assert_counts_are_true(swept)
    deleted = [
        c for c in swept.get("/v1/changes/group").json()["changes"] if c["change"] == "delete"
    ]
    assert len(deleted) == 1


def test_an_entry_of_local_storage_can_be_for_one_group(client: Client) -> None:
    client.store("group", output(1))
    client.store("another", output(1))
    number = show(client)["id"]
    entry = {"domain": "a.com", "key": "k", "value": "v"}
    entries = [entry, entry | {"group_id": number, "value": "own"}]
    assert client.post("/v1/local-storage", json=entries).json()["created"] == 2

    def values(**query: Any) -> list[str]:
        listed = client.get("/v1/local-storage", params=query).json()
        return [one["value"] for one in listed]

    another = client.get("/v1/groups/another").json()["id"]
    assert values() == ["v", "own"]
    assert values(for_group=number) == ["v", "own"]
    assert values(for_group=another) == ["v"]
    listed = client.get("/v1/local-storage").json()
    assert client.post("/v1/local-storage", json=listed).json()["unchanged"] == 2
    answer = client.post("/v1/local-storage", json=[entry, entry | {"group_id": 10**9}])
    assert answer.status_code == 404
    assert answer.json()["detail"][0]["loc"] == ["body", "1", "group_id"]


def entries_of_group(number: int, count: int) -> list[dict[str, Any]]:
    own = {"domain": "a.com", "value": "own", "group_id": number}
    return [own | {"key": f"k{n}"} for n in range(count)]


def test_the_local_storage_of_a_group_is_deleted_with_it(client: Client) -> None:
    client.store("group", output(1))
    client.store("another", output(1))
    number, another = show(client)["id"], client.get("/v1/groups/another").json()["id"]
    entries = [{"domain": "a.com", "key": "k", "value": "v"}, *entries_of_group(another, 1)]
    entries += entries_of_group(number, 2500)  # more than one step deletes
    assert client.post("/v1/local-storage", json=entries).json()["created"] == 2502
    assert client.delete("/v1/groups/group").json() == {"deleted": 1}
    listed = client.get("/v1/local-storage").json()
    assert [entry["group_id"] for entry in listed] == [0, another]
    assert client.post("/v1/local-storage", json=listed).json()["unchanged"] == 2
    [deletion] = [
        entry["about"]
        for entry in client.get("/v1/audit").json()["entries"]
        if entry["action"] == "delete_local_storage"
    ]
    assert deletion == {"records": 2500, "for_group": number}
    client.store("group", output(1))  # a new group with the same name
    query = {"for_group": show(client)["id"]}
    assert [one["value"] for one in client.get("/v1/local-storage", params=query).json()] == ["v"]


def test_a_deleted_group_accepts_no_local_storage(client: Client) -> None:
    client.store("group", output(1))
    number = show(client)["id"]
    client.delete("/v1/groups/group")
    answer = client.post("/v1/local-storage", json=entries_of_group(number, 1))
    assert answer.status_code == 404
    assert answer.json()["detail"][0]["loc"] == ["body", "0", "group_id"]
    assert client.get("/v1/local-storage").json() == []


def test_the_history_of_reviews_is_complete_and_paged(client: Client) -> None:
    client.store("group", output(1), output(2, job_id="other"))
    made = []
    for number in range(7):
        job, status = ("job", "other")[number % 2], ("approved", "rejected")[number % 2]
        review = {"job_id": job, "status": status, "comment": str(number)}
        made.append(client.post("/v1/reviews/group", json=review).json())
    answer = client.get("/v1/reviews/group", params={"history": "true", "limit": 3})
    found = answer.json()
    while "next" in answer.links:
        answer = client.get(answer.links["next"]["url"])
        found += answer.json()
    assert found == made[::-1]
    assert len(client.get("/v1/reviews/group").json()) == 2
    assert client.get("/v1/reviews/none?history=true").status_code == 404
    assert client.get("/v1/reviews/group?history=yes").status_code == 422
