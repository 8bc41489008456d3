"""Alerts as events of webhooks over HTTP, on both engines: to programs and to people."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import jsonschema_rs
import pytest
from standardwebhooks import Webhook

from gleanery.service.foundation.values import timestamps
from tests.api.test_webhook_messages import SCHEMAS, link_of, text_of
from tests.support.mail_server import MailServer, mail_server
from tests.support.outputs import output
from tests.support.receiver import FAIL, OK, Received, Receiver
from tests.support.runs import finish, start
from tests.support.service import DAY, Client, Clock, Service
from tests.support.settings import fresh_settings
from tests.support.waiting import wait_until
from tests.support.webhooks import (
    ALLOWED,
    act,
    create,
    deliveries,
    nudge,
    pass_time,
    signatures,
    wait_until_delivered,
)

ALERTS = ("alert.opened", "alert.closed")
CHATS = ("slack", "discord", "teams")
GOOD = {"price": 1, "name": "a"}
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.stop()


@pytest.fixture(scope="module")
def mail() -> Iterator[MailServer]:
    with mail_server() as server:
        yield server


@pytest.fixture(scope="module")
def service(
    engine: str,
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    clock: Clock,
    mail: MailServer,
) -> Iterator[Service]:
    settings = fresh_settings(engine, request, tmp_path_factory.mktemp("alerts"))
    settings = replace(settings, smtp_server=mail.address, smtp_sender="data@example.com")
    settings = replace(settings, smtp_tls="none", webhook_allow=ALLOWED, shutdown_seconds=1)
    running = Service(settings, clock)
    yield running
    running.stop()


@pytest.fixture
def path() -> str:
    """A path of the receiver that no other test uses."""
    return f"/{next(_numbers)}"


def check_signature(received: Received, secret: str) -> None:
    """Check a signature, whatever the moved clock says."""
    time = datetime.fromtimestamp(received.timestamp, tz=UTC)
    assert signatures(received) == [Webhook(secret).sign(received.id, time, received.body.decode())]


def run(client: Client, count: int = 60, data: dict[str, Any] = GOOD, job: str = "job") -> str:
    """A complete run with so many outputs."""
    run_id = start(client, job)
    items = [output(number, job_id=job, data=data) for number in range(count)]
    stored = client.post(f"/v1/outputs/group?run_id={run_id}", json=items)
    assert stored.status_code == 200, stored.text
    finish(client, run_id)
    return run_id


def history(client: Client, clock: Clock, *jobs: str, days: int = 5, count: int = 60) -> None:
    """Healthy daily runs, which later ones are compared with."""
    for _ in range(days):
        for job in jobs or ("job",):
            run(client, count, job=job)
        clock.move(seconds=DAY)


def alerts(client: Client, **query: Any) -> list[dict[str, Any]]:
    answer = client.get("/v1/alerts", params=query)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["alerts"]
    return found


def settle(
    client: Client, receiver: Receiver, path: str, webhook: dict[str, Any]
) -> list[Received]:
    """Return what has arrived before a test that is sent now."""
    act(client, webhook, "test")
    wait_until_delivered(client, webhook)
    wait_until(lambda: len(receiver.received(path)) >= len(deliveries(client, webhook)))
    return receiver.received(path)[:-1]


def test_a_program_gets_each_alert_once_in_order_and_signed(
    client: Client, clock: Clock, receiver: Receiver, path: str
) -> None:
    webhook = create(client, receiver.url(path), *ALERTS)
    elsewhere = create(client, receiver.url(f"{path}/other"), *ALERTS, groups=["other"])
    history(client, clock)
    bad = run(client, 25, {"price": 1, "name": None})
    opened = alerts(client, state="open")
    run(client, 25, {"price": 1, "name": None})
    run(client)
    received = settle(client, receiver, path, webhook)
    for one in received:
        check_signature(one, webhook["secret"])
    assert len({one.id for one in received}) == 4
    assert [one.type for one in received] == ["alert.opened"] * 2 + ["alert.closed"] * 2
    of_opened = {one.data["kind"]: one.data for one in received[:2]}
    assert of_opened.keys() == {"few_outputs", "fill_rate"}
    for alert in opened:
        data = of_opened[alert["kind"]]
        assert data["alert_id"] == alert["alert_id"]
        assert (data["group_id"], data["job_id"], data["run_id"]) == ("group", "job", bad)
        assert (data["state"], data["close_reason"]) == ("open", None)
        assert data["message"] == alert["message"]
    for one in received[2:]:
        assert one.data["alert_id"] == of_opened[one.data["kind"]]["alert_id"]
        assert (one.data["state"], one.data["close_reason"]) == ("closed", "over")
    assert settle(client, receiver, f"{path}/other", elsewhere) == []


@pytest.mark.parametrize("format_", CHATS)
def test_a_chat_gets_one_message_about_all_alerts_of_a_run(
    client: Client, clock: Clock, receiver: Receiver, path: str, format_: str
) -> None:
    webhook = create(client, receiver.url(path), *ALERTS, format=format_)
    history(client, clock)
    for _ in range(2):
        run(client, 25, {"price": 1, "name": None})
    run(client)
    requests = settle(client, receiver, path, webhook)
    assert len(requests) == 2
    sentences = [alert["message"] for alert in alerts(client)]
    firsts = ("2 alerts in group:", "2 alerts over in group:")
    for one, expected in zip(requests, firsts, strict=True):
        check_signature(one, webhook["secret"])
        jsonschema_rs.validate(SCHEMAS[format_], one.json)
        first, *rest = text_of(format_, one.json).replace("\\", "").split("\n")
        assert first == expected
        assert {line.removeprefix("• ") for line in rest} == {*sentences}
        assert link_of(format_, one.json).endswith("/console#/groups/group/monitors")


def test_a_mailbox_gets_one_message_when_alerts_open_and_one_when_they_are_over(
    client: Client, clock: Clock, mail: MailServer
) -> None:
    address = f"alerts{next(_numbers)}@example.com"
    webhook = create(client, f"mailto:{address}", *ALERTS, format="email")
    history(client, clock)
    bad = run(client, 25, {"price": 1, "name": None})
    run(client, 25, {"price": 1, "name": None})
    run(client)
    wait_until_delivered(client, webhook)
    received = [one for one in mail.received() if address in one.recipients]
    assert [one.subject for one in received] == [
        "[Gleanery] 2 alerts: job in group",
        "[Gleanery] 2 alerts over: job in group",
    ]
    for alert in alerts(client):
        assert all(f"• {alert['message']}\n" in one.text for one in received)
    assert f"/console#/groups/group/runs/{bad}\n" in received[0].text


def test_an_event_about_an_alert_is_small_whatever_the_names_are(
    client: Client, receiver: Receiver, path: str
) -> None:
    """Receivers of webhooks expect less than 20 kB. The rest is in the API."""
    create(client, receiver.url(path), *ALERTS)
    job = "𝕛" * 200
    labels = {f"{number:02}{'𝕝' * 62}": "𝕧" * 256 for number in range(16)}
    start(client, job)
    rule = {"kind": "few_outputs", "minimum": 1, "job_id": job}
    assert client.put("/v1/monitors/group", json=[rule]).status_code == 200
    finish(client, start(client, job, labels=labels))
    [received] = receiver.wait_for(1, path)
    assert len(received.body) < 20_000
    [alert] = alerts(client)
    assert (received.data["alert_id"], received.data["job_id"]) == (alert["alert_id"], job)
    assert alert["labels"] == labels


def test_overdue_jobs_of_a_group_are_one_message(
    service: Service, client: Client, clock: Clock, receiver: Receiver, path: str
) -> None:
    chat = create(client, receiver.url(path), *ALERTS, format="slack")
    program = create(client, receiver.url(f"{path}/program"), *ALERTS)
    jobs = [f"s{number}" for number in range(6)]
    history(client, clock, *jobs, days=8, count=1)  # a whole week, so that the weekend is known
    clock.move(seconds=2 * DAY)
    for _ in range(2):
        service.sweep(clock)
        nudge(client)
    [message] = settle(client, receiver, path, chat)
    text = text_of("slack", message.json)
    first = "s0 is overdue: last run 3 days ago, daily before."
    assert text.startswith(f"6 alerts in group:\n• {first}\n")
    assert text.endswith("\nand 1 more.")
    received = settle(client, receiver, f"{path}/program", program)
    assert sorted(one.data["job_id"] for one in received) == jobs
    assert {one.type for one in received} == {"alert.opened"}


def test_muted_alerts_send_nothing_until_the_time_is_over(
    client: Client, clock: Clock, receiver: Receiver, path: str
) -> None:
    program = create(client, receiver.url(path), *ALERTS)
    chat = create(client, receiver.url(f"{path}/chat"), *ALERTS, format="discord")
    history(client, clock)
    run(client, 25)
    [alert] = alerts(client, state="open")
    until = timestamps.render_microseconds(clock() + 3600 * timestamps.SECOND)
    muted = client.post(f"/v1/alerts/{alert['alert_id']}", json={"muted_until": until})
    assert muted.status_code == 200, muted.text
    run(client)  # it is over
    run(client, 25)  # it opens again
    assert [one["muted_until"] is not None for one in alerts(client)] == [True, True]
    clock.move(seconds=2 * 3600)
    run(client)  # it is over, and no longer muted
    run(client, 25)
    for to in (program, chat):
        wait_until_delivered(client, to)
    received = settle(client, receiver, path, program)
    assert [one.type for one in received] == ["alert.opened", "alert.closed", "alert.opened"]
    assert len({one.data["alert_id"] for one in received}) == 3
    assert len(settle(client, receiver, f"{path}/chat", chat)) == 3


def test_an_alert_that_could_not_be_sent_comes_before_the_next_one(
    client: Client, clock: Clock, receiver: Receiver, path: str
) -> None:
    receiver.answer(path, FAIL, OK)
    webhook = create(client, receiver.url(path), *ALERTS, format="slack")
    history(client, clock)
    run(client, 25)
    receiver.wait_for(1, path)
    run(client)
    pass_time(client, clock, 10)
    failed, opened, closed = receiver.wait_for(3, path)
    assert failed.id == opened.id != closed.id
    assert text_of("slack", opened.json).startswith("Alert in group: ")
    assert text_of("slack", closed.json).startswith("Over in group: ")
    wait_until_delivered(client, webhook)
