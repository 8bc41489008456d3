"""The work that runs do under the lock of a group is bounded, whatever a job or a batch has."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import apsw
import pytest

from gleanery.service.foundation.security import tokens
from gleanery.service.foundation.values import timestamps
from gleanery.service.maintenance import organization_removal
from gleanery.service.resources.access.organizations import find_grant
from gleanery.service.resources.fields import batch_runs, job_fields
from gleanery.service.resources.outputs import bulk_jobs
from gleanery.service.resources.run_records import comparison
from gleanery.service.resources.runs import changing
from gleanery.service.storage.database import Statement
from gleanery.service.storage.engines import open_engine
from gleanery.service.storage.postgres.transactions import PostgresTransaction
from gleanery.service.storage.sqlite.connections import to_sqlite
from gleanery.service.storage.sqlite.writer import _SqliteTransaction
from tests.support.bulk_jobs import create_bulk_job, run_bulk_job_step
from tests.support.history import read_rows
from tests.support.outputs import output
from tests.support.service import Client, Service
from tests.support.settings import fresh_settings

COUNT_SIGHTINGS = "SELECT count(*), count(fields) FROM run_sightings WHERE organization_id = $1"
LARGE = 300 * 1024
PAGE_SIZE = 4096


def start(client: Client, job: str = "job") -> str:
    return str(client.post("/v1/runs/group", json={"job_id": job}).json()["run_id"])


def push(client: Client, run_id: str, *outputs: dict[str, Any]) -> None:
    response = client.post(f"/v1/outputs/group?run_id={run_id}", json=outputs)
    assert response.status_code == 200, response.text


def finish(client: Client, run_id: str) -> dict[str, int]:
    response = client.post(f"/v1/runs/group/{run_id}/finish", json={"status": "complete"})
    assert response.status_code == 200, response.text
    return counts(response.json())


def show(client: Client, run_id: str) -> dict[str, int]:
    return counts(client.get(f"/v1/runs/group/{run_id}").json())


def counts(run: dict[str, Any]) -> dict[str, int]:
    return {name: count for name, count in run["counts"].items() if count}


class Statements:
    """The statements of transactions: how often each ran, and the rows that it found."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.runs = Counter[Statement]()
        self.rows = Counter[Statement]()
        for owner in (_SqliteTransaction, PostgresTransaction):
            for method in ("fetch", "fetch_many", "execute_many"):
                self._watch(monkeypatch, owner, method)
            self._watch(monkeypatch, owner, "fetch_by_keys", position=1)

    def _watch(
        self, monkeypatch: pytest.MonkeyPatch, owner: type, method: str, position: int = 0
    ) -> None:
        original = getattr(owner, method)

        async def run(transaction: Any, *arguments: Any) -> Any:
            found = await original(transaction, *arguments)
            self.runs[arguments[position]] += 1
            self.rows[arguments[position]] += len(found or ())
            return found

        monkeypatch.setattr(owner, method, run)


# --- sightings ----------------------------------------------------------------------------------


def overlap(client: Client, numbers: range) -> tuple[str, str]:
    """Two runs that go on. Both have sent the outputs, so the first one has sightings of them."""
    first, second = start(client), start(client)
    for run_id in (first, second):
        push(client, run_id, *map(output, numbers))
    return first, second


