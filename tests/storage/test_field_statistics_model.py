"""The statistics equal a recount, after random operations and in batches of any size."""

from __future__ import annotations

import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from tests.support.console import ConsoleClient
from tests.support.service import Client, Clock, Service
from tests.support.settings import fresh_settings

pytestmark = pytest.mark.thorough

JOBS, KEYS = st.sampled_from("ab"), st.sampled_from("wxyz")
VALUES = st.sampled_from([None, True, 1, 2.5, "", "text", [], [1], {}, {"c": 1}, {"c": ""}])
DATA = st.dictionaries(st.sampled_from("de"), VALUES, max_size=2)
IDLE_SECONDS = 31 * 60
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


def machine(services: list[Service], clock: Clock) -> type[RuleBasedStateMachine]:
    class Recount(RuleBasedStateMachine):
        @initialize()
        def begin(self) -> None:
            self.stored: dict[tuple[str, str], dict[str, Any]] = {}
            self.seen: dict[str, dict[Any, dict[str, Any]]] = {}
            self.clients: list[Client] = [service.client() for service in services]
            self.ids: list[dict[tuple[str, str], str]] = [{} for _ in services]
            self.store([("a", "w", {})])

        @rule(batch=st.lists(st.tuples(JOBS, KEYS, DATA), min_size=1, max_size=5))
        def store(self, batch: list[tuple[str, str, dict[str, Any]]]) -> None:
            for job, key, data in batch:
                self.stored[job, key] = data
                self.seen.setdefault(job, {})[key, 0] = data
            body = [{"job_id": j, "source_url": k, "data": data} for j, k, data in batch]
            for client, ids in zip(self.clients, self.ids, strict=True):
                for one, result in zip(batch, client.store("group", *body)["results"], strict=True):
                    ids[one[:2]] = result["output_id"]

        @rule()
        def scrape_again(self) -> None:
            self.store([(*key, data) for key, data in self.stored.items()])

        @rule(job=JOBS, key=KEYS)
        def delete(self, job: str, key: str) -> None:
            if self.stored.pop((job, key), None) is not None:
                for client, ids in zip(self.clients, self.ids, strict=True):
                    client.delete(f"/v1/outputs/group/{ids[job, key]}")
                seen = self.seen.get(job, {})
                if (key, 0) in seen:  # the scrape has seen it, and counts it again if it returns
                    seen[key, object()] = seen.pop((key, 0))

        @rule()
        def pause(self) -> None:
            clock.move(seconds=IDLE_SECONDS)
            self.seen = {}

        @rule(job=JOBS)
        def delete_job(self, job: str) -> None:
            for client in self.clients:
                client.delete(f"/v1/groups/group/jobs/{job}")
            self.stored = {key: data for key, data in self.stored.items() if key[0] != job}
            self.seen.pop(job, None)

        @invariant()
        def statistics_equal_a_recount(self) -> None:
            for client in self.clients:
                found = client.get("/v1/groups/group/fields").json()
                assert found["outputs"] == found["counted_outputs"] == len(self.stored)
                kinds = {field["path"]: field["kinds"] for field in found["fields"]}
                assert kinds == count([*self.stored.values()])
                newest = dict[str, Any]()
                for scrape in found["scrapes"]:
                    newest.setdefault(scrape["job_id"], scrape)
                for job, seen in self.seen.items():
                    kinds = {field["path"]: field["kinds"] for field in newest[job]["fields"]}
                    assert kinds == count([*seen.values()])

    return Recount


def test_the_statistics_equal_a_recount(both: list[Service], clock: Clock) -> None:
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        machine(both, clock),
        settings=settings(
            max_examples=10,
            stateful_step_count=10,
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


def answers(service: Service, values: list[dict[str, Any]], sizes: list[int]) -> Any:
    """What the service says about these outputs, stored in batches of these sizes."""
    with service.client() as client:
        body = [
            {"job_id": "job", "source_url": f"https://shop.example/{number}", "data": data}
            for number, data in enumerate(values)
        ]
        for size in (*sizes, len(body)):
            if body:
                client.store("group", *body[:size])
                body = body[size:]
        fields = client.get("/v1/groups/group/fields").json()
        for scrape in fields["scrapes"]:
            del scrape["started"], scrape["last_seen"]
        query = {"job_id": "job", "seed": "s", "size": 40}
        sample = client.get("/v1/reviews/group/sample", params=query).json()["sample"]
        chosen = [(one["output"]["source_url"], one["reason"], one["detail"]) for one in sample]
        assert client.token is not None
        with ConsoleClient(service.url, client.token) as console:
            shown = console.get("/console/api/sample/group", params=query).json()["sample"]
            assert [(o["source_url"], o["reason"], o["detail"]) for o in shown] == chosen
        return fields, chosen


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(values=records(), sizes=st.lists(st.integers(1, 60), max_size=8))
def test_batches_of_any_size_give_the_same_results(
    service: Service, values: list[dict[str, Any]], sizes: list[int]
) -> None:
    assert answers(service, values, sizes) == answers(service, values, [])
