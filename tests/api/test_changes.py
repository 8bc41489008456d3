"""The change feed and deletion over HTTP, on both engines."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from gleanery.service.foundation.values import timestamps
from gleanery.service.storage.database import Subscription
from gleanery.service.storage.group_lock import FIRST_SEQ
from tests.support.calls import note_calls
from tests.support.metrics import fresh_metrics
from tests.support.outputs import (
    apply_changes,
    follow_changes,
    no_changes,
    output,
    read_changes,
    stored_outputs,
)
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
    last = read_changes(client, approved["cursor"])
    assert last["changes"] == [
        {
            "change": "delete",
            "cursor": last["cursor"],
            "change_date": rendered(last["cursor"]),
            "group_id": "group",
            "output_id": gone["output_id"],
            "output": {"id": gone["id"], "output_id": gone["output_id"], "root_job_id": "job"},
        }
    ]


def rendered(cursor: int) -> str:
    return timestamps.render_microseconds(cursor)


def test_every_change_says_when_and_where_it_happened(client: Client) -> None:
    group = 'a "group" of ü'
    path = f"/v1/changes/{quote(group, safe='')}"
    client.store(group, output(1), output(2))
    page = client.get(path).json()
    for change in page["changes"]:
        found = change["output"]
        assert change["group_id"] == group
        assert change["output_id"] == found["output_id"]
        assert change["change_date"] == found["update_date"] == rendered(change["cursor"])
    assert [change["cursor"] for change in page["changes"]][-1] == page["cursor"]


def test_a_client_can_continue_from_the_cursor_of_any_change(client: Client) -> None:
    stored = client.store("group", *(output(number) for number in range(5)))["results"]
    delete(client, stored[2]["output_id"])
    changes = read_changes(client)["changes"]
    for number, change in enumerate(changes, 1):
        assert read_changes(client, change["cursor"])["changes"] == changes[number:]


def test_only_a_client_that_has_all_changes_gets_no_next_url(client: Client) -> None:
    client.store("group", *(output(number) for number in range(4)))
    answer = client.get("/v1/changes/group?limit=2&changed_after=2026-01-01%2B02:00")
    assert answer.status_code == 422  # a date has no offset
    date = "2026-01-01T00:00:00%2B02:00"
    first = client.get(f"/v1/changes/group?limit=2&wait=0&changed_after={date}").json()
    query = f"changed_after={date.replace(':', '%3A')}&limit=2&wait=0&cursor={first['cursor']}"
    next_url = first["metadata"]["next_url"]
    assert next_url == str(client.base_url).rstrip("/") + f"/v1/changes/group?{query}"
    second = client.get(next_url).json()  # the page is full, and the last one
    assert second["metadata"] == {"next_url": None, "next_cursor": None}
    changes = [change["output"] for change in first["changes"] + second["changes"]]
    assert changes == client.items("group")
    assert read_changes(client, limit=3)["metadata"]["next_cursor"] is not None
    assert read_changes(client, limit=5)["metadata"]["next_cursor"] is None


# --- changes after a date -----------------------------------------------------------------------


@pytest.mark.thorough
def test_changed_after_keeps_the_changes_at_or_after_a_date(timed: Client, clock: Clock) -> None:
    stored = timed.store("group", *(output(number) for number in range(3)))["results"]
    clock.move(seconds=60)
    delete(timed, stored[0]["output_id"])
    clock.move(seconds=60)
    timed.store("group", output(1, data={"number": 11}))
    changes = read_changes(timed)["changes"]
    assert [change["change"] for change in changes] == ["create", "delete", "update"]
    for number, change in enumerate(changes):
        found = read_changes(timed, changed_after=change["change_date"])
        assert found["changes"] == changes[number:]
        rest = read_changes(timed, change["cursor"], changed_after=changes[0]["change_date"])
        assert rest["changes"] == changes[number + 1 :]


@pytest.mark.thorough
def test_a_date_after_the_last_change_skips_nothing_later(timed: Client, clock: Clock) -> None:
    """Otherwise a client that continues without the date could miss changes before it."""
    timed.store("group", output(1))
    clock.move(seconds=60)
    end = read_changes(timed)["cursor"]
    later = timestamps.render_microseconds(clock() + 3600 * timestamps.SECOND)
    assert read_changes(timed, changed_after=later) == no_changes(end)
    timed.store("group", output(2))
    assert read_changes(timed, changed_after=later)["changes"] == []
    assert len(read_changes(timed, end)["changes"]) == 1


@pytest.mark.thorough
def test_a_long_poll_waits_for_a_change_after_a_date(patient: Service, waits: list[Any]) -> None:
    with patient.client() as client, ThreadPoolExecutor() as pool:
        client.store("group", output(1))
        after = timestamps.render_microseconds(timestamps.now() + timestamps.SECOND)
        poll = pool.submit(read_changes, client, changed_after=after, wait=60)
        wait_until(lambda: waits)
        wait_until(lambda: timestamps.now() > timestamps.parse(after))
        client.store("group", output(2))
        changes = poll.result()["changes"]
    assert [change["output"]["data"] for change in changes] == [{"number": 2}]


def test_a_cursor_is_always_there_and_stays_if_nothing_happened(client: Client) -> None:
    client.store("group", output(1))
    cursor = read_changes(client)["cursor"]
    assert read_changes(client, cursor) == no_changes(cursor)
    client.store("group", output(1))  # the same value
    assert read_changes(client, cursor) == no_changes(cursor)


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
        owner.store("group", output(1, data={"number": 11}))
        owner.store("other", output(1))
        stranger.store("group", output(2))
        path = f"/{result['output_id']}"
        for settings in ({}, {"keep_versions": 0}):
            owner.put("/v1/groups/other", json=settings)
            assert owner.delete("/v1/outputs/other" + path).status_code == 404
            versions = owner.get(f"/v1/outputs/group{path}/history").json()["versions"]
            assert len(versions) == 2
        assert stranger.delete("/v1/outputs/group" + path).status_code == 404
        assert stranger.get("/v1/changes/other").status_code == 404
        assert len(owner.items("group")) == 1


@pytest.mark.thorough
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
    assert read_changes(client, ahead, wait=60) == no_changes(ahead)


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
    assert read_changes(client, cursor, wait=1) == no_changes(cursor)
    assert time.monotonic() - started >= 1


def test_a_long_poll_ends_when_the_service_stops(patient: Service, waits: list[Any]) -> None:
    """Otherwise the long poll would delay the stop for a minute."""
    with patient.client() as client, ThreadPoolExecutor() as pool:
        client.store("group", output(1))
        cursor = read_changes(client)["cursor"]
        poll = pool.submit(read_changes, client, cursor, wait=60)
        wait_until(lambda: waits)
        patient.stop()
        assert poll.result() == no_changes(cursor)


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
    stored = swept.store("group", *(output(n) for n in range(20)))["results"]
    clock.move(seconds=60)
    stored += swept.store("group", *(output(n) for n in range(20, 40)))["results"]
    clock.move(seconds=60)
    delete(swept, stored[39]["output_id"])
    clock.move(seconds=31 * DAY)
    wait_until(lambda: swept.get("/v1/changes/group", params={"cursor": 5}).status_code == 410)
    copy: dict[str, Any] = {}
    middle = follow_changes(swept, copy, limit=1, pages=1)
    assert 0 < middle < FIRST_SEQ
    clock.move(seconds=2 * DAY)  # the client is slow, and the service purges more
    delete(swept, stored[0]["output_id"])
    swept.store("group", output(1, data={"number": 101}))
    end = follow_changes(swept, copy, middle, limit=1)
    assert copy == stored_outputs(swept)
    assert end >= FIRST_SEQ
    clock.move(seconds=40 * DAY)
    wait_until(lambda: swept.get("/v1/changes/group", params={"cursor": middle}).status_code == 410)


def purge_a_tombstone(service: Service, client: Client, clock: Clock) -> None:
    """Stores and deletes an output, and lets its tombstone be purged."""
    [stored] = client.store("group", output(1000))["results"]
    delete(client, stored["output_id"])
    clock.move(seconds=31 * DAY)
    service.sweep(clock)


@pytest.mark.thorough
def test_a_client_that_catches_up_can_continue_from_any_change(
    timed_service: Service, timed: Client, clock: Clock
) -> None:
    """Many of the changes share a millisecond, which is the resolution of its cursors."""
    timed.store("group", *(output(number) for number in range(6)))
    timed.post("/v1/reviews/group", json={"job_id": "job", "status": "approved"})
    purge_a_tombstone(timed_service, timed, clock)
    timed.store("group", output(50))
    clock.move(seconds=2 * DAY)
    timed.store("group", output(51))
    page = read_changes(timed)
    assert page["metadata"]["next_cursor"] is None
    for number, change in enumerate(page["changes"]):
        copy: dict[str, Any] = {}
        apply_changes(copy, page["changes"][: number + 1])
        end = follow_changes(timed, copy, change["cursor"], limit=1)
        assert copy == stored_outputs(timed)
        assert read_changes(timed, end) == no_changes(end)
    assert end == page["cursor"]


@pytest.mark.thorough
def test_the_cursors_of_a_client_never_decrease(
    timed_service: Service, timed: Client, clock: Clock
) -> None:
    """Connectors continue from the greatest cursor that they have received."""
    timed.store("group", *(output(number) for number in range(5)))
    purge_a_tombstone(timed_service, timed, clock)
    timed.store("group", *(output(number) for number in range(10, 15)))
    cursors, next_url = [], "/v1/changes/group?limit=1"
    while next_url is not None:
        page = timed.get(next_url).json()
        cursors += [change["cursor"] for change in page["changes"]]
        next_url = page["metadata"]["next_url"]
    assert cursors == sorted(cursors)
    assert read_changes(timed, cursors[-1]) == no_changes(cursors[-1])


@pytest.mark.thorough
def test_the_changes_of_an_output_have_different_cursors(
    timed_service: Service, timed: Client, clock: Clock
) -> None:
    """Of several changes of an output, warehouses keep the one with the greatest cursor."""
    purge_a_tombstone(timed_service, timed, clock)
    [stored] = timed.store("group", output(1))["results"]
    clock.jump(seconds=-3600)  # so that the next changes share a millisecond
    delete(timed, stored["output_id"])
    timed.store("group", output(1), output(2))
    clock.jump(seconds=3600)
    clock.move(seconds=2 * DAY)
    latest: dict[str, Any] = {}
    for change in reversed(read_changes(timed)["changes"]):
        if change["cursor"] >= latest.get(change["output_id"], change)["cursor"]:
            latest[change["output_id"]] = change
    assert [change["change"] for change in latest.values()] == ["create", "create"]


@pytest.mark.thorough
def test_the_last_cursor_of_a_client_that_caught_up_lasts(
    timed_service: Service, timed: Client, clock: Clock
) -> None:
    """The group has only outputs from before the purged tombstone."""
    timed.store("group", *(output(number) for number in range(5)))
    purge_a_tombstone(timed_service, timed, clock)
    page = read_changes(timed)
    assert len(page["changes"]) == 5
    clock.move(seconds=1000 * DAY)
    assert read_changes(timed, page["changes"][-1]["cursor"]) == no_changes(page["cursor"])


@pytest.mark.thorough
def test_a_purge_does_not_stop_a_client_that_catches_up(
    timed_service: Service, timed: Client, clock: Clock
) -> None:
    """The purged tombstones are of outputs that the client has never received."""
    first, second, *_ = timed.store("group", *(output(n) for n in range(6)))["results"]
    delete(timed, first["output_id"])
    clock.move(seconds=DAY)
    timed.store("group", output(10))
    clock.move(seconds=DAY)
    timed.store("group", output(11))
    delete(timed, second["output_id"])
    clock.move(seconds=29 * DAY)
    timed_service.sweep(clock)  # purges the first tombstone
    copy: dict[str, Any] = {}
    cursor = follow_changes(timed, copy, limit=5, pages=1)
    assert cursor < FIRST_SEQ  # it has passed the first tombstone, and still catches up
    clock.move(seconds=2 * DAY)
    timed_service.sweep(clock)  # purges the second one
    follow_changes(timed, copy, cursor)
    assert copy == stored_outputs(timed)


@pytest.mark.thorough
def test_clocks_of_nodes_may_differ_around_midnight(
    timed_service: Service, timed: Client, clock: Clock
) -> None:
    """A client that catches up starts on one node and continues on another, where it is earlier."""
    timed.store("group", output(1))
    clock.move(seconds=1)
    timed.store("group", output(2))
    purge_a_tombstone(timed_service, timed, clock)
    clock.move(seconds=DAY - clock() / timestamps.SECOND % DAY + 1)
    copy: dict[str, Any] = {}
    cursor = follow_changes(timed, copy, limit=1, pages=1)
    clock.jump(seconds=-60)
    [received] = copy
    delete(timed, received)
    follow_changes(timed, copy, cursor)
    assert copy == stored_outputs(timed)


@pytest.mark.thorough
def test_changed_after_is_rejected_if_deletions_since_then_are_unknown(
    timed_service: Service, timed: Client, clock: Clock
) -> None:
    timed.store("group", output(1))
    [change] = read_changes(timed)["changes"]
    purge_a_tombstone(timed_service, timed, clock)
    answer = timed.get("/v1/changes/group", params={"changed_after": change["change_date"]})
    assert answer.status_code == 410
    [detail] = answer.json()["detail"]
    assert detail["loc"] == ["query", "changed_after"]
    assert "without this date" in detail["msg"]
    timed.store("group", output(2))
    today = timestamps.render_microseconds(clock())[:10]
    found = read_changes(timed, changed_after=today)["changes"]
    assert [one["output"]["data"] for one in found] == [{"number": 2}]


@pytest.mark.thorough
def test_a_change_is_never_dated_before_2020(timed: Client, clock: Clock) -> None:
    """Smaller numbers are the cursors of clients that catch up."""
    clock.jump(seconds=-40 * 365 * DAY)
    timed.store("group", output(1), output(2))
    page = read_changes(timed, limit=1)
    assert [change["change_date"] for change in page["changes"]] == ["2020-01-01T00:00:00Z"]
    assert len(read_changes(timed, page["cursor"])["changes"]) == 1
