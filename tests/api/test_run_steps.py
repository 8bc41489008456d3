"""Runs while they are compared, removed and ended in steps, and while clocks differ."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gleanery.service.resources.fields import ended_runs, job_statistics
from gleanery.service.resources.run_records import comparison
from gleanery.service.resources.runs import changing
from tests.support.calls import note_calls
from tests.support.history import read_rows
from tests.support.outputs import output
from tests.support.runs import (
    complete,
    counts,
    finish,
    missing,
    push,
    remove_after,
    runs,
    show,
    start,
)
from tests.support.service import DAY, Client, Clock, Service
from tests.support.waiting import wait_until

MINUTE = 60
HOUR = 60 * MINUTE


@pytest.fixture
def stepwise(timed_service: Service, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """A client of a service in which only the sweep compares and removes, one output at a time."""
    monkeypatch.setattr(comparison, "STEP", 1)
    monkeypatch.setattr(changing, "MAX_WAITED", -1)
    monkeypatch.setattr(changing.RunWork, "begin", lambda *_: None)
    with timed_service.client() as client:
        yield client


def test_an_output_that_returns_during_the_comparison_is_missing_once(
    stepwise: Client, timed_service: Service, clock: Clock
) -> None:
    """As if the comparison had ended with the run, whether or not its value has changed."""
    complete(stepwise, 1, 2, 3, 4)
    timed_service.sweep(clock)
    run = complete(stepwise, 1)
    assert run["comparison"] == "pending"
    for _ in range(2):
        stepwise.store("group", output(2), output(3, data={"price": 3}))
    timed_service.sweep(clock)
    assert counts(show(stepwise, run["run_id"])) == {"unchanged": 1, "missing": 3}
    assert missing(stepwise) == {"2", "3", "4"}


def test_a_review_during_the_comparison_counts_no_output_twice(
    stepwise: Client, timed_service: Service, clock: Clock
) -> None:
    """Whether or not it changes anything."""
    complete(stepwise, 1, 2, 3)
    timed_service.sweep(clock)
    run = complete(stepwise, 1)
    for status in ("rejected", "approved", "approved", "rejected"):
        review = {"job_id": "job", "status": status, "comment": ""}
        assert stepwise.post("/v1/reviews/group", json=review).status_code == 200
    timed_service.sweep(clock)
    assert counts(show(stepwise, run["run_id"])) == {"unchanged": 1, "missing": 2}


def test_a_clock_that_goes_back_during_the_comparison_changes_nothing(
    stepwise: Client, timed_service: Service, clock: Clock
) -> None:
    complete(stepwise, 1, 2, 3)
    timed_service.sweep(clock)
    run = complete(stepwise, 1)
    clock.jump(seconds=-DAY)
    stepwise.store("group", output(1), output(2))
    timed_service.sweep(clock)
    assert counts(show(stepwise, run["run_id"])) == {"unchanged": 1, "missing": 2}
    clock.jump(seconds=DAY)
    assert missing(stepwise) == {"2", "3"}


def test_a_sweep_with_a_clock_that_may_be_wrong_ends_no_run(
    stepwise: Client, timed_service: Service, clock: Clock
) -> None:
    run_id = start(stepwise)
    stepwise.store("group", output(1, job_id="other"))
    finished = complete(stepwise, 1, job="third")
    clock.jump(seconds=DAY)
    timed_service.sweep(clock, is_confirmed=False)
    clock.jump(seconds=-DAY)
    assert show(stepwise, run_id)["status"] == "running"
    assert show(stepwise, finished["run_id"])["comparison"] == "done"
    push(stepwise, run_id, 1)


@pytest.mark.parametrize("status", ["complete", "partial"])
def test_what_a_run_has_sent_is_forgotten_in_steps(
    stepwise: Client,
    timed_service: Service,
    clock: Clock,
    status: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A deletion of all at once would hold the lock of the group for long."""
    monkeypatch.setattr(job_statistics, "_FORGOTTEN_PER_STEP", 2)
    first, second = start(stepwise), start(stepwise)
    for run_id in (first, second):
        push(stepwise, run_id, 1, 2, 3, 4, 5)
    finish(stepwise, first, status)
    finish(stepwise, second, status)
    sql = "SELECT count(*) FROM run_sightings WHERE organization_id = $1"
    assert read_rows(timed_service, stepwise, sql)[0][0] == 5
    timed_service.sweep(clock)
    assert read_rows(timed_service, stepwise, sql)[0][0] == 0
    sql = "SELECT count(*) FROM runs WHERE organization_id = $1 AND is_open"
    assert read_rows(timed_service, stepwise, sql)[0][0] == 0


