"""A webhook that is disabled gets nothing more, although nobody is told of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.support.receiver import FAIL, GONE, OK, Receiver
from tests.support.service import Client, Service
from tests.support.settings import fresh_settings
from tests.support.waiting import wait_until


@pytest.fixture
def service(
    engine: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    """A service that may send to the receiver."""
    settings = fresh_settings(engine, request, tmp_path_factory.mktemp("webhooks"))
    running = Service(replace(settings, webhook_allow=("127.0.0.1",)))
    yield running
    running.stop()


@pytest.mark.thorough
def test_a_disabled_webhook_is_not_tried_again(service: Service) -> None:
    """No webhook wants ``webhook.disabled``. A retry of another organization shows the time."""
    receiver = Receiver()
    receiver.answer("/gone", GONE)
    receiver.answer("/other", FAIL, OK)
    try:
        with service.client() as client, service.client(organization="other") as other:
            gone, failing = create(client, receiver, "/gone"), create(other, receiver, "/other")
            send_test(client, gone)
            wait_until(lambda: read(client, gone)["status"] == "disabled")
            send_test(other, failing)
            receiver.wait_for(2, "/other")
            assert len(receiver.received("/gone")) == 1
    finally:
        receiver.stop()


def create(client: Client, receiver: Receiver, path: str) -> str:
    body = {"url": receiver.url(path), "events": ["run.finished"]}
    return str(client.post("/v1/webhooks", json=body).json()["id"])


def send_test(client: Client, webhook_id: str) -> None:
    assert client.post(f"/v1/webhooks/{webhook_id}/test").status_code == 200


def read(client: Client, webhook_id: str) -> dict[str, Any]:
    found: dict[str, Any] = client.get(f"/v1/webhooks/{webhook_id}").json()
    return found
