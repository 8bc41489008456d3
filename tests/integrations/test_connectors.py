"""The Airbyte connector and the Singer tap load groups, then only their changes and deletions.

Both run as their users run them: as commands of their tools. ``make integrations`` installs these.
"""

from __future__ import annotations

import json
import subprocess
from abc import ABC, abstractmethod
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.support.outputs import output
from tests.support.process import environment
from tests.support.service import DAY, Client, Clock, Service

ROOT = Path(__file__).parent.parent.parent
PROGRAMS = ROOT / ".venv-integrations" / "bin"
TIMEOUT_SECONDS = 300

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(
        not (PROGRAMS / "tap-gleanery").exists(),
        reason="needs the tools of make integrations",
    ),
]


class Connector(ABC):
    """A connector with its configuration and its state."""

    def __init__(self, folder: Path, service: Service, token: str, *groups: str) -> None:
        self.folder = folder
        config = {"base_url": service.url, "token": token, "group_ids": groups, "page_size": 700}
        self.config = self.write("config.json", config)
        self.state: Path | None = None

    def write(self, name: str, value: Any) -> Path:
        path = self.folder / name
        path.write_text(json.dumps(value))
        return path

    def run(self, program: str, *arguments: str | Path) -> tuple[int, list[dict[str, Any]], str]:
        """Runs a program, and returns its status, its messages and its whole output."""
        done = subprocess.run(
            [PROGRAMS / program, *arguments],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            env=environment(DO_NOT_TRACK="1"),
            cwd=self.folder,
            check=False,
        )
        messages = [json.loads(line) for line in done.stdout.splitlines()]
        return done.returncode, messages, done.stdout + done.stderr

    @abstractmethod
    def sync(self) -> tuple[int, list[dict[str, Any]], str]:
        """Runs the connector once, from the state of its last run."""

    @abstractmethod
    def save_state(self, messages: list[dict[str, Any]]) -> None:
        """Saves the state for the next run."""

    @staticmethod
    @abstractmethod
    def is_deleted(record: dict[str, Any]) -> bool:
        """Returns True if a destination removes the row because of this record."""

    def read(self) -> list[dict[str, Any]]:
        """Runs the connector, and returns the records."""
        status, messages, text = self.sync()
        assert status == 0, text
        self.save_state(messages)
        return [self.record(message) for message in messages if message["type"] == "RECORD"]

    @staticmethod
    def record(message: dict[str, Any]) -> dict[str, Any]:
        record: dict[str, Any] = message["record"]
        return record


class Airbyte(Connector):
    """The low-code manifest, in Airbyte's runner of manifests."""

    SOURCE = "source-declarative-manifest"

    def manifest(self) -> tuple[str | Path, ...]:
        manifest = ROOT / "integrations" / "airbyte" / "manifest.yaml"
        return "--config", self.config, "--manifest-path", manifest

    def catalog(self, prefix: str, mode: str) -> Path:
        """All streams whose name begins with the prefix, to be read in this mode."""
        status, messages, text = self.run(self.SOURCE, "discover", *self.manifest())
        assert status == 0, text
        [catalog] = [message["catalog"] for message in messages if message["type"] == "CATALOG"]
        modes = {"sync_mode": mode, "destination_sync_mode": "append"}
        streams = [
            {"stream": stream, **modes}
            for stream in catalog["streams"]
            if stream["name"].startswith(prefix)
        ]
        return self.write("catalog.json", {"streams": streams})

    def sync(self) -> tuple[int, list[dict[str, Any]], str]:
        catalog = self.folder / "catalog.json"
        if not catalog.exists():
            self.catalog("outputs_", "incremental")
        options: list[str | Path] = ["--catalog", catalog]
        if self.state is not None:
            options += ["--state", self.state]
        return self.run(self.SOURCE, "read", *self.manifest(), *options)

    def save_state(self, messages: list[dict[str, Any]]) -> None:
        states = [message["state"] for message in messages if message["type"] == "STATE"]
        by_stream = {state["stream"]["stream_descriptor"]["name"]: state for state in states}
        self.state = self.write("state.json", list(by_stream.values()))

    @staticmethod
    def is_deleted(record: dict[str, Any]) -> bool:
        return record.get("_ab_cdc_deleted_at") is not None

    @staticmethod
    def record(message: dict[str, Any]) -> dict[str, Any]:
        record: dict[str, Any] = message["record"]["data"]
        return record


class Singer(Connector):
    """The tap."""

    def sync(self) -> tuple[int, list[dict[str, Any]], str]:
        state = () if self.state is None else ("--state", self.state)
        return self.run("tap-gleanery", "--config", self.config, *state)

    def save_state(self, messages: list[dict[str, Any]]) -> None:
        states = [message["value"] for message in messages if message["type"] == "STATE"]
        assert "progress_markers" not in str(states)  # an interrupted run can be continued
        if states:
            self.state = self.write("state.json", states[-1])

    @staticmethod
    def is_deleted(record: dict[str, Any]) -> bool:
        return record["_sdc_deleted_at"] is not None


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
    assert "has expired" in text
    assert [message for message in messages if message["type"] == "RECORD"] == []
    connector.state = None  # the full refresh that the message advises
    assert copy_of(connector.read(), connector) == stored(client, "group")
    assert connector.read() == []


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
