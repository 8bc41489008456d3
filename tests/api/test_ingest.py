"""Ingest of NDJSON of any size, of one object, and repeated requests, on both engines."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gleanery.service.storage import idempotency
from gleanery.service.storage.engines import open_engine
from tests.support.outputs import output
from tests.support.process import PROC, peak_memory_bytes, served
from tests.support.service import DAY, Client, Clock, Service
from tests.support.settings import fresh_settings
from tests.support.waiting import wait_until

LINES = {"Content-Type": "application/x-ndjson"}


def send(client: Client, *lines: Any, **headers: str) -> Any:
    text = "".join(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines)
    return client.post("/v1/outputs/group", content=text.encode(), headers=LINES | headers)


# --- NDJSON -------------------------------------------------------------------------------------


def test_lines_are_stored_like_an_array(client: Client) -> None:
    answer = send(client, output(1), "\n", output(2), output(1, data={"number": 11}))
    assert answer.status_code == 200
    assert answer.json() == {"created": 2, "updated": 1, "unchanged": 0, "lines": 4}
    assert [item["data"]["number"] for item in client.items("group")] == [2, 11]
    assert send(client, output(2)).json()["unchanged"] == 1


def test_integers_keep_every_digit_and_fractions_are_doubles(client: Client) -> None:
    line = json.dumps(output(1, data={"integer": 2**80, "fraction": 0.5}))
    assert send(client, line.replace("0.5", "0.1234567890123456789")).status_code == 200
    text = client.get("/v1/outputs/group").text
    assert '"integer":1208925819614629174706176' in text
    assert '"fraction":0.12345678901234568' in text


def test_the_last_line_needs_no_end(client: Client) -> None:
    assert send(client, json.dumps(output(1))).json()["created"] == 1
    assert send(client).json() == {"created": 0, "updated": 0, "unchanged": 0, "lines": 0}


@pytest.mark.thorough
def test_an_error_response_says_how_many_lines_were_stored(client: Client) -> None:
    lines: list[Any] = [output(number) for number in range(2500)]
    lines[2200], lines[2300] = {"job_id": "j"}, "not json\n"
    answer = send(client, *lines)
    assert answer.status_code == 422
    locs = [fault["loc"] for fault in answer.json()["detail"]]
    assert locs == [
        ["body", "2200", "source_url"],
        ["body", "2200", "data"],
        ["body", "2300"],
        ["body", "2000"],
    ]
    assert "line 2000" in answer.json()["detail"][-1]["msg"]
    assert len(client.items("group", limit=1000)) == 2000
    assert send(client, *(output(number) for number in range(2500))).json() == {
        "created": 500,
        "updated": 0,
        "unchanged": 2000,
        "lines": 2500,
    }


def test_a_schema_violation_names_the_line(client: Client) -> None:
    client.put("/v1/groups/group", json={"schema": {"required": ["sku"]}})
    answer = send(client, output(1, data={"sku": 1}), output(2))
    assert answer.json()["detail"][0]["loc"] == ["body", "1", "data"]


def test_only_outputs_accept_ndjson(client: Client) -> None:
    assert client.post("/v1/cookies", content=b"{}\n", headers=LINES).status_code == 415


@pytest.mark.thorough
@PROC
def test_memory_does_not_grow_with_the_length_of_a_body(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """200 MB of lines; the service holds about a megabyte at a time."""
    line = (json.dumps(output(1, data={"text": "x" * 100_000})) + "\n").encode()

    def body() -> Iterator[bytes]:
        for _ in range(2000):
            yield line

    with served(fresh_settings("sqlite", request, tmp_path)) as service:
        pid = service.running.process.pid
        with Client(service.url, service.token) as client:
            client.store("group", output(0))
            before = peak_memory_bytes(pid)
            answer = client.post("/v1/outputs/group", content=body(), headers=LINES)
            assert answer.json()["lines"] == 2000
            grown = peak_memory_bytes(pid) - before
    assert grown < 80_000_000


# --- one object ---------------------------------------------------------------------------------


def send_json(client: Client, text: str | bytes, query: str = "", **headers: str) -> Any:
    kind = {"Content-Type": "application/json"}
    return client.post(f"/v1/outputs/group?{query}", content=text, headers=kind | headers)


def test_an_object_is_a_batch_of_one(client: Client) -> None:
    text = json.dumps(output(1))
    answer = send_json(client, f"\r\n {text}\t")
    assert answer.status_code == 200, answer.text
    [stored] = client.items("group")
    result = {"id": stored["id"], "output_id": stored["output_id"]}
    counts = {"created": 1, "updated": 0, "unchanged": 0}
    assert answer.json() == counts | {"results": [result | {"change": "created"}]}
    again = {"created": 0, "updated": 0, "unchanged": 1}
    expected = again | {"results": [result | {"change": "unchanged"}]}
    assert send_json(client, text).json() == send_json(client, f"[{text}]").json() == expected


def test_an_object_can_be_a_bare_item(client: Client) -> None:
    item = {"url": "https://shop.example/1", "sku": 7}
    query = "job_id=job&url_field=url&key_field=sku"
    assert send_json(client, json.dumps(item), query).json()["created"] == 1
    assert send_json(client, json.dumps([item]), query).json()["unchanged"] == 1
    assert client.items("group")[0]["data"] == item


@pytest.mark.parametrize(
    "element",
    [
        "{}",
        '{"job_id":"job"}',
        '{"job_id":"job","source_url":5,"data":[],"dat":1}',
        '{"job_id":"job","source_url":"u","data":{"a":NaN}}',
        '{"job_id":"job","source_url":"u","data":{"a":"\\ud800"}}',
        '{"job_id":"job","source_url":"u","data":{},"files":[{"field":"f","id":"unknown"}]}',
    ],
)
@pytest.mark.parametrize(
    "query", ["", "on_error=skip", "job_id=j&url_field=u", "job_id=j&url_field=u&on_error=skip"]
)
def test_an_invalid_object_has_the_errors_of_an_array_of_one(
    client: Client, element: str, query: str
) -> None:
    answer, expected = send_json(client, element, query), send_json(client, f"[{element}]", query)
    assert (answer.status_code, answer.json()) == (expected.status_code, expected.json())
    if "skip" in query:
        assert answer.json()["skipped"] == 1
        assert answer.json()["results"] == [None]
    else:
        assert answer.status_code in (404, 422)
    assert client.get("/v1/outputs/group").json().get("items", []) == []


@pytest.mark.parametrize("query", ["", "on_error=skip", "job_id=j&url_field=u"])
@pytest.mark.parametrize(
    "text", ['{"job_id":', "{} {}", "{},{}", "{}]", "{}\n{}\n", "\ufeff{}", '"{}"', "5", "null"]
)
def test_what_is_not_one_object_is_an_error_of_the_body(
    client: Client, text: str, query: str
) -> None:
    answer = send_json(client, text.encode(), query)
    assert answer.status_code == 422
    [problem] = answer.json()["detail"]
    assert problem["loc"] == ["body"]
    if "{}" in text[:2] and "{" in text[2:] and "," not in text:
        assert "application/x-ndjson" in problem["msg"]


def test_an_object_may_be_as_deep_as_a_line(client: Client) -> None:
    def nested(depth: int) -> str:
        """Return an output of this depth. The output and its data are two levels."""
        values = "[" * (depth - 2) + "]" * (depth - 2)
        return f'{{"job_id":"job","source_url":"u","data":{{"a":{values}}}}}'

    for query in ("", "on_error=skip"):
        assert send_json(client, nested(100), query).status_code == 200
        assert send_json(client, f"[{nested(99)}]", query).status_code == 200
    assert send_json(client, nested(101)).status_code == 422
    assert send_json(client, f"[{nested(100)}]").status_code == 422
    assert send_json(client, nested(101), "on_error=skip").json()["skipped"] == 1


def test_an_object_can_be_compressed_and_repeated(client: Client) -> None:
    text = json.dumps(output(1))
    headers = {"Content-Encoding": "gzip", "Idempotency-Key": "key"}
    first = send_json(client, gzip.compress(text.encode()), **headers)
    assert first.json()["created"] == 1
    array = send_json(client, f"[{text}]", **{"Idempotency-Key": "key"})
    assert array.content == first.content
    other = send_json(client, json.dumps(output(2)), **{"Idempotency-Key": "key"})
    assert other.status_code == 409


@pytest.mark.parametrize("path", ["cookies", "local-storage"])
def test_only_outputs_accept_an_object(client: Client, path: str) -> None:
    """A batch of session records is stored whole or not at all, so tools collect it first."""
    record = {"domain": "shop.example", "name": "n", "key": "k", "value": "v"}
    answer = client.post(f"/v1/{path}", json=record)
    assert answer.status_code == 422
    [problem] = answer.json()["detail"]
    assert (problem["loc"], problem["msg"]) == (["body"], "expected an array")


# --- Idempotency-Key ----------------------------------------------------------------------------


def test_a_repeated_request_gets_the_first_response(client: Client) -> None:
    key = {"Idempotency-Key": "k-1"}
    first = client.post("/v1/outputs/group", json=[output(1), output(2)], headers=key)
    client.store("group", output(1, data={"number": 11}))
    again = client.post("/v1/outputs/group", json=[output(1), output(2)], headers=key)
    assert (again.status_code, again.json()) == (200, first.json())
    assert sorted(item["data"]["number"] for item in client.items("group")) == [2, 11]
    other = client.post("/v1/outputs/group", json=[output(3)], headers=key)
    assert other.status_code == 409
    assert other.json()["detail"][0]["loc"] == ["header", "idempotency-key"]
    elsewhere = client.post("/v1/outputs/other", json=[output(3)], headers=key)
    assert elsewhere.json()["created"] == 1


def test_repeated_ndjson_gets_the_first_response(client: Client) -> None:
    lines = [output(number) for number in range(1500)]
    first = send(client, *lines, **{"Idempotency-Key": "k"}).json()
    assert first["created"] == 1500
    assert send(client, *lines, **{"Idempotency-Key": "k"}).json() == first


def test_the_stored_response_of_a_repeated_request_is_small(
    service: Service, client: Client
) -> None:
    """50 outputs took 18 KB, because the row needed another page."""
    key = {"Idempotency-Key": "k"}
    batch = [output(number) for number in range(50)]
    first = client.post("/v1/outputs/group", json=batch, headers=key)
    lines = send(client, *batch, **{"Idempotency-Key": "lines"})
    sizes = stored_responses(service, first.json()["results"][0]["id"])
    assert len(sizes) == 2
    assert sum(sizes) < 2000, sizes
    again = client.post("/v1/outputs/group", json=batch, headers=key)
    assert (again.status_code, again.content) == (200, first.content)
    assert send(client, *batch, **{"Idempotency-Key": "lines"}).content == lines.content
    other = client.post("/v1/outputs/group", json=batch[1:], headers=key)
    assert other.status_code == 409


def stored_responses(service: Service, output_id: int) -> list[int]:
    """Lengths of the responses that are stored for the organization of an output."""
    sql = """
