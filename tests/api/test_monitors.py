"""Monitors over HTTP, on both engines: rules, and the alerts that runs open and close."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.outputs import output
from tests.support.runs import complete, finish, start
from tests.support.service import DAY, Client, Clock, Service

HOUR = 3600


def rules(client: Client, *wanted: dict[str, Any]) -> None:
    response = client.put("/v1/monitors/group", json=[*wanted])
    assert response.status_code == 200, response.text


def alerts(client: Client, **query: Any) -> list[dict[str, Any]]:
    response = client.get("/v1/alerts", params=query)
    assert response.status_code == 200, response.text
    found: list[dict[str, Any]] = response.json()["alerts"]
    return found


def daily(client: Client, clock: Clock, days: int, count: int = 20, **members: Any) -> None:
    """A complete run on each of these days."""
    for _ in range(days):
        run(client, count, **members)
        clock.move(seconds=DAY)


def run(client: Client, count: int, status: str = "complete", **members: Any) -> dict[str, Any]:
    run_id = start(client)
    if count:
        items = [output(number, **members) for number in range(count)]
        response = client.post(f"/v1/outputs/group?run_id={run_id}", json=items)
        assert response.status_code == 200, response.text
    return finish(client, run_id, status)


def test_a_new_group_has_three_rules(client: Client) -> None:
    complete(client, 1)
    found = client.get("/v1/monitors/group").json()
    assert [(rule["kind"], rule["threshold"]) for rule in found] == [
        ("no_run", 2.0),
        ("few_outputs", 0.5),
        ("fill_rate", 0.2),
    ]
    assert client.put("/v1/monitors/group", json=found).json() == found


def test_half_of_the_outputs_open_an_alert_once_and_more_close_it(
    timed: Client, clock: Clock
) -> None:
    daily(timed, clock, 4)
    run(timed, 9)
    [alert] = alerts(timed)
    assert (alert["state"], alert["kind"], alert["job_id"]) == ("open", "few_outputs", "job")
    assert alert["message"] == "job stored 9 outputs; 20 is usual."
    for _ in range(25):
        run(timed, 9)
    [alert] = alerts(timed, state="open")
    assert alert["runs"] == 26
    run(timed, 19)
    assert alerts(timed, state="open") == []
    [closed] = alerts(timed, state="closed", group_id="group", job_id="job")
    assert (closed["close_reason"], closed["alert_id"]) == ("over", alert["alert_id"])


def test_what_a_person_accepts_is_usual_from_then_on(timed: Client, clock: Clock) -> None:
    daily(timed, clock, 5)
    run(timed, 8)
    [alert] = alerts(timed, state="open")
    path = f"/v1/alerts/{alert['alert_id']}"
    assert timed.post(path, json={"normal": True}).json()["close_reason"] == "normal"
    for _ in range(6):
        run(timed, 8)
    assert alerts(timed, state="open") == []
    run(timed, 3)
    [alert] = alerts(timed, state="open")
    assert alert["facts"]["usual"] == 8


def test_a_field_that_is_filled_less_often_opens_one_alert(timed: Client, clock: Clock) -> None:
    daily(timed, clock, 4, data={"price": 1, "name": "a"})
    run_id = start(timed)
    items = [
        output(n, data={"price": 1, "name": "a"} if n < 12 else {"name": None}) for n in range(20)
    ]
    timed.post(f"/v1/outputs/group?run_id={run_id}", json=items)
    finish(timed, run_id)
    [alert] = alerts(timed)
    assert alert["kind"] == "fill_rate"
    assert [(f["path"], f["usual"], f["value"]) for f in alert["facts"]["fields"]] == [
        ("name", 1.0, 0.6),
        ("price", 1.0, 0.6),
    ]


def test_a_job_without_a_run_is_overdue(timed_service: Service, clock: Clock) -> None:
    with timed_service.client() as client:
        daily(client, clock, 7)
        timed_service.sweep(clock)
        assert alerts(client) == []
        clock.move(seconds=DAY + HOUR)
        timed_service.sweep(clock)
        timed_service.sweep(clock)
        [alert] = alerts(client)
        assert alert["message"] == "job is overdue: last run 2 days ago, daily before."
        clock.move(seconds=3 * DAY)
        timed_service.sweep(clock)
        [alert] = alerts(client)
        assert alert["message"] == "job is overdue: last run 5 days ago, daily before."
        run(client, 20)
        assert alerts(client, state="open") == []


def test_an_alert_counts_all_runs_that_failed_in_a_row(client: Client) -> None:
    complete(client, 1)
    rules(client, {"kind": "failed_run", "threshold": 2})
    run(client, 0, "failed")
    assert alerts(client) == []
    for _ in range(4):
        run(client, 0, "failed")
    [alert] = alerts(client)
    assert (alert["message"], alert["runs"]) == ("5 runs of job failed in a row.", 4)
    run(client, 1)
    assert alerts(client, state="open") == []


def test_suggestions_fit_the_runs_without_alerts(timed: Client, clock: Clock) -> None:
    daily(timed, clock, 6, data={"price": 1.5, "name": "a"})
    run(timed, 0)
    suggested = timed.get("/v1/monitors/group/suggested").json()
    by_kind = {(rule["kind"], rule["path"]): rule for rule in suggested}
    missing = by_kind["missing", None]
    assert missing["threshold"] == 0.05, "the empty run does not count"
    assert missing["preview"] == {"runs": 7, "alerts": 1}
    assert by_kind["failed_run", None]["preview"]["alerts"] == 0
    assert by_kind["fill_rate", "price"]["threshold"] == 0.05
    assert ("few_outputs", None) not in by_kind, "the group has this rule"
    known = timed.get("/v1/monitors/group").json()
    chosen = {name: value for name, value in missing.items() if name not in ("reason", "preview")}
    rules(timed, *known, chosen)
    assert ("missing", None) not in {
        (rule["kind"], rule["path"]) for rule in timed.get("/v1/monitors/group/suggested").json()
    }


def test_a_date_of_another_type_is_not_valid(client: Client) -> None:
    run_id = start(client)
    rules(client, {"kind": "failed_run"})
    finish(client, run_id, "failed")
    [alert] = alerts(client)
    for value in ({}, 1, True, ["2030-01-01"]):
        answer = client.post(f"/v1/alerts/{alert['alert_id']}", json={"muted_until": value})
        assert answer.status_code == 422
        [problem] = answer.json()["detail"]
        assert problem["loc"] == ["body", "muted_until"]


def test_no_rule_about_the_median_of_whole_numbers_is_suggested(client: Client) -> None:
    run_id = start(client)
    items = [output(n, data={"stock": n, "price": n + 0.5}) for n in range(20)]
    client.post(f"/v1/outputs/group?run_id={run_id}", json=items).raise_for_status()
    finish(client, run_id)
    suggested = client.get("/v1/monitors/group/suggested").json()
    paths = [rule["path"] for rule in suggested if rule["kind"] == "number_shift"]
    assert paths == ["price"], "the median of the stock is 9.5"


def test_a_job_has_a_limit_of_open_alerts(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each run has other labels, so no later run closes the alert of an earlier one."""
    monkeypatch.setattr("gleanery.service.resources.monitors.alerts.KEPT_OPEN", 3)
    start(client)
    rule = {"kind": "few_outputs", "minimum": 1}
    assert client.put("/v1/monitors/group", json=[rule]).status_code == 200
    for number in range(5):
        finish(client, start(client, labels={"date": f"{number}"}))
    found = [(alert["labels"]["date"], alert["state"]) for alert in alerts(client)]
    states = ["open"] * 3 + ["closed"] * 2
    assert found == [*zip("43210", states, strict=True)]
