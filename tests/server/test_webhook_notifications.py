"""Webhooks get their events while no connection listens for notifications."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gleanery.service.foundation.errors import Unavailable
from gleanery.service.storage.postgres.listener import Listener
from tests.support.outputs import output
from tests.support.receiver import Receiver
from tests.support.service import Service
from tests.support.settings import fresh_settings
from tests.support.webhooks import ALLOWED, act, create, wait_for_ring

SECONDS = 15.0
"""Less than the time between two looks at everything."""


@pytest.fixture
def service(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Service]:
    settings = fresh_settings("postgres", request, tmp_path)
    running = Service(replace(settings, webhook_allow=ALLOWED, shutdown_seconds=1))
    yield running
    running.stop()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.stop()


def test_events_arrive_without_notifications(
    service: Service, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The address for listening does not respond, and that of the database does."""

    async def fail(_: Listener) -> None:
        raise Unavailable(reason="nothing listens")

    monkeypatch.setattr(Listener, "connect", fail)
    with service.client() as client:
        webhook = create(client, receiver.url(), "outputs.changed")
        for count in (1, 2, 3):
            act(client, webhook, "test")
            receiver.wait_for(count, seconds=SECONDS)
        client.store("group", output(1))
        wait_for_ring(client, receiver, "/")
