"""Memory of the service while large outputs become earlier versions."""

from __future__ import annotations

import random
import tracemalloc
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.support.outputs import output
from tests.support.service import DAY, Client, Clock
from tests.support.waiting import wait_until

pytestmark = pytest.mark.thorough

MIB = 1024**2
OUTPUTS = 80


def store_large(client: Client) -> None:
    """Stores outputs of a megabyte each, which a compressor makes only a quarter shorter."""
    for start in range(0, OUTPUTS, 10):
        numbers = range(start, start + 10)
        texts = [b64encode(random.Random(n).randbytes(MIB * 3 // 4)).decode() for n in numbers]
        outputs = zip(numbers, texts, strict=True)
        client.store("group", *(output(n, data={"text": text}) for n, text in outputs))


@contextmanager
def limited_memory(max_bytes: int) -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < max_bytes


@pytest.mark.extended
def test_a_small_batch_that_replaces_large_outputs_needs_little_memory(client: Client) -> None:
    store_large(client)
    with limited_memory(50 * MIB):
        result = client.store("group", *(output(n) for n in range(OUTPUTS)))
    assert result["updated"] == OUTPUTS
    assert len(versions(client, result["results"][0]["output_id"])) == 2


@pytest.mark.extended
def test_changed_fields_of_large_versions_need_little_memory(client: Client) -> None:
    store_large(client)
    cursor = client.get("/v1/groups/group").json()["cursor"]
    client.store("group", *(output(n) for n in range(OUTPUTS)))
    query = {"cursor": cursor, "diff": "true", "limit": OUTPUTS}
    with limited_memory(200 * MIB):  # the encoder reserves 16 MiB for each text
        answer = client.get("/v1/changes/group", params=query)
    fields = [change["fields"] for change in answer.json()["changes"]]
    assert len(fields) == OUTPUTS
    assert fields[-1] is None  # all together would be too long


@pytest.mark.extended
def test_the_expiry_of_large_outputs_needs_little_memory(swept: Client, clock: Clock) -> None:
    store_large(swept)
    swept.put("/v1/groups/group", json={"retain_days": 1})
    with limited_memory(50 * MIB):
        clock.move(seconds=2 * DAY)
        run_id = swept.post("/v1/runs/group", json={"job_id": "job"}).json()["run_id"]
        swept.post(f"/v1/outputs/group?run_id={run_id}", json=[output(1)])  # it is not silent
        swept.post(f"/v1/runs/group/{run_id}/finish", json={"status": "partial"})
        wait_until(lambda: swept.get("/v1/groups/group").json()["outputs"] == 1)


def versions(client: Client, output_id: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.get(
        f"/v1/outputs/group/{output_id}/history", params={"limit": 10}
    ).json()["versions"]
    return found
