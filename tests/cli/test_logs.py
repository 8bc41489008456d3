"""The log of ``gleanery serve``: slow and missing readers, and the client's address."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import pytest

from gleanery.common.settings import Settings
from gleanery.service.application import build_app
from gleanery.service.processes.asgi import AsgiApp, Message
from gleanery.service.processes.start import prepare
from tests.support.files import upload
from tests.support.outputs import output
from tests.support.process import (
    Running,
    environment,
    free_port,
    is_ready,
    new_token,
    serving_process,
)
from tests.support.raw_http import connect, get, read_until_close, request_head, statuses
from tests.support.service import Client
from tests.support.waiting import TIMEOUT_SECONDS, wait_until

pytestmark = pytest.mark.thorough

HERE = "http://127.0.0.1"
LONG_PATH = "/" + "x" * 199
MANY = 4000  # requests whose lines need more than the pipe and the queue of the log can hold


class Service(NamedTuple):
    """A service whose standard error is a file of the test."""

    process: subprocess.Popen[bytes]
    url: str

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(TIMEOUT_SECONDS)


@contextmanager
def serving_to(log: int, data: Path, *options: str) -> Iterator[Service]:
    port = str(free_port())
    command = ("-m", "gleanery", "serve", "--data", str(data), "--port", port, *options)
    process = subprocess.Popen([sys.executable, *command], stderr=log, env=environment())
    os.close(log)
    try:
        service = Service(process, f"{HERE}:{port}")
        wait_until(lambda: is_ready(service.url))
        yield service
    finally:
        process.kill()
        process.wait()


def send_many(url: str) -> None:
    """Sends requests on one connection, and checks that all get a response."""
    one = f"GET {LONG_PATH} HTTP/1.1\r\nHost: x\r\n\r\n"
    last = f"GET {LONG_PATH} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    for _ in range(MANY // 100):
        with connect(url) as connection:
            connection.sendall((one * 99 + last).encode())
            assert statuses(read_until_close(connection)) == [b"404"] * 100


# --- readers ------------------------------------------------------------------------------------


@pytest.mark.extended
@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_reader_that_stalls_stops_neither_requests_nor_the_shutdown(
    tmp_path: Path, workers: str
) -> None:
    reader, writer = os.pipe()
    with serving_to(writer, tmp_path, "--workers", workers) as service:
        send_many(service.url)
        assert service.stop() == 0
    os.close(reader)


def test_the_log_says_how_many_lines_were_dropped(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    with serving_to(writer, tmp_path) as service:
        send_many(service.url)
        with open(reader) as log:
            lines = [*read_until("lines were dropped", log)]
            get(service.url, "/last")  # lines are written again
            lines += read_until("/last", log)
            assert service.stop() == 0
            assert "lines were dropped" not in log.read()
    [report] = [line for line in lines if "lines" in line]
    kept = [line for line in lines if line.get("path") == LONG_PATH]
    assert len(kept) + report["lines"] == MANY


def test_a_full_disk_drops_lines_that_the_metrics_count(tmp_path: Path) -> None:
    with serving_to(os.open("/dev/full", os.O_WRONLY), tmp_path) as service:

        def has_dropped_lines() -> bool:
            text = get(service.url, "/metrics").body.decode()
            [count] = re.findall(r"^gleanery_log_lines_dropped_total (.*)$", text, re.M)
            return float(count) > 0

        wait_until(has_dropped_lines)
        assert service.stop() == 0


def read_until(text: str, log: TextIO) -> Iterator[dict[str, Any]]:
    for line in log:
        yield json.loads(line)
        if text in line:
            return


def test_a_log_line_that_was_cut_by_a_full_disk_is_the_only_damaged_one(tmp_path: Path) -> None:
    """A limit on the size of a file fails like a full disk: a write is cut, the next one fails."""
    script = """
