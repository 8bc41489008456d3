"""Thirty simulated days: five spiders and more break, and twenty healthy jobs vary."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gleanery.service.foundation.values import timestamps
from tests.support.monitor_trial import DAYS, HealthyRun, healthy_runs
from tests.support.monitors_model import DAY, HOUR, Model, Run
from tests.support.service import Client, Clock, Service

PRODUCTS = 200
A_MONDAY = 4 * DAY
"""Seconds since 1970."""
BREAKS, PRICES_BREAK = 8, 12
"""Days on which the spiders break. Most of them have been broken for 21 days on the last day."""


@pytest.fixture
def client(timed_service: Service) -> Iterator[Client]:
    """A client of the service whose clock the test moves."""
    with timed_service.client() as made:
        yield made


class Trial:
    """Simulated days, which begin on a Monday."""

    def __init__(self, service: Service, client: Client, clock: Clock) -> None:
        self._service, self._client, self._clock = service, client, clock
        week = 7 * DAY * timestamps.SECOND
        self._begin = (clock() // week + 1) * week + A_MONDAY * timestamps.SECOND

    def move(self, seconds: float) -> None:
        """Let it be this time, in seconds since the beginning."""
        passed = (self._clock() - self._begin) / timestamps.SECOND
        self._clock.move(seconds=max(seconds - passed, 0))

    def sweep(self) -> None:
        self._service.sweep(self._clock)

    def run(self, job: str, data: list[dict[str, Any]], status: str = "complete") -> None:
        """A run that sends these outputs."""
        run_id = self._send("runs/shop", {"job_id": job})["run_id"]
        if data:
            urls = (f"https://shop.example/{number}" for number in range(len(data)))
            items = [
                {"job_id": job, "source_url": url, "data": one}
                for url, one in zip(urls, data, strict=True)
            ]
            self._send(f"outputs/shop?run_id={run_id}", items)
        self._send(f"runs/shop/{run_id}/finish", {"status": status})

    def _send(self, path: str, body: Any) -> Any:
        answer = self._client.post(f"/v1/{path}", json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def alerts(self, **query: Any) -> list[dict[str, Any]]:
        answer = self._client.get("/v1/alerts", params=query)
        assert answer.status_code == 200, answer.text
        found: list[dict[str, Any]] = answer.json()["alerts"]
        return found

    def open_kinds(self) -> dict[str, str]:
        """The kind of the open alert of each job."""
        found = self.alerts(state="open")
        kinds = {alert["job_id"]: alert["kind"] for alert in found}
        assert len(kinds) == len(found)
        return kinds


def products(count: int = PRODUCTS) -> list[dict[str, Any]]:
    return [{"name": f"product {number}", "price": 9.99 + number} for number in range(count)]


def switch_on(client: Client, kinds: dict[str, str | None]) -> None:
    """Switch on rules that the service suggests, some for one job only."""
    present = client.get("/v1/monitors/shop").json()
    suggested = client.get("/v1/monitors/shop/suggested").json()
    chosen = [
        {name: rule[name] for name in present[0]} | {"job_id": kinds[rule["kind"]]}
        for rule in suggested
        if rule["kind"] in kinds
    ]
    assert {rule["kind"] for rule in chosen} == kinds.keys()
    for rule in suggested:
        assert rule["preview"]["alerts"] == 0, rule
    answer = client.put("/v1/monitors/shop", json=[*present, *chosen])
    assert answer.status_code == 200, answer.text


EXPECTED = {
    "prices": "fill_rate",
    "half": "few_outputs",
    "empty": "few_outputs",
    "losing": "missing",
    "stopped": "no_run",
    "failing": "failed_run",
}


def run_spiders(trial: Trial, day: int) -> None:
    """Each spider runs once. From a day on, all but the healthy one are broken."""
    is_broken = day >= BREAKS
    trial.run("healthy", products())
    priced = PRODUCTS // 2 if day >= PRICES_BREAK else PRODUCTS
    data = products()
    trial.run("prices", data[:priced] + [one | {"price": ""} for one in data[priced:]])
    trial.run("half", products(PRODUCTS // 2 if is_broken else PRODUCTS))
    trial.run("empty", products(0 if is_broken else PRODUCTS))
    trial.run("losing", products(PRODUCTS - 20 if is_broken else PRODUCTS))
    if not is_broken:
        trial.run("stopped", products())
    trial.run("failing", products(30 if is_broken else 200), "failed" if is_broken else "complete")


@pytest.mark.thorough
def test_each_broken_spider_has_one_alert_as_long_as_it_is_broken(
    timed_service: Service, client: Client, clock: Clock
) -> None:
    trial = Trial(timed_service, client, clock)
    for day in range(DAYS):
        trial.move(day * DAY + 6 * HOUR)
        run_spiders(trial, day)
        if day == BREAKS - 1:
            switch_on(client, {"missing": "losing", "failed_run": None})
        expected = {
            job: kind
            for job, kind in EXPECTED.items()
            # The sweep finds what has stopped one interval after the run that did not come.
            if day >= {"prices": PRICES_BREAK, "stopped": BREAKS + 2}.get(job, BREAKS)
        }
        if day == BREAKS + 1:
            expected["stopped"] = "no_run"
            trial.move(day * DAY + 7 * HOUR)
            trial.sweep()
        assert trial.open_kinds() == expected, day
        for hour in (12, 18):
            trial.move(day * DAY + hour * HOUR)
            trial.sweep()
    alerts = {alert["job_id"]: alert for alert in trial.alerts()}
    assert len(trial.alerts()) == len(EXPECTED)
    days = DAYS - BREAKS
    assert {job: alert["runs"] for job, alert in alerts.items()} == {
        **dict.fromkeys(EXPECTED, days),
        "prices": DAYS - PRICES_BREAK,
        "stopped": 0,
    }
    assert alerts["half"]["message"] == "half stored 100 outputs; 200 is usual."
    [price] = alerts["prices"]["facts"]["fields"]
    assert (price["path"], price["usual"], price["value"]) == ("price", 1, 0.5)
    assert (alerts["losing"]["facts"]["value"], alerts["empty"]["facts"]["value"]) == (0.1, 0)
    trial.move(DAYS * DAY + 6 * HOUR)
    for job in ("healthy", *EXPECTED):
        trial.run(job, products())
    assert trial.open_kinds() == {}
    assert {alert["close_reason"] for alert in trial.alerts()} == {"over"}
    assert len(trial.alerts()) == len(EXPECTED)


# --- healthy jobs -------------------------------------------------------------------------------


@pytest.mark.extended
@pytest.mark.thorough
def test_healthy_jobs_have_no_alert(timed_service: Service, client: Client, clock: Clock) -> None:
    trial = Trial(timed_service, client, clock)
    swept = 0.0
    for run in healthy_runs(1, is_small=True):
        while swept + DAY / 4 < run.start:
            swept += DAY / 4
            trial.move(swept)
            trial.sweep()
        trial.move(run.start)
        trial.run(run.job, outputs_of(run))
    assert trial.alerts() == []


def outputs_of(run: HealthyRun) -> list[dict[str, Any]]:
    return [
        {"name": f"{number}", "color": "red" if number < run.colors else ""}
        for number in range(run.outputs)
    ]


@pytest.mark.parametrize("seed", range(6))
def test_the_model_has_no_alert_about_healthy_jobs(seed: int) -> None:
    """Other tests compare the model with the service."""
    of_jobs: dict[str, Model] = {}
    for number, run in enumerate(healthy_runs(seed)):
        model = of_jobs.setdefault(run.job, Model())
        model.now = A_MONDAY + run.start
        model.check_schedule(run.job)  # if the job is not overdue now, it was not before
        model.end(Run(run.job, "{}", number, model.now, run.facts))
        assert model.alerts == []
