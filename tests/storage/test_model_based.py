"""Model-based test: a dictionary, SQLite and PostgreSQL agree after random operations."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from tests.support.service import Client, Clock, Service
from tests.support.settings import fresh_settings

pytestmark = pytest.mark.thorough

JOBS, KEYS, VALUES = st.sampled_from("ab"), st.sampled_from("xyz"), st.integers(0, 2)
DAY = 86_400
EVER = 1_000_000  # the triggers of the audit log use the real clock, which the test does not move


@pytest.fixture(scope="module")
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="module")
def both(request: pytest.FixtureRequest, clock: Clock) -> Iterator[list[Service]]:
    with tempfile.TemporaryDirectory() as folder:
        services = [
            Service(replace(fresh_settings(engine, request, Path(folder)), audit_days=EVER), clock)
            for engine in ("sqlite", "postgres")
        ]
        yield services
        for service in services:
            service.stop()


class Reader:
    """A client that follows the feed, and starts again after a 410."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._cursor = 0
        self.copy: dict[str, tuple[Any, ...]] = {}

    def catch_up(self, limit: int, applied: int) -> None:
        """Reads all changes. Of the first page it applies only some, and continues from there."""
        while True:
            query = {"cursor": self._cursor, "limit": limit}
            answer = self._client.get("/v1/changes/group", params=query)
            if answer.status_code == 410:
                self._cursor, self.copy = 0, {}
                continue
            assert answer.status_code == 200, answer.text
            page = answer.json()
            changes = page["changes"][:applied]
            for change in changes:
                if change["change"] == "delete":
                    self.copy.pop(change["output_id"], None)
                else:
                    self.copy[change["output_id"]] = seen(change["output"])
            if len(changes) < len(page["changes"]):
                self._cursor, applied = changes[-1]["cursor"], limit + 1000
                continue
            self._cursor = page["cursor"]
            if page["metadata"]["next_cursor"] is None:
                return


def seen(item: dict[str, Any]) -> tuple[Any, ...]:
    return item["root_job_id"], item["source_url"], item["data"]["v"], item["is_approved"]


def machine(services: list[Service], clock: Clock) -> type[RuleBasedStateMachine]:
    class Agreement(RuleBasedStateMachine):
        @initialize()
        def begin(self) -> None:
            self.model: dict[tuple[str, str], list[Any]] = {}  # in the change order
            self.clients = [service.client() for service in services]
            self.readers = [Reader(client) for client in self.clients]
            self.store([("a", "x", 0)])

        def every(self, method: str, path: str, **options: Any) -> list[Any]:
            answers = [client.request(method, path, **options) for client in self.clients]
            assert len({answer.status_code for answer in answers}) == 1
            return answers

        @rule(batch=st.lists(st.tuples(JOBS, KEYS, VALUES), min_size=1, max_size=6))
        def store(self, batch: list[tuple[str, str, int]]) -> None:
            expected = []
            for job, key, value in batch:
                known = self.model.get((job, key))
                if known is None:
                    self.model[job, key] = [value, False]
                    expected.append("created")
                elif known[0] == value:
                    expected.append("unchanged")
                else:
                    del self.model[job, key]
                    self.model[job, key] = [value, False]
                    expected.append("updated")
            body = [{"job_id": j, "source_url": k, "data": {"v": v}} for j, k, v in batch]
            for answer in self.every("POST", "/v1/outputs/group", json=body):
                assert [result["change"] for result in answer.json()["results"]] == expected

        @rule(job=JOBS, key=KEYS)
        def delete(self, job: str, key: str) -> None:
            existed = self.model.pop((job, key), None) is not None
            for client in self.clients:
                items = client.items("group", job_id=job, url=key) if existed else []
                for item in items:
                    path = f"/v1/outputs/group/{item['output_id']}"
                    assert client.delete(path).status_code == 200
                assert len(items) == int(existed)

        @rule(job=JOBS, status=st.sampled_from(["approved", "rejected", "pending"]))
        def review(self, job: str, status: str) -> None:
            if not any(of == job for of, _ in self.model):
                return
            self.every("POST", "/v1/reviews/group", json={"job_id": job, "status": status})
            wanted = {"approved": True, "rejected": False}.get(status)
            for name, known in list(self.model.items()):
                if name[0] == job and wanted is not None and known[1] != wanted:
                    del self.model[name]
                    self.model[name] = [known[0], wanted]

        @rule(job=JOBS)
        def delete_job(self, job: str) -> None:
            self.every("DELETE", f"/v1/groups/group/jobs/{job}")
            for name in [name for name in self.model if name[0] == job]:
                del self.model[name]

        @rule(days=st.integers(1, 40))
        def time_passes(self, days: int) -> None:
            clock.move(seconds=days * DAY)
            for service in services:
                service.sweep(clock)

        @rule(limit=st.integers(1, 7), applied=st.integers(1, 7))
        def follow(self, limit: int, applied: int) -> None:
            expected = Counter((*name, *known) for name, known in self.model.items())
            for reader in self.readers:
                reader.catch_up(limit, applied)
                assert Counter(reader.copy.values()) == expected

        @invariant()
        def pages_are_the_model_in_its_order(self) -> None:
            expected = [(*name, *known) for name, known in self.model.items()]
            for client in self.clients:
                assert [seen(item) for item in client.items("group", limit=3)] == expected

        @rule(approved=st.booleans(), job=st.none() | JOBS)
        def filter_by_approval(self, approved: bool, job: str | None) -> None:
            expected = [
                (*name, *known)
                for name, known in self.model.items()
                if known[1] == approved and job in (None, name[0])
            ]
            query = {"approved": "true" if approved else "false"} | ({"job_id": job} if job else {})
            for client in self.clients:
                assert [seen(item) for item in client.items("group", limit=2, **query)] == expected

        @invariant()
        def counts_are_true(self) -> None:
            jobs = Counter(job for job, _ in self.model)
            for client in self.clients:
                group = client.get("/v1/groups/group").json()
                assert group["outputs"] == len(self.model)
                assert {j["job_id"]: j["outputs"] for j in group["jobs"] if j["outputs"]} == jobs

        def teardown(self) -> None:
            for client in self.clients:
                client.close()

    return Agreement


def test_the_model_and_both_engines_agree(both: list[Service], clock: Clock) -> None:
    run_state_machine_as_test(
        machine(both, clock),
        settings=settings(
            max_examples=12,
            stateful_step_count=20,
            deadline=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