import logging, resource, signal, sys
from gleanery.service.foundation.observability import logs
from gleanery.common.settings import Settings
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
logs.configure(Settings(log_format="json"))
for size in (500, 1000, 500):
    logging.info("x" * size)
    logs.flush()
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
logging.info("last")
"""
    with (tmp_path / "log").open("wb") as log:
        subprocess.run(
            [sys.executable, "-c", script], stderr=log, env=environment(), check=True, timeout=60
        )
    first, damaged, last, report = (tmp_path / "log").read_text().splitlines()
    assert json.loads(first)["event"] == "x" * 500
    assert damaged.startswith('{"event":"xxx')
    assert json.loads(last)["event"] == "last"
    assert json.loads(report)["lines"] == 2


def test_a_process_that_forks_logs_each_line_once(tmp_path: Path) -> None:
    script = """
import logging, os
from gleanery.service.foundation.observability import logs
from gleanery.common.settings import Settings
logs.configure(Settings(log_format="json"))
logging.info("before")
child = os.fork()
logging.info("parent" if child else "child")
if child:
    os.waitpid(child, 0)
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script],
        env=environment(),
        capture_output=True,
        check=True,
        timeout=TIMEOUT_SECONDS,
    )
    events = [json.loads(line)["event"] for line in done.stderr.splitlines()]
    assert sorted(events) == ["before", "child", "parent"]


# --- the client's address -----------------------------------------------------------------------

BEHIND_PROXY = ("--behind-proxy", "--base-url", "https://data.example")


def logged_clients(
    data: Path, format_: str, options: tuple[str, ...], *forwarded: str
) -> dict[str, str]:
    """Sends a request with each of these headers; returns the logged client of each."""
    port = str(free_port())
    arguments = ("--data", str(data), "--port", port, "--log-format", format_, *options)
    with Running("serve", *arguments) as running:
        running.wait_ready(f"{HERE}:{port}")
        for number, value in enumerate(forwarded):
            header = () if not value else (f"X-Forwarded-For: {value}",)
            get(f"{HERE}:{port}", "/nowhere", f"X-Request-ID: header-{number}", *header)
        running.stop()
    pattern = {
        "json": r'"client":"([^"]*)","request_id":"header-(\d+)"',
        "text": r" client=(\S*) request_id=header-(\d+)$",
    }[format_]
    found = [match for line in running.log if (match := re.search(pattern, line.rstrip("\n")))]
    assert len(found) == len(forwarded), running.log
    return {forwarded[int(match[2])]: match[1] for match in found}


@pytest.mark.parametrize("format_", ["json", "text"])
def test_a_request_line_has_the_address_of_the_client(tmp_path: Path, format_: str) -> None:
    clients = logged_clients(tmp_path, format_, (), "", "192.0.2.1")
    assert clients == {"": "127.0.0.1", "192.0.2.1": "127.0.0.1"}  # anybody can send the header


def test_a_write_is_logged_although_its_client_resets_the_connection(tmp_path: Path) -> None:
    options = ("--data", str(tmp_path), "--port", str(free_port()), "--log-format", "json")
    body = b'[{"job_id":"j","source_url":"u","data":{}}]'
    with Running("serve", *options) as running:
        url = f"{HERE}:{options[3]}"
        running.wait_ready(url)
        token = new_token(options[:2])
        for number in range(20):
            lines = (
                "POST /v1/outputs/group HTTP/1.1",
                "Host: x",
                f"Authorization: Bearer {token}",
                "Content-Type: application/json",
                f"Content-Length: {len(body)}",
                f"X-Request-Id: reset-{number}",
            )
            with connect(url) as connection:
                connection.sendall("\r\n".join([*lines, "", ""]).encode() + body)
                at_once = struct.pack("ii", 1, 0)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)
        pattern = r'"store_outputs".*"client": ?"127.0.0.1".*"request_id": ?"reset-\d+"'
        running.wait_for(lambda: len(re.findall(pattern, "".join(running.log))) == 20)
        running.stop()
    assert "Traceback" not in "".join(running.log)


