"""The change feed of the approved view over HTTP, on both engines."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gleanery.service.storage.database import Subscription
from tests.support.calls import note_calls
from tests.support.files import with_file
from tests.support.outputs import apply_changes, follow_changes, no_changes, output, read_changes
from tests.support.service import DAY, Client, Clock, Service
from tests.support.settings import fresh_settings
from tests.support.waiting import wait_until

WITHDRAWALS = ("changes_requested", "rejected")


def review(client: Client, status: str, job: str = "job") -> None:
    answer = client.post("/v1/reviews/group", json={"job_id": job, "status": status})
    assert answer.status_code == 200, answer.text


def store_numbers(client: Client, *numbers: int, **members: Any) -> list[str]:
    """Stores outputs, and returns their ids."""
    stored = client.store("group", *(output(number, **members) for number in numbers))
    return [result["output_id"] for result in stored["results"]]


class Follower:
    """A reader of the approved view that keeps a copy of it."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.copy: dict[str, Any] = {}
        self.cursor = 0

    def read(self, limit: int = 2) -> list[tuple[str, Any]]:
        """Applies the new changes, and returns the kind and the data of each."""
        changes: list[dict[str, Any]] = []
        while True:
            page = read_changes(self.client, self.cursor, view="approved", limit=limit)
            changes += page["changes"]
            self.cursor = page["cursor"]
            if page["metadata"]["next_cursor"] is None:
                apply_changes(self.copy, changes)
                return [(one["change"], one["output"].get("data")) for one in changes]

    def data(self) -> list[Any]:
        return [item["data"] for item in self.copy.values()]

    def check(self) -> None:
        """A reader that starts now has the same copy."""
        self.read(limit=100)
        assert self.copy == read_view(self.client)


def read_view(client: Client) -> dict[str, Any]:
    """The view as a new reader gets it. Each output is there once, and approved."""
    follower = Follower(client)
    changes = follower.read(limit=1000)
    assert sum(change != "delete" for change, _ in changes) == len(follower.copy)
    assert all(item["is_approved"] for item in follower.copy.values())
    return follower.copy


@pytest.fixture
def follower(client: Client) -> Follower:
    return Follower(client)


# --- the rules ----------------------------------------------------------------------------------


def test_the_view_follows_the_approvals(client: Client, follower: Follower) -> None:
    store_numbers(client, 1)
    assert follower.read() == []
    review(client, "approved")
    assert follower.read() == [("create", {"number": 1})]
    [approved] = client.items("group")
    assert [*follower.copy.values()] == [approved]

    store_numbers(client, 1, data={"number": 11})
    assert follower.read() == []
    assert [*read_view(client).values()] == [approved]
    for status in ("pending", "in_review"):
        review(client, status)
    store_numbers(client, 1, data={"number": 12})
    assert follower.read() == []
    assert [*read_view(client).values()] == [approved]

    review(client, "approved")
    assert follower.read() == [("update", {"number": 12})]
    review(client, "approved")
    assert follower.read() == []
    store_numbers(client, 1, data={"number": 12}, tags={"country": "Spain"})
    assert follower.read() == [("update", {"number": 12})]
    assert [*follower.copy.values()] == client.items("group")
    follower.check()
    store_numbers(client, 1, data={"number": 13})
    assert follower.read() == []
    follower.check()


@pytest.mark.parametrize("status", WITHDRAWALS)
@pytest.mark.parametrize("has_newer_value", [False, True])
def test_a_withdrawn_approval_is_a_deletion(
    client: Client, follower: Follower, status: str, has_newer_value: bool
) -> None:
    [output_id] = store_numbers(client, 1)
    review(client, "approved")
    follower.read()
    if has_newer_value:
        store_numbers(client, 1, data={"number": 11})
    [before] = client.items("group")
    full = read_changes(client)["cursor"]
    review(client, status)
    page = read_changes(client, follower.cursor, view="approved")
    [removed] = page["changes"]
    assert (removed["change"], removed["output_id"]) == ("delete", output_id)
    assert removed["output"] == {
        "id": before["id"],
        "output_id": output_id,
        "root_job_id": "job",
    }
    in_full = [change["output"]["is_approved"] for change in read_changes(client, full)["changes"]]
    assert in_full == ([] if has_newer_value else [False])
    assert not has_newer_value or client.items("group") == [before]
    follower.check()
    assert follower.copy == {}

    review(client, status)
    assert follower.read() == []
    review(client, "approved")
    assert follower.read() == [("create", before["data"])]
    follower.check()


