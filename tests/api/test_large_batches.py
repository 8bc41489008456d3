"""Large batches over HTTP, on both engines: prepared in a process of their own."""

from __future__ import annotations

import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.support.outputs import output
from tests.support.process import PROC, children
from tests.support.service import Client, Service

LARGE_TEXT = "x" * (4 * 1024 * 1024)
LARGE = output(0, data={"text": LARGE_TEXT})
MANY_VALUES = output(0, data={"numbers": [0] * 100_001})
NDJSON = {"Content-Type": "application/x-ndjson"}
JSON = {"Content-Type": "application/json"}

OUTPUTS = [
    output(1, data={"a": [1, 1.5, 1e15, 10**30, None, True, "ü\n"], "b": {}}),
    output(2, key="own", tags={"country": "Germany", "region": "DE-BY", "n": [1]}),
    output(3, files=[{"field": "f", "file_url": "https://a/b", "file_metadata": {"k": [1]}}]),
    output(1, job_id="other"),
    output(4),
    output(4, data={"last": True}),
]


def lines(*outputs: dict[str, Any]) -> bytes:
    return b"\n".join(json.dumps(one).encode() for one in outputs)


def content(item: dict[str, Any]) -> dict[str, Any]:
    """The members of an item that do not depend on when and where it was stored."""
    ignored = {"id", "output_id", "create_date", "update_date", "last_scraped_date"}
    item["files"] = [{**file, "create_date": ""} for file in item["files"]]
    return {name: value for name, value in item.items() if name not in ignored}


def processes() -> list[int]:
    """Processes for large batches that the services of this process have started."""
    return children(os.getpid(), b"large_batches")


@pytest.mark.thorough
@pytest.mark.parametrize("large", [LARGE, MANY_VALUES], ids=["bytes", "values"])
@pytest.mark.parametrize("as_ndjson", [False, True])
def test_a_large_batch_is_stored_like_a_small_one(
    client: Client, large: dict[str, Any], as_ndjson: bool
) -> None:
    small = client.store("small", *OUTPUTS)
    if as_ndjson:
        answer = client.post("/v1/outputs/large", content=lines(*OUTPUTS, large), headers=NDJSON)
        stored = answer.json()
        assert (stored["created"], stored["updated"], stored["lines"]) == (6, 1, 7)
    else:
        stored = client.store("large", *OUTPUTS, large)
        changes = [result["change"] for result in stored["results"]]
        assert changes == [*(result["change"] for result in small["results"]), "created"]
    *items, last = map(content, client.items("large"))
    assert items == [*map(content, client.items("small"))]
    assert last["data"] == large["data"]
    assert client.store("large", *OUTPUTS[:4])["unchanged"] == 4
    assert client.store("large", *OUTPUTS[:4], large)["unchanged"] == 5


@pytest.mark.thorough
def test_a_large_batch_has_all_errors(client: Client) -> None:
    bad = [output(1, data=[]), LARGE, {"job_id": "", "source_url": "u", "data": {}}]
    expected = [["body", "0", "data"], ["body", "2", "job_id"]]
    answer = client.post("/v1/outputs/group", json=bad)
    assert answer.status_code == 422
    assert [detail["loc"] for detail in answer.json()["detail"]] == expected
    answer = client.post("/v1/outputs/group", content=lines(*bad), headers=NDJSON)
    assert [detail["loc"] for detail in answer.json()["detail"]] == [expected[0], ["body", "0"]]
    for end in (b"", b"]]", b",NaN]", b",1e999]"):
        body = b"[" + lines(LARGE) + end
        answer = client.post("/v1/outputs/group", content=body, headers=JSON)
        assert answer.json()["detail"][0]["type"] == "json"
    many = [output(n, data={"t": "x" * 500}) for n in range(10_001)]
    answer = client.post("/v1/outputs/group", json=many)
    assert answer.json()["detail"][0]["type"] == "too_long"
    assert client.get("/v1/outputs/group").status_code == 404


@pytest.mark.thorough
def test_a_large_batch_meets_the_rules_of_its_group(client: Client) -> None:
    schema = {"properties": {"text": {"type": "string"}}, "required": ["sku"]}
    client.put("/v1/groups/group", json={"key_fields": ["sku"], "schema": schema})
    good = [output(1, data={"sku": n % 2, "text": LARGE_TEXT}) for n in range(3)]
    changes = [result["change"] for result in client.store("group", *good)["results"]]
    assert changes == ["created", "created", "unchanged"]
    bad = [*good, output(4, data={"text": 5}), LARGE]
    answer = client.post("/v1/outputs/group", json=bad)
    assert answer.status_code == 422
    assert sorted(detail["loc"] for detail in answer.json()["detail"]) == [
        ["body", "3", "data"],
        ["body", "3", "data", "text"],
        ["body", "4", "data"],
    ]


@pytest.mark.thorough
def test_a_large_batch_is_idempotent(client: Client) -> None:
    headers = {"Idempotency-Key": "one"}
    first = client.post("/v1/outputs/group", json=[LARGE], headers=headers)
    assert first.json()["created"] == 1
    client.delete("/v1/groups/group")
    assert client.post("/v1/outputs/group", json=[LARGE], headers=headers).json() == first.json()
    other = client.post("/v1/outputs/group", json=[LARGE, output(1)], headers=headers)
    assert other.status_code == 409


@pytest.mark.thorough
@PROC
def test_a_large_batch_delays_no_other_request(client: Client, service: Service) -> None:
    client.store("group", LARGE)
    stopped = processes()
    assert stopped
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    try:
        with ThreadPoolExecutor() as pool, service.client(client.token) as second:
            pending = pool.submit(second.store, "group", {**LARGE, "key": "new"})
            assert client.get("/healthz").status_code == 200
            assert client.store("group", output(1))["created"] == 1
            assert not pending.done()
            for pid in stopped:
                os.kill(pid, signal.SIGCONT)
            assert pending.result()["created"] == 1
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)


@pytest.mark.thorough
@PROC
def test_a_killed_process_is_replaced(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLEANERY_SECRET_KEY", "a-credential")
    client.store("group", LARGE)
    before = processes()
    for pid in before:
        os.kill(pid, signal.SIGKILL)
    assert client.store("group", {**LARGE, "key": "new"})["created"] == 1
    [after] = set(processes()) - set(before)
    assert b"a-credential" not in Path(f"/proc/{after}/environ").read_bytes()