@pytest.mark.parametrize("format_", ["json", "text"])
def test_behind_a_proxy_the_client_is_the_last_forwarded_address(
    tmp_path: Path, format_: str
) -> None:
    expected = {
        "": "127.0.0.1",
        "192.0.2.1": "192.0.2.1",
        "198.51.100.7, 192.0.2.1": "192.0.2.1",  # the client may have sent the first
        "198.51.100.7 ,\t2001:DB8::0:1": "2001:db8::1",
        "192.0.2.1, unknown": "127.0.0.1",
        "192.0.2.1:4711": "127.0.0.1",
        "fe80::1%eth0": "127.0.0.1",
        '192.0.2.1","level":"error': "127.0.0.1",
        "192.0.2.1 status=200": "127.0.0.1",
        "192.0.2.1," + " " * 60 + "9" * 900: "127.0.0.1",
    }
    assert logged_clients(tmp_path, format_, BEHIND_PROXY, *expected) == expected


def test_two_forwarded_headers_count_as_one(tmp_path: Path) -> None:
    twice = "192.0.2.1\r\nX-Forwarded-For: 192.0.2.2"
    assert logged_clients(tmp_path, "json", BEHIND_PROXY, twice) == {twice: "192.0.2.2"}


@pytest.mark.parametrize(
    ("client", "logged"),
    [
        (("192.0.2.1", 4711), "192.0.2.1"),
        (["2001:db8::1", 4711], "2001:db8::1"),
        (("fe80::1%eth0", 4711), "fe80::1"),
        (None, "unknown"),
        (("", 0), "unknown"),
        (('"}\n{"event":"forged', 0), "unknown"),
    ],
)
def test_the_asgi_adapter_logs_the_client_that_the_server_reports(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], client: object, logged: str
) -> None:
    from gleanery.service.foundation.observability import logs

    settings = Settings(data=tmp_path, log_format="json")
    asyncio.run(prepare(settings))
    logs.configure(settings)
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    async def request() -> None:
        app = AsgiApp(build_app(settings))
        await app.app.start()
        scope = {"type": "http", "method": "GET", "path": "/x", "headers": [], "client": client}
        try:
            await app(scope, receive, send)
        finally:
            await app.app.stop()

    asyncio.run(request())
    logs.flush()
    assert sent[0]["status"] == 404
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert [line["client"] for line in lines if line["event"] == "request"] == [logged]


def test_no_value_starts_a_second_line_in_the_text_format(tmp_path: Path) -> None:
    script = """
import logging
from gleanery.service.foundation.observability import logs
from gleanery.common.settings import Settings
logs.configure(Settings(log_format="text"))
logging.warning("a\\nforged", extra={"path": "/x\\n\\x1b[2Jforged"})
try:
    raise ValueError("a\\nforged")
except ValueError:
    logging.exception("failed")
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
        timeout=TIMEOUT_SECONDS,
    )
    first, second, *exception = done.stderr.splitlines()
    assert r'"a\nforged"' in first
    assert r'path="/x\n\u001b[2Jforged"' in first
    assert second.endswith("failed")
    assert all(line.startswith("  ") for line in exception)
    assert "\x1b" not in done.stderr


# --- one format ---------------------------------------------------------------------------------

MILLISECONDS = re.compile(r'(?<="milliseconds":)[0-9.]+')
EVERY_KIND_OF_LINE = """
import asyncio, logging, sys, threading, warnings
import uvloop
from gleanery.service.foundation.observability import logs
from gleanery.common.settings import Settings
logs.configure(Settings(log_format="json"))
logging.getLogger("gleanery").error("failed", extra={"reason": "é", "at": {"x": [1, 2]}})
logging.getLogger("gleanery").info("%d arguments", "no number")
logging.getLogger("other").warning("of a library")
warnings.warn("deprecated")
thread = threading.Thread(target=lambda: 1 / 0)
thread.start()
thread.join()

class Unraisable:
    def __del__(self):
        raise ValueError("in a finalizer")

Unraisable()

async def fail():
    asyncio.get_running_loop().call_soon(lambda: 1 / 0)
    asyncio.get_running_loop().create_task(asyncio.sleep(0)).add_done_callback(lambda _: 1 / 0)
    await asyncio.sleep(0.01)

asyncio.run(fail())
with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
    runner.run(fail())
