"""Model-based test of runs: counts, missing outputs, removals, feeds and views equal the model.

Jobs are small, and most actions are whole runs: so outputs vanish, come back and are removed often.
A step compares two outputs or removes one. The service is killed between steps.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
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

from gleanery.service.resources.run_records import comparison
from gleanery.service.resources.runs import changing
from tests.support.interruptions import Feed, Killed, Killer, StoppedClock
from tests.support.runs_model import IDLE, TIMEOUT, Item, Key, Model, Run
from tests.support.service import Clock, Service
from tests.support.settings import fresh_settings

pytestmark = pytest.mark.thorough

# make model sets it, for a long run with other examples each time.
EXAMPLES = int(os.environ.get("GLEANERY_MODEL_EXAMPLES", "0"))
STEPS = 30 if EXAMPLES else 15
NAMES = "vwxyz"
JOBS = st.sampled_from("aab")
SOME = st.sets(st.sampled_from(NAMES), max_size=3).map(sorted)
FEW = st.sets(st.sampled_from(NAMES), min_size=1, max_size=2).map(sorted)
ITEMS = st.lists(st.builds(Item, st.sampled_from(NAMES), st.integers(0, 1)), min_size=1, max_size=4)
STATUSES = st.sampled_from(["complete", "complete", "complete", "partial", "failed"])
NUMBERS = st.integers(0, 99)
# Steps after which the service is killed; None if it goes on to the end.
KILLS = st.sampled_from([None, None, None, 0, 1, 2, 3, 4, 5])
# What happens to a few outputs while a run goes on, or while its comparison is interrupted.
IN_A_RUN = ["send", "change", "change", "share"]
AROUND_A_RUN = ["outside", "other", "delete", "delete", "approve", "approve", "reject", "pause"]
EVENTS = st.lists(st.sampled_from([*IN_A_RUN, *AROUND_A_RUN]), min_size=2, max_size=6)
# Milliseconds. A limit is a whole number of seconds: no sum of these is exactly a limit.
MOMENT = 1001
PAUSES = st.sampled_from([7, IDLE * 6 // 10 + 7, TIMEOUT * 6 // 10 + 7, TIMEOUT + 7, TIMEOUT + 7])
EVER = 1_000_000  # seconds; only the test sweeps


class Action(NamedTuple):
    """Something to do: how often, and with which arguments of the method."""

    weight: int
    arguments: dict[str, st.SearchStrategy[Any]]


# Not a rule each: an example would leave out most of them, and do the others too often.
ACTIONS = {
    "run_in_a_row": Action(
        4, {"job": JOBS, "vanished": FEW, "count": st.integers(1, 3), "kill": KILLS}
    ),
    "run_with_events": Action(
        6,
        {"job": JOBS, "names": FEW, "events": EVENTS, "vanished": SOME}
        | {"status": STATUSES, "kill": KILLS},
    ),
    "kill_with_events": Action(
        5,
        {"job": JOBS, "names": FEW, "events": EVENTS, "vanished": SOME, "kill": st.integers(0, 2)},
    ),
    "push_into_a_run": Action(
        2, {"number": NUMBERS, "items": ITEMS, "rejected": st.integers(0, 1)}
    ),
    "finish": Action(3, {"number": NUMBERS, "status": STATUSES, "kill": KILLS}),
    "use_an_ended_run": Action(1, {"number": NUMBERS, "status": STATUSES}),
    "decide": Action(
        3, {"number": NUMBERS, "decision": st.sampled_from(["remove", "keep"]), "kill": KILLS}
    ),
    "change_settings": Action(
        2,
        {
            "after_runs": st.sampled_from([1, 1, 2, 2, 3, None]),
            "max_share": st.sampled_from([1.0, 1.0, 0.5, 0.2, 0.0]),
        },
    ),
    "pause": Action(2, {"milliseconds": PAUSES}),
    "sweep": Action(2, {"milliseconds": PAUSES, "kill": KILLS}),
}


@pytest.fixture
def clock() -> Clock:
    return StoppedClock()


@pytest.fixture
def service(
    engine: str, request: pytest.FixtureRequest, tmp_path: Path, clock: Clock
) -> Iterator[Service]:
    settings = fresh_settings(engine, request, tmp_path)
    running = Service(replace(settings, sweep_seconds=EVER), clock)
    yield running
    running.stop()


@pytest.fixture
def killer(monkeypatch: pytest.MonkeyPatch) -> Killer:
    """Small steps, and none in the background, where the model does not know when they end."""
    killer = Killer()
    monkeypatch.setattr(comparison, "STEP", 2)
    monkeypatch.setattr(changing, "MAX_REMOVED", 1)
    monkeypatch.setattr(changing.RunWork, "begin", lambda *_: None)
    monkeypatch.setattr(comparison, "compare_some", killer.after(comparison.compare_some))
    return killer


def choose(runs: list[Run], number: int) -> Run:
    return runs[number % len(runs)]


def changes_of(response: dict[str, Any]) -> list[str]:
    """The changes of the elements that are not rejected."""
    return [result["change"] for result in response["results"] if result]


def machine(service: Service, clock: Clock, killer: Killer) -> type[RuleBasedStateMachine]:
    class Agreement(RuleBasedStateMachine):
        @initialize(
            after_runs=st.sampled_from([1, 2]), max_share=st.sampled_from([1.0, 1.0, 0.2, 0.0])
        )
        def begin(self, after_runs: int, max_share: float) -> None:
            self.model = Model()
            self.client = service.client()
            self.full, self.view = Feed(self.client), Feed(self.client, view="approved")
            self.keys: dict[str, Key] = {}
            """The outputs that were ever stored, by output_id."""
            self.batches = self.checks = 0
            for job in "ab":
                self.push(job, [Item(name, 0) for name in NAMES])
            self.change_settings(after_runs, max_share)

        def teardown(self) -> None:
            if hasattr(self, "client"):
                self.client.delete("/v1/groups/group")  # so no later sweep finds its runs
                self.client.close()

        def wait(self, milliseconds: int = MOMENT) -> None:
            clock.move(seconds=milliseconds / 1000)
            self.model.next_request(milliseconds)

        def send(self, path: str, *, method: str = "POST", **options: Any) -> Any:
            response = self.client.request(method, f"/v1/{path}", **options)
            assert response.status_code == 200, response.text
            return response.json()

        @rule(drawn=st.data())
        def act(self, drawn: st.DataObject) -> None:
            possible = {
                "push_into_a_run": bool(self.model.open_runs()),
                "finish": bool(self.model.open_runs()),
                "use_an_ended_run": bool(self.model.ended_runs()),
                "decide": bool(self.model.held_runs()),
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

        # --- whole runs -------------------------------------------------------------------------

        def run_in_a_row(self, job: str, vanished: list[str], count: int, kill: int | None) -> None:
            """Complete runs that send all outputs of the job but some."""
            for _ in range(count):
                run = self.start(job)
                self.send_stored(run, vanished)
                self.end(run, "complete", kill)
                self.check_runs()

        def run_with_events(
            self,
            job: str,
            names: list[str],
            events: list[str],
            vanished: list[str],
            status: str,
            kill: int | None,
        ) -> None:
            """A run during which something happens to some outputs of its job."""
            run = self.start(job)
            for event in events:
                self.happen(event, run, names)
            self.send_stored(run, vanished)
            self.end(run, status, kill)

        def kill_with_events(
            self, job: str, names: list[str], events: list[str], vanished: list[str], kill: int
        ) -> None:
            """A complete run whose comparison stops. Something happens to what it did not send."""
            run = self.start(job)
            self.send_stored(run, [*names, *vanished])
            self.end(run, "complete", kill)
            for event in events:
                self.happen(event, run, names)
            if kill:
                self.sweep(0, None)
            else:
                self.end_again(run, "complete")

        def happen(self, event: str, run: Run, names: list[str]) -> None:
            """Let something happen to outputs of the job. The run goes on, or it has ended."""
            stored = self.model.of_job(run.job)
            if event == "pause":
                self.wait(IDLE * 6 // 10 + 7)
            elif event in ("approve", "reject"):
                self.review(run.job, event == "approve")
            elif event == "delete":
                for name in names:
                    if name in stored:
                        self.delete(Key(run.job, name))
            else:
                values = {name: stored[name].value if name in stored else 0 for name in names}
                is_change = event == "change"
                items = [Item(name, int(value != is_change)) for name, value in values.items()]
                if event == "outside" or run.status != "running":
                    self.push(run.job, items)
                elif event == "other":
                    self.store(self.start(run.job), items)
                else:
                    self.store(run, items, is_shared=event == "share")

        def send_stored(self, run: Run, vanished: list[str]) -> None:
            """Send what the job has, but for some outputs, in two batches."""
            stored = self.model.of_job(run.job).items()
            items = [Item(name, output.value) for name, output in stored if name not in vanished]
            for some in (items[:2], items[2:]):
                if some:
                    self.store(run, some)

        # --- parts of runs ----------------------------------------------------------------------

        def start(self, job: str) -> Run:
            """Start a run, at the same time as what was before. Some requests are repeated."""
            self.wait(0)
            run = self.model.start(job)
            headers = {"Idempotency-Key": f"start-{len(self.model.runs)}"}
            for _ in range(1 + len(self.model.runs) % 2):
                shown = self.send("runs/group", json={"job_id": job}, headers=headers)
            run.run_id = shown["run_id"]
            return run

        def push(self, job: str, items: list[Item]) -> None:
            self.wait()
            self.store(self.model.implicit_run(job), items)

        def push_into_a_run(self, number: int, items: list[Item], rejected: int) -> None:
            self.store(choose(self.model.open_runs(), number), items, rejected)

        def store(
            self, run: Run, items: list[Item], rejected: int = 0, *, is_shared: bool = False
        ) -> None:
            """Send a batch. Some requests are repeated, or two workers send them together."""
            self.wait(0)
            body = [{"job_id": run.job, "source_url": n, "data": {"v": v}} for n, v in items]
            body += [{"job_id": run.job}] * rejected
            query = {"on_error": "skip"} | ({} if run.is_implicit else {"run_id": run.run_id})
            self.batches += 1
            changes = self.model.store(run, items, rejected)

            def send(worker: int) -> Any:
                headers = {"Idempotency-Key": f"batch-{self.batches}-{worker}"}
                return self.send("outputs/group", json=body, params=query, headers=headers)

            if is_shared:
                with ThreadPoolExecutor(2) as workers:
                    first, second = workers.map(send, range(2))
                found = sorted([changes_of(first), changes_of(second)])
                assert found == sorted([changes, ["unchanged"] * len(items)])
            else:
                first = send(0)
                assert changes_of(first) == changes
                assert self.batches % 3 or send(0) == first
            for item, result in zip(items, first["results"], strict=False):
                key = Key(run.job, item.name)
                assert self.keys.setdefault(result["output_id"], key) == key

        def finish(self, number: int, status: str, kill: int | None) -> None:
            run = choose(self.model.open_runs(), number)
            self.wait()
            if run.status == "running":
                self.end(run, status, kill)

        def end(self, run: Run, status: str, kill: int | None) -> None:
            self.wait(0)
            path = f"runs/group/{run.run_id}/finish"
            self.model.finish(run, status)
            self.run_steps(
                path, {"status": status}, [run.job] if status == "complete" else [], kill
            )

        def end_again(self, run: Run, status: str) -> None:
            """Repeat the finish of a run; another status is a conflict. The steps go on."""
            path = f"/v1/runs/group/{run.run_id}/finish"
            response = self.client.post(path, json={"status": status})
            assert response.status_code == (200 if status == run.status else 409)
            if status == run.status and "pending" in (run.comparison, run.removal):
                self.model.run_steps(run.job)

        def run_steps(self, path: str, body: Any, jobs: list[str], kill: int | None) -> None:
            """Send a request that ends with steps of jobs."""
            killer.steps = kill
            response = self.client.post(f"/v1/{path}", json=body)
            is_killed, killer.steps = killer.steps == 0, None
            assert response.status_code in ((200, 500) if is_killed else (200,)), response.text
            self.follow_steps(jobs, is_killed=response.status_code == 500)

        def follow_steps(self, jobs: list[str], *, is_killed: bool) -> None:
            for job in jobs:
                if is_killed:
                    shown = {run["run_id"]: run for run in self.read_runs()}
                    self.model.run_some_steps(job, shown, self.read_items().keys())
                else:
                    self.model.run_steps(job)

        def decide(self, number: int, decision: str, kill: int | None) -> None:
            self.wait()
            run = choose(self.model.held_runs(), number)
            self.model.decide(run, decision)
            jobs = [run.job] if decision == "remove" else []
            self.run_steps(f"runs/group/{run.run_id}/removal", {"decision": decision}, jobs, kill)

        def use_an_ended_run(self, number: int, status: str) -> None:
            self.wait()
            self.use(choose(self.model.ended_runs(), number), status)

        def pause(self, milliseconds: int) -> None:
            """Time passes, and runs are abandoned, although no process has written it yet."""
            running = self.model.open_runs()
            self.wait(milliseconds)
            for run in running:
                if run.status == "abandoned":
                    self.use(run, "complete")

        def use(self, run: Run, status: str) -> None:
            """Use an ended run: it takes no batch."""
            self.end_again(run, status)
            body = [{"job_id": run.job, "source_url": "v", "data": {"v": 2}}]
            query = {"run_id": run.run_id}
            response = self.client.post("/v1/outputs/group", json=body, params=query)
            assert response.status_code == 409

        # --- everything else --------------------------------------------------------------------

        def delete(self, key: Key) -> None:
            self.wait()
            ids = {key: output_id for output_id, key in self.keys.items()}
            self.send(f"outputs/group/{ids[key]}", method="DELETE")
            self.model.delete(key)

        def review(self, job: str, is_approved: bool) -> None:
            self.wait()
            status = "approved" if is_approved else "rejected"
            self.send("reviews/group", json={"job_id": job, "status": status, "comment": ""})
            self.model.review(job, is_approved=is_approved)

        def change_settings(self, after_runs: int | None, max_share: float) -> None:
            self.wait()
            missing = {"after_runs": after_runs, "max_share": max_share}
            self.send("groups/group", method="PUT", json={"missing": missing})
            self.model.after_runs, self.model.max_share = after_runs, max_share

        def sweep(self, milliseconds: int, kill: int | None) -> None:
            """Time passes, and a process goes on with what others have left."""
            self.wait(milliseconds)
            killer.steps, is_killed = kill, False
            try:
                service.sweep(clock)
            except* Killed:
                is_killed = True
            killer.steps = None
            self.follow_steps(["a", "b"], is_killed=is_killed)

        # --- what clients see -------------------------------------------------------------------

        @invariant()
        def everything_equals_the_model(self) -> None:
            self.check_runs()
            outputs = self.model.outputs
            values = {key: output.value for key, output in outputs.items()}
            in_view = {
                key: output.approved
                for key, output in outputs.items()
                if output.approved is not None
            }
            self.checks += 1
            if self.checks % 3 == 0:  # they show the same as the feeds
                assert self.read_items() == values
                assert self.read_items(view="approved") == in_view
            self.check_feed(self.full, values, self.model.gone)
            self.check_feed(self.view, in_view, self.model.gone_from_view)
            if not any(run.comparison == "pending" for run in self.model.runs):
                missing = {key for key, output in outputs.items() if output.missed}
                assert self.read_items(missing="true").keys() == missing

        def check_runs(self) -> None:
            for run, shown in zip(self.model.runs, self.read_runs(), strict=True):
                run.run_id = run.run_id or shown["run_id"]
                assert (shown["run_id"], shown["job_id"]) == (run.run_id, run.job)
                assert (shown["status"], shown["is_implicit"]) == (run.status, run.is_implicit)
                assert (shown["comparison"], shown["removal"]) == (run.comparison, run.removal)
                if run.comparison != "pending":
                    assert (shown["counts"], shown["removable"]) == (run.counts, run.removable)

        def check_feed(
            self, feed: Feed, values: dict[Key, int], gone: dict[Key, str | None]
        ) -> None:
            feed.follow()
            assert {self.keys[one]: value for one, value in feed.values.items()} == values
            assert {self.keys[one]: reason for one, reason in feed.gone.items()} == gone

        def read_runs(self) -> list[dict[str, Any]]:
            """The runs, oldest first."""
            page = self.send("runs/group", method="GET", params={"limit": 1000})
            runs: list[dict[str, Any]] = page["runs"][::-1]
            return runs

        def read_items(self, **query: str) -> dict[Key, int]:
            items = self.client.items("group", limit=1000, **query)
            return {
                Key(item["root_job_id"], item["source_url"]): item["data"]["v"] for item in items
            }

    return Agreement


def test_runs_equal_the_model(service: Service, clock: Clock, killer: Killer) -> None:
    run_state_machine_as_test(
        machine(service, clock, killer),
        settings=settings(
            max_examples=EXAMPLES or 14,
            stateful_step_count=STEPS,
            deadline=None,
            derandomize=not EXAMPLES,
            # A smaller example is worth minutes only in the long run.
            phases=(Phase.generate, *([Phase.shrink] if EXAMPLES else [])),
            suppress_health_check=list(HealthCheck),
        ),
    )
