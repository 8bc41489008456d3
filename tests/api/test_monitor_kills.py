"""A process dies between the end of a run and its judgement: one alert, and one event of it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

from gleanery.service.foundation.values import timestamps
from gleanery.service.resources.monitors.alerts import Changes
from gleanery.service.resources.monitors.evaluation import Monitors
from tests.support import webhooks
from tests.support.interruptions import Killed
from tests.support.runs import complete, finish, push, start
from tests.support.service import DAY, Client, Clock, Service
from tests.support.webhooks import FAR

USUAL = range(20)
FORMATS = ("standard", "slack")


def alerts(client: Client, **query: str) -> list[dict[str, Any]]:
    answer = client.get("/v1/alerts", params=query)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["alerts"]
    return found


def create_webhooks(client: Client) -> list[dict[str, Any]]:
    """A webhook of a program, and one of a chat. Both want all events about alerts."""
    events = ("alert.opened", "alert.closed")
    return [webhooks.create(client, FAR, *events, format=format_) for format_ in FORMATS]


def events(client: Client, webhook: dict[str, Any]) -> Counter[str]:
    return Counter(delivery["event"] for delivery in webhooks.deliveries(client, webhook))


def make_usual(client: Client) -> None:
    for _ in range(4):
        complete(client, *USUAL)


def start_small(client: Client) -> str:
    """A run with few outputs, which goes on."""
    run_id = start(client)
    push(client, run_id, *range(3))
    return run_id


async def _do_nothing(*_: Any) -> None:
    """Judge nothing, as a process that is killed does."""


def assert_one_alert(client: Client, made: list[dict[str, Any]], run_id: str) -> None:
    [alert] = alerts(client)
    assert (alert["state"], alert["kind"], alert["run_id"]) == ("open", "few_outputs", run_id)
    assert alert["runs"] == 1
    for webhook in made:
        assert events(client, webhook) == {"alert.opened": 1}


@pytest.mark.parametrize("processes", [1, 3])
def test_the_sweep_judges_a_run_once_after_a_kill(
    timed_service: Service, clock: Clock, monkeypatch: pytest.MonkeyPatch, processes: int
) -> None:
    """Several processes sweep at the same time."""
    with timed_service.client() as client:
        made = create_webhooks(client)
        make_usual(client)
        run_id = start_small(client)
        with monkeypatch.context() as patch:
            patch.setattr(Monitors, "try_to_judge_runs", _do_nothing)
            finish(client, run_id)
        with ThreadPoolExecutor(processes) as executor:
            for done in [executor.submit(timed_service.sweep, clock) for _ in range(processes)]:
                done.result()
        assert_one_alert(client, made, run_id)
        timed_service.sweep(clock)
        finish(client, run_id)
        assert_one_alert(client, made, run_id)
        with monkeypatch.context() as patch:
            patch.setattr(Monitors, "try_to_judge_runs", _do_nothing)
            complete(client, *USUAL)
        assert len(alerts(client, state="open")) == 1
        timed_service.sweep(clock)
        [alert] = alerts(client)
        assert alert["close_reason"] == "over"
        for webhook in made:
            assert events(client, webhook) == {"alert.opened": 1, "alert.closed": 1}


class Killer:
    """Kills processes at the end of a judgement, before its transaction is committed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.kills = 0
        finish_changes = Changes.finish

        async def finish(changes: Changes) -> None:
            await finish_changes(changes)
            if self.kills:
                self.kills -= 1
                raise Killed

        monkeypatch.setattr(Changes, "finish", finish)