raise RuntimeError("not caught")
"""


def test_every_line_of_a_process_has_one_format() -> None:
    done = subprocess.run(
        [sys.executable, "-c", EVERY_KIND_OF_LINE],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_SECONDS,
    )
    assert done.returncode == 1
    lines = assert_compact(done.stderr.splitlines())
    exceptions = " ".join(line.get("exception", "") for line in lines)
    for text in ("in a finalizer", "not caught", "ZeroDivisionError", "a real number is required"):
        assert text in exceptions
    events = {line["event"].partition("\n")[0] for line in lines}
    assert {"failed", "of a library"} <= events
    assert any("deprecated" in event for event in events)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_every_line_of_a_service_has_one_format(tmp_path: Path, workers: str) -> None:
    port = str(free_port())
    url = f"{HERE}:{port}"
    with Running("serve", "--data", str(tmp_path), "--port", port, "--workers", workers) as running:
        running.wait_ready(url)
        get(url, '/x"y')
        for pid in running.workers():
            os.kill(pid, signal.SIGKILL)
        running.wait_ready(url)
        running.stop()
    events = {line["event"] for line in assert_compact(running.log)}
    assert {"created a new database", "serving", "request", "stopping"} <= events
    if workers == "2":
        assert "a worker process ended; another one starts" in events


def assert_compact(lines: Sequence[str]) -> list[dict[str, Any]]:
    """Checks that each line is JSON without spaces between its members; returns the members."""
    found = []
    for line in lines:
        members = json.loads(line)
        compact = json.dumps(members, separators=(",", ":"))
        assert MILLISECONDS.sub("", compact) == MILLISECONDS.sub("", line.rstrip("\n"))
        assert members.keys() >= {"event", "level", "timestamp"}
        found.append(members)
    assert found
    return found


# --- responses that are cut off -----------------------------------------------------------------

MIB = 2**20


def logged_statuses(running: Running, operation: str) -> list[int]:
    """The statuses in the request log of an operation."""
    lines = [json.loads(line) for line in running.log if f'"{operation}"' in line]
    return [line["status"] for line in lines if line["event"] == "request"]


def test_a_response_whose_client_leaves_is_not_logged_as_success(tmp_path: Path) -> None:
    where = ["--data", str(tmp_path)]
    with (
        serving_process(where, "--log-level", "info") as (url, running),
        Client(url, new_token(where)) as client,
    ):
        for number in range(12):
            client.store("group", output(number, data={"text": "x" * MIB}))
        file_id = upload(client, os.urandom(12 * MIB))["id"]
        targets = {
            "export_outputs": "/v1/exports/group",
            "get_outputs": "/v1/outputs/group?limit=100",
            "get_file": f"/v1/files/{file_id}",
        }
        for operation, target in targets.items():
            with connect(url) as leaving:
                leaving.sendall(request_head(client, "GET", target))
                assert leaving.recv(64).startswith(b"HTTP/1.1 200")
            wait_until(lambda operation=operation: logged_statuses(running, operation))
            assert logged_statuses(running, operation) == [499]
            assert client.get(target).status_code == 200
            wait_until(lambda operation=operation: len(logged_statuses(running, operation)) > 1)
            assert logged_statuses(running, operation) == [499, 200]


def test_a_response_that_the_service_cuts_off_is_not_logged_as_success(tmp_path: Path) -> None:
    where = ["--data", str(tmp_path)]
    with (
        serving_process(where, "--log-level", "info") as (url, running),
        Client(url, new_token(where)) as client,
    ):
        file_id = upload(client, os.urandom(30 * MIB))["id"]
        with connect(url) as reader:
            reader.sendall(request_head(client, "GET", f"/v1/files/{file_id}"))
            assert reader.recv(64).startswith(b"HTTP/1.1 200")
            [blob] = [path for path in (tmp_path / "blobs").rglob("*") if path.is_file()]
            blob.unlink()
            assert len(read_until_close(reader)) < 30 * MIB
        wait_until(lambda: logged_statuses(running, "get_file"))
        assert logged_statuses(running, "get_file") == [500]
    assert any('"response truncated"' in line for line in running.log)
