"""The Airbyte connector and the Singer tap load groups, then only their changes and deletions."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.support.connectors import NEEDS_CONNECTORS, Airbyte, Connector, Singer
from tests.support.outputs import output
from tests.support.service import DAY, Client, Clock, Service

pytestmark = [pytest.mark.thorough, NEEDS_CONNECTORS]

TOOLS = pytest.mark.parametrize("tool", [Airbyte, Singer])
ON_SQLITE = pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
OTHER = "another group, ü"


def copy_of(records: list[dict[str, Any]], connector: Connector) -> dict[str, Any]:
    """The table that a destination makes of the records."""
    table = {record["output_id"]: record for record in records}
    return {
        output_id: record["data"]
        for output_id, record in table.items()
        if not connector.is_deleted(record)
    }


def stored(client: Client, *groups: str) -> dict[str, Any]:
    items = [item for group in groups for item in client.items(group, limit=1000)]
    return {item["output_id"]: item["data"] for item in items}


def fill(client: Client) -> list[dict[str, Any]]:
    for start in range(0, 5000, 1000):
        client.store("group", *(output(number) for number in range(start, start + 1000)))
    client.store(OTHER, output(1))
    return client.items("group", limit=1000)


def requests(client: Client, status: int, operation: str = "get_changes") -> float:
    """The number of requests of an operation that had this status."""
    name = f'gleanery_request_seconds_count{{operation="{operation}",status="{status}"}}'
    [line] = [line for line in client.get("/metrics").text.splitlines() if line.startswith(name)]
    return float(line.split()[-1])


@TOOLS
@ON_SQLITE
def test_a_connector_reads_everything_then_changes_and_deletions_then_nothing(
    tool: type[Connector], timed_service: Service, tmp_path: Path
) -> None:
    token = timed_service.token()
    client = timed_service.client(token)
    items = fill(client)
    connector = tool(tmp_path, timed_service, token, "group", OTHER)
    first = connector.read()
    assert len(first) == 5001
    assert copy_of(first, connector) == stored(client, "group", OTHER)
    assert Counter(record["group_id"] for record in first) == {"group": 5000, OTHER: 1}

    client.store("group", *(output(n, data={"number": -n}) for n in range(10, 30)), output(9999))
    deleted = [items[number]["output_id"] for number in range(3)]
    for output_id in deleted:
        client.delete(f"/v1/outputs/group/{output_id}")
    second = connector.read()
    assert Counter(record["change"] for record in second) == {
        "update": 20,
        "create": 1,
        "delete": 3,
    }
    assert [r["output_id"] for r in second if connector.is_deleted(r)] == deleted
    assert copy_of(first + second, connector) == stored(client, "group", OTHER)
    assert connector.read() == []
    assert connector.read() == []


@TOOLS
@ON_SQLITE
def test_a_connector_with_an_expired_cursor_fails_and_says_what_to_do(
    tool: type[Connector], timed_service: Service, tmp_path: Path, clock: Clock
) -> None:
    token = timed_service.token()
    client = timed_service.client(token)
    first, *_ = client.store("group", *(output(number) for number in range(3)))["results"]
    connector = tool(tmp_path, timed_service, token, "group")
    assert len(connector.read()) == 3
    client.delete(f"/v1/outputs/group/{first['output_id']}")
    clock.move(seconds=31 * DAY)
    timed_service.sweep(clock)
    status, messages, text = connector.sync()
    assert status != 0
    assert "has expired, because deletions" in connector.error(messages, text)
    assert requests(client, status=410) == 1
    assert [message for message in messages if message["type"] == "RECORD"] == []
    connector.state = None  # the full refresh that the message advises
    assert copy_of(connector.read(), connector) == stored(client, "group")
    assert connector.read() == []


@TOOLS
@ON_SQLITE
def test_a_connector_names_a_group_that_does_not_exist(
    tool: type[Connector], timed_service: Service, tmp_path: Path
) -> None:
    token = timed_service.token()
    connector = tool(tmp_path, timed_service, token, OTHER)
    status, messages, text = connector.sync()
    assert status != 0
    error = connector.error(messages, text)
    assert OTHER in error
    assert "has no group" in error
    assert requests(timed_service.client(token), status=404) == 1


def rejected_token(service: Service, status: int) -> tuple[str, str]:
    """A token that the service rejects with the status, and what the tools say about it."""
    if status == 401:
        return "wrong", "does not know the token, or it is expired"
    return service.token(scopes=frozenset({"outputs:write"})), "token lacks the scope outputs:read"


@pytest.mark.parametrize("status", [401, 403])
@TOOLS
@ON_SQLITE
def test_a_connector_says_what_is_wrong_with_its_token(
    tool: type[Connector], status: int, timed_service: Service, tmp_path: Path
) -> None:
    token, sentence = rejected_token(timed_service, status)
    connector = tool(tmp_path, timed_service, token, "group")
    exit_status, messages, text = connector.sync()
    assert exit_status != 0
    error = connector.error(messages, text)
    assert sentence in error
    assert "Create a token with the scope outputs:read" in error
    assert requests(timed_service.client(), status) == 1


@pytest.mark.parametrize("status", [401, 403])
@ON_SQLITE
def test_a_check_by_airbyte_says_what_is_wrong_with_the_token(
    status: int, timed_service: Service, tmp_path: Path
) -> None:
    token, sentence = rejected_token(timed_service, status)
    airbyte = Airbyte(tmp_path, timed_service, token, "group")
    exit_status, messages, _ = airbyte.run(airbyte.SOURCE, "check", *airbyte.manifest())
    [result] = [m["connectionStatus"] for m in messages if m["type"] == "CONNECTION_STATUS"]
    assert (exit_status, result["status"]) == (0, "FAILED")
    assert sentence in result["message"]
    assert requests(timed_service.client(), status, "get_groups") == 1


@pytest.mark.parametrize("address", ["http://127.0.0.1:1", "127.0.0.1:1"])
@ON_SQLITE
def test_the_tap_says_that_no_service_responds(
    address: str, timed_service: Service, tmp_path: Path
) -> None:
    tap = Singer(tmp_path, timed_service, "token", "group")
    tap.write("config.json", {"base_url": address, "token": "token", "group_ids": ["group"]})
    status, messages, text = tap.sync()
    assert status != 0
    error = tap.error(messages, text)
    assert "The service cannot be reached. Start it, or correct base_url" in error
    assert "127.0.0.1" in error


@ON_SQLITE
def test_the_tap_shows_another_error_of_the_service_in_one_line(
    timed_service: Service, tmp_path: Path
) -> None:
    token = timed_service.token()
    timed_service.client(token).store("group", output(1))
    tap = Singer(tmp_path, timed_service, token, "group")
    settings = {"base_url": timed_service.url, "token": token, "group_ids": ["group"]}
    tap.write("config.json", settings | {"page_size": 0})
    status, messages, text = tap.sync()
    assert status != 0
    error = tap.error(messages, text)
    assert "status 422" in error
    assert "limit" in error


@ON_SQLITE
def test_airbyte_reads_all_groups_and_a_whole_group_again(
    timed_service: Service, tmp_path: Path
) -> None:
    token = timed_service.token()
    client = timed_service.client(token)
    names = {f"group {number}" for number in range(101)}  # more than a page
    for name in names:
        client.put(f"/v1/groups/{name}", json={})
    client.store("group 1", output(1), output(2))
    airbyte = Airbyte(tmp_path, timed_service, token, "group 1")
    airbyte.catalog("groups", "full_refresh")
    assert {record["group_id"] for record in airbyte.read("groups")} == names
    airbyte.catalog("outputs_", "full_refresh")
    for _ in range(2):
        airbyte.state = None  # Airbyte starts a full refresh without a state
        assert copy_of(airbyte.read(), airbyte) == stored(client, "group 1")


def with_runs(client: Client) -> list[dict[str, Any]]:
    """Stores three complete runs, of which the last does not send an output any more."""
    settings = {"missing": {"after_runs": 1, "max_share": 1.0}}
    assert client.put("/v1/groups/group", json=settings).status_code == 200
    for numbers in (range(3), range(3), range(2)):
        labels = {"country": "NO"}
        run = client.post("/v1/runs/group", json={"job_id": "job", "labels": labels}).json()
        outputs = [output(number) for number in numbers]
        params = {"run_id": run["run_id"]}
        assert client.post("/v1/outputs/group", params=params, json=outputs).status_code == 200
        address = f"/v1/runs/group/{run['run_id']}/finish"
        assert client.post(address, json={"status": "complete"}).status_code == 200
    found: list[dict[str, Any]] = client.get("/v1/runs/group").json()["runs"]
    return found


@TOOLS
@ON_SQLITE
def test_a_connector_reads_all_runs_and_the_reason_of_deletions(
    tool: type[Connector], timed_service: Service, tmp_path: Path
) -> None:
    token = timed_service.token()
    client = timed_service.client(token)
    runs = with_runs(client)
    assert runs[0]["counts"]["removed"] == 1
    connector = tool(tmp_path, timed_service, token, "group", page_size=2)
    if isinstance(connector, Airbyte):
        connector.catalog("runs_", "full_refresh")
    for _ in range(2):  # each time all of them
        read = connector.read("runs")
        assert [each["run_id"] for each in read] == [run["run_id"] for run in runs]
        assert read[0]["counts"] == runs[0]["counts"]
        assert (read[0]["labels"], read[0]["status"]) == ({"country": "NO"}, "complete")
    if isinstance(connector, Airbyte):
        connector.catalog("outputs_", "incremental")
    connector.state = None
    records = connector.read()
    reasons = [record.get("reason") for record in records if connector.is_deleted(record)]
    assert reasons == ["missing"]


@TOOLS
@ON_SQLITE
def test_a_deleted_group_has_no_runs_and_its_outputs_are_deletions(
    tool: type[Connector], timed_service: Service, tmp_path: Path
) -> None:
    token = timed_service.token()
    client = timed_service.client(token)
    with_runs(client)
    client.delete("/v1/groups/group")
    connector = tool(tmp_path, timed_service, token, "group")
    if isinstance(connector, Airbyte):
        connector.catalog("runs_", "full_refresh")
    assert connector.read("runs") == []
