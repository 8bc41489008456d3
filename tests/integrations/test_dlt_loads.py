"""Loads of the dlt source that fail, are interrupted, or go to another kind of destination."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.outputs import output
from tests.support.process import environment
from tests.support.service import DAY, Clock, Service
from tests.support.warehouse import Warehouse, copied, isolate_dlt, source, stored

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.parametrize("engine", ["sqlite"], indirect=True, scope="session"),
]

DOCS = Path(__file__).parent.parent.parent / "docs"


@pytest.fixture
def warehouse(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Warehouse:
    isolate_dlt(monkeypatch, tmp_path)
    return Warehouse(tmp_path)


def test_a_load_that_fails_loses_no_change(warehouse: Warehouse, timed_service: Service) -> None:
    """The destination rejects the rows. The next run loads them, and the one after continues."""
    client = timed_service.client()
    results = client.store("group", output(1), output(2))["results"]
    warehouse.load(source(timed_service, client))
    client.store("group", output(3, data={"number": 3}), output(4, data={"number": None}))
    client.delete(f"/v1/outputs/group/{results[0]['output_id']}")
    warehouse.execute("ALTER TABLE copy.outputs_group ALTER data__number SET NOT NULL")
    with pytest.raises(Exception, match="NOT NULL"):
        warehouse.load(source(timed_service, client))
    client.store("group", output(2, data={"number": 22}))
    warehouse.execute("ALTER TABLE copy.outputs_group ALTER data__number DROP NOT NULL")
    warehouse.pipeline.run(source(timed_service, client))
    assert copied(warehouse) != stored(client)
    warehouse.load(source(timed_service, client))
    assert copied(warehouse) == stored(client)
    assert len(copied(warehouse)) == 3


def test_a_lost_position_puts_no_change_into_the_log_twice(
    warehouse: Warehouse, timed_service: Service, clock: Clock, tmp_path: Path
) -> None:
    """A run is killed after its rows are stored and before its position is, in a new container.

    The next run reads the changes of earlier days with other cursors.
    """
    client = timed_service.client()
    made = [output(n, data={"number": n, "list": [n, n]}) for n in range(6)]
    *_, last = client.store("group", *made)["results"]
    client.delete(f"/v1/outputs/group/{last['output_id']}")
    clock.move(seconds=31 * DAY)
    timed_service.sweep(clock)  # purges the deletion, so old changes get cursors of a catch-up
    options = {"changes": True}
    warehouse.load(source(timed_service, client, **options))
    warehouse.execute("DELETE FROM copy._dlt_pipeline_state")
    shutil.rmtree(tmp_path / "dlt")
    clock.move(seconds=2 * DAY)
    client.store("group", output(5))
    restarted = Warehouse(tmp_path)
    assert restarted.load(source(timed_service, client, **options))["changes_group"] == 6
    log = restarted.rows("changes_group")
    assert sorted(row["data__number"] for row in log) == [0, 1, 2, 3, 4, 5]
    assert len(restarted.rows("changes_group__data__list")) == 10
    assert copied(restarted) == stored(client)


def test_a_group_of_another_organization_or_database_is_an_error(
    warehouse: Warehouse, timed_service: Service
) -> None:
    client, other = timed_service.client(), timed_service.client(organization="other")
    client.store("group", output(1))
    other.store("group", output(2))
    warehouse.load(source(timed_service, client, changes=True))
    with pytest.raises(Exception, match=r"had the number \d+, .* another organization"):
        warehouse.load(source(timed_service, other))
    assert warehouse.load(source(timed_service, other), refresh="drop_resources")


def test_a_position_that_the_group_never_had_is_an_error(
    warehouse: Warehouse, timed_service: Service
) -> None:
    client = timed_service.client()
    client.store("group", output(1))
    loaded = source(timed_service, client)
    warehouse.load(loaded)
    with warehouse.pipeline.managed_state() as state:
        resources = state["sources"]["gleanery"]["resources"]
        resources["outputs_group"]["cursor"] += 10**6
    with pytest.raises(Exception, match=r"no changes at the position.*new database"):
        warehouse.load(source(timed_service, client))


def test_the_rows_of_a_deleted_group_are_removed(
    warehouse: Warehouse, timed_service: Service
) -> None:
    client = timed_service.client()
    client.store("group", output(1))
    warehouse.load(source(timed_service, client))
    client.delete("/v1/groups/group")
    warehouse.load(source(timed_service, client))
    assert copied(warehouse) == {}
    client.store("group", output(2))
    warehouse.load(source(timed_service, client))
    assert copied(warehouse) == stored(client)


@pytest.mark.extended
@pytest.mark.parametrize(
    ("page", "group", "file"),
    [
        ("how-to/sync-into-a-warehouse-with-dlt.md", "warehouse-prices", "prices.duckdb"),
        ("tutorial-shop.md", "shop-scrapy", "shop.duckdb"),
    ],
)
def test_the_programs_of_the_pages_load_everything_in_each_folder(
    timed_service: Service, tmp_path: Path, page: str, group: str, file: str
) -> None:
    client = timed_service.client()
    client.store(group, output(1))
    text = (DOCS / page).read_text().replace("http://127.0.0.1:8000", timed_service.url)
    program, *_ = re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)
    variables = environment(
        SOURCES__GLEANERY__TOKEN=str(client.token),
        DLT_DATA_DIR=str(tmp_path / "home"),
        RUNTIME__DLTHUB_TELEMETRY="false",
    )
    for folder in (tmp_path / "first", tmp_path / "second"):
        folder.mkdir()
        subprocess.run([sys.executable, "-c", program], cwd=folder, env=variables, check=True)
        assert (folder / file).exists()


def pipeline_into_files(folder: Path) -> Any:
    import dlt

    files = dlt.destinations.filesystem(folder.as_uri())
    return dlt.pipeline("files", destination=files, dataset_name="copy")


def test_a_destination_that_keeps_old_rows_is_an_error_for_outputs_but_not_for_the_log(
    warehouse: Warehouse, timed_service: Service, tmp_path: Path
) -> None:
    client = timed_service.client()
    client.store("group", output(1))
    pipeline = pipeline_into_files(tmp_path / "files")
    both = {"changes": True}
    with pytest.raises(Exception, match=r"outputs_group.*delete-insert.*changes=True"):
        pipeline.run(source(timed_service, client, **both))
    pipeline.run(source(timed_service, client, **both).with_resources("changes_group"))
    [written] = (tmp_path / "files" / "copy" / "changes_group").iterdir()
    assert written.stat().st_size > 0


@pytest.mark.extended
@pytest.mark.parametrize("disposition", ["append", "replace", {"strategy": "upsert"}])
def test_a_disposition_that_keeps_old_rows_is_an_error(
    warehouse: Warehouse, timed_service: Service, disposition: Any
) -> None:
    client = timed_service.client()
    client.store("group", output(1))
    if isinstance(disposition, dict):
        disposition = {"disposition": "merge", **disposition}
    with pytest.raises(Exception, match="delete-insert"):
        warehouse.load(source(timed_service, client), write_disposition=disposition)
    parallel = source(timed_service, client).parallelize()
    with pytest.raises(Exception, match="delete-insert"):
        warehouse.load(parallel, write_disposition=disposition)
