"""An upgrade makes runs of scrapes, which were runs without a name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gleanery.common.settings import Settings
from tests.support.databases import run_script, undo_migrations, with_types
from tests.support.history import read_rows
from tests.support.outputs import output
from tests.support.service import Client, Clock, Service
from tests.support.settings import fresh_settings

pytestmark = pytest.mark.thorough

HOUR = 3600
OUTPUTS = 60
OF_SHAPES = '{"5":20,"7":3}'  # what an older program has stored of a scrape
STORED_RUNS = """
SELECT organization_id, group_id, job_id, started_at, seen_at, slot_counts, field_counts FROM runs
WHERE organization_id = $1 ORDER BY id
"""


@pytest.fixture
def settings(engine: str, request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    return fresh_settings(engine, request, tmp_path)


@pytest.fixture
def clock() -> Clock:
    return Clock()


def store(client: Client, empty: int) -> None:
    """Store outputs, some of them without a price."""
    values = ({"name": "a", "price": None if n < empty else n} for n in range(OUTPUTS))
    client.store("group", *(output(n, data=data) for n, data in enumerate(values)))


def fields(client: Client) -> dict[str, Any]:
    found: dict[str, Any] = client.get("/v1/groups/group/fields", params={"job_id": "job"}).json()
    for run in found["runs"]:
        del run["run_id"]
    return found


def store_as_scrapes(settings: Settings, runs: list[Any]) -> None:
    """Give the database the rows that the program before runs would have stored."""
    undo_migrations(settings, "runs")
    for *ids, started_at, seen_at, slot_counts, field_counts in runs:
        key = ", ".join(map(str, ids))
        if slot_counts is None:
            scrape = f"{key}, {started_at}, {seen_at}, '{field_counts}'"
            run_script(settings, f"INSERT INTO job_scrapes VALUES ({scrape})")
            continue
        run_script(
            settings,
            f"UPDATE job_statistics SET scrape_started_at = {started_at}, "
            f"scrape_seen_at = {seen_at}, scrape_counts = '{slot_counts}' WHERE job_id = {ids[-1]}",
        )
        deleted = f"{key}, CAST('identity' AS BYTEA), CAST('fields' AS BYTEA)"
        insertion = f"INSERT INTO deleted_in_scrape VALUES ({deleted})"
        run_script(settings, with_types(insertion, settings))
        before = f"{key}, {started_at - 10**12}, {started_at - 10**12}, '{OF_SHAPES}'"
        run_script(settings, f"INSERT INTO job_scrapes VALUES ({before})")


@pytest.fixture
def upgraded(settings: Settings, clock: Clock) -> Iterator[tuple[Service, Client, dict[str, Any]]]:
    """Return a service after the upgrade, a client, and the field statistics before."""
    service = Service(settings, clock)
    token = service.token()
    with service.client(token) as client:
        for empty in (0, 30):
            clock.move(seconds=HOUR)
            store(client, empty)
        before = fields(client)
        runs = read_rows(service, client, STORED_RUNS)
    service.stop()
    store_as_scrapes(settings, runs)
    service = Service(settings, clock)
    with service.client(token) as client:
        yield service, client, before
    service.stop()


def assert_kept(client: Client, before: dict[str, Any]) -> None:
    """The statistics are the same. The scrapes are runs that nobody has started."""
    after = fields(client)
    of_shapes = after["runs"].pop()
    assert (of_shapes["status"], of_shapes["outputs"], of_shapes["fields"]) == ("unknown", 23, [])
    assert before["runs"][0]["status"] == "running"
    before = before | {"runs": [run | {"status": "unknown"} for run in before["runs"]]}
    assert after == before
    assert [one["path"] for one in after["drift"]] == ["price"]


def test_an_upgrade_keeps_statistics_and_drift(
    upgraded: tuple[Service, Client, dict[str, Any]],
) -> None:
    _, client, before = upgraded
    assert_kept(client, before)
    runs = client.get("/v1/runs/group").json()["runs"]
    assert [run["start_date"] for run in runs] == sorted(
        (run["start_date"] for run in runs), reverse=True
    )
    assert len({run["run_id"] for run in runs}) == 3
    assert {(run["status"], run["is_implicit"]) for run in runs} == {("unknown", True)}
    assert [run["counts"]["unchanged"] for run in runs] == [OUTPUTS, OUTPUTS, 23]
    assert all(run["finish_date"] for run in runs)


def test_the_next_batch_begins_a_new_run(
    upgraded: tuple[Service, Client, dict[str, Any]], clock: Clock
) -> None:
    _, client, before = upgraded
    clock.move(seconds=60)  # the scrape would have gone on
    store(client, 30)
    newest, *older = client.get("/v1/runs/group").json()["runs"]
    assert (newest["status"], newest["counts"]["unchanged"]) == ("running", OUTPUTS)
    assert len(older) == 3
    after = fields(client)
    newest_fields = after["runs"].pop(0)
    assert newest_fields["fields"] == before["runs"][0]["fields"]
    assert after["runs"][0] == before["runs"][0] | {"status": "unknown"}
    assert (after["outputs"], after["counted_outputs"]) == (OUTPUTS, OUTPUTS)


def test_the_sweep_ends_the_last_scrape_with_its_fields(
    upgraded: tuple[Service, Client, dict[str, Any]], clock: Clock
) -> None:
    service, client, before = upgraded
    service.sweep(clock)
    assert_kept(client, before)
    rows = read_rows(service, client, STORED_RUNS)
    assert [row[-2] for row in rows] == [None] * 3  # none of them runs
    assert all(row[-1] for row in rows)