@pytest.mark.parametrize("has_newer_value", [False, True])
def test_a_deleted_output_leaves_the_view(
    client: Client, follower: Follower, has_newer_value: bool
) -> None:
    [approved, other] = store_numbers(client, 1, 2)
    review(client, "approved")
    follower.read()
    if has_newer_value:
        store_numbers(client, 1, data={"number": 11})
    full = read_changes(client)["cursor"]
    assert client.delete(f"/v1/outputs/group/{approved}").status_code == 200
    in_full, in_view = read_changes(client, full), read_changes(client, full, view="approved")
    assert in_view == in_full  # both feeds have the deletion, with one cursor
    follower.check()
    assert [*follower.copy] == [other]

    store_numbers(client, 1)
    assert follower.read() == []
    assert client.delete(f"/v1/outputs/group/{approved}").status_code == 200
    assert follower.read() == []
    follower.check()


def test_an_output_that_was_never_approved_leaves_no_trace(
    client: Client, follower: Follower
) -> None:
    [output_id] = store_numbers(client, 1)
    review(client, "rejected")
    assert client.delete(f"/v1/outputs/group/{output_id}").status_code == 200
    assert follower.read() == []
    assert len(read_changes(client)["changes"]) == 1


@pytest.mark.parametrize("path", ["group", "group/jobs/job"])
def test_a_deleted_group_or_job_leaves_the_view(
    client: Client, follower: Follower, path: str
) -> None:
    store_numbers(client, *range(4))
    review(client, "approved")
    store_numbers(client, 1, data={"number": 11})
    follower.read()
    assert len(follower.copy) == 4
    assert client.delete(f"/v1/groups/{path}").json() == {"deleted": 4}
    assert [change for change, _ in follower.read()] == ["delete"] * 4
    store_numbers(client, 1)
    assert follower.read() == []
    follower.check()
    assert follower.copy == {}


@pytest.mark.thorough
def test_expired_outputs_leave_the_view(
    timed_service: Service, timed: Client, clock: Clock
) -> None:
    store_numbers(timed, 1, 2, 3)
    review(timed, "approved")
    store_numbers(timed, 1, data={"number": 11})
    timed.put("/v1/groups/group", json={"retain_days": 5})
    follower = Follower(timed)
    follower.read()
    clock.move(seconds=4 * DAY)
    store_numbers(timed, 3)
    clock.move(seconds=2 * DAY)
    timed_service.sweep(clock)
    assert follower.read() == [("delete", None)] * 2
    assert follower.data() == [{"number": 3}]
    assert [item["data"] for item in read_view(timed).values()] == [{"number": 3}]


def test_a_batch_can_change_an_approved_output_twice(client: Client, follower: Follower) -> None:
    store_numbers(client, 1)
    review(client, "approved")
    client.store("group", output(1, data={"number": 11}), output(1))
    follower.check()
    assert follower.data() == [{"number": 1}]
    assert [item["is_approved"] for item in client.items("group")] == [False]


def test_a_reader_that_never_looked_gets_the_approved_version_of_each_output(
    client: Client,
) -> None:
    store_numbers(client, *range(6))
    review(client, "approved")
    store_numbers(client, 1, 3, data={"number": 11})
    store_numbers(client, 7)
    changes = read_changes(client, view="approved", limit=1000)["changes"]
    assert [change["output"]["data"]["number"] for change in changes] == [*range(6)]
    for number, change in enumerate(changes, 1):
        rest = read_changes(client, change["cursor"], view="approved")["changes"]
        assert rest == changes[number:]


# --- the query ----------------------------------------------------------------------------------