SELECT length(response) FROM idempotency_keys
WHERE organization_id = (SELECT organization_id FROM outputs WHERE id = $1)
"""

    async def read() -> list[int]:
        async with open_engine(service.settings) as engine:
            rows = await engine.for_all_tenants().read(sql, output_id)
            return [row[0] for row in rows]

    return asyncio.run(read())


def test_a_response_that_an_older_version_has_stored_is_repeated(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = {"Idempotency-Key": "k"}
    batch = [output(number) for number in range(50)]
    with monkeypatch.context() as older:
        older.setattr(idempotency, "_MIN_COMPRESSED_BYTES", 10**9)
        first = client.post("/v1/outputs/group", json=batch, headers=key)
    client.store("group", *(output(number, data={"number": -1}) for number in range(50)))
    again = client.post("/v1/outputs/group", json=batch, headers=key)
    assert (again.status_code, again.content) == (200, first.content)


def test_a_key_of_lines_does_not_answer_an_array(client: Client) -> None:
    key = {"Idempotency-Key": "k"}
    send(client, output(1), **key)
    assert client.post("/v1/outputs/group", json=[output(1)], headers=key).status_code == 409


def test_a_repeated_request_gets_the_first_response_under_a_new_schema(client: Client) -> None:
    key = {"Idempotency-Key": "k"}
    first = client.post("/v1/outputs/group", json=[output(1)], headers=key)
    for rules in ({"key_fields": ["number"]}, {"schema": {"required": ["price"]}}):
        assert client.put("/v1/groups/group", json=rules).status_code == 200
        again = client.post("/v1/outputs/group", json=[output(1)], headers=key)
        assert (again.status_code, again.json()) == (200, first.json())


def test_a_repeated_request_does_not_create_a_deleted_group(client: Client) -> None:
    key = {"Idempotency-Key": "k"}
    first = client.post("/v1/outputs/group", json=[output(1)], headers=key)
    assert client.delete("/v1/groups/group").json() == {"deleted": 1}
    again = client.post("/v1/outputs/group", json=[output(1)], headers=key)
    assert (again.status_code, again.json()) == (200, first.json())
    assert client.get("/v1/groups/group").status_code == 404


@pytest.mark.parametrize("key", ["", "a b", "x" * 256, "ü"])
def test_an_invalid_idempotency_key_is_rejected(client: Client, key: str) -> None:
    headers = {"Idempotency-Key": key.encode()}
    answer = client.post("/v1/outputs/group", json=[output(1)], headers=headers)  # type: ignore[arg-type]
    assert answer.status_code == 422


def test_a_failed_request_does_not_use_its_key(client: Client) -> None:
    key = {"Idempotency-Key": "k"}
    assert client.post("/v1/outputs/group", json=[{}], headers=key).status_code == 422
    assert client.post("/v1/outputs/group", json=[output(1)], headers=key).status_code == 200


def test_idempotency_keys_expire_after_a_day(swept: Client, clock: Clock) -> None:
    key = {"Idempotency-Key": "k"}
    swept.post("/v1/outputs/group", json=[output(1)], headers=key)
    assert swept.post("/v1/outputs/group", json=[output(2)], headers=key).status_code == 409
    clock.move(seconds=DAY + 60)
    wait_until(
        lambda: swept.post("/v1/outputs/group", json=[output(2)], headers=key).status_code == 200
    )
