"""The change feed and deletion over HTTP, on both engines."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gleanery.storage.notifications import Subscription
from tests.support.calls import note_calls
from tests.support.metrics import fresh_metrics
from tests.support.outputs import follow_changes, output, read_changes, stored_outputs
from tests.support.raw_http import connect, request_head
from tests.support.service import DAY, Client, Clock, Service
from tests.support.settings import fresh_settings
from tests.support.waiting import wait_until


def delete(client: Client, output_id: str) -> int:
    return client.delete(f"/v1/outputs/group/{output_id}").status_code


def test_the_feed_lists_creations_updates_approvals_and_deletions(client: Client) -> None:
    client.store("group", output(1), output(2))
    first = read_changes(client)
    assert [change["change"] for change in first["changes"]] == ["create", "create"]
    assert [change["output"] for change in first["changes"]] == client.items("group")

    client.store("group", output(1, data={"number": 11}))
    [updated] = read_changes(client, first["cursor"])["changes"]
    assert (updated["change"], updated["output"]["data"]) == ("update", {"number": 11})

    second = read_changes(client, first["cursor"])
    client.post("/v1/reviews/group", json={"job_id": "job", "status": "approved"})
    approved = read_changes(client, second["cursor"])
    assert [change["output"]["is_approved"] for change in approved["changes"]] == [True, True]

    gone = updated["output"]
    assert delete(client, gone["output_id"]) == 200
    [deletion] = read_changes(client, approved["cursor"])["changes"]
    assert deletion == {
        "change": "delete",
        "output": {"id": gone["id"], "output_id": gone["output_id"], "root_job_id": "job"},
    }


def test_a_cursor_is_always_there_and_stays_if_nothing_happened(client: Client) -> None:
    client.store("group", output(1))
    cursor = read_changes(client)["cursor"]
    assert read_changes(client, cursor) == {"cursor": cursor, "changes": []}
    client.store("group", output(1))  # the same value
    assert read_changes(client, cursor) == {"cursor": cursor, "changes": []}


def test_a_deleted_output_is_gone_and_can_come_back(client: Client) -> None:
    [first] = client.store("group", output(1))["results"]
    assert delete(client, first["output_id"]) == 200
    assert client.items("group") == []
    assert delete(client, first["output_id"]) == 404
    [second] = client.store("group", output(1))["results"]
    assert second["change"] == "created"
    assert second["output_id"] == first["output_id"]
    assert second["id"] != first["id"]
    copy: dict[str, Any] = {}
    follow_changes(client, copy, limit=1)
    assert copy == stored_outputs(client)


@pytest.mark.parametrize("name", ["nonsense", "00", "0" * 32, "é"])
def test_deleting_an_unknown_output_is_404(client: Client, name: str) -> None:
    client.store("group", output(1))
    assert delete(client, name) == 404


def test_an_output_is_deleted_through_its_own_group_and_organization_only(
    service: Service,
) -> None:
    with service.client() as owner, service.client() as stranger:
        [result] = owner.store("group", output(1))["results"]
        owner.store("other", output(1))
        stranger.store("group", output(2))
        path = f"/{result['output_id']}"
        assert owner.delete("/v1/outputs/other" + path).status_code == 404
        assert stranger.delete("/v1/outputs/group" + path).status_code == 404
        assert stranger.get("/v1/changes/other").status_code == 404
        assert len(owner.items("group")) == 1


def test_a_job_is_deleted_with_its_outputs_and_reviews(client: Client) -> None:
    client.store("group", *(output(n, job_id=f"j{n % 2}") for n in range(3000)))
    client.post("/v1/reviews/group", json={"job_id": "j1", "status": "approved"})
    copy: dict[str, Any] = {}
    cursor = follow_changes(client, copy, limit=1000)
    answer = client.delete("/v1/groups/group/jobs/j1")
    assert (answer.status_code, answer.json()) == (200, {"deleted": 1500})
    follow_changes(client, copy, cursor, limit=1000)
    assert copy == stored_outputs(client)
    assert {item["root_job_id"] for item in copy.values()} == {"j0"}
    assert client.get("/v1/reviews/group").json() == []
    assert client.delete("/v1/groups/group/jobs/j1").status_code == 404


def test_a_deleted_group_is_in_the_feed(client: Client) -> None:
    client.store("group", *(output(n) for n in range(1500)))
    copy: dict[str, Any] = {}
    cursor = follow_changes(client, copy, limit=1000)
    assert len(copy) == 1500
    assert client.delete("/v1/groups/group").json() == {"deleted": 1500}
    assert client.get("/v1/outputs/group").status_code == 404
    assert client.get("/v1/reviews/group").status_code == 404
    assert client.delete("/v1/groups/group").status_code == 404
    cursor = follow_changes(client, copy, cursor, limit=1000)
    assert copy == {}
    client.store("group", output(7))
    follow_changes(client, copy, cursor)
    assert copy == stored_outputs(client)
    assert len(copy) == 1


def test_a_long_poll_with_an_unknown_cursor_does_not_wait(
    client: Client,
) -> None:
    client.store("group", output(1))
    ahead = read_changes(client)["cursor"] + 10**9
    assert read_changes(client, ahead, wait=60) == {"cursor": ahead, "changes": []}


# --- waiting ------------------------------------------------------------------------------------


@pytest.fixture
def patient(engine: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Service]:
    """A service that lets a long poll wait for a minute."""
    service = Service(replace(fresh_settings(engine, request, tmp_path), max_wait_seconds=60))
    yield service
    service.stop()


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The waits of long polls that have begun."""
    return note_calls(monkeypatch, Subscription, "wait")


