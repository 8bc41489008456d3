"""Webhooks while time passes: the schedule of retries, disabling, rotation, and doorbells."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from standardwebhooks import Webhook

from tests.support import runs
from tests.support.outputs import output
from tests.support.receiver import CLOSE, FAIL, OK, Answer, Receiver, retry_after
from tests.support.service import DAY, Client, Clock, Service
from tests.support.settings import fresh_settings
from tests.support.waiting import wait_until
from tests.support.webhooks import (
    ALLOWED,
    FAR,
    act,
    create,
    deliveries,
    nudge,
    pass_time,
    show,
    signatures,
    wait_for_attempts,
    wait_for_ring,
    wait_until_delivered,
)

SCHEDULE = (5, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400)
"""Seconds from an attempt to the next one, without jitter."""
_paths = itertools.count(1)


@pytest.fixture(scope="module")
def clock() -> Clock:
    """The clock of the service of this module. It only moves forward."""
    return Clock()


@pytest.fixture(scope="module")
def service(
    engine: str,
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    clock: Clock,
) -> Iterator[Service]:
    """A service that may send to the receiver, after the first sweep has read the clock."""
    settings = fresh_settings(engine, request, tmp_path_factory.mktemp("webhooks"))
    before = clock.sweep_readings
    running = Service(replace(settings, webhook_allow=ALLOWED, shutdown_seconds=1), clock)
    wait_until(lambda: clock.sweep_readings >= before + 2)
    yield running
    running.stop()


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.stop()


@pytest.fixture
def path() -> str:
    """A path of the receiver that no other test uses."""
    return f"/{next(_paths)}"


def seconds_between(attempt: dict[str, Any], later: str) -> float:
    """Seconds from the end of an attempt to a date."""
    start = datetime.fromisoformat(attempt["date"])
    end = start + timedelta(milliseconds=attempt["duration_ms"])
    return (datetime.fromisoformat(later) - end).total_seconds()


def try_once(client: Client, webhook: dict[str, Any]) -> None:
    """Store an event, which ends a rest, and return when there was one more attempt."""
    before = attempts(client, webhook)
    act(client, webhook, "test")
    wait_until(lambda: attempts(client, webhook) > before)


def attempts(client: Client, webhook: dict[str, Any]) -> int:
    return sum(len(one["attempts"]) for one in deliveries(client, webhook))


def test_an_event_is_tried_ten_times_and_then_fails(
    client: Client, clock: Clock, receiver: Receiver, path: str
) -> None:
    receiver.answer(f"{path}/down", FAIL)
    watching = create(client, receiver.url(f"{path}/watching"), "delivery.failed", groups=["x"])
    webhook = create(client, receiver.url(f"{path}/down"), "test", description="Down")
    stored = act(client, webhook, "test")
    for number, seconds in enumerate(SCHEDULE, 1):
        shown = wait_for_attempts(client, webhook, number, stored["delivery_id"])
        assert shown["status"] == "waiting"
        wait = seconds_between(shown["attempts"][-1], shown["next_attempt_date"])
        assert seconds - 2 <= wait <= seconds * 1.1 + 2  # dates have whole seconds
        clock.move(seconds=wait - 2)
        nudge(client)  # it is not due yet
        pass_time(client, clock, 4)
    shown = wait_for_attempts(client, webhook, 10, stored["delivery_id"])
    assert (shown["status"], shown["next_attempt_date"]) == ("failed", None)
    received = receiver.received(f"{path}/down")
    assert len(received) == 10
    assert len({(one.id, one.body) for one in received}) == 1
    times = [one.timestamp for one in received]
    for (before, after), seconds in zip(itertools.pairwise(times), SCHEDULE, strict=True):
        assert seconds - 2 <= after - before <= seconds * 1.1 + 6
    for one in received:
        assert signatures(one) == [sign(webhook["secret"], one.headers, one.body)]
    [event] = receiver.wait_for(1, f"{path}/watching")
    assert event.type == "delivery.failed"
    assert event.data == {
        "webhook_id": webhook["id"],
        "description": "Down",
        "delivery_id": stored["delivery_id"],
        "event": "test",
        "error": shown["attempts"][-1]["error"],
    }
    assert signatures(event) == [sign(watching["secret"], event.headers, event.body)]
    assert show(client, webhook)["status"] == "enabled"  # less than five days
    act(client, webhook, f"deliveries/{stored['delivery_id']}/redeliver")
    again = wait_for_attempts(client, webhook, 11, stored["delivery_id"])
    assert (again["status"], len(again["attempts"])) == ("waiting", 11)


def test_a_webhook_that_fails_for_five_days_is_disabled(
    client: Client, clock: Clock, receiver: Receiver, path: str
) -> None:
    receiver.answer(f"{path}/down", FAIL)
    create(client, receiver.url(f"{path}/watching"), "webhook.disabled")
    webhook = create(client, receiver.url(f"{path}/down"), "test", "outputs.changed")
    for day in range(6):
        assert show(client, webhook)["status"] == "enabled", day
        try_once(client, webhook)
        clock.move(seconds=DAY - 600)
    try_once(client, webhook)
    [event] = receiver.wait_for(1, f"{path}/watching")
    shown = show(client, webhook)
    assert (shown["status"], shown["disabled_reason"]) == (
        "disabled",
        "all attempts have failed for 5 days",
    )
    assert (event.type, event.data["webhook_id"]) == ("webhook.disabled", webhook["id"])
    assert event.data["reason"] == shown["disabled_reason"]
    receiver.answer(f"{path}/down", Answer())
    act(client, webhook, "enable")
    wait_until(lambda: all(one["status"] != "waiting" for one in deliveries(client, webhook)))
    assert deliveries(client, webhook, status="failed") == []


def test_a_webhook_that_succeeds_once_is_not_disabled(
    client: Client, clock: Clock, receiver: Receiver, path: str
) -> None:
    webhook = create(client, receiver.url(path))
    for day in range(7):
        receiver.answer(path, Answer() if day == 3 else FAIL)
        try_once(client, webhook)
        clock.move(seconds=DAY - 600)
    assert show(client, webhook)["status"] == "enabled"


def test_two_failures_with_a_long_pause_do_not_disable(
    client: Client, clock: Clock, receiver: Receiver, path: str
) -> None:
    receiver.answer(path, FAIL)
    webhook = create(client, receiver.url(path))
    try_once(client, webhook)
    clock.move(seconds=6 * DAY)
    try_once(client, webhook)
    assert show(client, webhook)["status"] == "enabled"


@pytest.mark.parametrize("form", ["seconds", "date"])
def test_a_webhook_rests_as_long_as_it_asks(
    client: Client, clock: Clock, receiver: Receiver, path: str, form: str
) -> None:
    now = datetime.fromtimestamp(clock() / 1e6, UTC)
    date = format_datetime(now + timedelta(seconds=900), usegmt=True)
    receiver.answer(path, retry_after(900 if form == "seconds" else date), Answer())
    webhook = create(client, receiver.url(path), "run.finished")
    runs.finish(client, runs.start(client), "failed")
    shown = wait_for_attempts(client, webhook, 1)
    wait = seconds_between(shown["attempts"][0], shown["next_attempt_date"])
    assert 890 <= wait <= 902
    runs.finish(client, runs.start(client), "failed")  # waits as well
    pass_time(client, clock, 860)
    assert len(receiver.received(path)) == 1
    pass_time(client, clock, 60)
    received = receiver.wait_for(3, path)
    assert received[0].id == received[1].id


@pytest.mark.parametrize(
    "value", ["", "-5", "soon", "1e3", "9" * 30, "Mon, 99 Foo 2026 99:99:99 GMT", "0", ""]
)
def test_what_is_not_a_time_to_wait_has_no_effect(
    client: Client, receiver: Receiver, path: str, value: str
) -> None:
    receiver.answer(path, retry_after(value))
    webhook = create(client, receiver.url(path))
    act(client, webhook, "test")
    shown = wait_for_attempts(client, webhook, 1)
    wait = seconds_between(shown["attempts"][0], shown["next_attempt_date"])
    assert 3 <= wait <= 8


def test_a_day_is_the_longest_time_to_wait(client: Client, receiver: Receiver, path: str) -> None:
    receiver.answer(path, retry_after(999_999_999))
    webhook = create(client, receiver.url(path))
    act(client, webhook, "test")
    shown = wait_for_attempts(client, webhook, 1)
    wait = seconds_between(shown["attempts"][0], shown["next_attempt_date"])
    assert DAY - 2 <= wait <= DAY + 2


def test_what_failed_is_sent_when_the_receiver_is_back(
    client: Client, clock: Clock, receiver: Receiver, path: str
) -> None:
    receiver.answer(path, FAIL)
    webhook = create(client, receiver.url(path), "run.finished", "test")
    ids = [runs.start(client) for _ in range(3)]
    for run_id in ids:
        runs.finish(client, run_id, "failed")
    for count in range(1, 20):  # one attempt, and then the webhook rests
        wait_until(lambda count=count: attempts(client, webhook) == count)
        if all(one["attempts"] for one in deliveries(client, webhook)):
            break
        pass_time(client, clock, 310)
    receiver.answer(path, Answer())
    act(client, webhook, "test")
    wait_until_delivered(client, webhook)
    last = receiver.received(path)[-4:]
    assert {one.data.get("run_id") for one in last} == {*ids, None}
    assert show(client, webhook)["failing_since"] is None


def test_events_of_a_month_ago_are_removed(
    client: Client, service: Service, clock: Clock, receiver: Receiver, path: str
) -> None:
    webhook = create(client, receiver.url(path))
    act(client, webhook, "test")
    wait_until_delivered(client, webhook)
    clock.move(seconds=29 * DAY)
    second = act(client, webhook, "test")
    wait_until_delivered(client, webhook)
    service.sweep(clock)
    assert len(deliveries(client, webhook)) == 2
    clock.move(seconds=DAY + 60)
    service.sweep(clock)
    assert [one["delivery_id"] for one in deliveries(client, webhook)] == [second["delivery_id"]]
    assert show(client, webhook)["status"] == "enabled"


def test_a_rotation_has_an_overlap_of_24_hours(
    client: Client, clock: Clock, receiver: Receiver, path: str
) -> None:
    webhook = create(client, receiver.url(path))
    old, new = webhook["secret"], act(client, webhook, "rotate")["secret"]
    act(client, webhook, "test")
    [received] = receiver.wait_for(1, path)
    assert signatures(received) == [
        sign(new, received.headers, received.body),
        sign(old, received.headers, received.body),
    ]
    assert show(client, webhook)["old_secret_expires"] is not None
    clock.move(seconds=DAY - 60)
    act(client, webhook, "test")
    assert len(signatures(receiver.wait_for(2, path)[1])) == 2
    clock.move(seconds=61)
    act(client, webhook, "test")
    last = receiver.wait_for(3, path)[2]
    [signature] = signatures(last)
    assert signature == sign(new, last.headers, last.body)
    assert show(client, webhook)["old_secret_expires"] is None


def sign(secret: str, headers: dict[str, str], body: bytes) -> str:
    """The signature by the library, which verifies only what is recent."""
    time = datetime.fromtimestamp(int(headers["webhook-timestamp"]), tz=UTC)
    return Webhook(secret).sign(headers["webhook-id"], time, body.decode())


def test_five_secrets_at_most_are_valid(client: Client, clock: Clock) -> None:
    webhook = create(client, FAR)
    for _ in range(4):
        act(client, webhook, "rotate")
    refused = client.post(f"/v1/webhooks/{webhook['id']}/rotate")
    assert refused.status_code == 409
    assert "valid secrets" in refused.json()["detail"][0]["msg"]
    clock.move(seconds=DAY + 1)
    act(client, webhook, "rotate")


def test_a_run_that_ends_by_silence_is_sent(
    client: Client, service: Service, clock: Clock, receiver: Receiver, path: str
) -> None:
    webhook = create(client, receiver.url(path), "run.finished")
    runs.start(client)
    client.store("other", output(1))
    clock.move(seconds=7 * 3600)
    service.sweep(clock)
    received = receiver.wait_for(2, path)
    found = {one.data["status"]: one for one in received}
    assert found.keys() == {"abandoned", "unknown"}
    assert found["unknown"].data["is_implicit"] is True
    assert (found["abandoned"].data["group_id"], found["unknown"].data["group_id"]) == (
        "group",
        "other",
    )
    for one in received:
        [signature] = signatures(one)
        assert signature == sign(webhook["secret"], one.headers, one.body)


def test_an_interruption_does_not_change_the_order(
    client: Client, clock: Clock, receiver: Receiver, path: str
) -> None:
    receiver.answer(path, FAIL, Answer())
    webhook = create(client, receiver.url(path), "run.finished")
    ids = [runs.start(client) for _ in range(3)]
    runs.finish(client, ids[0], "failed")
    wait_for_attempts(client, webhook, 1)
    for run_id in ids[1:]:
        runs.finish(client, run_id, "failed")
    pass_time(client, clock, 6)
    received = receiver.wait_for(4, path)
    assert [one.data["run_id"] for one in received] == [ids[0], *ids]


def test_one_doorbell_waits_while_the_receiver_is_down(
    client: Client, clock: Clock, receiver: Receiver, path: str
) -> None:
    receiver.answer(path, FAIL)
    webhook = create(client, receiver.url(path), "outputs.changed")
    client.store("group", output(1))
    waiting = wait_for_attempts(client, webhook, 1)
    for count in range(2, 4):
        client.store("group", output(count))
        pass_time(client, clock, 400)
        again = wait_for_attempts(client, webhook, count)
        assert again["delivery_id"] == waiting["delivery_id"]
        assert len(deliveries(client, webhook)) == 1
    receiver.answer(path, Answer())
    pass_time(client, clock, 3000)
    wait_for_ring(client, receiver, path)
    ids = [one.id for one in receiver.received(path)]
    assert ids[:4] == [waiting["delivery_id"]] * 4  # what waited, then the present position
    assert len(ids) == 5


def test_events_that_fail_do_not_hold_up_doorbells(
    client: Client, clock: Clock, receiver: Receiver, path: str
) -> None:
    """A receiver may refuse some kinds of events, and each failure is followed by a rest."""
    receiver.answer(path, FAIL)
    webhook = create(client, receiver.url(path), "run.finished", "outputs.changed")
    for _ in range(3):
        runs.finish(client, runs.start(client), "failed")
    receiver.wait_for(1, path)
    numbers = itertools.count()

    def has_doorbell() -> bool:
        client.store("group", output(next(numbers)))  # looks are for groups that changed recently
        pass_time(client, clock, 400)
        return bool(receiver.received(path, "outputs.changed"))

    wait_until(has_doorbell)
    assert "waiting" in {
        one["status"] for one in deliveries(client, webhook) if one["event"] == "run.finished"
    }
    ids = [one.id for one in receiver.received(path, "run.finished")]
    assert len({*ids[:2]}) == 1  # the first retry comes before the events after it
    client.delete(f"/v1/webhooks/{webhook['id']}")


def test_a_delivery_begins_again_while_it_is_sent(
    client: Client, receiver: Receiver, path: str
) -> None:
    answered = threading.Event()
    receiver.answer(path, Answer(until=answered), OK)
    webhook = create(client, receiver.url(path))
    delivery = act(client, webhook, "test")["delivery_id"]
    receiver.wait_for(1, path)
    act(client, webhook, f"deliveries/{delivery}/redeliver")
    answered.set()
    first, second = receiver.wait_for(2, path)
    assert first.id == second.id == delivery
    wait_until_delivered(client, webhook)


def test_an_event_is_sent_again_at_once_if_an_idle_connection_was_closed(
    client: Client, receiver: Receiver, path: str
) -> None:
    receiver.answer(path, OK, CLOSE, OK)
    webhook = create(client, receiver.url(path))
    act(client, webhook, "test")
    wait_until_delivered(client, webhook)
    delivery = act(client, webhook, "test")["delivery_id"]
    _, second, third = receiver.wait_for(3, path)
    assert second.id == third.id == delivery
    attempts = wait_for_attempts(client, webhook, 1, delivery)["attempts"]
    assert [one["status_code"] for one in attempts] == [200]
