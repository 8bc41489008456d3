"""What happens between the steps of the monitors: other runs, changes of rules, other processes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from gleanery.service.resources.monitors import evaluation
from gleanery.service.resources.monitors.evaluation import Monitors
from gleanery.service.resources.runs import changing
from tests.api.test_monitor_schedules import open_alerts, set_rules
from tests.support.monitors_model import HOUR
from tests.support.outputs import output
from tests.support.runs import complete, finish, start
from tests.support.service import DAY, Client, Clock, Service


def test_a_run_that_is_compared_for_long_does_not_close_the_alert_of_a_later_one(
    timed_service: Service, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs are judged in the order of their ends."""
    monkeypatch.setattr(changing, "MAX_WAITED", -1)
    monkeypatch.setattr(changing.RunWork, "begin", lambda *_: None)
    with timed_service.client() as client:
        run_id = start(client)
        set_rules(client, {"kind": "failed_run"})
        assert finish(client, run_id)["comparison"] == "pending"
        finish(client, start(client), "failed")
        timed_service.sweep(clock)
        assert open_alerts(client) == [("job", "failed_run")]


class Interruption:
    """Does something once, after a schedule was read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.action: Callable[[], Any] | None = None
        read_schedule = Monitors._read_schedule

        async def read_and_act(monitors: Monitors, *arguments: Any) -> Any:
            found = await read_schedule(monitors, *arguments)
            if (action := self.action) is not None:
                self.action = None
                await asyncio.to_thread(action)
            return found

        monkeypatch.setattr(Monitors, "_read_schedule", read_and_act)


def test_a_look_at_a_job_does_not_undo_what_a_run_has_found_meanwhile(
    timed_service: Service, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run makes the rhythm of the job known. The look has read too few runs."""
    interruption = Interruption(monkeypatch)
    with timed_service.client() as client:
        for _ in range(3):
            complete(client, 1)
            clock.move(seconds=HOUR)
        set_rules(client, {"kind": "no_run", "threshold": 3})
        interruption.action = lambda: complete(client, 1)
        timed_service.sweep(clock)
        assert interruption.action is None
        clock.move(seconds=4 * DAY)
        timed_service.sweep(clock)
        assert open_alerts(client) == [("job", "no_run")]


def test_rules_that_change_during_a_look_count_for_all_jobs(
    timed_service: Service, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    interruption = Interruption(monkeypatch)
    rule = {"kind": "no_run", "hours": 2}
    with timed_service.client() as client:
        client.store("group", output(1, job_id="a"), output(2, job_id="b"))
        set_rules(client)
        interruption.action = lambda: set_rules(client, rule)
        timed_service.sweep(clock)
        assert interruption.action is None
        for _ in range(2):
            clock.move(seconds=3 * HOUR)
            timed_service.sweep(clock)
        assert open_alerts(client) == [("a", "no_run"), ("b", "no_run")]


def test_a_run_that_cannot_be_judged_does_not_block_later_ones(
    timed: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    judge, failures = evaluation._judge, [1]

    def fail_once(read: Any) -> Any:
        if failures:
            raise ZeroDivisionError(failures.pop())
        return judge(read)

    run_id = start(timed)
    set_rules(timed, {"kind": "failed_run"})
    monkeypatch.setattr(evaluation, "_judge", fail_once)
    finish(timed, run_id, "failed")
    assert open_alerts(timed) == []
    finish(timed, start(timed), "failed")
    [logged] = [record for record in caplog.records if record.exc_info]
    assert logged.message == "a run cannot be judged by the monitors: it opens no alert"
    assert open_alerts(timed) == [("job", "failed_run")]
