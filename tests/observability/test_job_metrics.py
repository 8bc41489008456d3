"""Metrics of jobs and of open alerts, which the sweep reads, on both engines."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gleanery.common.settings import Settings
from gleanery.service.resources.monitors import metrics
from tests.support.outputs import output
from tests.support.service import Client, Service
from tests.support.settings import fresh_settings
from tests.support.waiting import wait_until


@pytest.fixture
def fresh(engine: str, request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    """Settings of a service that sweeps all the time."""
    return replace(fresh_settings(engine, request, tmp_path), sweep_seconds=0.05)


@contextmanager
def running(settings: Settings, **changes: Any) -> Iterator[Service]:
    service = Service(replace(settings, **changes))
    try:
        yield service
    finally:
        service.stop()


def run(client: Client, group: str, job: str, count: int = 1, status: str = "complete") -> None:
    started = client.post(f"/v1/runs/{group}", json={"job_id": job})
    assert started.status_code == 200, started.text
    run_id = started.json()["run_id"]
    items = [output(number, job_id=job) for number in range(count)]
    if items:
        stored = client.post(f"/v1/outputs/{group}?run_id={run_id}", json=items)
        assert stored.status_code == 200, stored.text
    path = f"/v1/runs/{group}/{run_id}/finish"
    assert client.post(path, json={"status": status}).status_code == 200


def samples(client: Client, name: str) -> dict[tuple[str, ...], float]:
    """The values of a metric, by the values of its labels without the organization."""
    text = client.get("/metrics").text
    found = {}
    for labels, value in re.findall(rf"^{name}{{(.*)}} (\S+)$", text, re.M):
        values = re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels)
        found[tuple(text for key, text in values if key != "organization")] = float(value)
    return found


def wait_for(
    client: Client, name: str, check: Callable[[dict[tuple[str, ...], float]], bool]
) -> None:
    wait_until(lambda: check(samples(client, name)))


def open_alerts(client: Client) -> float:
    return max(samples(client, "gleanery_alerts_open").values())


def test_jobs_have_their_last_run_and_groups_their_open_alerts(fresh: Settings) -> None:
    with running(fresh, metrics_groups=2) as service, service.client() as client:
        for _ in range(4):
            run(client, "shop", "s4", 20)
        run(client, "shop", "s4", 3)
        run(client, "shop", "s5", 2)
        run(client, "news", 'a"b\\c', 1)
        key = ("shop", "s4")
        outputs = "gleanery_job_last_run_outputs"
        wait_for(client, outputs, lambda found: found.get(("shop", "s5")) == 2 and len(found) == 3)
        assert samples(client, outputs)[key] == 3
        assert samples(client, outputs)[("news", 'a\\"b\\\\c')] == 1
        times = samples(client, "gleanery_job_last_run_timestamp_seconds")
        [shown] = client.get("/v1/runs/shop", params={"job_id": "s5", "limit": 1}).json()["runs"]
        assert times.keys() == samples(client, outputs).keys()
        assert times[key] <= times[("shop", "s5")]
        assert shown["finish_date"] is not None
        wait_for(
            client,
            "gleanery_group_alerts_open",
            lambda found: found == {("shop", "few_outputs"): 1.0},
        )
        wait_until(lambda: open_alerts(client) == 1)
        run(client, "shop", "s4", 20)
        wait_until(lambda: open_alerts(client) == 0)
        assert samples(client, "gleanery_group_alerts_open") == {}


def test_a_run_that_goes_on_is_not_the_last_one(fresh: Settings) -> None:
    with running(fresh, metrics_groups=1) as service, service.client() as client:
        run(client, "shop", "job", 7)
        client.post("/v1/runs/shop", json={"job_id": "job"})
        run(client, "shop", "later", 1)
        name = "gleanery_job_last_run_outputs"
        wait_for(client, name, lambda found: ("shop", "later") in found)
        assert samples(client, name)[("shop", "job")] == 7


def test_muted_alerts_do_not_count(fresh: Settings) -> None:
    with running(fresh, metrics_groups=1) as service, service.client() as client:
        for count in (20, 20, 20, 20, 3):
            run(client, "shop", "job", count)
        wait_until(lambda: open_alerts(client) == 1)
        [alert] = client.get("/v1/alerts").json()["alerts"]
        body = {"muted_until": "2999-01-01T00:00:00Z"}
        assert client.post(f"/v1/alerts/{alert['alert_id']}", json=body).status_code == 200
        wait_until(lambda: open_alerts(client) == 0)


def test_only_the_busiest_groups_and_some_of_their_jobs_have_series(
    fresh: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "MAX_JOBS", 2)
    with running(fresh) as service, service.client() as client:
        for group, runs in (("a", 1), ("b", 3), ("c", 2)):
            for number in range(runs):
                run(client, group, "job")
                run(client, group, f"job{number}")
        token = client.token
    with running(fresh, metrics_groups=2) as service, service.client(token) as client:
        name = "gleanery_job_last_run_outputs"
        wait_for(client, name, lambda found: len(found) == 4)
        assert {group for group, _ in samples(client, name)} == {"b", "c"}


def test_by_default_no_name_is_shown(fresh: Settings) -> None:
    with running(fresh) as service, service.client() as client:
        for count in (20, 20, 20, 20, 3):
            run(client, "shop", "job", count)
        wait_until(lambda: open_alerts(client) == 1)
        text = client.get("/metrics").text
        assert "gleanery_job_" not in text
        assert "shop" not in text
