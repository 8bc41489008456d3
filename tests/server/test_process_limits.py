"""The limit on open files of the system, and what the service makes of it."""

from __future__ import annotations

import json
import os
import resource
import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from gleanery.common.settings import Settings
from tests.support.certificates import unverified_context, write_certificate
from tests.support.process import PROC, Running, database_options, free_port, new_token
from tests.support.service import Client
from tests.support.waiting import wait_until

pytestmark = pytest.mark.thorough


def limited_to(files: int) -> tuple[str, str]:
    """The command with a lower limit on open files."""
    limit = f"resource.setrlimit(resource.RLIMIT_NOFILE, ({files}, {files}))"
    return "-c", f"import resource; {limit}; from gleanery.cli import main; main()"


def test_a_low_limit_lowers_the_number_of_connections(tmp_path: Path) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    options = ("--data", str(tmp_path), "--port", str(port))
    with Running("serve", *options, program=limited_to(256)) as running, ExitStack() as stack:
        running.wait_ready(url)
        token = new_token(database_options(Settings(data=tmp_path)))
        with Client(url, token) as client:
            assert client.get("/v1/groups").status_code == 200
            for _ in range(300):  # more than the files that the service may open
                stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            for number in range(20):
                query = {"source_url": f"https://a.example/{number}"}
                answer = client.post("/v1/files", params=query, content=b"x" * 100_000)
                assert answer.status_code == 200, answer.text
        running.stop()
    lines = [json.loads(line) for line in running.log]
    [warning] = [line for line in lines if "open files" in line["event"]]
    assert warning["max_connections"] == 64


@PROC
def test_a_service_without_free_descriptors_stops_in_order(tmp_path: Path) -> None:
    port = free_port()
    certificate, key = write_certificate(tmp_path)
    files = ("--tls-cert", str(certificate), "--tls-key", str(key))
    options = ("--data", str(tmp_path / "data"), "--port", str(port), *files)
    with Running("serve", *options) as running, ExitStack() as stack:
        running.wait_ready(f"https://127.0.0.1:{port}", unverified_context())
        pid = running.process.pid
        limit = max(map(int, os.listdir(f"/proc/{pid}/fd"))) + 1
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (limit, limit))
        for _ in range(limit):
            stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        wait_until(lambda: len(os.listdir(f"/proc/{pid}/fd")) == limit)
        assert running.stop() == 0


def test_a_limit_that_is_too_low_ends_the_start(tmp_path: Path) -> None:
    with Running("serve", "--data", str(tmp_path / "d"), program=limited_to(60)) as running:
        assert running.stop(0) == 2
    assert "raise it with ulimit -n" in "".join(running.log)
