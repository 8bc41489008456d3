"""The ASGI adapter itself: bodies, HEAD, disconnects, errors, and other ASGI servers."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from gleanery import asgi
from gleanery.common.errors import SettingsError
from gleanery.common.settings import Settings
from gleanery.service.application import build_app
from gleanery.service.foundation.values import timestamps
from gleanery.service.processes.asgi import AsgiApp, Message
from gleanery.service.processes.start import prepare
from gleanery.service.resources.access import organizations
from gleanery.service.storage.engines import open_engine
from tests.support import process
from tests.support.outputs import no_changes
from tests.support.process import environment, free_port
from tests.support.service import Client, Service
from tests.support.waiting import wait_until


def scope(method: str, path: str, **headers: str) -> Message:
    return {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }


def call(app: AsgiApp, scope: Message, *received: Message) -> list[Message]:
    """Returns the messages that the application sends."""
    sent: list[Message] = []
    pending = list(received)

    async def receive() -> Message:
        return pending.pop(0) if pending else {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    async def run() -> None:
        await app.app.start()
        try:
            await asyncio.wait_for(app(scope, receive, send), 60)
        finally:
            await app.app.stop()

    asyncio.run(run())
    return sent


@pytest.fixture
def app(tmp_path: Path) -> Callable[[], AsgiApp]:
    settings = Settings(data=tmp_path, log_level="error", slow_request_seconds=0)
    asyncio.run(prepare(settings))
    return lambda: AsgiApp(build_app(settings))


def test_a_response_has_one_start_and_an_end(app: Callable[[], AsgiApp]) -> None:
    start, *bodies = call(app(), scope("GET", "/healthz"))
    assert (start["type"], start["status"]) == ("http.response.start", 200)
    assert b"".join(body["body"] for body in bodies) == b'{"status":"ok"}\n'
    assert [body.get("more_body", False) for body in bodies] == [False]


def test_a_response_to_head_has_no_body(app: Callable[[], AsgiApp]) -> None:
    start, body = call(app(), scope("HEAD", "/healthz"))
    assert (b"content-length", b"16") in start["headers"]
    assert body["body"] == b""


def test_an_error_is_a_json_body(app: Callable[[], AsgiApp]) -> None:
    start, body = call(app(), scope("GET", "/v1/cookies"))
    assert start["status"] == 401
    assert json.loads(body["body"])["detail"][0]["type"] == "unauthenticated"


def test_nothing_is_sent_to_a_client_that_disconnects_in_its_body(
    app: Callable[[], AsgiApp],
    tmp_path: Path,
) -> None:
    from tests.support.process import gleanery

    made = gleanery("token", "create", "--organization", "a", "--data", str(tmp_path))
    headers = {
        "authorization": f"Bearer {made.stdout.strip()}",
        "content-type": "application/json",
    }
    piece = {"type": "http.request", "body": b"[", "more_body": True}
    assert call(app(), scope("POST", "/v1/cookies", **headers), piece) == []


def test_a_body_in_pieces_is_joined(client: Client) -> None:
    def pieces() -> Any:
        yield b'[{"domain":"a.example",'
        yield b'"name":"n","value":"v"}]'

    answer = client.post(
        "/v1/cookies", content=pieces(), headers={"content-type": "application/json"}
    )
    assert answer.json() == {"created": 1, "updated": 0, "unchanged": 0}


def test_a_request_that_offers_an_upgrade_keeps_its_body(client: Client) -> None:
    body = b'[{"domain":"a.example","name":"n","value":"v"}]'
    offer = {
        "connection": "Upgrade, HTTP2-Settings",
        "upgrade": "h2c",
        "http2-settings": "AAMAAABk",
    }
    headers = {"content-type": "application/json", **offer}
    answer = client.post("/v1/cookies", content=body, headers=headers)
    assert answer.json() == {"created": 1, "updated": 0, "unchanged": 0}


@pytest.mark.parametrize(
    "headers",
    [{"content-length": "47"}, {"transfer-encoding": "chunked", "upgrade": "h2c"}],
    ids=["length", "chunks"],
)
def test_a_body_that_the_server_drops_is_an_error(
    app: Callable[[], AsgiApp], tmp_path: Path, headers: dict[str, str]
) -> None:
    """uvicorn with httptools drops the body of a request that offers an upgrade."""
    options = ["--data", str(tmp_path)]
    headers |= {
        "authorization": f"Bearer {process.new_token(options)}",
        "content-type": "application/x-ndjson",
    }
    ended = {"type": "http.request", "body": b"", "more_body": False}
    start, body = call(app(), scope("POST", "/v1/outputs/shop", **headers), ended)
    assert start["status"] == 400
    assert b"dropped the body" in body["body"]


def test_a_body_above_the_limit_closes_the_connection(service: Service) -> None:
    with service.client() as client:
        limit = service.settings.max_body_bytes
        answer = client.post(
            "/v1/cookies",
            content=b"[" + b" " * limit + b"]",
            headers={"content-type": "application/json"},
        )
    assert answer.status_code == 413
    assert answer.headers["connection"] == "close"


def test_other_protocols_are_refused(app: Callable[[], AsgiApp]) -> None:
    with pytest.raises(RuntimeError, match="HTTP requests only"):
        call(app(), {"type": "websocket"})


SERVERS = {
    "uvicorn": ["-m", "uvicorn", "gleanery.asgi:app", "--port", "{port}"],
    "hypercorn": ["-m", "hypercorn", "gleanery.asgi:app", "--bind", "127.0.0.1:{port}"],
    "granian": ["-m", "granian", "--interface", "asgi", "gleanery.asgi:app", "--port", "{port}"],
}


@pytest.mark.extended
@pytest.mark.parametrize("server", SERVERS)
def test_the_service_runs_on_other_servers(server: str, tmp_path: Path) -> None:
    """Settings come from the environment; a page, a long poll and an orderly stop work."""
    from tests.support.process import gleanery

    port = free_port()
    url = f"http://127.0.0.1:{port}"
    data = tmp_path / "data"
    environment = os.environ | {"GLEANERY_DATA": str(data), "GLEANERY_BASE_URL": url}
    command = [sys.executable, *(part.format(port=port) for part in SERVERS[server])]
    process = subprocess.Popen(command, env=environment, cwd=tmp_path)
    try:
        wait_until(lambda: _is_ready(url) or process.poll() is not None)
        made = gleanery(
            *("token", "create", "--organization", "a", "--data", str(data)),
            *("--scopes", "outputs:read,outputs:write"),
        )
        with Client(url, made.stdout.strip()) as client:
            client.store("group", {"job_id": "j", "source_url": "u", "data": {"n": 1}})
            assert [item["data"] for item in client.items("group")] == [{"n": 1}]
            cursor = client.get("/v1/changes/group").json()["cursor"]
            waited = client.get("/v1/changes/group", params={"cursor": cursor, "wait": 1})
            assert waited.json() == no_changes(cursor)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def _is_ready(url: str) -> bool:
    try:
        return httpx2.get(f"{url}/readyz", verify=False).status_code == 200
    except httpx2.TransportError:
        return False


@pytest.mark.parametrize(
    ("variable", "text", "reason"),
    [
        ("GLEANERY_PORT", "many", "GLEANERY_PORT must be a number"),
        ("GLEANERY_BEHIND_PROXY", "perhaps", "GLEANERY_BEHIND_PROXY must be true or false"),
        ("GLEANERY_DATABASE", "", "GLEANERY_DATABASE is empty"),
        ("GLEANERY_MAX_REQUESTS", "0", "--max-requests must be at least 1"),
    ],
)
def test_a_wrong_variable_is_named(variable: str, text: str, reason: str) -> None:
    with pytest.raises(SettingsError, match=reason):
        Settings.from_environment({variable: text})


def test_settings_are_read_from_the_environment() -> None:
    settings = Settings.from_environment(
        {"GLEANERY_PORT": "9", "GLEANERY_DATA": "d", "GLEANERY_SWEEP_SECONDS": "1.5"}
    )
    assert (settings.port, settings.data, settings.sweep_seconds) == (9, Path("d"), 1.5)


# --- servers that give up a request ---------------------------------------------------------------

HELD_REQUESTS = 12  # enough to make the service busy, so that further requests wait for their turn


async def never() -> Message:
    await asyncio.Event().wait()
    raise AssertionError


async def ignore(message: Message) -> None:
    """Sends nothing."""


async def new_token(settings: Settings) -> str:
    async with open_engine(settings) as database:
        scopes = frozenset({"session:write"})
        return await organizations.create_token(database, "a", scopes, timestamps.now(), None)


async def cancel(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def cancel_waiting_requests(app: AsgiApp) -> None:
    """Cancels many requests that are admitted and wait for their turn."""
    for _ in range(10):
        request = scope("GET", "/v1/cookies")
        waiting = [asyncio.create_task(app(request, never, ignore)) for _ in range(50)]
        await asyncio.sleep(0)
        await cancel(waiting)


def test_a_cancelled_request_releases_its_slot(app: Callable[[], AsgiApp], tmp_path: Path) -> None:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def run() -> None:
        served = app()
        await served.app.start()
        token = await new_token(Settings(data=tmp_path))
        headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
        upload = scope("POST", "/v1/cookies", **headers)
        held = [asyncio.create_task(served(upload, never, ignore)) for _ in range(HELD_REQUESTS)]
        await asyncio.sleep(0.1)
        await cancel_waiting_requests(served)
        await cancel(held)
        await cancel_waiting_requests(served)  # slots that are not released keep the service busy
        await served(scope("GET", "/v1/cookies"), never, send)
        await served.app.stop()

    asyncio.run(run())
    assert sent[0]["status"] == 401


def test_a_server_that_cannot_send_is_a_disconnected_client(
    app: Callable[[], AsgiApp], caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(message: Message) -> None:
        raise OSError("the client has disconnected")

    async def run() -> None:
        served = app()
        await served.app.start()
        await served(scope("GET", "/healthz"), never, fail)
        await served(scope("GET", "/docs"), never, fail)
        await served.app.stop()

    asyncio.run(run())
    assert not caplog.records


def test_a_failed_start_is_reported_to_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise uvicorn serves on, without the lifespan events that start the service."""
    monkeypatch.setenv("GLEANERY_MAX_REQUESTS", "many")
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "lifespan.startup"}

    async def send(message: Message) -> None:
        sent.append(message)

    asyncio.run(asgi.app({"type": "lifespan"}, receive, send))
    [failed] = sent
    assert failed["type"] == "lifespan.startup.failed"
    assert "GLEANERY_MAX_REQUESTS" in failed["message"]


def test_the_log_names_unknown_variables(tmp_path: Path) -> None:
    variables = {"GLEANERY_PORT": "tcp://10.0.0.7:8000", "GLEANERY_MAX_REQUEST": "5"}
    start = "import asyncio, gleanery.asgi; asyncio.run(gleanery.asgi._create_app())"
    told = subprocess.run(
        [sys.executable, "-c", start],
        env=environment(GLEANERY_DATA=str(tmp_path), **variables),
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    assert "did you mean GLEANERY_MAX_REQUESTS?" in told.stderr
    assert "that Kubernetes sets for a service: GLEANERY_PORT;" in told.stderr
