"""Each version of an output is kept when another one replaces it, and can be restored exactly."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from gleanery.service.foundation.values import timestamps
from tests.support.bulk_jobs import create_bulk_job, run_bulk_job_step
from tests.support.history import read_rows, stored_history, stored_segments
from tests.support.outputs import output
from tests.support.service import DAY, Client, Clock, Service

COUNT = "SELECT count(*) FROM output_history WHERE organization_id = $1"


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


@pytest.mark.thorough
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


@pytest.mark.thorough
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


def rows_of_history(service: Service, client: Client) -> int:
    [[count]] = read_rows(service, client, COUNT)
    return int(count)


@pytest.mark.thorough
def test_a_deleted_group_leaves_no_history(client: Client, service: Service) -> None:
    for price in range(3):
        shown = store(client, data={"price": price})
        client.store("group", output(2, data={"price": price}))
    client.delete(f"/v1/outputs/group/{shown['output_id']}")
    client.put("/v1/groups/group", json={"keep_versions": 5})
    assert rows_of_history(service, client) == 2
    assert client.delete("/v1/groups/group").status_code == 200
    assert rows_of_history(service, client) == 0
    store(client, data={"price": 1})
    assert client.get("/v1/groups/group").json()["keep_versions"] == 20


def test_outputs_stored_while_their_group_is_deleted_have_a_new_history(
    client: Client, service: Service
) -> None:
    for price in range(2):
        store(client, data={"price": price})
    assert client.token is not None
    create_bulk_job(service, client.token, "delete", None)
    again = [store(client, data={"price": price}) for price in range(2, 4)]
    client.put("/v1/groups/group", json={})  # finishes the deletion
    [(_, item)] = stored_history(service, client, again[0]["output_id"])
    assert item == again[0]


@pytest.mark.thorough
def test_the_history_of_a_deleted_output_goes_with_its_tombstone(
    timed: Client, timed_service: Service, clock: Clock
) -> None:
    shown = [store(timed, data={"price": price}) for price in range(2)]
    output_id = shown[0]["output_id"]
    timed.delete(f"/v1/outputs/group/{output_id}")
    clock.move(seconds=20 * DAY)
    again = [store(timed, data={"price": price}) for price in range(2)]
    timed_service.sweep(clock)
    versions = stored_history(timed_service, timed, output_id)
    assert [one.item for one in versions] == [again[0], *shown[::-1]]
    clock.move(seconds=11 * DAY)
    timed_service.sweep(clock)  # purges the tombstone
    versions = stored_history(timed_service, timed, output_id)
    assert [one.item for one in versions] == again[:1]


@pytest.mark.thorough
def test_versions_expire_by_their_age(timed: Client, timed_service: Service, clock: Clock) -> None:
    timed.put("/v1/groups/group", json={"keep_days": 10})
    shown = []
    for day in range(4):
        shown.append(store(timed, data={"day": day}))
        clock.move(seconds=4 * DAY)
    output_id = shown[0]["output_id"]
    timed_service.sweep(clock)  # the first version was replaced 12 days ago
    versions = stored_history(timed_service, timed, output_id)
    assert [one.item for one in versions] == [shown[2], shown[1]]
    shown.append(store(timed, data={"day": 4}))  # the shortened segment takes another version
    versions = stored_history(timed_service, timed, output_id)
    assert [one.item for one in versions] == shown[3:0:-1]
    clock.move(seconds=20 * DAY)
    timed_service.sweep(clock)
    assert rows_of_history(timed_service, timed) == 0
    shown += [store(timed, data={"day": day}) for day in (5, 6)]
    versions = stored_history(timed_service, timed, output_id)
    assert [one.item for one in versions] == [shown[5], shown[4]]


@pytest.mark.thorough
def test_a_group_without_history_loses_it(client: Client, service: Service) -> None:
    for price in range(3):
        first = store(client, data={"price": price})
        second = client.store("group", output(2, data={"price": price}))["results"][0]
    assert rows_of_history(service, client) == 2
    client.put("/v1/groups/group", json={"keep_versions": 0})
    store(client, data={"price": 5})
    assert stored_history(service, client, first["output_id"]) == []
    assert len(stored_history(service, client, second["output_id"])) == 2
    service.sweep(timestamps.now, is_confirmed=False)
    assert rows_of_history(service, client) == 0
    client.delete(f"/v1/outputs/group/{second['output_id']}")
    assert rows_of_history(service, client) == 0
    client.put("/v1/groups/group", json={})
    shown = [store(client, data={"price": price}) for price in (6, 7)]
    versions = stored_history(service, client, first["output_id"])
    assert [one.item["data"] for one in versions] == [{"price": 6}, {"price": 5}]
    assert versions[0].item == shown[0]


def test_fewer_versions_are_kept_from_now_on(client: Client, service: Service) -> None:
    client.put("/v1/groups/group", json={"keep_versions": 3})
    shown = [store(client, data={"price": price}) for price in range(20)]
    versions = stored_history(service, client, shown[0]["output_id"])
    assert 3 <= len(versions) <= 6
    assert [one.item for one in versions] == shown[-2 : -2 - len(versions) : -1]


@pytest.mark.thorough
def test_an_output_that_is_deleted_often_keeps_few_versions(
    client: Client, service: Service
) -> None:
    client.put("/v1/groups/group", json={"keep_versions": 3})
    for price in range(10):
        shown = store(client, data={"price": price})
        client.delete(f"/v1/outputs/group/{shown['output_id']}")
    versions = stored_history(service, client, shown["output_id"])
    assert [one.item["data"]["price"] for one in versions] == [9, 8, 7]


@pytest.mark.thorough
def test_the_history_of_a_group_that_is_being_deleted_is_not_read(
    client: Client, service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    first = store(client, data={"price": 1})
    store(client, data={"price": 2})
    client.store("group", *(output(n) for n in range(1001)))
    create_bulk_job(service, client.token or "", "delete", None)
    run_bulk_job_step(service, client.token or "")
    url = f"/v1/outputs/group/{first['output_id']}"
    assert client.get(f"{url}/history", timeout=5).status_code == 404
    assert client.get(url, params={"at": first["create_date"]}, timeout=5).status_code == 404
    store(client, data={"price": 3})
    [version] = client.get(f"{url}/history").json()["versions"]
    assert version["change"] == "create"
    assert caplog.records == []
