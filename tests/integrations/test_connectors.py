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


def requests(client: Client, status: int) -> float:
    """The number of requests for changes that had this status."""
    name = f'gleanery_request_seconds_count{{operation="get_changes",status="{status}"}}'
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
    assert {record["group_id"] for record in airbyte.read()} == names
    airbyte.catalog("outputs_", "full_refresh")
    for _ in range(2):
        airbyte.state = None  # Airbyte starts a full refresh without a state
        assert copy_of(airbyte.read(), airbyte) == stored(client, "group 1")