def test_the_next_url_keeps_the_view(client: Client) -> None:
    store_numbers(client, *range(4))
    review(client, "approved")
    store_numbers(client, 1, data={"number": 11})
    first = read_changes(client, view="approved", limit=3)
    second = client.get(first["metadata"]["next_url"]).json()
    assert second["metadata"] == {"next_url": None, "next_cursor": None}
    copy: dict[str, Any] = {}
    apply_changes(copy, first["changes"] + second["changes"])
    assert copy == read_view(client)
    assert read_changes(client, second["cursor"], view="approved") == no_changes(second["cursor"])


def test_an_unknown_view_is_rejected(client: Client) -> None:
    store_numbers(client, 1)
    answer = client.get("/v1/changes/group?view=reviewed")
    assert answer.status_code == 422
    assert answer.json()["detail"][0]["loc"] == ["query", "view"]
    assert client.get("/v1/changes/missing?view=approved").status_code == 404


@pytest.mark.thorough
def test_changed_after_keeps_the_later_approvals(timed: Client, clock: Clock) -> None:
    for number in range(3):
        store_numbers(timed, number, job_id=f"job {number}")
        review(timed, "approved", f"job {number}")
        clock.move(seconds=60)
    store_numbers(timed, 0, 1, 2, job_id="job 1", data={"new": True})
    changes = read_changes(timed, view="approved")["changes"]
    for number, change in enumerate(changes):
        found = read_changes(timed, view="approved", changed_after=change["change_date"])
        assert found["changes"] == changes[number:]


@pytest.fixture
def patient(engine: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Service]:
    """A service that lets a long poll wait for a minute, and has small pages."""
    settings = fresh_settings(engine, request, tmp_path)
    service = Service(replace(settings, max_wait_seconds=60, max_page_bytes=100_000))
    yield service
    service.stop()


@pytest.mark.thorough
def test_large_versions_are_sent_over_several_pages(patient: Service) -> None:
    text = "x" * 40_000
    with patient.client() as client:
        store_numbers(client, *range(4), data={"text": text})
        review(client, "approved")
        store_numbers(client, 1, 2, data={"text": "short"})
        assert len(read_changes(client, view="approved")["changes"]) == 2
        view = read_view(client)
        assert [item["data"]["text"] for item in view.values()] == [text] * 4


@pytest.mark.thorough
@pytest.mark.parametrize("status", ["approved", "rejected"])
def test_a_long_poll_waits_for_a_change_of_the_view(
    patient: Service, monkeypatch: pytest.MonkeyPatch, status: str
) -> None:
    waits = note_calls(monkeypatch, Subscription, "wait")
    with patient.client() as client, ThreadPoolExecutor() as pool:
        store_numbers(client, 1)
        review(client, "approved")
        cursor = read_changes(client, view="approved")["cursor"]
        poll = pool.submit(read_changes, client, cursor, view="approved", wait=60)
        wait_until(lambda: len(waits) == 1)
        store_numbers(client, 1, data={"number": 11})
        wait_until(lambda: len(waits) == 2)  # the new value has ended one wait, and no more
        assert not poll.done()
        review(client, status)
        [change] = poll.result()["changes"]
        assert change["change"] == ("update" if status == "approved" else "delete")


# --- old cursors --------------------------------------------------------------------------------


@pytest.mark.thorough
def test_old_cursors_of_the_view_expire_with_its_tombstones(
    timed_service: Service, timed: Client, clock: Clock
) -> None:
    store_numbers(timed, *range(4))
    review(timed, "approved")
    store_numbers(timed, 5, job_id="other")
    review(timed, "approved", "other")
    old = read_changes(timed, view="approved", limit=2)["cursor"]
    clock.move(seconds=60)
    review(timed, "rejected", "other")
    follower = Follower(timed)
    follower.read()
    clock.move(seconds=31 * DAY)
    store_numbers(timed, 1, data={"number": 11})
    timed_service.sweep(clock)

    expired = timed.get("/v1/changes/group", params={"cursor": old, "view": "approved"})
    assert expired.status_code == 410
    assert expired.json()["detail"][0]["loc"] == ["query", "cursor"]
    read_changes(timed, old)  # the full feed has lost no deletion
    follower.check()

    late: dict[str, Any] = {}
    middle = follow_changes(timed, late, limit=1, pages=1, view="approved")
    clock.move(seconds=60)
    review(timed, "approved")
    follow_changes(timed, late, middle, limit=1, view="approved")
    follower.check()
    assert late == follower.copy


