"""dlt's unchanged REST source loads a group, then only its changes and deletions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gleanery.settings import Settings
from tests.support.outputs import output
from tests.support.process import gleanery_in_process
from tests.support.service import Client, Service

pytestmark = pytest.mark.thorough


@pytest.fixture
def quiet_dlt(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.setenv("RUNTIME__DLTHUB_TELEMETRY", "false")
    monkeypatch.setenv("DLT_DATA_DIR", str(tmp_path / "dlt"))
    monkeypatch.chdir(tmp_path)
    import dlt

    return dlt


def as_row(change: dict[str, Any]) -> dict[str, Any]:
    is_deleted = change["change"] == "delete"
    return {**change["output"], "cursor": change["cursor"], "deleted": is_deleted}


def pull(
    dlt: Any,
    folder: Path,
    service: Service,
    token: str,
    to_row: Callable[[dict[str, Any]], dict[str, Any]] = as_row,
    **options: Any,
) -> int:
    """Runs the pipeline once, and returns the number of loaded changes.

    ``to_row`` makes the rows, if it is not ``as_row``.
    """
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
                    "columns": {
                        "cursor": {"data_type": "bigint", "dedup_sort": "desc"},
                        "deleted": {"data_type": "bool", "hard_delete": True},
                    },
                    "max_table_nesting": 0,
                    "processing_steps": [{"map": to_row}],
                    "endpoint": {
                        "path": "changes/group",
                        "data_selector": "changes",
                        "params": {"limit": 100, "cursor": "{incremental.start_value}"},
                        "incremental": {"cursor_path": "cursor", "initial_value": 0},
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
    pipeline.run(source, **options)
    return int(pipeline.last_trace.last_normalize_info.row_counts.get("outputs", 0))


def copied(folder: Path) -> dict[int, tuple[int, bool]]:
    import duckdb

    with duckdb.connect(str(folder / "warehouse.duckdb")) as connection:
        rows = connection.execute("SELECT id, data->>'number', is_approved FROM copy.outputs")
        return {id_: (int(number), approved) for id_, number, approved in rows.fetchall()}


def stored(client: Client) -> dict[int, tuple[int, bool]]:
    items = client.items("group", limit=1000)
    return {item["id"]: (item["data"]["number"], item["is_approved"]) for item in items}


def test_dlt_pulls_a_group_and_then_only_what_changed(
    quiet_dlt: Any, tmp_path: Path, timed_service: Service
) -> None:
    token = timed_service.token()
    client = timed_service.client(token)
    results = client.store("group", *(output(number) for number in range(350)))["results"]
    assert pull(quiet_dlt, tmp_path, timed_service, token) == 350
    assert copied(tmp_path) == stored(client)
    client.store("group", *(output(n, data={"number": -n}) for n in range(1, 6)), output(999))
    client.store("group", *(output(n) for n in range(100, 200)))  # the same values
    client.delete(f"/v1/outputs/group/{results[7]['output_id']}")
    assert pull(quiet_dlt, tmp_path, timed_service, token) == 7
    assert copied(tmp_path) == stored(client)
    assert len(copied(tmp_path)) == 350
    assert pull(quiet_dlt, tmp_path, timed_service, token) == 0


def test_dlt_keeps_the_last_change_of_an_output_that_changes_during_a_run(
    quiet_dlt: Any, tmp_path: Path, timed_service: Service
) -> None:
    """Such outputs are on two pages of one run."""
    token = timed_service.token()
    client = timed_service.client(token)
    results = client.store("group", *(output(number) for number in range(350)))["results"]
    changed = False

    def change_outputs(change: dict[str, Any]) -> dict[str, Any]:
        nonlocal changed
        if not changed:
            changed = True
            client.store("group", *(output(n, data={"number": -n}) for n in range(1, 50)))
            client.delete(f"/v1/outputs/group/{results[0]['output_id']}")
        return as_row(change)

    assert pull(quiet_dlt, tmp_path, timed_service, token, change_outputs) == 400
    assert copied(tmp_path) == stored(client)
    assert pull(quiet_dlt, tmp_path, timed_service, token) == 0


def test_dlt_has_the_right_copy_after_a_restore(quiet_dlt: Any, tmp_path: Path) -> None:
    from dlt.pipeline.exceptions import PipelineStepFailed

    settings = Settings(data=tmp_path / "data", port=0, log_level="warning")
    archive, where = str(tmp_path / "backup.tar"), ("--data", str(settings.data))
    service = Service(settings)
    token = service.token()
    with service.client(token) as client:
        client.store("group", *(output(number) for number in range(20)))
        assert pull(quiet_dlt, tmp_path, service, token) == 20
        assert gleanery_in_process("backup", archive, "--with-key", *where).returncode == 0
        job = client.items("group")[0]["root_job_id"]
        client.post("/v1/reviews/group", json={"job_id": job, "status": "approved"})
        client.store("group", output(50))  # the restore loses it
        assert pull(quiet_dlt, tmp_path, service, token) == 21
    service.stop()
    settings.data.rename(tmp_path / "broken")
    assert gleanery_in_process("restore", archive, *where).returncode == 0
    service = Service(settings)
    with service.client(token) as client:
        with pytest.raises(PipelineStepFailed, match="410"):
            pull(quiet_dlt, tmp_path, service, token)
        assert pull(quiet_dlt, tmp_path, service, token, refresh="drop_sources") == 20
        assert copied(tmp_path) == stored(client)
    service.stop()
