"""Each version of an output is kept when another one replaces it, and can be restored exactly."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from tests.support.history import stored_history, stored_segments
from tests.support.outputs import output
from tests.support.service import Client, Service


def store(client: Client, **members: Any) -> dict[str, Any]:
    """Stores a version of the output, and returns it as the service shows it."""
    [result] = client.store("group", output(1, key="a key", **members))["results"]
    answer = client.get(f"/v1/outputs/group/{result['output_id']}")
    assert answer.status_code == 200, answer.text
    item: dict[str, Any] = answer.json()
    return item


def test_replaced_versions_are_kept(client: Client, service: Service) -> None:
    shown = [
        store(client, data={"price": 1.5, "title": "mug"}),
        store(client, data={"price": 2, "title": "mug"}),
        store(client, data={"price": 2, "title": "mug"}, tags={"country": "Germany"}),
        store(client, data={"price": 1.5, "title": "mug"}, source_url="https://other.example"),
        store(client, data={"name": "x" * 100_000}),
        store(client, data={"name": "x" * 100_000, "number": 10**40}),
        store(client, data={}),
    ]
    versions = stored_history(service, client, shown[0]["output_id"])
    assert [version.item for version in versions] == shown[-2::-1]
    for newer, older in pairwise(versions):
        assert older.version.replaced_seq == newer.version.seq


def test_an_unchanged_or_approved_output_makes_no_version(client: Client, service: Service) -> None:
    first = store(client, data={"price": 1})
    store(client, data={"price": 1})
    client.post("/v1/reviews/group", json={"job_id": "job", "status": "approved"})
    approved = store(client, data={"price": 1})
    assert approved["is_approved"]
    assert stored_history(service, client, first["output_id"]) == []
    store(client, data={"price": 2})
    [(version, item)] = stored_history(service, client, first["output_id"])
    assert item == approved
    assert version.approved
    assert version.seq < version.last_seq < version.replaced_seq


def test_a_full_segment_is_followed_by_another(client: Client, service: Service) -> None:
    shown = [store(client, data={"number": n, "text": f"{n:x}" * 40}) for n in range(60)]
    output_id = shown[0]["output_id"]
    versions = stored_history(service, client, output_id)
    assert len(versions) >= 20
    assert [version.item for version in versions] == shown[-2 : -2 - len(versions) : -1]
    counts = [segment.version_count for segment in stored_segments(service, client, output_id)]
    assert sum(counts) <= 40


def test_large_versions_fill_a_segment(client: Client, service: Service) -> None:
    texts = [f"{n}".join(map(str, range(2000))) for n in range(5)]
    shown = [store(client, data={"text": text}) for text in texts]
    output_id = shown[0]["output_id"]
    assert len(stored_segments(service, client, output_id)) > 1
    assert [one.item for one in stored_history(service, client, output_id)] == shown[-2::-1]


def test_many_outputs_of_a_batch_keep_their_versions(client: Client, service: Service) -> None:
    def batch(price: int) -> list[dict[str, Any]]:
        members = [{"key": f"{n}", "data": {"n": n, "price": price}} for n in range(300)]
        return [output(1, **one) for one in members]

    shown = []
    for price in range(3):
        client.store("group", *batch(price))
        shown.append({one["output_id"]: one for one in client.items("group", limit=1000)})
    for output_id in [*shown[0]][::60]:
        versions = stored_history(service, client, output_id)
        assert [one.item for one in versions] == [shown[1][output_id], shown[0][output_id]]


def test_a_deleted_output_keeps_its_history(client: Client, service: Service) -> None:
    shown = [store(client, data={"price": price}) for price in range(3)]
    output_id = shown[0]["output_id"]
    assert client.delete(f"/v1/outputs/group/{output_id}").status_code == 200
    versions = stored_history(service, client, output_id)
    assert [one.item for one in versions] == shown[::-1]
    assert [one.version.is_deleted for one in versions] == [True, False, False]

    again = [store(client, data={"price": price}) for price in (1, 5)]
    versions = stored_history(service, client, output_id)
    assert [one.item for one in versions] == [again[0], *shown[::-1]]
