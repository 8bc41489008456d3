"""One process of all workers and nodes delivers events to webhooks, and another takes over."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from gleanery.common.settings import Settings
from gleanery.service.resources.webhooks import dispatcher
from tests.support import runs
from tests.support.databases import execute_sql
from tests.support.metrics import fresh_metrics
from tests.support.outputs import output
from tests.support.process import Served, served
from tests.support.receiver import FAIL, Answer, Received, Receiver
from tests.support.service import Client
from tests.support.settings import fresh_settings
from tests.support.waiting import wait_until
from tests.support.webhooks import (
    ALLOWED,
    act,
    create,
    delivered,
    wait_for_ring,
    wait_until_delivered,
)

pytestmark = pytest.mark.extended
ALLOW = ("--webhook-allow", *ALLOWED)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.stop()


@pytest.fixture
def settings(engine: str, request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    return fresh_settings(engine, request, tmp_path)


def finish_runs(client: Client, count: int) -> list[str]:
    """Cause so many events, and return their runs in order."""
    ids = [runs.start(client) for _ in range(count)]
    for run_id in ids:
        runs.finish(client, run_id, "failed")
    return ids


def order(received: list[Received]) -> list[str]:
    """The runs of the events, each once, in the order in which they came first."""
    return [*dict.fromkeys(one.data["run_id"] for one in received)]


def sender_of(nodes: list[Served]) -> Served:
    """The node that has sent the events."""
    return max(nodes, key=attempts_of)


def attempts_of(node: Served) -> float:
    """Attempts of a node that succeeded."""
    with Client(node.url, node.token) as client:
        lines = fresh_metrics(client).splitlines()
    name = "gleanery_webhook_attempts_succeeded_total"
    return sum(float(line.split()[-1]) for line in lines if line.startswith(name))


def test_two_workers_send_each_event_once(settings: Settings, receiver: Receiver) -> None:
    workers = served(settings, "--workers", "2", *ALLOW)
    with workers as service, Client(service.url, service.token) as client:
        webhook = create(client, receiver.url(), "run.finished")
        ids = finish_runs(client, 40)
        received = delivered(receiver, "/", webhook["secret"], 40)
        assert [one.data["run_id"] for one in received] == ids
        wait_until_delivered(client, webhook)
        assert len(receiver.received()) == 40
        assert not service.running.log


def test_another_worker_takes_over_when_the_holder_is_killed(
    settings: Settings, receiver: Receiver
) -> None:
    workers = served(settings, "--workers", "2", *ALLOW)
    with workers as service, Client(service.url, service.token) as client:
        webhook = create(client, receiver.url(), "run.finished", "outputs.changed")
        first = finish_runs(client, 1)
        receiver.wait_for(1)
        for _ in range(2):  # whichever of them has the lease
            [victim, *_] = service.running.workers()
            os.kill(victim, signal.SIGKILL)
            wait_until(lambda victim=victim: victim not in service.running.workers())
            with Client(service.url, service.token) as again:
                first += finish_runs(again, 10)
        with Client(service.url, service.token) as again:
            again.store("group", output(1))
            wait_until(lambda: len(order(receiver.received("/", "run.finished"))) == 21)
            assert order(receiver.received("/", "run.finished")) == first
            wait_for_ring(again, receiver, "/")
            wait_until_delivered(again, webhook)


@pytest.fixture
def nodes(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[Served]]:
    """Two services over one PostgreSQL database."""
    settings = fresh_settings("postgres", request, tmp_path)
    with ExitStack() as stack:
        yield [stack.enter_context(served(settings, *ALLOW)) for _ in range(2)]


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "stopped"])
def test_the_other_node_takes_over(
    nodes: list[Served], receiver: Receiver, end: signal.Signals
) -> None:
    both = nodes
    with ExitStack() as stack:
        clients = [stack.enter_context(Client(node.url, both[0].token)) for node in both]
        webhook = create(clients[0], receiver.url(), "run.finished")
        ids = finish_runs(clients[0], 5) + finish_runs(clients[1], 5)
        delivered(receiver, "/", webhook["secret"], 10)
        wait_until_delivered(clients[0], webhook)
        assert [one.data["run_id"] for one in receiver.received()] == ids  # each once
        sender = sender_of(both)
        other = both[1 - both.index(sender)]
        sender.running.process.send_signal(end)
        sender.running.process.wait()
        ended = time.monotonic()
        client = clients[both.index(other)]
        ids += finish_runs(client, 10)
        wait_until(lambda: len(order(receiver.received())) == 20)
        took = time.monotonic() - ended
        assert order(receiver.received()) == ids
        if end == signal.SIGTERM:  # it gave the lease back
            assert took < dispatcher.LEASE_SECONDS - 1
        wait_until_delivered(client, webhook)


def test_what_waits_is_sent_after_a_stop_of_all_nodes(
    settings: Settings, receiver: Receiver
) -> None:
    receiver.answer("/", FAIL)
    with served(settings, *ALLOW) as service, Client(service.url, service.token) as client:
        webhook = create(client, receiver.url(), "run.finished")
        ids = finish_runs(client, 5)
        receiver.wait_for(1)
    receiver.answer("/", Answer())
    restarted = served(settings, *ALLOW, with_token=False)
    with restarted as again, Client(again.url, service.token) as client:
        ids += finish_runs(client, 2)
        wait_until_delivered(client, webhook)
        assert order(receiver.received()) == ids


def test_a_lease_of_a_wrong_clock_is_replaced(settings: Settings, receiver: Receiver) -> None:
    """A node with a wrong clock has died, or the value is damaged by hand."""
    with served(settings, *ALLOW) as service, Client(service.url, service.token) as client:
        webhook = create(client, receiver.url())
        act(client, webhook, "test")
        receiver.wait_for(1)
    far: dict[str, Any] = {"holder": "x", "until": 2**62}
    sql = "UPDATE metadata SET value = $1 WHERE name = 'webhook_lease'"
    execute_sql(settings, sql, json.dumps(far))
    restarted = served(settings, *ALLOW, with_token=False)
    with restarted as again, Client(again.url, service.token) as client:
        act(client, webhook, "test")
        receiver.wait_for(2)
