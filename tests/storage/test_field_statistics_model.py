"""The statistics equal a recount, after random operations and in batches of any size."""

from __future__ import annotations

import json
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from gleanery.service.resources.fields import job_fields
from tests.support.console import ConsoleClient
from tests.support.service import Client, Clock, Service
from tests.support.settings import fresh_settings

pytestmark = pytest.mark.thorough

JOBS, KEYS = st.sampled_from("ab"), st.sampled_from("uvwxyz")
VALUES = st.sampled_from([None, True, 1, 2.5, "", "text", [], [1], {}, {"c": 1}, {"c": ""}])
DATA = st.dictionaries(st.sampled_from("defg"), VALUES, max_size=4)
BATCHES = st.lists(st.tuples(JOBS, KEYS, DATA), min_size=1, max_size=8)
STATUSES = st.sampled_from(["complete", "partial", "failed"])
IDLE_SECONDS = 31 * 60
SHOWN_RUNS = 10
CHANGES = ("unchanged", "updated", "created")  # the strongest last
KINDS = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array"}


def kinds_of(data: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The fields of a value with their kinds, counted in the plainest way."""
    for name, value in data.items():
        yield name, kind_of(value)
        if isinstance(value, dict):
            for inner, inner_value in value.items():
                yield f"{name}.{inner}", kind_of(inner_value)


def kind_of(value: Any) -> str:
    if value is None:
        return "null"
    kind = KINDS.get(type(value), "object")
    is_empty = isinstance(value, str | list | dict) and not value
    return f"empty_{kind}" if is_empty else kind


def count(values: list[dict[str, Any]]) -> dict[str, dict[str, int]]:
    counts = defaultdict[str, Counter[str]](Counter)
    for data in values:
        for path, kind in kinds_of(data):
            counts[path][kind] += 1
    return {path: dict(kinds) for path, kinds in counts.items()}


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def both(request: pytest.FixtureRequest, clock: Clock) -> Iterator[list[Service]]:
    with tempfile.TemporaryDirectory() as folder:
        services = [
            Service(fresh_settings(engine, request, Path(folder)), clock)
            for engine in ("sqlite", "postgres")
        ]
        yield services
        for service in services:
            service.stop()


class Run:
    """What a run has sent: the last value of each output, and its strongest change."""

    def __init__(self, job: str, ids: Sequence[str] | None = None) -> None:
        self.job = job
        self.ids = ids
        """Its ``run_id`` in each service; None if nobody has started it."""
        self.status = "running"
        self.values: dict[str, dict[str, Any]] = {}
        self.changes: dict[str, int] = {}

    def add(self, key: str, before: dict[str, Any] | None, data: dict[str, Any]) -> None:
        """Add an output with the value that was stored before, or None."""
        is_same = json.dumps(before, sort_keys=True) == json.dumps(data, sort_keys=True)
        change = 2 if before is None else 0 if is_same else 1
        self.changes[key] = max(change, self.changes.get(key, 0))
        self.values[key] = data

    @property
    def counts(self) -> dict[str, int]:
        counts = Counter(CHANGES[change] for change in self.changes.values())
        return {change: counts[change] for change in CHANGES}


class Recount(RuleBasedStateMachine):
    """Stores and deletes the same on both engines, and counts the outputs in the plainest way."""

    services: list[Service]
    clock: Clock

    @initialize()
    def begin(self) -> None:
        self.stored: dict[tuple[str, str], dict[str, Any]] = {}
        self.implicit: dict[str, Run] = {}
        """The implicit run of each job that goes on."""
        self.started: list[Run] = []
        self.clients: list[Client] = [service.client() for service in self.services]
        self.ids: list[dict[tuple[str, str], str]] = [{} for _ in self.services]
        self.names = 0
        for client in self.clients:
            client.put("/v1/groups/group", json={"run_timeout_minutes": 30 * 24 * 60})
        self.store([("a", "w", {})])

    @rule(batch=BATCHES)
    def store(self, batch: list[tuple[str, str, dict[str, Any]]]) -> None:
        body = [{"job_id": job, "source_url": key, "data": data} for job, key, data in batch]
        self.post(batch, body)

    @rule(job=JOBS, items=st.lists(st.tuples(KEYS, DATA), min_size=1, max_size=4))
    def store_bare_items(self, job: str, items: list[tuple[str, dict[str, Any]]]) -> None:
        bare = [{**data, "url": key} for key, data in items]
        batch = [(job, item["url"], item) for item in bare]
        self.post(batch, bare, job_id=job, url_field="url")

    @rule(job=JOBS, number=st.integers(1, 40))
    def store_many_sets(self, job: str, number: int) -> None:
        """Stores values with names that no value had before."""
        self.names += number
        numbers = range(self.names - number, self.names)
        self.store([(job, f"many {n % 5}", {f"n{n}": n, "d": {f"m{n}": ""}}) for n in numbers])

    def post(
        self,
        batch: list[tuple[str, str, dict[str, Any]]],
        body: list[Any],
        run: Run | None = None,
        **query: str,
    ) -> None:
        for job, key, data in batch:
            of_job = run or self.implicit.setdefault(job, Run(job))
            of_job.add(key, self.stored.get((job, key)), data)
            self.stored[job, key] = data
        for number, (client, ids) in enumerate(zip(self.clients, self.ids, strict=True)):
            if run is not None:
                assert run.ids is not None
                query["run_id"] = run.ids[number]
            answer = client.post("/v1/outputs/group", json=body, params=query)
            assert answer.status_code == 200, answer.text
            for one, result in zip(batch, answer.json()["results"], strict=True):
                ids[one[:2]] = result["output_id"]

    @precondition(lambda self: self.stored)
    @rule()
    def store_all_again(self) -> None:
        self.store([(*key, data) for key, data in self.stored.items()])

    @property
    def running(self) -> list[Run]:
        return [run for run in self.started if run.status == "running"]

    @rule(job=JOBS)
    def start_run(self, job: str) -> None:
        ids = []
        for client in self.clients:
            answer = client.post("/v1/runs/group", json={"job_id": job})
            assert answer.status_code == 200, answer.text
            ids.append(answer.json()["run_id"])
        self.started.append(Run(job, ids))

    @precondition(lambda self: self.running)
    @rule(drawn=st.data(), values=st.lists(st.tuples(KEYS, DATA), min_size=1, max_size=6))
    def store_in_run(self, drawn: st.DataObject, values: list[tuple[str, dict[str, Any]]]) -> None:
        run = drawn.draw(st.sampled_from(self.running))
        self.store_values_in_run(run, values)

    @precondition(lambda self: self.running and self.stored)
    @rule(drawn=st.data())
    def store_all_again_in_run(self, drawn: st.DataObject) -> None:
        run = drawn.draw(st.sampled_from(self.running))
        found = [(key, data) for (job, key), data in self.stored.items() if job == run.job]
        self.store_values_in_run(run, found)

    def store_values_in_run(self, run: Run, values: list[tuple[str, dict[str, Any]]]) -> None:
        body = [{"job_id": run.job, "source_url": key, "data": data} for key, data in values]
        self.post([(run.job, *one) for one in values], body, run)

    @precondition(lambda self: self.running)
    @rule(drawn=st.data(), status=STATUSES)
    def finish_run(self, drawn: st.DataObject, status: str) -> None:
        run = drawn.draw(st.sampled_from(self.running))
        assert run.ids is not None
        for client, run_id in zip(self.clients, run.ids, strict=True):
            answer = client.post(f"/v1/runs/group/{run_id}/finish", json={"status": status})
            assert answer.status_code == 200, answer.text
        run.status = status

    @precondition(lambda self: self.stored)
    @rule(drawn=st.data())
    def delete(self, drawn: st.DataObject) -> None:
        self.delete_one(drawn)

    def delete_one(self, drawn: st.DataObject) -> tuple[str, str, dict[str, Any]]:
        key = drawn.draw(st.sampled_from(sorted(self.stored)))
        for client, ids in zip(self.clients, self.ids, strict=True):
            assert client.delete(f"/v1/outputs/group/{ids[key]}").status_code == 200
        return (*key, self.stored.pop(key))

    @precondition(lambda self: self.stored)
    @rule(drawn=st.data(), data=st.none() | DATA)
    def delete_and_store_again(self, drawn: st.DataObject, data: dict[str, Any] | None) -> None:
        job, key, deleted = self.delete_one(drawn)
        self.store([(job, key, deleted if data is None else data)])

    @rule()
    def pause(self) -> None:
        self.clock.move(seconds=IDLE_SECONDS)
        self.implicit = {}

    @rule(job=JOBS)
    def delete_job(self, job: str) -> None:
        for client in self.clients:
            client.delete(f"/v1/groups/group/jobs/{job}")
        self.stored = {key: data for key, data in self.stored.items() if key[0] != job}
        self.implicit.pop(job, None)
        self.started = [run for run in self.started if run.job != job]

    @invariant()
    def statistics_equal_a_recount(self) -> None:
        for number, client in enumerate(self.clients):
            found = client.get("/v1/groups/group/fields").json()
            assert found["outputs"] == found["counted_outputs"] == len(self.stored)
            self.compare(found["fields"], [*self.stored.values()])
            for job in "ab":
                self.compare_runs(client, job, self.expected_runs(client, number, job))
            for job in {key[0] for key in self.stored}:
                sample = client.get("/v1/reviews/group/sample", params={"job_id": job})
                assert sample.status_code == 200, sample.text

    def expected_runs(self, client: Client, number: int, job: str) -> dict[str, Run]:
        """Return the runs of a job by the ids of this service, except implicit ones that ended."""
        expected = {run.ids[number]: run for run in self.started if run.job == job and run.ids}
        if job in self.implicit:
            listed = client.get("/v1/runs/group", params={"job_id": job}).json()["runs"]
            [run_id] = [
                run["run_id"] for run in listed if run["is_implicit"] and run["status"] == "running"
            ]
            expected[run_id] = self.implicit[job]
        return expected

    def compare_runs(self, client: Client, job: str, expected: dict[str, Run]) -> None:
        for run_id, run in expected.items():
            shown = client.get(f"/v1/runs/group/{run_id}").json()
            assert shown["status"] == run.status
            assert {change: shown["counts"][change] for change in CHANGES} == run.counts
        answer = client.get("/v1/groups/group/fields", params={"job_id": job})
        shown_runs = answer.json()["runs"] if answer.status_code == 200 else []
        for found in shown_runs:  # the newest ones
            if found["run_id"] in expected:
                values = [*expected.pop(found["run_id"]).values.values()]
                assert found["outputs"] == len(values)
                self.compare_run(found["fields"], values)
        assert not expected or len(shown_runs) == SHOWN_RUNS

    def compare_run(self, fields: list[dict[str, Any]], values: list[dict[str, Any]]) -> None:
        self.compare(fields, values)

    def compare(self, fields: list[dict[str, Any]], values: list[dict[str, Any]]) -> None:
        assert {field["path"]: field["kinds"] for field in fields} == count(values)


class RecountWithFewNames(Recount):
    """The same with jobs that list few fields: what they list is never too much."""

    def compare(self, fields: list[dict[str, Any]], values: list[dict[str, Any]]) -> None:
        expected = count(values)
        for field in fields:
            kinds = expected[field["path"]]
            assert all(number <= kinds[kind] for kind, number in field["kinds"].items())
        if not values:
            assert fields == []

    def compare_run(self, fields: list[dict[str, Any]], values: list[dict[str, Any]]) -> None:
        """The fields of an output that returns may have been forgotten: nothing is exact."""


@pytest.mark.parametrize(("model", "names"), [(Recount, 512), (RecountWithFewNames, 5)])
def test_the_statistics_equal_a_recount(
    both: list[Service],
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    model: type[Recount],
    names: int,
) -> None:
    monkeypatch.setattr(job_fields, "MAX_NAMES", {0: 1, 1: names, 2: names})
    monkeypatch.setattr(model, "services", both, raising=False)
    monkeypatch.setattr(model, "clock", clock, raising=False)
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        model,
        settings=settings(
            max_examples=15,
            stateful_step_count=20,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


# --- batches of any size --------------------------------------------------------------------------

NUMBERS = (
    st.integers(-(10**6), 10**6)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from([0, 100, 99_999, 2**53 + 1, -(2**64) - 1, 10**30, 10**400, -(10**320)])
)
MEMBERS = st.none() | st.booleans() | NUMBERS | st.text(max_size=40) | st.lists(st.none())
RECORD = st.dictionaries(
    st.sampled_from("abcd"),
    MEMBERS | st.dictionaries(st.sampled_from("ef"), MEMBERS, max_size=2),
    max_size=4,
)


@st.composite
def records(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Values of up to 130 outputs, of which many are alike and few are not."""
    common = draw(RECORD)
    count = draw(st.sampled_from([1, 2, 30, 60, 130]))
    values = [common | {"a": draw(st.sampled_from([100, 101]))} for _ in range(count)]
    for position in draw(st.lists(st.integers(0, count - 1), max_size=6)):
        values[position] = draw(RECORD | NUMBERS.map(lambda number: common | {"a": number}))
    return values


def answers(service: Service, rounds: list[list[dict[str, Any]]], sizes: list[int]) -> Any:
    """What the service says about these outputs, stored in batches of these sizes."""
    with service.client() as client:
        for values in rounds:
            body = [
                {"job_id": "job", "source_url": f"https://shop.example/{number}", "data": data}
                for number, data in enumerate(values)
            ]
            for size in (*sizes, len(body)):
                if body:
                    client.store("group", *body[:size])
                    body = body[size:]
        fields = client.get("/v1/groups/group/fields").json()
        for run in fields["runs"]:
            del run["run_id"], run["start_date"], run["last_date"]
        query = {"job_id": "job", "seed": "s", "size": 40}
        sample = client.get("/v1/reviews/group/sample", params=query).json()["sample"]
        chosen = [(one["output"]["source_url"], one["reason"], one["detail"]) for one in sample]
        assert client.token is not None
        with ConsoleClient(service.url, client.token) as console:
            shown = console.get("/console/api/sample/group", params=query).json()["sample"]
            assert [(o["source_url"], o["reason"], o["detail"]) for o in shown] == chosen
        return fields, chosen


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    rounds=st.lists(records(), min_size=1, max_size=3),
    sizes=st.lists(st.integers(1, 60), max_size=8),
)
def test_batches_of_any_size_give_the_same_results(
    service: Service, rounds: list[list[dict[str, Any]]], sizes: list[int]
) -> None:
    assert answers(service, rounds, sizes) == answers(service, rounds, [])