def test_a_long_poll_responds_when_an_output_changes(patient: Service, waits: list[Any]) -> None:
    with patient.client() as client, ThreadPoolExecutor() as pool:
        client.store("group", output(1))
        cursor = read_changes(client)["cursor"]
        poll = pool.submit(read_changes, client, cursor, wait=60)
        wait_until(lambda: waits)
        client.store("other", output(1))  # another group does not matter
        assert not poll.done()
        client.store("group", output(2))
        changes = poll.result()["changes"]
    assert [change["output"]["data"] for change in changes] == [{"number": 2}]


def test_a_long_poll_ends_after_its_time(client: Client) -> None:
    client.store("group", output(1))
    cursor = read_changes(client)["cursor"]
    started = time.monotonic()
    assert read_changes(client, cursor, wait=1) == {"cursor": cursor, "changes": []}
    assert time.monotonic() - started >= 1


def test_a_long_poll_ends_when_the_service_stops(patient: Service, waits: list[Any]) -> None:
    """Otherwise the long poll would delay the stop for a minute."""
    with patient.client() as client, ThreadPoolExecutor() as pool:
        client.store("group", output(1))
        cursor = read_changes(client)["cursor"]
        poll = pool.submit(read_changes, client, cursor, wait=60)
        wait_until(lambda: waits)
        patient.stop()
        assert poll.result() == {"cursor": cursor, "changes": []}


@pytest.mark.thorough
def test_a_long_poll_ends_when_its_client_disconnects(patient: Service, waits: list[Any]) -> None:
    """Otherwise the long poll would hold its connection for a minute."""

    def count(client: Client) -> list[str]:
        return re.findall(r'_count\{operation="get_changes".*', fresh_metrics(client))

    with patient.client() as client:
        client.store("group", output(1))
        cursor = read_changes(client)["cursor"]
        before = count(client)
        with connect(patient.url) as connection:
            path = f"/v1/changes/group?wait=60&cursor={cursor}"
            connection.sendall(request_head(client, "GET", path))
            wait_until(lambda: waits)
            assert count(client) == before
        wait_until(lambda: count(client) != before)


@pytest.mark.parametrize("query", ["wait=61", "wait=-1", "limit=0", "cursor=-1", "wait=1.5"])
def test_an_invalid_query_is_rejected(client: Client, query: str) -> None:
    client.store("group", output(1))
    answer = client.get(f"/v1/changes/group?{query}")
    assert answer.status_code == 422
    assert answer.json()["detail"][0]["loc"] == ["query", query.partition("=")[0]]


# --- forgetting ---------------------------------------------------------------------------------


def test_tombstones_are_purged_and_old_cursors_rejected(swept: Client, clock: Clock) -> None:
    stored = swept.store("group", *(output(n) for n in range(6)))["results"]
    old = read_changes(swept, limit=2)["cursor"]
    clock.move(seconds=60)
    delete(swept, stored[5]["output_id"])
    current = follow_changes(swept, {})
    swept.store("group", output(1, data={"number": 11}))
    assert len(read_changes(swept, old)["changes"]) == 5

    clock.move(seconds=31 * DAY)
    wait_until(lambda: swept.get("/v1/changes/group", params={"cursor": old}).status_code == 410)
    answer = swept.get("/v1/changes/group", params={"cursor": old})
    assert answer.json()["detail"][0]["loc"] == ["query", "cursor"]
    assert "start again" in answer.json()["detail"][0]["msg"]
    assert [c["output"]["data"] for c in read_changes(swept, current)["changes"]] == [
        {"number": 11}
    ]


def test_a_new_client_can_read_outputs_older_than_the_purged_tombstones(
    swept: Client, clock: Clock
) -> None:
    """Its cursors are older than the purged tombstones, but stay valid."""
    stored = swept.store("group", *(output(n) for n in range(40)))["results"]
    clock.move(seconds=60)
    delete(swept, stored[39]["output_id"])
    clock.move(seconds=31 * DAY)
    wait_until(lambda: swept.get("/v1/changes/group", params={"cursor": 5}).status_code == 410)
    copy: dict[str, Any] = {}
    middle = follow_changes(swept, copy, limit=1, pages=1)
    assert 2**52 <= middle < 2**53
    clock.move(seconds=2 * DAY)  # the client is slow, and the service purges more
    delete(swept, stored[0]["output_id"])
    swept.store("group", output(1, data={"number": 101}))
    end = follow_changes(swept, copy, middle, limit=1)
    assert copy == stored_outputs(swept)
    assert end < 2**52
    clock.move(seconds=40 * DAY)
    wait_until(lambda: swept.get("/v1/changes/group", params={"cursor": middle}).status_code == 410)
