"""Jobs that are overdue or fail, over HTTP on both engines, and rules that come and go."""

from __future__ import annotations

from typing import Any

from tests.support.monitors_model import HOUR
from tests.support.outputs import output
from tests.support.runs import complete, finish, push, start
from tests.support.service import DAY, Client, Clock, Service


def set_rules(client: Client, *wanted: dict[str, Any]) -> None:
    response = client.put("/v1/monitors/group", json=[*wanted])
    assert response.status_code == 200, response.text


def open_alerts(client: Client) -> list[tuple[str, str]]:
    """Job and kind of each open alert."""
    found = client.get("/v1/alerts", params={"state": "open"}).json()["alerts"]
    return sorted((alert["job_id"], alert["kind"]) for alert in found)


def test_a_job_that_is_pushed_without_runs_can_be_overdue(
    timed_service: Service, clock: Clock
) -> None:
    """Even one that is newer than the rule."""
    with timed_service.client() as client:
        client.store("group", output(1))
        set_rules(client, {"kind": "no_run", "hours": 24})
        client.store("group", output(1, job_id="new"))
        for _ in range(3):
            timed_service.sweep(clock)
            clock.move(seconds=12 * HOUR)
            client.store("group", output(1, job_id="new"))
        timed_service.sweep(clock)
        assert open_alerts(client) == [("job", "no_run")]
        clock.move(seconds=25 * HOUR)
        timed_service.sweep(clock)
        assert open_alerts(client) == [("job", "no_run"), ("new", "no_run")]
        client.store("group", output(1, job_id="new"))
        clock.move(seconds=HOUR)
        timed_service.sweep(clock)
        assert open_alerts(client) == [("job", "no_run")]


def test_a_job_whose_runs_fail_has_one_alert(timed_service: Service, clock: Clock) -> None:
    """Without a rule about failed runs it is overdue: no run of the last days was of use."""
    with timed_service.client() as client:
        for _ in range(5):
            complete(client, 1)
            clock.move(seconds=DAY)
        set_rules(client, {"kind": "no_run"}, {"kind": "failed_run"})
        for _ in range(4):
            finish(client, start(client), "failed")
            clock.move(seconds=DAY)
            timed_service.sweep(clock)
        assert open_alerts(client) == [("job", "failed_run")]
        set_rules(client, {"kind": "no_run"})
        timed_service.sweep(clock)
        assert open_alerts(client) == [("job", "no_run")]


def test_runs_that_go_on_and_batches_without_a_run_do_not_interrupt_failures(
    timed: Client, clock: Clock
) -> None:
    first = start(timed)
    set_rules(timed, {"kind": "failed_run", "threshold": 2})
    finish(timed, start(timed), "failed")
    going_on = start(timed)
    timed.store("group", output(1))
    clock.move(seconds=HOUR)
    finish(timed, start(timed), "failed")
    assert open_alerts(timed) == [("job", "failed_run")]
    for run_id in (first, going_on):
        push(timed, run_id, 1)
        finish(timed, run_id)
    assert open_alerts(timed) == []


def test_a_group_that_is_deleted_loses_its_rules(client: Client) -> None:
    complete(client, 1)
    before = client.get("/v1/monitors/group").json()
    set_rules(client)
    assert client.delete("/v1/groups/group").status_code == 200
    assert client.get("/v1/monitors/group").status_code == 404
    complete(client, 1)
    assert client.get("/v1/monitors/group").json() == before


def test_a_sample_has_outputs_of_the_run_only(client: Client) -> None:
    """The job has outputs that changed later, and that the run did not send."""
    complete(client, *range(12))
    same = [output(number, data={"price": 1}) for number in range(20, 40)]
    client.store("group", *same)
    set_rules(client, {"kind": "duplicates"})
    complete(client, *range(12))
    assert open_alerts(client) == []
    run_id = start(client)
    answer = client.post(f"/v1/outputs/group?run_id={run_id}", json=same)
    assert answer.status_code == 200, answer.text
    finish(client, run_id)
    assert open_alerts(client) == [("job", "duplicates")]
