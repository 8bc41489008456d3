"""The receivers in examples/ keep a copy of a group, with the doorbells of a real service."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest

from tests.support.outputs import output
from tests.support.process import Running, environment, free_port, new_token
from tests.support.service import SECRET_KEY, Client
from tests.support.waiting import TIMEOUT_SECONDS, wait_until

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
NODE = pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")

pytestmark = pytest.mark.thorough


class Copy(NamedTuple):
    """What a receiver has stored: data of outputs by id, and types of events by id."""

    outputs: dict[str, Any]
    events: dict[str, str]


def read_sqlite(folder: Path) -> Copy:
    if not (folder / "copy.db").exists():
        return Copy({}, {})
    with closing(sqlite3.connect(folder / "copy.db", timeout=TIMEOUT_SECONDS)) as copy:
        tables = {row[0] for row in copy.execute("SELECT name FROM sqlite_master")}
        if not {"outputs", "events"} <= tables:
            return Copy({}, {})
        outputs = {id_: json.loads(data) for id_, data in copy.execute("SELECT * FROM outputs")}
        return Copy(outputs, dict(copy.execute("SELECT id, type FROM events")))


def read_json(folder: Path) -> Copy:
    if not (folder / "copy.json").exists():
        return Copy({}, {})
    copy = json.loads((folder / "copy.json").read_text())
    return Copy(copy["outputs"], {id_: event["type"] for id_, event in copy["events"].items()})


class Receiver(NamedTuple):
    """A receiver, the folder of its copy, and its port."""

    command: tuple[str, ...]
    read: Callable[[Path], Copy]
    folder: Path
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/gleanery"

    def copy(self) -> Copy:
        return self.read(self.folder)

    @contextmanager
    def running(self, client: Client, url: str, token: str, secret: str) -> Iterator[None]:
        variables = environment(
            GLEANERY_URL=url,
            GLEANERY_TOKEN=token,
            WEBHOOK_SECRET=secret,
            WEBHOOK_GROUP="prices",
            PORT=str(self.port),
        )
        with (self.folder / "log").open("a") as log:
            process = subprocess.Popen(
                self.command, cwd=self.folder, env=variables, stdout=log, stderr=log
            )
        try:
            wait_until(lambda: is_answering(self.url) or process.poll() is not None)
            assert process.poll() is None, (self.folder / "log").read_text()
            yield
        finally:
            process.kill()
            process.wait(TIMEOUT_SECONDS)


def is_answering(url: str) -> bool:
    """Return True if the receiver refuses a request without a signature."""
    try:
        return httpx2.post(url, json={"type": "test"}).status_code == 400
    except httpx2.TransportError:
        return False


@pytest.fixture(params=["flask", pytest.param("node", marks=NODE)])
def receiver(request: pytest.FixtureRequest, tmp_path: Path) -> Receiver:
    folder = tmp_path / "copy"
    folder.mkdir()
    if request.param == "flask":
        program = (sys.executable, str(EXAMPLES / "webhook_receiver.py"))
        return Receiver(program, read_sqlite, folder, free_port())
    program = ("node", str(EXAMPLES / "webhook_receiver.mjs"))
    return Receiver(program, read_json, folder, free_port())


def test_a_receiver_keeps_a_copy(receiver: Receiver, tmp_path: Path) -> None:
    """It gets changes, deletions and events, each once, also after it was away."""
    port, where = free_port(), ("--data", str(tmp_path / "data"))
    url = f"http://127.0.0.1:{port}"
    serve = ("serve", *where, "--port", str(port), "--webhook-allow", "127.0.0.1")
    with Running(*serve, GLEANERY_SECRET_KEY=SECRET_KEY) as service:
        service.wait_ready(url)
        token = new_token(where)
        with Client(url, token) as client:
            client.store("prices", output(1))
            body = {"url": receiver.url, "events": ["outputs.changed", "run.finished"]}
            webhook = client.post("/v1/webhooks", json=body).json()
            secret = webhook["secret"]
            with receiver.running(client, url, token, secret):
                wait_until(lambda: receiver.copy().outputs == stored(client))
                client.store("prices", output(2), output(3))
                wait_until(lambda: receiver.copy().outputs == stored(client))
                assert len(receiver.copy().outputs) == 3
                client.delete(f"/v1/outputs/prices/{next(iter(stored(client)))}")
                wait_until(lambda: len(receiver.copy().outputs) == 2)
                assert receiver.copy().outputs == stored(client)

                delivery = client.post(f"/v1/webhooks/{webhook['id']}/test").json()
                wait_until(lambda: delivery["delivery_id"] in receiver.copy().events)
                wait_until(lambda: attempts(client, webhook["id"], delivery["delivery_id"]) == 1)
                redeliver(client, webhook["id"], delivery["delivery_id"])
                wait_until(lambda: attempts(client, webhook["id"], delivery["delivery_id"]) == 2)
                assert list(receiver.copy().events.values()) == ["test"]

                client.post(f"/v1/webhooks/{webhook['id']}/rotate")
                run = client.post("/v1/runs/prices", json={"job_id": "shop"}).json()
                finish = f"/v1/runs/prices/{run['run_id']}/finish"
                client.post(finish, json={"status": "partial"})
                wait_until(lambda: "run.finished" in receiver.copy().events.values())
            client.store("prices", output(4))
            with receiver.running(client, url, token, secret):
                wait_until(lambda: receiver.copy().outputs == stored(client))
        assert service.stop() == 0


def stored(client: Client) -> dict[str, Any]:
    return {item["output_id"]: item["data"] for item in client.items("prices")}


def redeliver(client: Client, webhook_id: str, delivery_id: str) -> None:
    path = f"/v1/webhooks/{webhook_id}/deliveries/{delivery_id}/redeliver"
    assert client.post(path).status_code == 200


def attempts(client: Client, webhook_id: str, delivery_id: str) -> int:
    """Return the number of successful attempts of a delivery."""
    page = client.get(f"/v1/webhooks/{webhook_id}/deliveries").json()
    [found] = [one for one in page["deliveries"] if one["delivery_id"] == delivery_id]
    assert all(attempt["error"] is None for attempt in found["attempts"])
    return len(found["attempts"])