# --- files --------------------------------------------------------------------------------------


def reference_is_kept(service: Service, client: Client, clock: Clock, file_id: str) -> bool:
    """True if the file is there after the clean-up of unreferenced files."""
    clock.move(seconds=60 * DAY)
    service.sweep(clock)
    return client.get(f"/v1/files/{file_id}").status_code == 200


@pytest.mark.thorough
@pytest.mark.parametrize("end", ["approved", "rejected", "delete", "delete group"])
def test_an_approved_version_keeps_its_files(
    timed_service: Service, timed: Client, clock: Clock, end: str
) -> None:
    sent = with_file(timed, 1)
    file_id = sent["files"][0]["id"]
    [result] = timed.store("group", sent)["results"]
    review(timed, "approved")
    timed.store("group", sent | {"data": {"number": 11}, "files": []})
    timed.store("group", sent | {"data": {"number": 12}})
    timed.store("group", sent | {"data": {"number": 13}, "files": []})
    assert reference_is_kept(timed_service, timed, clock, file_id)
    [item] = read_view(timed).values()
    assert [file["id"] for file in item["files"]] == [file_id]
    assert timed.get(item["files"][0]["blob_url"]).status_code == 200
    if end == "delete":
        assert timed.delete(f"/v1/outputs/group/{result['output_id']}").status_code == 200
    elif end == "delete group":
        assert timed.delete("/v1/groups/group").status_code == 200
    else:
        review(timed, end)
    assert not reference_is_kept(timed_service, timed, clock, file_id)


@pytest.mark.thorough
def test_two_versions_of_an_output_can_share_a_file(
    timed_service: Service, timed: Client, clock: Clock
) -> None:
    sent = with_file(timed, 1)
    file_id = sent["files"][0]["id"]
    timed.store("group", sent)
    review(timed, "approved")
    timed.store("group", sent | {"data": {"number": 11}})
    review(timed, "approved")
    assert reference_is_kept(timed_service, timed, clock, file_id)
    timed.store("group", sent | {"data": {"number": 11}, "files": []})  # the approval carries over
    assert not reference_is_kept(timed_service, timed, clock, file_id)


# --- reviews of many outputs while a scraper writes ----------------------------------------------

OUTPUTS = 2500  # a review changes 1000 in a step


@pytest.mark.thorough
def test_a_reader_ends_with_the_exact_view_while_others_review_and_write(client: Client) -> None:
    """Whatever the order is, each output that the review covers is in the view, or out of it."""
    assert client.token is not None
    client.store("group", *(output(number) for number in range(OUTPUTS)))
    follower = Follower(client)
    for status, version in (("approved", 1), ("rejected", 2), ("approved", 3)):
        end = threading.Event()
        with ThreadPoolExecutor() as pool:
            reading = pool.submit(read_until, follower, end)
            writing = pool.submit(write_versions, client, version, end)
            review(client, status)
            end.set()
            written = writing.result()
            reading.result()
        view = read_view(client)
        follower.check()
        assert follower.copy == view
        if status == "rejected":
            assert view == {}
            continue
        assert len(view) == OUTPUTS
        items = {item["output_id"]: item for item in client.items("group", limit=1000)}
        for output_id, item in items.items():
            if item["is_approved"]:
                assert view[output_id] == item
            else:
                assert item["data"]["number"] in written
                assert view[output_id]["data"] != item["data"]
                assert view[output_id]["id"] == item["id"]


def read_until(follower: Follower, end: threading.Event) -> None:
    while not end.is_set():
        follower.read(limit=100)


def write_versions(client: Client, version: int, end: threading.Event) -> set[int]:
    """Changes outputs until the review has ended, and returns their numbers."""
    written: set[int] = set()
    for start in range(0, OUTPUTS, 7):
        if end.is_set():
            break
        numbers = [(start * 11 + n) % OUTPUTS for n in range(20)]
        batch = [output(n, data={"number": n, "version": version}) for n in sorted(set(numbers))]
        client.store("group", *batch)
        written |= set(numbers)
    return written
