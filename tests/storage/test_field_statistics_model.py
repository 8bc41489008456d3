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


class Recount(RuleBasedStateMachine):
    """Stores and deletes the same on both engines, and counts the outputs in the plainest way."""

    services: list[Service]
    clock: Clock

    @initialize()
    def begin(self) -> None:
        self.stored: dict[tuple[str, str], dict[str, Any]] = {}
        self.seen: dict[str, dict[str, dict[str, Any]]] = {}
        self.clients: list[Client] = [service.client() for service in self.services]
        self.ids: list[dict[tuple[str, str], str]] = [{} for _ in self.services]
        self.names = 0
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
        self, batch: list[tuple[str, str, dict[str, Any]]], body: list[Any], **query: str
    ) -> None:
        for job, key, data in batch:
            self.stored[job, key] = data
            self.seen.setdefault(job, {})[key] = data
        for client, ids in zip(self.clients, self.ids, strict=True):
            answer = client.post("/v1/outputs/group", json=body, params=query)
            assert answer.status_code == 200, answer.text
            for one, result in zip(batch, answer.json()["results"], strict=True):
                ids[one[:2]] = result["output_id"]

    @precondition(lambda self: self.stored)
    @rule()
    def scrape_again(self) -> None:
        self.store([(*key, data) for key, data in self.stored.items()])

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
            self.compare(found["fields"], [*self.stored.values()])
            newest = dict[str, Any]()
            for scrape in found["scrapes"]:
                newest.setdefault(scrape["job_id"], scrape)
            for job, seen in self.seen.items():
                self.compare_scrape(newest[job], [*seen.values()])
            for job in {key[0] for key in self.stored}:
                sample = client.get("/v1/reviews/group/sample", params={"job_id": job})
                assert sample.status_code == 200, sample.text

    def compare_scrape(self, scrape: dict[str, Any], values: list[dict[str, Any]]) -> None:
        assert scrape["outputs"] == len(values)
        self.compare(scrape["fields"], values)

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

    def compare_scrape(self, scrape: dict[str, Any], values: list[dict[str, Any]]) -> None:
        """A scrape counts an output again that returns after its fields were forgotten."""
        assert scrape["outputs"] >= len(values)


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


def answers(service: Service, scrapes: list[list[dict[str, Any]]], sizes: list[int]) -> Any:
    """What the service says about these outputs, stored in batches of these sizes."""
    with service.client() as client:
        for values in scrapes:
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
@given(
    scrapes=st.lists(records(), min_size=1, max_size=3),
    sizes=st.lists(st.integers(1, 60), max_size=8),
)
def test_batches_of_any_size_give_the_same_results(
    service: Service, scrapes: list[list[dict[str, Any]]], sizes: list[int]
) -> None:
    assert answers(service, scrapes, sizes) == answers(service, scrapes, [])
