"""After an upgrade, the jobs that were there before are monitored as well."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.api.test_monitor_schedules import open_alerts
from tests.support.databases import undo_migrations
from tests.support.runs import complete
from tests.support.service import DAY, Clock, Service
from tests.support.settings import fresh_settings


def test_a_job_that_stops_before_the_upgrade_is_overdue(
    engine: str, request: pytest.FixtureRequest, tmp_path: Path, clock: Clock
) -> None:
    """No run after the upgrade would say when to look at it."""
    settings = fresh_settings(engine, request, tmp_path)
    service = Service(settings, clock)
    token = service.token()
    with service.client(token) as client:
        for _ in range(6):
            complete(client, 1)
            clock.move(seconds=DAY)
    service.stop()
    undo_migrations(settings, "monitors")
    service = Service(settings, clock)
    with service.client(token) as client:
        clock.move(seconds=7 * DAY)
        service.sweep(clock)
        assert open_alerts(client) == [("job", "no_run")]
    service.stop()
