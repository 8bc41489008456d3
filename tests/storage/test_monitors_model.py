"""Model-based test of monitors: the alerts equal those of a plain model, after each action.

Most actions are several runs in a row, so that something is usual. Rules are drawn from few values,
near what the runs are like. The clock stands still, and only the test moves it and sweeps.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from gleanery.service.foundation.values import timestamps
from tests.support import monitors_model as model
from tests.support.interruptions import StoppedClock
from tests.support.monitors_model import DAY, HOUR, Alert, Facts, Model, Run, new_rule
from tests.support.service import Clock, Service
from tests.support.settings import fresh_settings

pytestmark = pytest.mark.thorough

# make model sets it, for a long run with other examples each time.
EXAMPLES = int(os.environ.get("GLEANERY_MODEL_EXAMPLES", "0"))
STEPS = 30 if EXAMPLES else 18
EVER = 1_000_000  # seconds; only the test sweeps
TIMEOUT = 6 * HOUR
JOBS = st.sampled_from("aaab")
LABELS = st.sampled_from([{}, {}, {}, {"country": "DE"}])
NUMBERS = st.integers(0, 99)


class Sent(NamedTuple):
    """What a run sends."""

    outputs: int
    priced: float
    """Share of the outputs with a price."""
    texts: float
    """Share of the prices that are text."""
    price: float
    same: int
    """Outputs with the same number."""
    rejected: int

    def data(self) -> list[dict[str, Any]]:
        priced = round(self.outputs * self.priced)
        texts = round(priced * self.texts)
        return [
            {
                "n": 0 if number < self.same else number,
                "offer": {"price": self._price(number, texts, priced)},
            }
            for number in range(self.outputs)
        ]

    def _price(self, number: int, texts: int, priced: int) -> Any:
        if number < texts:
            return "a price"
        return self.price if number < priced else ""


USUAL = Sent(20, 1.0, 0.0, 9.5, 0, 0)
SENT = st.builds(
    Sent,
    outputs=st.sampled_from([20, 20, 20, 19, 24, 12, 10, 9, 3, 0]),
    priced=st.sampled_from([1.0, 1.0, 1.0, 0.9, 0.7, 0.4, 0.0]),
    texts=st.sampled_from([0.0, 0.0, 0.0, 0.1, 0.25, 1.0]),
    price=st.sampled_from([9.5, 9.5, 9.5, 12.0, 19.0, 4.0]),
    same=st.sampled_from([0, 0, 0, 3, 8]),
    rejected=st.sampled_from([0, 0, 0, 1, 3]),
)
STATUSES = st.sampled_from(["complete", "complete", "complete", "complete", "partial", "failed"])
PAUSES = st.sampled_from([HOUR, 5 * HOUR, 13 * HOUR, DAY, 30 * HOUR, 2 * DAY, 4 * DAY, 20 * DAY])


@st.composite
def rule_lists(draw: st.DrawFn) -> list[dict[str, Any]]:
    found: dict[Any, dict[str, Any]] = {}
    for kind in draw(st.lists(st.sampled_from(model.KINDS), min_size=3, max_size=9)):
        one = new_rule(
            kind,
            job_id=draw(st.sampled_from([None, None, "a"])),
            enabled=draw(st.sampled_from([True, True, True, False])),
        )
        if kind in model.OF_FIELDS:
            one["path"] = draw(st.sampled_from([None, None, "offer.price"]))
        elif kind == "few_outputs":
            one["minimum"] = draw(st.sampled_from([None, None, 10]))
        elif kind == "no_run":
            one["hours"] = draw(st.sampled_from([None, None, 30.0]))
        elif kind == "failed_run":
            one["threshold"] = draw(st.sampled_from([1.0, 2.0]))
        found[kind, one["job_id"], one["path"]] = one
    return [*found.values()]


class Action(NamedTuple):
    """Something to do: how often, and with which arguments of the method."""

    weight: int
    arguments: dict[str, st.SearchStrategy[Any]]


ACTIONS = {
    "usual_runs": Action(
        4,
        {"job": JOBS, "labels": LABELS, "count": st.integers(2, 5)}
        | {"pause": st.sampled_from([1, HOUR, DAY, DAY, DAY])},
    ),
    "run": Action(
        6,
        {"job": JOBS, "labels": LABELS, "sent": SENT, "status": STATUSES}
        | {"pause": st.sampled_from([0, 0, 0, HOUR, 5 * HOUR])},
    ),
    "abandon": Action(1, {"job": JOBS, "sent": SENT}),
    "push": Action(1, {"job": JOBS, "sent": SENT}),
    "pause": Action(2, {"seconds": PAUSES}),
    "set_rules": Action(2, {"wanted": rule_lists()}),
    "set_missing": Action(
        1, {"after": st.sampled_from([None, 1, 1]), "share": st.sampled_from([0.2, 1.0])}
    ),
    "decide": Action(2, {"number": NUMBERS, "decision": st.sampled_from(["remove", "keep"])}),
    "acknowledge": Action(1, {"number": NUMBERS, "is_acknowledged": st.booleans()}),
    "mute": Action(1, {"number": NUMBERS, "hours": st.sampled_from([None, -1, 30, 500])}),
    "accept": Action(2, {"number": NUMBERS}),
    "delete_job": Action(1, {"job": JOBS}),
    "delete_group": Action(1, {"is_certain": st.sampled_from([False, False, True])}),
}


@pytest.fixture
def clock() -> Clock:
    return StoppedClock()


@pytest.fixture
def service(
    engine: str, request: pytest.FixtureRequest, tmp_path: Path, clock: Clock
) -> Iterator[Service]:
    settings = fresh_settings(engine, request, tmp_path)
    # The database does not let go of entries of the audit log that are new by its own clock.
    running = Service(replace(settings, sweep_seconds=EVER, audit_days=EVER), clock)
    yield running
    running.stop()


def facts_of(run: dict[str, Any], sent: Sent) -> Facts:
    """What a run was like, by its counts and by what it has sent."""
    counts, data = run["counts"], sent.data()
    prices = [one["offer"]["price"] for one in data]
    floats = [price for price in prices if isinstance(price, float)]
    kinds = {"string": prices.count("a price"), "number": len(floats)}
    numbers = {"n": [one["n"] for one in data], "offer.price": floats}
    same = Counter(json.dumps(one) for one in data)
    outputs = counts["created"] + counts["updated"] + counts["unchanged"]
    assert outputs == sent.outputs
    return Facts(
        run["status"],
        outputs,
        counts["rejected"],
        counts["missing"],
        run["removal"] == "held",
        run["removable"],
        {"n": {"number": outputs}, "offer": {"object": outputs}, "offer.price": kinds},
        outputs,
        sum(count for count in same.values() if count > 1),
        {path: median(some) for path, some in numbers.items() if len(some) >= 10},
    )


def machine(service: Service, clock: Clock) -> type[RuleBasedStateMachine]:
    class Agreement(RuleBasedStateMachine):
        @initialize(job=JOBS)
        def begin(self, job: str) -> None:
            self.client = service.client()
            self.wait_for_monday()
            self.model = Model(now=self.seconds())
            self.requests = 0
            self.held: dict[str, str] = {}
            """The job of each run whose removal may wait for a decision."""
            self.usual_runs(job, {}, 4, DAY)

        def teardown(self) -> None:
            if hasattr(self, "client"):
                self.client.delete("/v1/groups/group")  # so no later sweep finds its jobs
                self.client.close()

        def wait_for_monday(self) -> None:
            """The days of the week matter: each example begins with the same one."""
            week = 7 * DAY * timestamps.SECOND
            monday = (clock() // week + 1) * week + 4 * DAY * timestamps.SECOND
            clock.move(seconds=(monday - clock()) / timestamps.SECOND)

        def seconds(self) -> float:
            return clock() / timestamps.SECOND

        def send(self, path: str, *, method: str = "POST", **options: Any) -> Any:
            response = self.client.request(method, f"/v1/{path}", **options)
            assert response.status_code == 200, response.text
            return response.json()

        def wait(self, seconds: float = 1) -> None:
            clock.move(seconds=seconds)
            self.model.now = self.seconds()

        @rule(drawn=st.data())
        def act(self, drawn: st.DataObject) -> None:
            possible = {
                "decide": bool(self.held),
                "acknowledge": bool(self.model.alerts),
                "mute": bool(self.model.alerts),
                "accept": bool(self.model.alerts),
                "delete_job": bool(self.model.jobs()),
                "delete_group": bool(self.model.jobs()),
            }
            names = [
                name
                for name, action in ACTIONS.items()
                for _ in range(action.weight)
                if possible.get(name, True)
            ]
            name = drawn.draw(st.sampled_from(names))
            arguments = drawn.draw(st.fixed_dictionaries(ACTIONS[name].arguments))
            getattr(self, name)(**arguments)

        # --- runs -------------------------------------------------------------------------------

        def usual_runs(self, job: str, labels: dict[str, str], count: int, pause: float) -> None:
            for _ in range(count):
                self.run(job, labels, USUAL, "complete", 0)
                self.wait(pause)

        def run(
            self, job: str, labels: dict[str, str], sent: Sent, status: str, pause: float
        ) -> None:
            """A run, perhaps with a sweep while it goes on."""
            run_id, begun = self.start(job, labels), self.model.now
            self.store(job, sent, run_id)
            self.model.going_on[job] = [begun]
            if pause:
                self.pause(pause)
            self.wait()
            finished = self.send(f"runs/group/{run_id}/finish", json={"status": status})
            self.end(job, labels, begun, facts_of(finished, sent))
            if finished["removal"] == "held":
                self.held[run_id] = job

        def abandon(self, job: str, sent: Sent) -> None:
            """A run that never ends. The sweep finds that."""
            run_id, begun = self.start(job, {}), self.model.now
            self.store(job, sent, run_id)
            self.wait(TIMEOUT + 1)
            service.sweep(clock)
            shown = self.send(f"runs/group/{run_id}", method="GET")
            assert shown["status"] == "abandoned"
            self.end(job, {}, begun, facts_of(shown, sent))
            self.model.sweep()

        def end(self, job: str, labels: dict[str, str], begun: float, facts: Facts) -> None:
            self.model.going_on.pop(job, None)
            run = Run(job, json.dumps(labels), len(self.model.runs), begun, facts)
            self.model.end(run)

        def start(self, job: str, labels: dict[str, str]) -> str:
            self.wait()
            run = self.send("runs/group", json={"job_id": job, "labels": labels})
            return str(run["run_id"])

        def push(self, job: str, sent: Sent) -> None:
            """A batch without a run."""
            self.wait()
            if self.store(job, sent, None):
                self.model.pushed[job] = self.model.now

        def store(self, job: str, sent: Sent, run_id: str | None) -> bool:
            body: list[dict[str, Any]] = [
                {"job_id": job, "source_url": f"{number}", "data": data}
                for number, data in enumerate(sent.data())
            ]
            if run_id is not None:
                body += [{"job_id": job}] * sent.rejected
            if body:
                query = {"on_error": "skip"} | ({} if run_id is None else {"run_id": run_id})
                self.send("outputs/group", json=body, params=query)
            return bool(body)

        def pause(self, seconds: float) -> None:
            self.wait(seconds)
            service.sweep(clock)
            self.model.sweep()

        # --- what persons do --------------------------------------------------------------------

        def set_rules(self, wanted: list[dict[str, Any]]) -> None:
            response = self.client.put("/v1/monitors/group", json=wanted)
            if not self.model.jobs():
                return  # there may be no group
            assert response.json() == wanted
            self.model.set_rules(wanted)

        def set_missing(self, after: int | None, share: float) -> None:
            body = {"missing": {"after_runs": after, "max_share": share}}
            if self.model.jobs():
                self.send("groups/group", method="PUT", json=body)

        def decide(self, number: int, decision: str) -> None:
            """Decide about a removal, if a later run has not replaced it."""
            run_id = [*self.held][number % len(self.held)]
            job = self.held.pop(run_id)
            path = f"/v1/runs/group/{run_id}/removal"
            response = self.client.post(path, json={"decision": decision})
            if response.status_code != 200:
                assert response.status_code == 409
                return
            for alert in self.model.open_alerts():
                if (alert.job, alert.kind) == (job, "held_removal"):
                    alert.close_reason = "over"

        def choose(self, number: int) -> tuple[Alert, str]:
            alert = self.model.alerts[number % len(self.model.alerts)]
            return alert, f"/v1/alerts/{alert.alert_id}"

        def acknowledge(self, number: int, is_acknowledged: bool) -> None:
            alert, path = self.choose(number)
            response = self.client.post(path, json={"acknowledged": is_acknowledged})
            assert response.status_code == 200, response.text
            alert.is_acknowledged = is_acknowledged

        def mute(self, number: int, hours: int | None) -> None:
            alert, path = self.choose(number)
            until = None if hours is None else self.model.now + hours * HOUR
            date = None
            if until is not None:
                date = timestamps.render_microseconds(round(until * timestamps.SECOND))
            response = self.client.post(path, json={"muted_until": date})
            assert response.status_code == 200, response.text
            alert.muted_until = until

        def accept(self, number: int) -> None:
            alert, path = self.choose(number)
            response = self.client.post(path, json={"normal": True})
            if alert.close_reason == "normal":
                assert response.status_code in (200, 409)  # to repeat it is harmless
                return
            if not alert.is_open or alert.kind not in model.COMPARING:
                assert response.status_code == 409
                return
            assert response.status_code == 200, response.text
            alert.close_reason = "normal"

        def delete_job(self, job: str) -> None:
            self.wait()
            response = self.client.delete(f"/v1/groups/group/jobs/{job}")
            assert response.status_code == (200 if job in self.model.jobs() else 404)
            self.held = {run_id: of for run_id, of in self.held.items() if of != job}
            self.model.delete_job(job)

        def delete_group(self, is_certain: bool) -> None:
            if is_certain:
                self.wait()
                self.send("groups/group", method="DELETE")
                self.held.clear()
                self.model.delete_group()

        # --- what clients see -------------------------------------------------------------------

        @invariant()
        def the_alerts_equal_the_model(self) -> None:
            page = self.send("alerts", method="GET", params={"limit": 1000})
            found = sorted(page["alerts"], key=shown_key)
            expected = sorted(self.model.alerts, key=key)
            assert [shown_key(one) for one in found] == [key(one) for one in expected]
            for shown, alert in zip(found, expected, strict=True):
                alert.alert_id = alert.alert_id or shown["alert_id"]
                assert_same(shown, alert)
            for state in ("open", "closed"):
                query = {"state": state, "limit": 1000}
                page = self.send("alerts", method="GET", params=query)
                wanted = {one["alert_id"] for one in found if one["state"] == state}
                assert {one["alert_id"] for one in page["alerts"]} == wanted

    return Agreement


def seconds_of(date: str) -> float:
    return datetime.fromisoformat(date).timestamp()


def key(alert: Alert) -> tuple[Any, ...]:
    return round(alert.opened), alert.job, alert.kind, alert.labels or "{}"


def shown_key(alert: dict[str, Any]) -> tuple[Any, ...]:
    opened = round(seconds_of(alert["open_date"]))
    return opened, alert["job_id"], alert["kind"], json.dumps(alert["labels"])


def assert_same(shown: dict[str, Any], alert: Alert) -> None:
    assert shown["alert_id"] == alert.alert_id
    assert shown["close_reason"] == alert.close_reason, alert
    assert shown["state"] == ("open" if alert.is_open else "closed")
    assert shown["runs"] == alert.runs, alert
    assert (shown["acknowledged_date"] is not None) == alert.is_acknowledged
    assert (shown["muted_until"] is None) == (alert.muted_until is None)
    if alert.muted_until is not None:
        assert seconds_of(shown["muted_until"]) == pytest.approx(alert.muted_until, abs=1)
    if alert.verdict is None:
        return
    facts = shown["facts"]
    if alert.kind in model.OF_FIELDS:
        assert {fact["path"] for fact in facts["fields"]} == alert.verdict.paths
    else:
        assert facts["value"] == pytest.approx(alert.verdict.value, abs=1e-4)
    if alert.kind == "few_outputs":
        usual = alert.last_usual
        assert facts["usual"] == (None if usual is None else usual.outputs)


def test_alerts_equal_the_model(service: Service, clock: Clock) -> None:
    run_state_machine_as_test(
        machine(service, clock),
        settings=settings(
            max_examples=EXAMPLES or 12,
            stateful_step_count=STEPS,
            deadline=None,
            derandomize=not EXAMPLES,
            # A smaller example is worth minutes only in the long run.
            phases=(Phase.generate, *([Phase.shrink] if EXAMPLES else [])),
            suppress_health_check=list(HealthCheck),
        ),
    )
