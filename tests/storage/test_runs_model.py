"""Model-based test of runs: counts, missing outputs, removals, feeds and views equal the model.

The model keeps everything in plain dictionaries, and counts in the plainest way.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from gleanery.service.resources.run_records import comparison
from gleanery.service.resources.runs import changing
from tests.support.outputs import read_changes
from tests.support.service import Client, Clock, Service
from tests.support.settings import fresh_settings

pytestmark = pytest.mark.thorough

# make model sets it, for a long run with other examples each time.
EXAMPLES = int(os.environ.get("GLEANERY_MODEL_EXAMPLES", "0"))
Key = tuple[str, str]
JOBS, KEYS = st.sampled_from("ab"), st.sampled_from("uvwxyz")
ITEMS = st.lists(st.tuples(KEYS, st.integers(0, 2)), max_size=6)
STATUSES = st.sampled_from([*["complete"] * 5, "partial", "failed"])
UNCHANGED, UPDATED, CREATED = range(3)
IDLE, TIMEOUT = 30 * 60, 360 * 60
EVER = 1_000_000  # seconds; only the test sweeps


@dataclass
class Output:
    """An output: its value, when it was last sent, and in how many complete runs it is missing."""

    value: int
    sent: int
    missed: int = 0
    approved: int | None = None
    """The value in the approved view."""


@dataclass
class Run:
    """A run: what it has seen, and what came of it."""

    job: str
    is_implicit: bool
    start: int
    last: int
    status: str = "running"
    seen: dict[str, int] = field(default_factory=dict)
    number: int = 0
    missing: int = 0
    removed: int = 0
    removal: str | None = None
    removal_after: int = 0
    """Complete runs in which an output was missing that is removed."""
    due: set[str] = field(default_factory=set)
    total: int = 0
    """Outputs of its job when it ended."""
    is_pending: bool = False
    ids: list[str] = field(default_factory=list)
    """Its run_id in each service."""

    @property
    def counts(self) -> dict[str, int]:
        states = [*self.seen.values()]
        return {
            "created": states.count(CREATED),
            "updated": states.count(UPDATED),
            "unchanged": states.count(UNCHANGED),
            "rejected": 0,
            "missing": self.missing,
            "removed": self.removed,
        }


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def both(request: pytest.FixtureRequest, clock: Clock) -> Iterator[list[Service]]:
    with tempfile.TemporaryDirectory() as folder:
        services = [
            Service(
                replace(fresh_settings(engine, request, Path(folder) / engine), sweep_seconds=EVER),
                clock,
            )
            for engine in ("sqlite", "postgres")
        ]
        yield services
        for service in services:
            service.stop()


class Runs(RuleBasedStateMachine):
    """Does the same on both engines and in the model. Comparisons end with their request."""

    services: list[Service]
    clock: Clock

    @initialize()
    def begin(self) -> None:
        self.now = 0
        self.outputs: dict[Key, Output] = {}
        self.runs: list[Run] = []
        self.complete = {"a": 0, "b": 0}
        self.kept = {"a": 0, "b": 0}
        self.after_runs: int | None = None
        self.max_share = 0.3
        self.deleted: dict[Key, str | None] = {}
        """Outputs whose last change is a deletion, and its reason."""
        self.ids: list[dict[Key, str]] = [{} for _ in self.services]
        self.clients: list[Client] = [service.client() for service in self.services]
        self.push_items("a", [(key, 0) for key in "uvwxyz"], None)
        self.change_settings(2, 1.0)

    def teardown(self) -> None:
        for client in getattr(self, "clients", ()):
            client.close()

    def tick(self, seconds: int = 1) -> int:
        self.clock.move(seconds=seconds)
        self.now += seconds
        for run in self.runs:
            limit = IDLE if run.is_implicit else TIMEOUT
            if run.status == "running" and self.now >= run.last + limit:
                run.status = "unknown" if run.is_implicit else "abandoned"
        return self.now

    def open_runs(self) -> list[Run]:
        return [run for run in self.runs if run.status == "running" and not run.is_implicit]

    # --- what clients do ---

    @rule(job=JOBS)
    def start(self, job: str) -> None:
        now = self.tick()
        run = Run(job, is_implicit=False, start=now, last=now)
        for client in self.clients:
            response = client.post("/v1/runs/group", json={"job_id": job})
            run.ids.append(response.json()["run_id"])
        self.runs.append(run)

    @rule(job=JOBS, items=ITEMS)
    def push(self, job: str, items: list[tuple[str, int]]) -> None:
        if items:
            self.push_items(job, items, None)

    @rule(job=st.sampled_from("aaab"), vanished=st.sets(KEYS, max_size=3), status=STATUSES)
    def run_once(self, job: str, vanished: set[str], status: str) -> None:
        """A whole run that sends what the job has, but for some outputs."""
        self.start(job)
        run = self.runs[-1]
        of_job = [(key, one.value) for (name, key), one in self.outputs.items() if name == job]
        self.push_items(job, [one for one in of_job if one[0] not in vanished], run)
        self.finish_run(run, status)

    @precondition(lambda self: self.open_runs())
    @rule(drawn=st.data(), items=ITEMS)
    def push_into_a_run(self, drawn: st.DataObject, items: list[tuple[str, int]]) -> None:
        run = drawn.draw(st.sampled_from(self.open_runs()))
        self.push_items(run.job, items, run)

    def push_items(self, job: str, items: list[tuple[str, int]], run: Run | None) -> None:
        now = self.tick()
        body = [{"job_id": job, "source_url": key, "data": {"v": value}} for key, value in items]
        if run is None:
            run = self.implicit_run(job)
        for key, value in items:
            self.store(run, job, key, value)
        run.last = now
        for number, client in enumerate(self.clients):
            params = {} if run.is_implicit else {"run_id": run.ids[number]}
            response = client.post("/v1/outputs/group", json=body, params=params)
            assert response.status_code == 200, response.text
            for (key, _), result in zip(items, response.json()["results"], strict=True):
                self.ids[number][job, key] = result["output_id"]

    def implicit_run(self, job: str) -> Run:
        for run in self.runs:
            if run.is_implicit and run.job == job and run.status == "running":
                return run
        run = Run(job, is_implicit=True, start=self.now, last=self.now)
        self.runs.append(run)
        return run

    def store(self, run: Run, job: str, key: str, value: int) -> None:
        output = self.outputs.get((job, key))
        if output is None:
            state = CREATED
            output = self.outputs[job, key] = Output(value, self.now)
            self.deleted.pop((job, key), None)
        else:
            state = UNCHANGED if output.value == value else UPDATED
            output.value, output.sent = value, self.now
        run.seen[key] = max(run.seen.get(key, UNCHANGED), state)

    @precondition(lambda self: self.outputs)
    @rule(drawn=st.data())
    def delete(self, drawn: st.DataObject) -> None:
        self.tick()
        key = drawn.draw(st.sampled_from(sorted(self.outputs)))
        for client, ids in zip(self.clients, self.ids, strict=True):
            assert client.delete(f"/v1/outputs/group/{ids[key]}").status_code == 200
        self.remove(key, None)

    def remove(self, key: Key, reason: str | None) -> None:
        del self.outputs[key]
        self.deleted[key] = reason

    @rule(job=JOBS, is_approved=st.booleans())
    def review(self, job: str, is_approved: bool) -> None:
        self.tick()
        status = "approved" if is_approved else "rejected"
        body = {"job_id": job, "status": status, "comment": ""}
        for client in self.clients:
            client.post("/v1/reviews/group", json=body)
        for (of_job, _), output in self.outputs.items():
            if of_job == job:
                output.approved = output.value if is_approved else None

    @rule(after_runs=st.sampled_from([None, 1, 2, 3]), max_share=st.sampled_from([0.0, 0.3, 1.0]))
    def change_settings(self, after_runs: int | None, max_share: float) -> None:
        self.tick()
        missing = {"after_runs": after_runs, "max_share": max_share}
        for client in self.clients:
            response = client.put("/v1/groups/group", json={"missing": missing})
            assert response.status_code == 200, response.text
        self.after_runs, self.max_share = after_runs, max_share

    @rule(seconds=st.sampled_from([60, 60, IDLE + 1, TIMEOUT + 1]))
    def pause(self, seconds: int) -> None:
        self.tick(seconds)

    @precondition(lambda self: self.open_runs())
    @rule(drawn=st.data(), status=STATUSES)
    def finish(self, drawn: st.DataObject, status: str) -> None:
        self.finish_run(drawn.draw(st.sampled_from(self.open_runs())), status)

    def finish_run(self, run: Run, status: str) -> None:
        self.tick()
        for number, client in enumerate(self.clients):
            url = f"/v1/runs/group/{run.ids[number]}/finish"
            response = client.post(url, json={"status": status})
            assert response.status_code == 200, response.text
        run.status = status
        if status == "complete":
            self.compare(run)
            self.after_finish()

    def compare(self, run: Run) -> None:
        """Find what is missing at the end of a complete run."""
        self.complete[run.job] += 1
        run.number = self.complete[run.job]
        of_job = {key: one for (job, key), one in self.outputs.items() if job == run.job}
        for output in of_job.values():
            output.missed = output.missed + 1 if output.sent < run.start else 0
        run.missing = sum(1 for output in of_job.values() if output.missed)
        after = self.after_runs
        run.is_pending = True
        run.total = len(of_job)
        if after is not None and run.number - self.kept[run.job] >= after:
            run.removal_after = after
            run.due = {key for key, one in of_job.items() if one.missed >= after}

    def after_finish(self) -> None:
        self.end_pending()

    def end_pending(self) -> None:
        """End the comparisons in their order, and then remove what is due."""
        pending = sorted((run for run in self.runs if run.is_pending), key=lambda run: run.number)
        for run in pending:
            run.is_pending = False
            for other in self.runs:
                if other.job == run.job and other.removal == "held":
                    other.removal = "replaced"
            if run.due:
                is_held = len(run.due) > self.max_share * run.total
                run.removal = "held" if is_held else "pending"
        for run in self.runs:
            if run.removal == "pending":
                self.carry_out(run)

    def carry_out(self, run: Run) -> None:
        """Remove what is due and was not sent again."""
        since = run.number - run.removal_after + 1
        for (job, key), output in [*self.outputs.items()]:
            missed_since = self.complete[job] - output.missed + 1
            is_due = job == run.job and output.missed and missed_since <= since
            if is_due and output.sent < run.start:
                self.remove((job, key), "missing")
                run.removed += 1
        run.removal = "done"

    def held_runs(self) -> list[Run]:
        return [run for run in self.runs if run.removal == "held"]

    @precondition(lambda self: self.held_runs())
    @rule(drawn=st.data(), decision=st.sampled_from(["remove", "keep"]))
    def decide(self, drawn: st.DataObject, decision: str) -> None:
        self.tick()
        run = drawn.draw(st.sampled_from(self.held_runs()))
        for number, client in enumerate(self.clients):
            url = f"/v1/runs/group/{run.ids[number]}/removal"
            response = client.post(url, json={"decision": decision})
            assert response.status_code == 200, response.text
        if decision == "keep":
            run.removal, self.kept[run.job] = "kept", run.number
        else:
            run.removal = "pending"
            self.after_decision(run)

    def after_decision(self, run: Run) -> None:
        self.carry_out(run)

    @rule()
    def sweep(self) -> None:
        for service in self.services:
            service.sweep(self.clock)
        self.end_pending()

    # --- what clients see ---

    @invariant()
    def everything_equals_the_model(self) -> None:
        for number, client in enumerate(self.clients):
            self.compare_runs(number, client)
            self.compare_outputs(client)

    def compare_runs(self, number: int, client: Client) -> None:
        shown = client.get("/v1/runs/group", params={"limit": 1000}).json()["runs"][::-1]
        for run, found in zip(self.runs, shown, strict=True):
            if run.is_implicit and len(run.ids) <= number:
                run.ids.append(found["run_id"])
            assert found["run_id"] == run.ids[number]
            assert (found["job_id"], found["status"]) == (run.job, run.status)
            assert found["is_implicit"] == run.is_implicit
            if not run.is_pending:
                assert found["counts"] == run.counts
                assert found["removal"] == run.removal

    def compare_outputs(self, client: Client) -> None:
        items = client.items("group", limit=1000)
        found = {(one["root_job_id"], one["source_url"]): one["data"]["v"] for one in items}
        assert found == {key: one.value for key, one in self.outputs.items()}
        view = client.items("group", limit=1000, view="approved")
        assert {(one["root_job_id"], one["source_url"]): one["data"]["v"] for one in view} == {
            key: one.approved for key, one in self.outputs.items() if one.approved is not None
        }
        if not any(run.is_pending for run in self.runs):
            missing = client.items("group", limit=1000, missing="true")
            assert {(one["root_job_id"], one["source_url"]) for one in missing} == {
                key for key, one in self.outputs.items() if one.missed
            }
        self.compare_feed(client)

    def compare_feed(self, client: Client) -> None:
        """The feed leads to the outputs, and says why those are gone that were removed."""
        ids = self.ids[self.clients.index(client)]
        names = {output_id: key for key, output_id in ids.items()}
        last: dict[Key, tuple[str, str | None]] = {}
        for change in read_changes(client, limit=1000)["changes"]:
            last[names[change["output_id"]]] = (change["change"], change.get("reason"))
        present = {key for key, (change, _) in last.items() if change != "delete"}
        assert present == self.outputs.keys()
        reasons = {key: reason for key, (change, reason) in last.items() if change == "delete"}
        assert reasons == self.deleted


class InterruptedRuns(Runs):
    """The same, but a process dies after each request that would compare: the sweep goes on.

    So outputs are sent, deleted and reviewed while comparisons are pending.
    """

    def after_finish(self) -> None:
        pass

    def after_decision(self, run: Run) -> None:
        pass


@pytest.mark.parametrize("model", [Runs, InterruptedRuns])
def test_runs_equal_the_model(
    both: list[Service], clock: Clock, monkeypatch: pytest.MonkeyPatch, model: type[Runs]
) -> None:
    monkeypatch.setattr(comparison, "STEP", 2)
    monkeypatch.setattr(changing, "MAX_REMOVED", 1)
    monkeypatch.setattr(model, "services", both, raising=False)
    monkeypatch.setattr(model, "clock", clock, raising=False)
    if model is InterruptedRuns:
        monkeypatch.setattr(changing, "MAX_WAITED", -1)
        monkeypatch.setattr(changing.RunWork, "begin", lambda *_: None)
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        model,
        settings=settings(
            max_examples=EXAMPLES or 15,
            stateful_step_count=40 if EXAMPLES else 25,
            derandomize=not EXAMPLES,
            deadline=None,
            phases=(Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
        ),
    )