def test_a_deleted_job_forgets_sightings_in_steps(
    client: Client, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run counts outputs that return between two steps once."""
    monkeypatch.setattr(bulk_jobs, "_BATCH_SIZE", 2)
    first, _ = overlap(client, range(5))
    assert client.token is not None
    create_bulk_job(service, client.token, "delete")
    left = 5
    while left > 3:
        run_bulk_job_step(service, client.token)
        [[now, _]] = read_rows(service, client, COUNT_SIGHTINGS)
        assert left - now <= 2
        left = now
    assert show(client, first) == {"created": left}
    push(client, first, *map(output, range(5)))
    assert show(client, first) == {"created": 5}
    assert client.delete("/v1/groups/group/jobs/job").status_code == 200
    assert read_rows(service, client, COUNT_SIGHTINGS) == [(0, 0)]
    assert client.get(f"/v1/runs/group/{first}").status_code == 404


def test_a_deleted_group_forgets_the_sightings_of_all_its_jobs(
    client: Client, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_jobs, "_BATCH_SIZE", 4)
    overlap(client, range(7))
    for number in range(3):
        for _ in range(2):
            push(client, start(client, f"{number}"), output(1, job_id=f"{number}"))
    assert read_rows(service, client, COUNT_SIGHTINGS) == [(10, 10)]
    assert client.delete("/v1/groups/group").json() == {"deleted": 10}
    assert read_rows(service, client, COUNT_SIGHTINGS) == [(0, 0)]
    sql = "SELECT count(*) FROM runs WHERE organization_id = $1"
    assert read_rows(service, client, sql) == [(0,)]


def test_a_deleted_organization_loses_its_sightings_in_steps(
    client: Client, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(organization_removal, "_BATCH_SIZE", 2)
    overlap(client, range(5))
    push(client, start(client, "other"), output(1, job_id="other"))
    push(client, start(client, "other"), output(1, job_id="other"))
    removed = list[int]()

    async def watch(self: Any, sql: Statement, many: Any) -> Any:
        sets = [*many]
        if sql == organization_removal._SIGHTINGS.delete:
            removed.append(len(sets))
        return await originals[type(self)](self, sql, sets)

    originals: dict[type, Any] = {}
    for owner in (_SqliteTransaction, PostgresTransaction):
        originals[owner] = owner.execute_many
        monkeypatch.setattr(owner, "execute_many", watch)

    async def run(token: str) -> None:
        async with open_engine(service.settings) as engine:
            grant = await find_grant(engine, tokens.digest(token))
            assert grant is not None
            database = engine.for_tenant(grant.organization_id)
            await organization_removal.begin(database, timestamps.now())
            await organization_removal.remove(database, None, False, timestamps.now, lambda _: None)
            sql = "SELECT count(*) FROM run_sightings WHERE organization_id = $1"
            left = await database.read(sql, grant.organization_id)
            assert [*left[0]] == [0]

    assert client.token is not None
    asyncio.run(run(client.token))
    assert sum(removed) == 6
    assert max(removed) <= 2


def kinds(client: Client, run_id: str) -> dict[str, Any]:
    """Return the fields that a run has seen, with their kinds."""
    params = {"job_id": "job"}
    found = client.get("/v1/groups/group/fields", params=params).json()["runs"]
    [fields] = [run["fields"] for run in found if run["run_id"] == run_id]
    return {one["path"]: one["kinds"] for one in fields}


def test_a_full_job_makes_bitmaps_invalid_without_writing_them(
    client: Client, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slots get another meaning. A run does not subtract the old one."""
    monkeypatch.setitem(job_fields.MAX_NAMES, 1, 2)
    first, second = start(client), start(client)
    push(client, first, output(1, data={"a": 1}), output(2, data={"b": 1}))
    push(client, second, output(1, data={"a": 2}), output(2, data={"b": 2}))
    for item in client.items("group"):
        client.delete(f"/v1/outputs/group/{item['output_id']}")
    push(client, second, output(3, data={"c": 1}), output(4, data={"d": 1}))
    assert read_rows(service, client, COUNT_SIGHTINGS) == [(4, 4)]

    push(client, first, output(1, data={"d": 1}))  # not in the slot in which its old field was
    assert read_rows(service, client, COUNT_SIGHTINGS) == [(3, 3)]
    assert show(client, first) == {"created": 2}
    assert kinds(client, first) == {}


def test_a_batch_that_fills_its_job_uses_no_bitmap_from_before(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slots get another meaning in the middle of the batch."""
    monkeypatch.setitem(job_fields.MAX_NAMES, 1, 2)
    run_id = start(client)
    push(client, run_id, output(1, data={"a": 1}), output(2, data={"b": 1}))
    client.store("group", output(1, data={"a": 2}), output(2, data={"b": 2}))
    for item in client.items("group"):
        client.delete(f"/v1/outputs/group/{item['output_id']}")
    batch = [{"c": 1}, {"d": 1}, {"d": 1}]
    push(
        client,
        run_id,
        *(output(number, data=data) for number, data in zip((3, 4, 1), batch, strict=True)),
    )
    assert kinds(client, run_id) == {"c": {"integer": 1}, "d": {"integer": 1}}


def test_a_batch_of_many_jobs_has_as_many_statements_as_one_of_few(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even while each job has several runs, which have sent the same outputs."""
    jobs = [f"job {number}" for number in range(12)]
    batch = [output(number, job_id=job) for number, job in enumerate(jobs)]
    client.store("group", *batch)
    for one in batch:
        push(client, start(client, one["job_id"]), one)
    statements = Statements(monkeypatch)
    client.store("group", *batch)
    assert statements.runs[batch_runs._KEEP] == 1
    assert statements.runs[batch_runs._TAKE] == 1
    assert statements.rows[batch_runs._TAKE] == 12
    of_many = statements.runs.total()
    for one in batch[:2]:
        push(client, start(client, one["job_id"]), one)
    statements.runs.clear()
    client.store("group", *batch[:2])
    assert statements.runs[batch_runs._TAKE] == 1
    assert of_many <= statements.runs.total()


# --- comparisons and removals -------------------------------------------------------------------


def test_outputs_that_a_step_cannot_write_are_not_read_by_each_step(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step writes a few outputs, and then it ends."""
    for name, value in {"STEP": 100, "_MAX_WRITTEN": 5, "_MIN_READ": 2}.items():
        monkeypatch.setattr(comparison, name, value)
    first = start(client)
    push(client, first, *map(output, range(100)))
    finish(client, first)
    statements = Statements(monkeypatch)
    assert finish(client, start(client)) == {"missing": 100}
    assert 100 <= statements.rows[comparison._NEXT] <= 120


def test_outputs_without_a_change_are_read_in_few_statements(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"STEP": 100, "_MAX_WRITTEN": 5, "_MIN_READ": 2}.items():
        monkeypatch.setattr(comparison, name, value)
    first = start(client)
    push(client, first, *map(output, range(100)))
    statements = Statements(monkeypatch)
    assert finish(client, first) == {"created": 100}
    assert statements.runs[comparison._NEXT] <= 4


def test_a_step_writes_a_limited_number_of_bytes(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite writes a whole row again, with its item."""
    monkeypatch.setattr(comparison, "_MAX_WRITTEN_BYTES", 2 * LARGE)
    large = [output(number, data={"text": "x" * LARGE}) for number in range(5)]
    first = start(client)
    push(client, first, *large, *map(output, range(5, 50)))
    finish(client, first)
    statements = Statements(monkeypatch)
    assert finish(client, start(client)) == {"missing": 50}
    assert statements.runs[comparison._SAVE_STEP] == 2


def test_a_removal_of_a_job_reads_no_outputs_of_other_jobs(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    for job, numbers in {"large": range(30), "small": range(30, 33)}.items():
        first = start(client, job)
        push(client, first, *(output(number, job_id=job) for number in numbers))
        finish(client, first)
    assert finish(client, start(client, "large")) == {"missing": 30}
    settings = {"missing": {"after_runs": 1, "max_share": 1.0}}
    assert client.put("/v1/groups/group", json=settings).status_code == 200
    statements = Statements(monkeypatch)
    assert finish(client, start(client, "small")) == {"missing": 3, "removed": 3}
    assert statements.rows[changing.MISSING] == 3
    assert len(client.items("group", missing="true")) == 30


@pytest.mark.parametrize("name", ["comparison", "removal"])
def test_sqlite_reads_no_large_items_to_compare_or_choose_them(
    request: pytest.FixtureRequest, tmp_path: Path, name: str
) -> None:
    """The state of an output follows its item in the row, so it is read from an index."""
    settings = fresh_settings("sqlite", request, tmp_path)
    service = Service(settings)
    with service.client() as client:
        first = start(client)
        push(client, first, *(output(n, data={"text": "x" * LARGE}) for n in range(20)))
        finish(client, first)
        assert finish(client, start(client)) == {"missing": 20}
    service.stop()
    connection = apsw.Connection(str(settings.sqlite_file))
    [key] = connection.execute("SELECT DISTINCT organization_id, group_id, job_id FROM outputs")
    sql, bounds = {
        "comparison": (comparison._NEXT, (0, 2**62, 100)),
        "removal": (changing.MISSING, (0, 100)),
    }[name]
    [read_before, _] = connection.status(apsw.SQLITE_DBSTATUS_CACHE_MISS)
    found = connection.execute(to_sqlite(sql, key[0]), (*key, *bounds)).fetchall()
    [read_after, _] = connection.status(apsw.SQLITE_DBSTATUS_CACHE_MISS)
    connection.close()
    assert len(found) == 20
    assert read_after - read_before < LARGE // PAGE_SIZE
