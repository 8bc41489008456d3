"""dlt's unchanged REST source loads a group, then only its changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gleanery.settings import Settings
from tests.support.outputs import output
from tests.support.process import gleanery_in_process
from tests.support.service import Clock, Service
from tests.support.waiting import wait_for_next_second

pytestmark = pytest.mark.thorough


@pytest.fixture
def quiet_dlt(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.setenv("RUNTIME__DLTHUB_TELEMETRY", "false")
    monkeypatch.setenv("DLT_DATA_DIR", str(tmp_path / "dlt"))
    monkeypatch.chdir(tmp_path)
    import dlt

    return dlt


def pull(dlt: Any, folder: Path, service: Service, token: str) -> int:
    """Runs the pipeline once, and returns the number of loaded outputs."""
    from dlt.sources.rest_api import rest_api_source

    source = rest_api_source(
        {
            "client": {
                "base_url": f"{service.url}/v1/",
                "auth": {"type": "bearer", "token": token},
                "paginator": {"type": "json_link", "next_url_path": "metadata.next_url"},
            },
            "resources": [
                {
                    "name": "outputs",
                    "primary_key": "output_id",
                    "write_disposition": "merge",
                    "max_table_nesting": 0,
                    "endpoint": {
                        "path": "outputs/group",
                        "data_selector": "items",
                        "params": {
                            "limit": 100,
                            "created_after": {
                                "type": "incremental",
                                "cursor_path": "update_date",
                                "initial_value": "2020-01-01T00:00:00Z",
                            },
                        },
                    },
                }
            ],
        }
    )
    pipeline = dlt.pipeline(
        "sync",
        destination=dlt.destinations.duckdb(str(folder / "warehouse.duckdb")),
        dataset_name="copy",
    )
    pipeline.run(source)
    return int(pipeline.last_trace.last_normalize_info.row_counts.get("outputs", 0))


def copied(folder: Path) -> dict[int, bool]:
    import duckdb

    with duckdb.connect(str(folder / "warehouse.duckdb")) as connection:
        rows = connection.execute("SELECT id, is_approved FROM copy.outputs").fetchall()
    return dict(rows)


def test_dlt_pulls_a_group_and_then_only_what_changed(
    quiet_dlt: Any, tmp_path: Path, timed_service: Service, clock: Clock
) -> None:
    token = timed_service.token()
    client = timed_service.client(token)
    client.store("group", *(output(number) for number in range(350)))
    assert pull(quiet_dlt, tmp_path, timed_service, token) == 350
    assert len(copied(tmp_path)) == 350
    clock.move(seconds=60)
    client.store("group", *(output(n, data={"number": -n}) for n in range(1, 6)), output(999))
    client.store("group", *(output(n) for n in range(100, 200)))  # the same values
    assert pull(quiet_dlt, tmp_path, timed_service, token) == 6
    truth = {item["id"]: item["is_approved"] for item in client.items("group", limit=1000)}
    assert copied(tmp_path) == truth
    assert len(truth) == 351


def test_dlt_has_the_right_copy_after_a_restore(quiet_dlt: Any, tmp_path: Path) -> None:
    settings = Settings(data=tmp_path / "data", port=0, log_level="warning")
    archive, where = str(tmp_path / "backup.tar"), ("--data", str(settings.data))
    service = Service(settings)
    token = service.token()
    with service.client(token) as client:
        client.store("group", *(output(number) for number in range(20)))
        assert pull(quiet_dlt, tmp_path, service, token) == 20
        assert gleanery_in_process("backup", archive, "--with-key", *where).returncode == 0
        wait_for_next_second()
        job = client.items("group")[0]["root_job_id"]
        client.post("/v1/reviews/group", json={"job_id": job, "status": "approved"})
        assert pull(quiet_dlt, tmp_path, service, token) == 20
        assert set(copied(tmp_path).values()) == {True}
    service.stop()
    settings.data.rename(tmp_path / "broken")
    wait_for_next_second()
    assert gleanery_in_process("restore", archive, *where).returncode == 0
    service = Service(settings)
    with service.client(token) as client:
        truth = {item["id"]: item["is_approved"] for item in client.items("group", limit=1000)}
        assert set(truth.values()) == {False}
        assert pull(quiet_dlt, tmp_path, service, token) == 20
        assert copied(tmp_path) == truth
    service.stop()
