"""Bulk jobs survive a crash, and change exactly the outputs that they cover."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any

import httpx2
import pytest

from gleanery.service.foundation.security import tokens
from gleanery.service.foundation.values import timestamps
from gleanery.service.resources.access.organizations import find_grant
from gleanery.service.resources.outputs import bulk_jobs
from gleanery.service.storage import group_lock
from gleanery.service.storage.database import Transaction
from gleanery.service.storage.engines import open_engine
from tests.support.bulk_jobs import create_bulk_job
from tests.support.outputs import follow_changes, output
from tests.support.process import killed_before_call, served
from tests.support.service import DAY, Client, Clock, Service
from tests.support.settings import fresh_settings
from tests.support.waiting import TIMEOUT_SECONDS, wait_until

OUTPUTS = 6000
STEP = ("gleanery.service.resources.outputs.bulk_jobs", "_run_step")  # changes 1000 outputs


def job(client: Client) -> dict[str, Any] | None:
    group = client.get("/v1/groups/group").json()
    return next((one for one in group["jobs"] if one["job_id"] == "job"), None)


def begin(client: Client, kind: str) -> None:
    if kind == "approve":
        client.post("/v1/reviews/group", json={"job_id": "job", "status": "approved"})
    else:
        client.delete("/v1/groups/group/jobs/job")


@pytest.mark.extended
@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["approve", "delete"])
def test_a_bulk_job_continues_after_a_crash(
    engine: str, request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    settings = fresh_settings(engine, request, tmp_path)
    with served(settings, program=killed_before_call(STEP, 3)) as service:
        with Client(service.url, service.token) as client:
            client.store("group", *(output(n) for n in range(OUTPUTS)))
            with pytest.raises(httpx2.TransportError):
                begin(client, kind)
        assert service.running.process.wait(TIMEOUT_SECONDS) == -signal.SIGKILL

    with served(settings, "--sweep-seconds", "0.2", with_token=False) as again:
        client = Client(again.url, service.token)
        client.store("group", output(OUTPUTS + 1, job_id="later"))

        def has_ended() -> bool:
            found = job(client)
            return (
                found is None if kind == "delete" else bool(found and found["approved"] == OUTPUTS)
            )

        wait_until(has_ended)
        items = client.items("group", limit=1000)
        if kind == "approve":
            assert sum(item["is_approved"] for item in items) == OUTPUTS
            assert len(items) == OUTPUTS + 1
        else:
            assert [item["root_job_id"] for item in items] == ["later"]


@pytest.mark.parametrize(
    ("kind", "stored", "expected"),
    [
        ("approve", [output(1)], {1: True, 2: True}),
        ("approve", [output(1, tags={"a": 1})], {1: True, 2: True}),
        ("approve", [output(1, data={"number": 11})], {2: True, 11: False}),
        ("approve", [output(1, tags={"a": 1}), output(1)], {1: True, 2: True}),
        ("approve", [output(1), output(1, data={"number": 11})], {2: True, 11: False}),
        ("approve", [output(1, data={"number": 11}), output(1)], {1: False, 2: True}),
        ("delete", [output(1)], {1: False}),
        ("delete", [output(1, data={"number": 11})], {11: False}),
        ("delete", [output(1), output(1, data={"number": 11})], {11: False}),
        ("delete", [output(3)], {3: False}),
    ],
)
def test_an_output_stored_during_a_bulk_job_is_not_part_of_it(
    client: Client,
    service: Service,
    kind: str,
    stored: list[dict[str, Any]],
    expected: dict[int, bool],
) -> None:
    client.store("group", output(1), output(2))
    assert client.token is not None
    create_bulk_job(service, client.token, kind)
    client.store("group", *stored)
    client.post(
        "/v1/reviews/group", json={"job_id": "job", "status": "pending"}
    )  # finishes the bulk job
    items = client.items("group")
    assert {item["data"]["number"]: item["is_approved"] for item in items} == expected
    group = client.get("/v1/groups/group").json()
    assert group["outputs"] == len(expected)
    assert sum(one["approved"] for one in group["jobs"]) == sum(expected.values())


@pytest.mark.parametrize("kind", ["approve", "unapprove", "delete"])
@pytest.mark.parametrize("has_newer_value", [False, True])
def test_a_bulk_job_reaches_the_approved_view_before_a_new_value(
    client: Client, service: Service, kind: str, has_newer_value: bool
) -> None:
    client.store("group", output(1), output(2))
    copy: dict[str, Any] = {}
    cursor = 0
    if kind != "approve" or has_newer_value:
        begin(client, "approve")
        cursor = follow_changes(client, copy, view="approved")
    if has_newer_value:
        client.store("group", output(1, data={"number": 11}))
    assert client.token is not None
    create_bulk_job(service, client.token, kind)
    client.store("group", output(1, data={"number": 12}))
    cursor = follow_changes(client, copy, cursor, view="approved")
    client.put("/v1/groups/group", json={})  # finishes the bulk job
    follow_changes(client, copy, cursor, view="approved")
    expected = [11 if has_newer_value else 1, 2] if kind == "approve" else []
    assert sorted(item["data"]["number"] for item in copy.values()) == sorted(expected)
    fresh: dict[str, Any] = {}
    follow_changes(client, fresh, view="approved")
    assert fresh == copy


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        (output(1, tags={"a": 1}), {1: True, 22: False}),
        (output(2, data={"number": 22}, tags={"a": 1}), {1: True, 22: False}),
        (output(1, data={"number": 11}), {11: False, 22: False}),
    ],
)
def test_an_approval_as_of_a_position_covers_no_later_value(
    client: Client, service: Service, stored: dict[str, Any], expected: dict[int, bool]
) -> None:
    client.store("group", output(1), output(2))
    seen = client.get("/v1/groups/group").json()["cursor"]
    client.store("group", output(2, data={"number": 22}))
    assert client.token is not None
    create_bulk_job(service, client.token, "approve", as_of=seen)
    client.store("group", stored)
    client.put("/v1/groups/group", json={})  # finishes the bulk job
    items = client.items("group")
    assert {item["data"]["number"]: item["is_approved"] for item in items} == expected


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["approve", "delete"])
def test_a_step_changes_a_limited_number_of_bytes(
    client: Client, service: Service, kind: str
) -> None:
    """Otherwise other writers wait until gigabytes are written."""
    client.store("group", *(output(n, data={"text": "x" * 6 * 1024**2}) for n in range(4)))
    assert client.token is not None
    create_bulk_job(service, client.token, kind)
    assert not run_step(service, client.token)
    left = [item["is_approved"] for item in client.items("group")]
    assert sorted(left) == ([False, False, True, True] if kind == "approve" else [False, False])
    client.put("/v1/groups/group", json={})  # finishes the bulk job
    left = [item["is_approved"] for item in client.items("group")]
    assert left == ([True] * 4 if kind == "approve" else [])


def run_step(service: Service, token: str) -> bool:
    """Runs one step of the bulk job; returns True if it is finished."""

    async def work(transaction: Transaction) -> bool:
        locked = await group_lock.lock(transaction, "group", timestamps.now)
        bulk_job = await locked.pending_bulk_job()
        assert bulk_job is not None
        is_finished = await bulk_jobs._run_step(locked, bulk_job)
        await locked.commit_counts()
        return is_finished

    async def run() -> bool:
        async with open_engine(service.settings) as database:
            grant = await find_grant(database, tokens.digest(token))
            assert grant is not None
            return await database.for_tenant(grant.organization_id).write(work)

    return asyncio.run(run())


def test_a_group_accepts_no_local_storage_while_it_is_deleted(
    client: Client, service: Service
) -> None:
    """Otherwise the end of the deletion would delete the new entries without a trace."""
    client.store("group", output(1))
    number = client.get("/v1/groups/group").json()["id"]
    entry = {"domain": "a.com", "key": "k", "value": "v", "group_id": number}
    client.post("/v1/local-storage", json=[entry])
    assert client.token is not None
    create_bulk_job(service, client.token, "delete", job=None)
    assert client.post("/v1/local-storage", json=[entry | {"key": "new"}]).status_code == 404
    client.put("/v1/groups/group", json={})  # finishes the bulk job
    assert client.get("/v1/local-storage").json() == []
    assert client.post("/v1/local-storage", json=[entry]).json()["created"] == 1


@pytest.mark.thorough
def test_a_rejection_covers_outputs_that_move_meanwhile(client: Client, service: Service) -> None:
    client.store("group", output(1), output(2))
    client.post("/v1/reviews/group", json={"job_id": "job", "status": "approved"})
    assert client.token is not None
    create_bulk_job(service, client.token, "unapprove")
    client.store("group", output(1, tags={"a": 1}))
    client.post("/v1/reviews/group", json={"job_id": "job", "status": "pending"})
    assert [item["is_approved"] for item in client.items("group")] == [False, False]


@pytest.mark.thorough
def test_a_deletion_counts_what_the_sweep_deleted_too(swept: Client) -> None:
    """The sweep continues every bulk job, even one that a request is running."""
    swept.store("group", *(output(n) for n in range(10_000)))
    assert swept.delete("/v1/groups/group").json() == {"deleted": 10_000}


def test_a_deletion_in_small_steps_leaves_nothing(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_jobs, "_BATCH_SIZE", 2)
    jobs = [f"job-{n}" for n in range(7)]
    for name in ("group", "other"):
        client.store(
            name,
            *(output(n, job_id=job, tags={"country": job}) for n in range(3) for job in jobs),
        )
        for job in jobs:
            for status in ("in_review", "approved"):
                client.post(f"/v1/reviews/{name}", json={"job_id": job, "status": status})
    assert client.delete("/v1/groups/group/jobs/job-0").json() == {"deleted": 3}
    assert {one["job_id"] for one in client.get("/v1/reviews/group").json()} == set(jobs[1:])
    assert client.delete("/v1/groups/group").json() == {"deleted": 18}
    client.store("group", output(1, job_id="job-1"))
    group = client.get("/v1/groups/group").json()
    assert [(one["job_id"], one["latest_review"]) for one in group["jobs"]] == [("job-1", None)]
    assert (group["outputs"], group["countries"]) == (1, {})
    assert client.get("/v1/reviews/group?history=true").json() == []
    assert len(client.get("/v1/reviews/other?history=true").json()) == 14


def test_a_review_waits_for_a_deletion(client: Client, service: Service) -> None:
    client.store("group", output(1))
    client.post("/v1/reviews/group", json={"job_id": "job", "status": "rejected"})
    assert client.token is not None
    create_bulk_job(service, client.token, "delete")
    client.store("group", output(2))
    client.post("/v1/reviews/group", json={"job_id": "job", "status": "approved"})
    history = client.get("/v1/reviews/group?history=true").json()
    assert [review["status"] for review in history] == ["approved"]
    assert [item["data"]["number"] for item in client.items("group")] == [2]


def test_settings_during_a_deletion_are_of_the_new_group(client: Client, service: Service) -> None:
    client.put("/v1/groups/group", json={"display_name": "Old", "retain_days": 3})
    client.store("group", output(1))
    assert client.token is not None
    create_bulk_job(service, client.token, "delete", job=None)
    answer = client.put("/v1/groups/group", json={"display_name": "New"})
    assert (answer.json()["display_name"], answer.json()["outputs"]) == ("New", 0)
    assert client.delete("/v1/groups/group").json() == {"deleted": 0}
    client.store("group", output(2))
    group = client.get("/v1/groups/group").json()
    assert (group["display_name"], group["retain_days"]) == (None, None)


def test_an_approved_job_can_be_approved_again(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step reads no more than it may change."""
    monkeypatch.setattr(bulk_jobs, "_BATCH_SIZE", 2)
    client.store("group", *(output(n) for n in range(7)))
    for status, approved in (("approved", 7), ("approved", 7), ("rejected", 0), ("approved", 7)):
        client.post("/v1/reviews/group", json={"job_id": "job", "status": status})
        assert sum(item["is_approved"] for item in client.items("group")) == approved
        assert client.get("/v1/groups/group").json()["jobs"][0]["approved"] == approved


def test_a_failing_bulk_job_does_not_stop_the_sweep(timed_service: Service, clock: Clock) -> None:
    """An invalid bulk job fails in each sweep, but does not stop the others."""
    with timed_service.client() as client:
        client.store("group", output(1))
        client.store("other", output(1))
        client.put("/v1/groups/other", json={"retain_days": 1})
        assert client.token is not None
        create_bulk_job(timed_service, client.token, "approve", job=None)
        clock.move(seconds=2 * DAY)
        client.store("other", output(2))
        clock.move(seconds=DAY / 2)  # its run has ended without the first output
        with pytest.raises(ExceptionGroup, match="tasks of the sweep"):
            timed_service.sweep(clock)
        [kept] = client.items("other")
        assert kept["data"] == output(2)["data"]
