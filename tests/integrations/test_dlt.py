"""The dlt source loads groups, then only their changes and deletions."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

from gleanery.common.settings import Settings
from tests.support.outputs import output
from tests.support.process import gleanery_in_process
from tests.support.service import DAY, Clock, Service
from tests.support.warehouse import Warehouse, copied, isolate_dlt, source, stored

pytestmark = pytest.mark.thorough
ON_SQLITE = pytest.mark.parametrize("engine", ["sqlite"], indirect=True)


@pytest.fixture
def warehouse(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Warehouse:
    isolate_dlt(monkeypatch, tmp_path)
    return Warehouse(tmp_path)


def test_dlt_pulls_a_group_and_then_only_what_changed(
    warehouse: Warehouse, timed_service: Service
) -> None:
    client = timed_service.client()
    results = client.store("group", *(output(number) for number in range(350)))["results"]
    options = {"page_size": 100}
    assert warehouse.load(source(timed_service, client, **options)) == {"outputs_group": 350}
    assert copied(warehouse) == stored(client)
    client.store("group", *(output(n, data={"number": -n}) for n in range(1, 6)), output(999))
    client.store("group", *(output(n) for n in range(100, 200)))  # the same values
    client.delete(f"/v1/outputs/group/{results[7]['output_id']}")
    assert warehouse.load(source(timed_service, client)) == {"outputs_group": 7}
    assert copied(warehouse) == stored(client)
    assert len(copied(warehouse)) == 350
    assert warehouse.load(source(timed_service, client)) == {}


@ON_SQLITE
def test_dlt_keeps_the_last_change_of_an_output_that_changes_during_a_run(
    warehouse: Warehouse, timed_service: Service
) -> None:
    """Such outputs are on two pages of one run, and so are the rows of their lists."""
    client = timed_service.client()
    made = [output(n, data={"number": n, "list": [n, n]}) for n in range(350)]
    results = client.store("group", *made)["results"]
    changed = False

    def change_outputs(row: dict[str, Any]) -> dict[str, Any]:
        nonlocal changed
        if not changed:
            changed = True
            data = ({"number": -n, "list": [-n]} for n in range(1, 50))
            new = [output(n, data=value) for n, value in enumerate(data, 1)]
            client.store("group", *new)
            client.delete(f"/v1/outputs/group/{results[0]['output_id']}")
        return row

    mapped = source(timed_service, client, page_size=100)
    mapped.resources["outputs_group"].add_map(change_outputs)
    assert warehouse.load(mapped)["outputs_group"] == 400
    assert copied(warehouse) == stored(client)
    in_lists = sorted(row["value"] for row in warehouse.rows("outputs_group__data__list"))
    items = client.items("group", limit=1000)
    assert in_lists == sorted(value for item in items for value in item["data"]["list"])
    assert warehouse.load(source(timed_service, client)) == {}


@ON_SQLITE
def test_a_run_that_fails_or_is_limited_loses_nothing_and_loads_nothing_twice(
    warehouse: Warehouse, timed_service: Service
) -> None:
    client = timed_service.client()
    client.store("group", *(output(number) for number in range(350)))
    options = {"page_size": 100, "changes": True}

    def fail(row: dict[str, Any]) -> dict[str, Any]:
        if row["data"]["number"] == 250:
            raise RuntimeError("broken")
        return row

    broken = source(timed_service, client, **options)
    broken.resources["changes_group"].add_map(fail)
    with pytest.raises(Exception, match="broken"):
        warehouse.load(broken)
    limited = source(timed_service, client, **options).add_limit(2)
    first = warehouse.load(limited)
    assert 0 < first["outputs_group"] < 350
    rest = warehouse.load(source(timed_service, client, **options))
    assert first["outputs_group"] + rest["outputs_group"] == 350
    assert first["changes_group"] + rest["changes_group"] == 350
    assert copied(warehouse) == stored(client)
    assert len({row["cursor"] for row in warehouse.rows("changes_group")}) == 350


@ON_SQLITE
def test_an_expired_position_replaces_the_rows_and_marks_the_gap_in_the_log(
    warehouse: Warehouse, timed_service: Service, clock: Clock
) -> None:
    client = timed_service.client()
    made = [output(n, data={"number": n, "list": [n]}) for n in range(5)]
    results = client.store("group", *made)["results"]
    client.store("other", output(1))
    both = ("group", "other")
    warehouse.load(source(timed_service, client, *both, changes=True))
    client.delete(f"/v1/outputs/group/{results[3]['output_id']}")
    clock.move(seconds=31 * DAY)
    timed_service.sweep(clock)
    loaded = warehouse.load(source(timed_service, client, *both, changes=True))
    assert loaded["outputs_group"] == 4
    assert loaded["changes_group"] == 5
    assert copied(warehouse) == stored(client)
    assert copied(warehouse, "outputs_other") == stored(client, "other")
    lists = warehouse.rows("outputs_group__data__list")
    assert sorted(row["value"] for row in lists) == [0, 1, 2, 4]
    log = warehouse.rows("changes_group")
    [restart] = [row for row in log if row["change"] == "restart"]
    later = [row for row in log if row["_dlt_load_id"] >= restart["_dlt_load_id"]]
    assert sorted(row["change"] for row in later) == ["create"] * 4 + ["restart"]
    assert [row["output_id"] for row in log if row not in later] == [results[3]["output_id"]]
    assert [row["change"] for row in warehouse.rows("changes_other")] == ["create"]
    assert warehouse.load(source(timed_service, client, *both, changes=True)) == {}


@ON_SQLITE
def test_an_expired_position_of_a_group_that_is_empty_now_empties_the_table(
    warehouse: Warehouse, timed_service: Service, clock: Clock
) -> None:
    client = timed_service.client()
    [result] = client.store("group", output(1))["results"]
    warehouse.load(source(timed_service, client))
    client.delete(f"/v1/outputs/group/{result['output_id']}")
    clock.move(seconds=31 * DAY)
    timed_service.sweep(clock)
    warehouse.load(source(timed_service, client))
    assert copied(warehouse) == {}
    client.store("group", output(2))
    warehouse.load(source(timed_service, client))
    assert copied(warehouse) == stored(client)


def test_dlt_has_the_right_copy_after_a_restore(warehouse: Warehouse, tmp_path: Path) -> None:
    settings = Settings(data=tmp_path / "data", port=0, log_level="warning")
    archive, where = str(tmp_path / "backup.tar"), ("--data", str(settings.data))
    service = Service(settings)
    token = service.token()
    with service.client(token) as client:
        client.store("group", *(output(number) for number in range(20)))
        assert warehouse.load(source(service, client)) == {"outputs_group": 20}
        assert gleanery_in_process("backup", archive, "--with-key", *where).returncode == 0
        job = client.items("group")[0]["root_job_id"]
        client.post("/v1/reviews/group", json={"job_id": job, "status": "approved"})
        client.store("group", output(50))  # the restore loses it
        assert warehouse.load(source(service, client)) == {"outputs_group": 21}
    port = service.settings.port
    service.stop()
    settings.data.rename(tmp_path / "broken")
    assert gleanery_in_process("restore", archive, *where).returncode == 0
    service = Service(Settings(data=settings.data, port=port, log_level="warning"))
    with service.client(token) as client:
        assert warehouse.load(source(service, client)) == {"outputs_group": 20}
        assert copied(warehouse) == stored(client)
    service.stop()


@pytest.mark.extended
@ON_SQLITE
def test_the_approved_view_has_tables_of_its_own_pipeline(
    warehouse: Warehouse, timed_service: Service
) -> None:
    client = timed_service.client()
    client.store("group", output(1), output(2))
    client.post("/v1/reviews/group", json={"job_id": "job", "status": "approved"})
    client.store("group", output(2, data={"number": 22}), output(3))
    approved = {"view": "approved"}
    warehouse.load(source(timed_service, client, **approved))
    assert copied(warehouse) == stored(client, **approved)
    assert sorted(number for number, _ in copied(warehouse).values()) == [1, 2]
    client.post("/v1/reviews/group", json={"job_id": "job", "status": "rejected"})
    warehouse.load(source(timed_service, client, **approved))
    assert copied(warehouse) == {}
    with pytest.raises(Exception, match=r"view=approved.*drop_resources"):
        warehouse.load(source(timed_service, client))
    warehouse.load(source(timed_service, client), refresh="drop_resources")
    assert copied(warehouse) == stored(client)


@ON_SQLITE
def test_values_become_columns(warehouse: Warehouse, timed_service: Service) -> None:
    client = timed_service.client()
    answer = client.post("/v1/files", content=b"a", headers={"Content-Type": "text/plain"})
    files = [{"field": "sheet", "id": answer.json()["id"]}]
    huge, high = 10**30, 2**63 - 1
    values: list[dict[str, Any]] = [
        {"price": 10, "part": {"price": 1}, "number": high, "list": [1, huge]},
        {"price": 10.5, "part": {"price": 0.1}, "number": -huge, "text": "ä\n"},
        {"price": None, "part": {}, "number": 0, "text": ""},
    ]
    made = [output(n, data=data, files=files) for n, data in enumerate(values)]
    client.store("a group, ü", *made)
    [table, *nested] = warehouse.load(source(timed_service, client, "a group, ü"))
    rows = sorted(warehouse.rows(table), key=lambda row: row["source_url"])
    assert [row["data__price"] for row in rows] == [10, 10.5, None]
    assert [row["data__part__price"] for row in rows] == [1, 0.1, None]
    assert [row["data__number"] for row in rows] == [high, None, 0]
    assert [row["data__number__v_text"] for row in rows] == [None, str(-huge), None]
    assert [row["data__text"] for row in rows] == [None, "ä\n", ""]
    assert rows[0]["create_date"].utcoffset().total_seconds() == 0
    assert sorted(nested) == [f"{table}__data__list", f"{table}__files"]
    in_list = warehouse.rows(f"{table}__data__list")
    assert {(row["value"], row["v_text"]) for row in in_list} == {(1, None), (None, str(huge))}
    [file, *_] = warehouse.rows(f"{table}__files")
    assert file["file_url"] == f"{timed_service.url}/v1/files/{files[0]['id']}"
    assert "blob_url" not in file


@ON_SQLITE
def test_members_with_the_same_column_keep_their_values(
    warehouse: Warehouse, timed_service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    client = timed_service.client()
    case = {"number": 1, "Price": 10, "price": 20, "list": [{"A": 1, "a": 2}], "": 3, " ": 4}
    script = {"number": 2, "価格": 30, "名前": "椅子", "Price": 40}
    client.store("group", output(1, data=case), output(2, data=script))
    warehouse.load(source(timed_service, client))
    first, second = sorted(warehouse.rows("outputs_group"), key=lambda row: row["data__number"])
    assert values(first) == [1, 3, 4, 10, 20]
    assert values(second) == [2, 30, 40, "椅子"]
    assert (first["data__price"], second["data__price"]) == (20, 40)
    assert first["data__price_0b090ddd"] == 10
    [element] = warehouse.rows("outputs_group__data__list")
    assert {1, 2} <= set(element.values())
    assert "'価格', '名前'" in caplog.text
    client.store("group", output(2, data=script | {"価格": 31}))
    warehouse.load(source(timed_service, client))
    [changed] = [row for row in warehouse.rows("outputs_group") if row["data__number"] == 2]
    assert values(changed) == [2, 31, 40, "椅子"]
    assert changed.keys() == second.keys()


@ON_SQLITE
@pytest.mark.extended
def test_another_naming_convention_keeps_names_in_other_scripts(
    warehouse: Warehouse, timed_service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCHEMA__NAMING", "duck_case")
    client = timed_service.client()
    client.store("group", output(1, data={"価格": 30, "名前": "椅子"}))
    warehouse.load(source(timed_service, client))
    [row] = warehouse.rows("outputs_group")
    assert (row["data__価格"], row["data__名前"]) == (30, "椅子")


def values(row: dict[str, Any]) -> list[Any]:
    """Values of the columns of data."""
    found = [row[name] for name in row if name.startswith("data__") and row[name] is not None]
    return sorted(found, key=lambda value: (isinstance(value, str), value))


@ON_SQLITE
def test_json_columns_hold_all_of_data(warehouse: Warehouse, timed_service: Service) -> None:
    client = timed_service.client()
    client.store("group", output(1, data={"list": [1, {"a": None}], "A": 1, "a": 2, "b": 10**30}))
    nested = source(timed_service, client)
    nested.max_table_nesting = 0
    assert warehouse.load(nested) == {"outputs_group": 1}
    [row] = warehouse.rows("outputs_group")
    expected = '{"list":[1,{"a":null}],"A":1,"a":2,"b":{"v_text":"1%s"}}' % ("0" * 30)
    assert row["data"] == expected


@ON_SQLITE
def test_the_configuration_of_dlt_names_the_service(
    warehouse: Warehouse, timed_service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gleanery.integrations.dlt import gleanery_source

    with timed_service.client(organization="a") as client:
        client.store("group", output(1))
    token = timed_service.token("a", frozenset({"outputs:read"}))
    with pytest.raises(Exception, match="SOURCES__GLEANERY__TOKEN"):
        gleanery_source(groups=["group"], base_url=timed_service.url)
    monkeypatch.setenv("SOURCES__GLEANERY__BASE_URL", timed_service.url)
    monkeypatch.setenv("SOURCES__GLEANERY__TOKEN", token)
    monkeypatch.setenv("SOURCES__GLEANERY__GROUPS", '["group"]')
    assert warehouse.load(gleanery_source()) == {"outputs_group": 1}
    with pytest.raises(Exception, match="no group"):
        warehouse.load(gleanery_source(groups=["missing"]))


def test_groups_with_the_same_table_are_an_error() -> None:
    from gleanery.integrations.dlt import gleanery_source

    with pytest.raises(ValueError, match=r"'a-b' and 'a_b' have the same table 'outputs_a_b'"):
        gleanery_source(["a-b", "a_b"], "http://127.0.0.1:1", "token")


def test_without_dlt_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("gleanery.integrations.dlt")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "dlt", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'gleanery\[dlt\]'"):
        importlib.import_module("gleanery.integrations.dlt")


@ON_SQLITE
def test_dlt_loads_the_runs_again_until_they_have_ended(
    warehouse: Warehouse, timed_service: Service
) -> None:
    client = timed_service.client()
    settings = {"missing": {"after_runs": 1, "max_share": 1.0}}
    assert client.put("/v1/groups/group", json=settings).status_code == 200
    client.store("group", output(1), output(2))
    started = {"job_id": output(1)["job_id"], "labels": {"Country": "NO"}}
    run = client.post("/v1/runs/group", json=started).json()
    options = {"runs": True, "changes": True, "page_size": 1}
    assert warehouse.load(source(timed_service, client, **options))["runs_group"] == 2
    [row] = [row for row in warehouse.rows("runs_group") if row["run_id"] == run["run_id"]]
    assert (row["status"], row["finish_date"], row["counts__missing"]) == ("running", None, 0)
    client.post("/v1/outputs/group", params={"run_id": run["run_id"]}, json=[output(1)])
    address = f"/v1/runs/group/{run['run_id']}/finish"
    assert client.post(address, json={"status": "complete"}).status_code == 200
    loaded = warehouse.load(source(timed_service, client, **options))
    assert loaded == {"outputs_group": 1, "changes_group": 1, "runs_group": 2}
    rows = warehouse.rows("runs_group")
    [row] = [row for row in rows if row["run_id"] == run["run_id"]]
    assert len(rows) == 2
    assert (row["status"], row["counts__unchanged"], row["counts__removed"]) == ("complete", 1, 1)
    assert (row["counts__missing"], "NO" in str(row["labels"])) == (1, True)
    reasons = {row["change"]: row["reason"] for row in warehouse.rows("changes_group")}
    assert reasons == {"create": None, "delete": "missing"}
    client.delete("/v1/groups/group")
    assert "runs_group" not in warehouse.load(source(timed_service, client, **options))
    assert len(warehouse.rows("runs_group")) == 2
