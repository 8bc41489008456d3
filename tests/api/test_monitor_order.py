"""What happens between the steps of the monitors: other runs, changes of rules, other processes."""

from __future__ import annotations

import pytest

from gleanery.service.resources.runs import changing
from tests.api.test_monitor_schedules import open_alerts, set_rules
from tests.support.runs import finish, start
from tests.support.service import Clock, Service


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
