"""The Airbyte connector and the Singer tap, as their users run them: as commands of their tools."""

from __future__ import annotations

import json
import subprocess
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import pytest

from tests.support.process import environment
from tests.support.service import Service

ROOT = Path(__file__).parent.parent.parent
PROGRAMS = ROOT / ".venv-integrations" / "bin"
TIMEOUT_SECONDS = 300
ARE_INSTALLED = (PROGRAMS / "tap-gleanery").exists()
NEEDS_CONNECTORS = pytest.mark.skipif(
    not ARE_INSTALLED, reason="needs the tools of make integrations"
)


class Connector(ABC):
    """A connector with its configuration and its state."""

    def __init__(
        self, folder: Path, service: Service, token: str, *groups: str, page_size: int = 700
    ) -> None:
        self.folder = folder
        config = {
            "base_url": service.url,
            "token": token,
            "group_ids": groups,
            "page_size": page_size,
        }
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
    def error(messages: list[dict[str, Any]], text: str) -> str:
        """Returns what the tool shows its user of a run whose configuration is wrong."""

    @staticmethod
    @abstractmethod
    def is_deleted(record: dict[str, Any]) -> bool:
        """Returns True if a destination removes the row because of this record."""

    def read(self, streams: str = "outputs") -> list[dict[str, Any]]:
        """Runs the connector, and returns the records of the streams with this prefix."""
        status, messages, text = self.sync()
        assert status == 0, text
        self.save_state(messages)
        found = [self.record(message) for message in messages if message["type"] == "RECORD"]
        return [record for stream, record in found if stream.startswith(streams)]

    @staticmethod
    def record(message: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        """Returns the stream and the record of a message."""
        return message["stream"], message["record"]


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
    def error(messages: list[dict[str, Any]], text: str) -> str:
        traces = [message["trace"] for message in messages if message["type"] == "TRACE"]
        first, *_ = [trace["error"] for trace in traces if trace["type"] == "ERROR"]
        assert first["failure_type"] == "config_error"
        return f"{first['stream_descriptor']['name']}: {first['message']}"

    @staticmethod
    def is_deleted(record: dict[str, Any]) -> bool:
        return record.get("_ab_cdc_deleted_at") is not None

    @staticmethod
    def record(message: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        return message["record"]["stream"], message["record"]["data"]


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
    def error(messages: list[dict[str, Any]], text: str) -> str:
        assert "Traceback" not in text
        return text.splitlines()[-1]

    @staticmethod
    def is_deleted(record: dict[str, Any]) -> bool:
        return record["_sdc_deleted_at"] is not None