def test_a_job_has_a_limited_number_of_runs_that_go_on(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each batch reads them all."""
    monkeypatch.setattr(changing, "MAX_RUNNING", 2)
    first, _ = start(client), start(client)
    response = client.post("/v1/runs/group", json={"job_id": "job"})
    assert response.status_code == 409
    assert response.json()["detail"][0]["loc"] == ["body", "job_id"]
    start(client, "other")
    finish(client, first, "failed")
    start(client)


# --- retention ----------------------------------------------------------------------------------


def test_a_silent_job_loses_no_outputs(timed_service: Service, clock: Clock) -> None:
    with timed_service.client() as client:
        client.put("/v1/groups/group", json={"retain_days": 7})
        client.store("group", output(1), output(2))
        clock.move(seconds=30 * DAY)
        timed_service.sweep(clock)
        assert len(client.items("group")) == 2
        client.store("group", output(1))  # the spider is back, and its run goes on
        timed_service.sweep(clock)
        assert len(client.items("group")) == 2
        clock.move(seconds=2 * 60 * MINUTE)
        timed_service.sweep(clock)
        assert len(client.items("group")) == 1


def test_outputs_expire_only_if_no_run_may_still_send_them(
    timed_service: Service, clock: Clock
) -> None:
    """A batch without a run says nothing about what the run that goes on will send."""
    with timed_service.client() as client:
        client.put("/v1/groups/group", json={"retain_days": 7})
        complete(client, 1, 2, 3)
        clock.move(seconds=30 * DAY)
        run_id = start(client)
        push(client, run_id, 1)
        client.store("group", output(1))
        clock.move(seconds=31 * MINUTE)
        timed_service.sweep(clock)
        assert len(client.items("group")) == 3
        push(client, run_id, 2)
        assert counts(finish(client, run_id)) == {"unchanged": 2, "missing": 1}
        clock.move(seconds=HOUR)
        timed_service.sweep(clock)
        assert len(client.items("group")) == 2


# --- reviews and removals between the steps -----------------------------------------------------


def approve(client: Client) -> None:
    review = {"job_id": "job", "status": "approved"}
    assert client.post("/v1/reviews/group", json=review).status_code == 200


@pytest.mark.parametrize("approvals", [1, 2])
def test_an_approval_during_the_comparison_changes_no_count(
    stepwise: Client, timed_service: Service, clock: Clock, approvals: int
) -> None:
    remove_after(stepwise, 1, max_share=0.5)
    complete(stepwise, *range(9))
    timed_service.sweep(clock)
    approve(stepwise)
    stepwise.store("group", output(8, data={"price": 8}))
    run = complete(stepwise, *range(6))
    for _ in range(approvals):
        approve(stepwise)
    timed_service.sweep(clock)
    run = show(stepwise, run["run_id"])
    assert counts(run) == {"unchanged": 6, "missing": 3, "removed": 3}
    assert (run["removal"], run["removable"]) == ("done", 3)


def test_a_batch_during_an_approval_and_a_comparison_changes_no_count(
    stepwise: Client, timed_service: Service, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch applies the approval to its outputs first."""
    complete(stepwise, *range(9))
    timed_service.sweep(clock)
    run = complete(stepwise, 0)
    with monkeypatch.context() as patch:
        patch.setattr("gleanery.service.resources.outputs.bulk_jobs.finish_bulk_job", _do_nothing)
        approve(stepwise)
        stepwise.store("group", *(output(number) for number in range(1, 5)))
    timed_service.sweep(clock)
    assert counts(show(stepwise, run["run_id"])) == {"unchanged": 1, "missing": 8}


async def _do_nothing(*_: Any) -> None:
    """Leave the bulk job to the sweep, as a process that is killed does."""


def test_a_removal_runs_before_a_later_run_is_compared(
    stepwise: Client, timed_service: Service, clock: Clock
) -> None:
    """The later run does not count outputs that are gone, so its removal is not held."""
    remove_after(stepwise, 1, max_share=0.5)
    complete(stepwise, *range(9))
    timed_service.sweep(clock)
    earlier = complete(stepwise, *range(5))
    later = complete(stepwise, *range(4))
    timed_service.sweep(clock)
    earlier, later = (show(stepwise, run["run_id"]) for run in (earlier, later))
    assert (earlier["removal"], earlier["counts"]["removed"]) == ("done", 4)
    assert (later["removal"], later["removable"], later["counts"]["removed"]) == ("done", 1, 1)
    assert later["counts"]["missing"] == 5
    assert len(stepwise.items("group")) == 4


def test_a_finish_that_is_repeated_starts_no_second_task(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changing, "MAX_WAITED", -1)
    monkeypatch.setattr(comparison, "STEP", 1)
    complete(client, *range(9))
    tasks = note_calls(monkeypatch, changing.RunWork, "_run")
    run_id = start(client)
    push(client, run_id, 0)
    for _ in range(5):
        finish(client, run_id)
    wait_until(lambda: show(client, run_id)["comparison"] == "done")
    assert counts(show(client, run_id)) == {"unchanged": 1, "missing": 8}
    assert len(tasks) <= 4  # one for each complete run, and one again after it


# --- clocks that differ -------------------------------------------------------------------------


@pytest.mark.parametrize("price", [None, 77])
def test_a_run_that_a_node_with_a_late_clock_finishes_has_sent_its_outputs(
    timed: Client, clock: Clock, price: int | None
) -> None:
    remove_after(timed, 2)
    complete(timed, 1, 2)
    complete(timed, 1)
    assert missing(timed) == {"2"}
    run_id = start(timed)
    push(timed, run_id, 1, 2, **({} if price is None else {"data": {"price": price}}))
    clock.jump(seconds=-0.5)
    finish(timed, run_id)
    clock.jump(seconds=0.5)
    assert missing(timed) == set()
    complete(timed, 1)
    assert len(timed.items("group")) == 2


def test_a_run_that_a_node_with_a_late_clock_starts_is_after_earlier_batches(
    timed: Client, clock: Clock
) -> None:
    complete(timed, 1, 2)
    timed.store("group", output(1), output(2))
    clock.jump(seconds=-0.5)
    run_id = start(timed)
    clock.jump(seconds=0.5)
    push(timed, run_id, 1)
    assert counts(finish(timed, run_id)) == {"unchanged": 1, "missing": 1}


def test_a_batch_of_a_node_with_an_early_clock_ends_no_run_of_a_client(
    timed: Client, clock: Clock
) -> None:
    run_id = start(timed)
    push(timed, run_id, 1)
    clock.jump(seconds=7 * HOUR)
    timed.store("group", output(2))
    clock.jump(seconds=-7 * HOUR)
    push(timed, run_id, 3)
    assert counts(finish(timed, run_id))["created"] == 2


# --- many runs ----------------------------------------------------------------------------------


def test_silent_runs_end_in_steps(
    timed_service: Service, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch ends none that a client has started. A sweep ends them all, some at a time."""
    with timed_service.client() as client:
        for number in range(12):
            push(client, start(client), number)
        clock.move(seconds=7 * HOUR)
        ends = note_calls(monkeypatch, ended_runs, "_end")
        client.store("group", output(1))
        assert ends == []
        timed_service.sweep(clock)
        assert [len(arguments[2]) for arguments in ends] == [5, 5, 2]
        assert [run["status"] for run in runs(client)][1:] == ["abandoned"] * 12


def test_silent_runs_end_if_there_are_too_many(
    timed: Client, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changing, "MAX_RUNNING", 3)
    for _ in range(3):
        start(timed)
    assert timed.post("/v1/runs/group", json={"job_id": "job"}).status_code == 409
    clock.move(seconds=7 * HOUR)
    start(timed)


def test_old_runs_are_deleted_but_not_what_somebody_waits_for(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ended_runs, "KEPT_RUNS", 5)
    remove_after(client, 1, max_share=0.0)
    complete(client, 1, 2)
    held = complete(client, 1)
    old = start(client)
    push(client, old, 1)
    for _ in range(8):
        finish(client, start(client), "failed")
    assert len(runs(client)) == 7  # five, one that goes on, and one that is held
    assert counts(finish(client, old, "partial")) == {"unchanged": 1}
    decision = client.post(f"/v1/runs/group/{held['run_id']}/removal", json={"decision": "remove"})
    assert decision.json()["counts"]["removed"] == 1