def test_a_judgement_that_is_killed_has_no_effect(
    timed_service: Service, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The alert, its events, and the mark of the run are one transaction."""
    killer = Killer(monkeypatch)
    with timed_service.client() as client:
        made = create_webhooks(client)
        make_usual(client)
        run_id = start_small(client)
        killer.kills = 3
        finish(client, run_id)  # it answers, because the sweep will judge the run
        for _ in range(2):
            assert alerts(client) == []
            assert not any(events(client, webhook) for webhook in made)
            with suppress(ExceptionGroup):
                timed_service.sweep(clock)
        assert killer.kills == 0
        assert alerts(client) == []
        timed_service.sweep(clock)
        assert_one_alert(client, made, run_id)


def test_requests_at_the_same_time_judge_a_run_once(timed_service: Service) -> None:
    with timed_service.client() as client:
        made = create_webhooks(client)
        make_usual(client)
        run_id = start_small(client)
        with ThreadPoolExecutor(8) as executor:
            for _ in executor.map(lambda _: finish(client, run_id), range(8)):
                pass
        assert_one_alert(client, made, run_id)


def test_a_run_is_judged_again_if_a_person_changes_something_meanwhile(
    timed_service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read before no longer counts: the rule is off, so there is no alert."""
    read = Monitors._read
    changes: list[Callable[[], None]] = []

    async def read_and_change(monitors: Monitors, *arguments: Any) -> Any:
        found = await read(monitors, *arguments)
        if changes:
            await asyncio.to_thread(changes.pop())
        return found

    monkeypatch.setattr(Monitors, "_read", read_and_change)
    with timed_service.client() as client:
        make_usual(client)
        run_id = start_small(client)
        changes.append(lambda: switch_off(client))
        finish(client, run_id)
        assert changes == []
        assert alerts(client) == []


def switch_off(client: Client) -> None:
    assert client.put("/v1/monitors/group", json=[]).status_code == 200


# --- muting -------------------------------------------------------------------------------------


def test_a_muted_alert_tells_nobody_until_a_person_ends_that(timed: Client, clock: Clock) -> None:
    """An alert that opens again stays muted. The newest alert decides."""
    make_usual(timed)
    [webhook] = create_webhooks(timed)[:1]
    complete(timed, 1)
    [alert] = alerts(timed, state="open")
    tomorrow = timestamps.render_microseconds(clock() + DAY * timestamps.SECOND)
    for muted_until in (tomorrow, None):
        answer = timed.post(f"/v1/alerts/{alert['alert_id']}", json={"muted_until": muted_until})
        assert answer.status_code == 200, answer.text
        complete(timed, *USUAL)
        complete(timed, 1)
        [alert] = alerts(timed, state="open")
    expected = {"alert.opened": 2, "alert.closed": 1}
    assert events(timed, webhook) == expected
    complete(timed, *USUAL)
    complete(timed, 1)
    assert events(timed, webhook) == {"alert.opened": 3, "alert.closed": 2}


def test_an_alert_that_opens_while_it_is_muted_is_told_when_that_is_over(
    timed: Client, clock: Clock
) -> None:
    """The fault lasts longer than the mute. Nobody would know of it."""
    make_usual(timed)
    [webhook] = create_webhooks(timed)[:1]
    complete(timed, 1)
    [alert] = alerts(timed, state="open")
    tomorrow = timestamps.render_microseconds(clock() + DAY * timestamps.SECOND)
    muted = timed.post(f"/v1/alerts/{alert['alert_id']}", json={"muted_until": tomorrow})
    assert muted.status_code == 200, muted.text
    complete(timed, *USUAL)
    complete(timed, 1)
    complete(timed, 1)
    assert events(timed, webhook) == {"alert.opened": 1}
    clock.move(seconds=2 * DAY)
    for _ in range(2):
        complete(timed, 1)
        assert events(timed, webhook) == {"alert.opened": 2}
    complete(timed, *USUAL)
    assert events(timed, webhook) == {"alert.opened": 2, "alert.closed": 1}


def test_an_alert_that_was_told_is_not_told_again_after_a_mute(timed: Client, clock: Clock) -> None:
    make_usual(timed)
    [webhook] = create_webhooks(timed)[:1]
    complete(timed, 1)
    [alert] = alerts(timed, state="open")
    tomorrow = timestamps.render_microseconds(clock() + DAY * timestamps.SECOND)
    muted = timed.post(f"/v1/alerts/{alert['alert_id']}", json={"muted_until": tomorrow})
    assert muted.status_code == 200, muted.text
    clock.move(seconds=2 * DAY)
    complete(timed, 1)
    assert events(timed, webhook) == {"alert.opened": 1}
