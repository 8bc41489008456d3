"""The change feed and deletion over HTTP, on both engines."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.api.test_outputs import output
from tests.conftest import fresh_settings
from tests.support.service import Client, Clock, Service

DAY = 86_400


def feed(client: Client, cursor: int = 0, **query: Any) -> dict[str, Any]:
    answer = client.get("/v1/changes/group", params={"cursor": cursor, **query})
    assert answer.status_code == 200, answer.text
    page: dict[str, Any] = answer.json()
    assert page.keys() == {"cursor", "changes"}
    return page


def follow(
    client: Client, copy: dict[str, Any], cursor: int = 0, limit: int = 2, pages: int = 10_000
) -> int:
    """Brings the copy up to date and gives the cursor to go on from."""
    for _ in range(pages):
        page = feed(client, cursor, limit=limit)
        for change in page["changes"]:
            found = change["output"]
            if change["change"] == "delete":
                copy.pop(found["output_id"], None)
            else:
                copy[found["output_id"]] = found
        if page["cursor"] == cursor:
            return cursor
        cursor = page["cursor"]
    return cursor


def truth(client: Client) -> dict[str, Any]:
    return {item["output_id"]: item for item in client.items("group", limit=1000)}


def delete(client: Client, output_id: str) -> int:
    return client.delete(f"/v1/outputs/group/{output_id}").status_code


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_the_feed_tells_of_creations_updates_approvals_and_deletions(client: Client) -> None:
    client.store("group", output(1), output(2))
    first = feed(client)
    assert [change["change"] for change in first["changes"]] == ["create", "create"]
    assert [change["output"] for change in first["changes"]] == client.items("group")

    client.store("group", output(1, data={"number": 11}))
    [updated] = feed(client, first["cursor"])["changes"]
    assert (updated["change"], updated["output"]["data"]) == ("update", {"number": 11})

    second = feed(client, first["cursor"])
    client.post("/v1/reviews/group", json={"job_id": "job", "status": "approved"})
    approved = feed(client, second["cursor"])
    assert [change["output"]["is_approved"] for change in approved["changes"]] == [True, True]

    gone = updated["output"]
    assert delete(client, gone["output_id"]) == 200
    [deletion] = feed(client, approved["cursor"])["changes"]
    assert deletion == {
        "change": "delete",
        "output": {"id": gone["id"], "output_id": gone["output_id"], "root_job_id": "job"},
    }


def test_a_cursor_is_always_there_and_stays_if_nothing_happened(client: Client) -> None:
    client.store("group", output(1))
    cursor = feed(client)["cursor"]
    assert feed(client, cursor) == {"cursor": cursor, "changes": []}
    client.store("group", output(1))  # seen again, not changed
    assert feed(client, cursor) == {"cursor": cursor, "changes": []}


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
    follow(client, copy, limit=1)
    assert copy == truth(client)


@pytest.mark.parametrize("name", ["nonsense", "00", "0" * 32, "é"])
def test_what_does_not_exist_can_not_be_deleted(client: Client, name: str) -> None:
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


def test_a_job_is_removed_with_its_outputs_and_reviews(client: Client) -> None:
    client.store("group", *(output(n, job_id=f"j{n % 2}") for n in range(3000)))
    client.post("/v1/reviews/group", json={"job_id": "j1", "status": "approved"})
    copy: dict[str, Any] = {}
    cursor = follow(client, copy, limit=1000)
    answer = client.delete("/v1/groups/group/jobs/j1")
    assert (answer.status_code, answer.json()) == (200, {"deleted": 1500})
    follow(client, copy, cursor, limit=1000)
    assert copy == truth(client)
    assert {item["root_job_id"] for item in copy.values()} == {"j0"}
    assert client.get("/v1/reviews/group").json() == []
    assert client.delete("/v1/groups/group/jobs/j1").status_code == 404


def test_a_group_is_removed_and_its_clients_hear_of_it(client: Client) -> None:
    client.store("group", *(output(n) for n in range(1500)))
    copy: dict[str, Any] = {}
    cursor = follow(client, copy, limit=1000)
    assert len(copy) == 1500
    assert client.delete("/v1/groups/group").json() == {"deleted": 1500}
    assert client.get("/v1/outputs/group").status_code == 404
    assert client.get("/v1/reviews/group").status_code == 404
    assert client.delete("/v1/groups/group").status_code == 404
    cursor = follow(client, copy, cursor, limit=1000)
    assert copy == {}
    client.store("group", output(7))
    follow(client, copy, cursor)
    assert copy == truth(client)
    assert len(copy) == 1


def test_for_a_cursor_that_was_never_given_out_there_is_nothing_to_wait_for(
    client: Client,
) -> None:
    client.store("group", output(1))
    ahead = feed(client)["cursor"] + 10**9
    assert feed(client, ahead, wait=60) == {"cursor": ahead, "changes": []}


# --- waiting ------------------------------------------------------------------------------------


def test_a_long_poll_answers_when_something_happens(client: Client, service: Service) -> None:
    client.store("group", output(1))
    cursor = feed(client)["cursor"]
    found: list[Any] = []

    def wait() -> None:
        with service.client(client.token) as waiting:
            found.append(feed(waiting, cursor, wait=30))

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.3)
    assert not found
    client.store("other", output(1))  # another group does not matter
    client.store("group", output(2))
    thread.join(10)
    assert [change["output"]["data"] for change in found[0]["changes"]] == [{"number": 2}]


def test_a_long_poll_ends_after_its_time(client: Client) -> None:
    client.store("group", output(1))
    cursor = feed(client)["cursor"]
    started = time.monotonic()
    assert feed(client, cursor, wait=1) == {"cursor": cursor, "changes": []}
    assert time.monotonic() - started >= 1


@pytest.mark.parametrize("leaves", ["the service", "the client"])
def test_a_long_poll_ends_when_somebody_leaves(
    engine: str, request: pytest.FixtureRequest, tmp_path: Path, leaves: str
) -> None:
    """Else it would keep a connection, or hold up the stop, for the minute that it asked for."""
    settings = replace(fresh_settings(engine, request, tmp_path), longest_wait=60)
    service = Service(settings)
    with service.client() as client:
        client.store("group", output(1))
        cursor = feed(client)["cursor"]

        def polls() -> list[str]:
            lines = client.get("/metrics").text.splitlines()
            return [line for line in lines if "_count" in line and "get_changes" in line]

        def poll(patience: float) -> Any:
            with Client(service.url, client.token) as waiting:
                query = {"cursor": cursor, "wait": 60}
                return waiting.get("/v1/changes/group", params=query, timeout=patience)

        before = polls()
        if leaves == "the client":
            with pytest.raises(httpx2.ReadTimeout):
                poll(0.3)
            until(lambda: polls() != before)
            service.stop()
        else:
            with ThreadPoolExecutor() as pool:
                waiting = pool.submit(poll, 50)
                time.sleep(0.3)
                service.stop()
                answer = waiting.result()
            assert answer.json() == {"cursor": cursor, "changes": []}


@pytest.mark.parametrize("query", ["wait=61", "wait=-1", "limit=0", "cursor=-1", "wait=1.5"])
def test_a_bad_query(client: Client, query: str) -> None:
    client.store("group", output(1))
    answer = client.get(f"/v1/changes/group?{query}")
    assert answer.status_code == 422
    assert answer.json()["detail"][0]["loc"] == ["query", query.partition("=")[0]]


# --- forgetting ---------------------------------------------------------------------------------


def test_deletions_are_forgotten_and_old_cursors_refused(swept: Client, clock: Clock) -> None:
    stored = swept.store("group", *(output(n) for n in range(6)))["results"]
    old = feed(swept, limit=2)["cursor"]
    clock.move(seconds=60)
    delete(swept, stored[5]["output_id"])
    current = follow(swept, {})
    swept.store("group", output(1, data={"number": 11}))
    assert len(feed(swept, old)["changes"]) == 5

    clock.move(seconds=31 * DAY)
    until(lambda: swept.get("/v1/changes/group", params={"cursor": old}).status_code == 410)
    answer = swept.get("/v1/changes/group", params={"cursor": old})
    assert answer.json()["detail"][0]["loc"] == ["query", "cursor"]
    assert "start again" in answer.json()["detail"][0]["msg"]
    assert [c["output"]["data"] for c in feed(swept, current)["changes"]] == [{"number": 11}]


def test_who_starts_from_nothing_passes_old_outputs(swept: Client, clock: Clock) -> None:
    """Its cursors lie before the forgotten deletions too, and are still good."""
    stored = swept.store("group", *(output(n) for n in range(40)))["results"]
    clock.move(seconds=60)
    delete(swept, stored[39]["output_id"])
    clock.move(seconds=31 * DAY)
    until(lambda: swept.get("/v1/changes/group", params={"cursor": 5}).status_code == 410)
    copy: dict[str, Any] = {}
    middle = follow(swept, copy, limit=1, pages=1)
    assert 2**52 <= middle < 2**53
    clock.move(seconds=2 * DAY)  # a slow client, and the service moves on
    delete(swept, stored[0]["output_id"])
    swept.store("group", output(1, data={"number": 101}))
    end = follow(swept, copy, middle, limit=1)
    assert copy == truth(swept)
    assert end < 2**52
    clock.move(seconds=40 * DAY)
    until(lambda: swept.get("/v1/changes/group", params={"cursor": middle}).status_code == 410)
